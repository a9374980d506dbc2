defmodule AshAgent.LLM.Client do
  @moduledoc false

  # The common part of the clients of providers. A client decides the address of a request, its body and its authorization;
  # the rest is here: options, secrets, and the call with its repetitions.

  alias AshAgent.{Context, Deadline, LLM, Options}
  alias AshAgent.Context.PreparedRequest
  alias AshAgent.LLM.{ByteLog, Error, Reading, Transport}
  alias AshAgent.LLM.Transport.Request

  @doc """
  Returns what a client decides of a request: its `:path`, the fields of its `:body` other than the messages, with text as keys, and if
  it has them its `:query` and `:headers`.
  """
  @callback call(opts :: keyword(), tools :: [map()], :chat | :stream) :: map()

  @doc "Returns the credentials for requests: a key, several named keys, or `nil`."
  @callback credentials(opts :: keyword()) ::
              {:ok, String.t() | %{atom() => String.t()} | nil} | {:error, Exception.t()}

  @doc "Returns the headers that authorize a request."
  @callback authorize(credentials :: String.t() | map() | nil, Request.t(), opts :: keyword()) ::
              [{String.t(), String.t()}]

  @doc "Returns the call that also asks the provider to compare the request with the one of the answer with this id, or with none yet."
  @callback compare(call :: map(), id :: String.t() | nil) :: map()

  @doc "Checks and completes options, after their types were checked."
  @callback check(opts :: keyword()) :: keyword()

  defmacro __using__(schema) do
    quote do
      use AshAgent.Arguments

      @behaviour AshAgent.LLM
      @behaviour AshAgent.LLM.Client

      @checked AshAgent.Options.compile(unquote(schema))

      @doc """
      Checks the options and returns the model.

      ## Options

      #{AshAgent.Options.docs(unquote(schema))}

      Raises `ArgumentError` for unknown and wrong options.

      ## Examples

          iex> {#{inspect(__MODULE__)}, opts} = #{inspect(__MODULE__)}.new(model: "m",#{if unquote(schema)[:region], do: " region: \"us-east-1\","} api_key: "secret")
          iex> inspect(opts) =~ "secret"
          false
      """
      @doc since: "0.1.0"
      @spec new(keyword()) :: {module(), keyword()}
      def new(opts) when is_list(opts), do: {__MODULE__, prepare(opts)}

      @impl AshAgent.LLM
      def prepare(opts), do: AshAgent.LLM.Client.prepare(__MODULE__, opts, @checked)

      @doc false
      def open_requests(opts, mode), do: AshAgent.LLM.Client.open(__MODULE__, opts, mode)

      @impl AshAgent.LLM
      def chat(context, opts), do: AshAgent.LLM.Client.chat(__MODULE__, context, opts)

      @impl AshAgent.LLM
      def stream(context, opts, fun),
        do: AshAgent.LLM.Client.stream(__MODULE__, context, opts, fun)

      @doc false
      def describe(opts, mode), do: AshAgent.LLM.Client.describe(__MODULE__, opts, mode)

      @impl AshAgent.LLM.Client
      def check(opts), do: opts

      @impl AshAgent.LLM.Client
      def credentials(opts),
        do: {:ok, AshAgent.LLM.Client.reveal(__MODULE__, :api_key, opts[:api_key])}

      @impl AshAgent.LLM.Client
      def authorize(nil, _request, _opts), do: []
      def authorize(key, _request, _opts), do: [{"authorization", "Bearer " <> key}]

      @impl AshAgent.LLM.Client
      def compare(call, _id), do: call

      defoverridable check: 1, compare: 2, credentials: 1, authorize: 3
    end
  end

  ## Options

  @common Options.schema([
            {:model, :string, [required: true], "the model's name."},
            {:provider, {:in, Context.Requests.providers()},
             "the provider whose form messages and answers have, see `AshAgent.Context.encode_request/3`."},
            {:base_url, :string, "the URL that paths are appended to."},
            {:api_key, {:or, [:string, {:fun, 0}, nil]},
             [type_doc: "a string or a function that returns it"],
             "the key, preferably as a function such as `fn -> System.fetch_env!(\"...\") end`."},
            {:headers, :list, [default: []],
             "further headers, `{name, value}` with a string or a function that returns it."},
            {:body, :map, [default: %{}],
             "further fields of the body, such as `%{temperature: 0}`. They take precedence over those of the client."},
            {:request, :keyword_list, [default: []],
             "further options of `AshAgent.Context.encode_request/3`. Runs with tools, sessions and conversations that go on add " <>
               "`cache: :auto` for models that are known to cache; `cache: false` leaves it out."},
            {:timeout, :milliseconds, [default: 600_000],
             "the time for the answer, including retries."},
            {:connect_timeout, :pos_integer, [type_doc: "milliseconds", default: 10_000],
             "the time to connect."},
            {:first_byte_timeout, :milliseconds, [default: 300_000],
             "the time from the request to the first byte of the answer."},
            {:idle_timeout, :milliseconds, [default: 120_000],
             "the time between two pieces of the answer."},
            {:max_retries, :non_neg_integer, [default: 2],
             "how often a request is retried, as long as nothing of its answer was delivered."},
            {:max_retry_delay, :pos_integer, [type_doc: "milliseconds", default: 60_000],
             "how long to wait if the provider asks for it; if it asks for longer, its refusal is returned at once."},
            {:max_response_bytes, :pos_integer, [default: 33_554_432],
             "how long an answer may be."},
            {:transport, {:or, [:atom, {:custom, &__MODULE__.transport?/1}]},
             [type_doc: "a module or `{module, options}`", default: Transport.HTTP1],
             "the HTTP client, see `AshAgent.LLM.Transport`."},
            {:ssl, :keyword_list, [default: []],
             "options of `:ssl`, such as `[cacertfile: path]`."}
          ])

  @doc "The option of clients whose provider says what became of its prompt cache."
  def cache_diagnostics(doc), do: [cache_diagnostics: [type: :boolean, default: false, doc: doc]]

  @doc "The schema of a client: its own options, and the common ones with the defaults given."
  def schema(own \\ [], defaults) do
    common =
      for {name, option} <- @common do
        if Keyword.has_key?(defaults, name),
          do: {name, Keyword.put(option, :default, defaults[name])},
          else: {name, option}
      end

    {[model], rest} = Enum.split(common, 1)
    [model | own] ++ rest
  end

  @doc false
  def transport?({module, opts}), do: is_atom(module) and is_list(opts)
  def transport?(_other), do: false

  @doc "Checks options and hides secrets in functions. No message shows what an option holds."
  def prepare(client, opts, schema) do
    opts = Options.validate!(opts, schema)
    if opts[:model] == "", do: refuse(client, ":model, the name of a model as text")

    if Keyword.has_key?(opts[:request], :body),
      do: refuse(client, "the fields of the body in :body, not in :request")

    opts =
      opts
      |> Keyword.put(:api_key, hide(client, :api_key, opts[:api_key]))
      |> Keyword.update!(:headers, &headers(client, &1))
      |> Keyword.update!(:transport, &Transport.new/1)
      |> client.check()

    _ = uri(client, :base_url, opts[:base_url])
    opts
  end

  @doc "Raises for an option."
  def refuse(client, expected),
    do: AshAgent.Caller.refuse!("#{inspect(client)} expects #{expected}")

  @doc "A secret in a function: whatever prints options (a crash report, an inspected state) prints that."
  def hide(_client, _name, nil), do: nil
  def hide(_client, _name, function) when is_function(function, 0), do: function

  def hide(client, name, key) when is_binary(key) do
    key = String.trim(key)
    unless sendable?(key), do: refuse(client, "#{inspect(name)} to be printable text")
    if key == "", do: nil, else: fn -> key end
  end

  def hide(client, name, _other),
    do: refuse(client, "#{inspect(name)} to be text or a function that returns it")

  @doc "Returns the value that `hide/3` hid. A function is the caller's: it may return a key with the newline of the file it came from."
  def reveal(_client, _name, nil), do: nil

  def reveal(client, name, function) do
    with hidden when hidden != nil <- hide(client, name, function.()), do: hidden.()
  end

  @doc "Headers with their values in functions, since they may be secrets, too."
  def headers(client, headers) do
    Enum.map(headers, fn
      {name, value} when is_function(value, 0) and (is_binary(name) or is_atom(name)) ->
        {header_name(client, name), value}

      {name, value} when is_binary(value) and (is_binary(name) or is_atom(name)) ->
        unless sendable?(value), do: refuse(client, "printable text in the values of :headers")
        {header_name(client, name), fn -> value end}

      _other ->
        refuse(client, ":headers to be a list of {name, value}")
    end)
  end

  defp header_name(client, name) do
    name = name |> to_string() |> String.downcase()

    if name =~ ~r/\A[a-z0-9!#$%&'*+.^_`|~-]+\z/,
      do: name,
      else: refuse(client, "header names as HTTP has them")
  end

  defp sendable?(text), do: String.valid?(text) and printable?(text)

  defp printable?(<<byte, rest::binary>>) when byte >= 0x20 and byte != 0x7F,
    do: printable?(rest)

  defp printable?(rest), do: rest == ""

  @doc "The parts of a URL, which an option has."
  def uri(client, name, url) when is_binary(url) do
    case URI.new(url) do
      {:ok, %URI{scheme: scheme, host: host, userinfo: nil, fragment: nil} = uri}
      when scheme in ["http", "https"] and is_binary(host) and host != "" and
             uri.port in 1..65_535 ->
        uri

      _ ->
        refuse(client, "#{inspect(name)} to be an http or https URL without credentials")
    end
  end

  def uri(client, name, _url), do: refuse(client, "#{inspect(name)} to be text")

  ## A call

  @doc "Asks for a whole answer."
  def chat(client, context, opts),
    do: ask_once(client, context, opts, :chat, fn _events, _response -> :ok end)

  @doc "Asks for a stream, gives its events to `fun` as they come, and returns the response when it is complete."
  def stream(client, context, opts, fun),
    do: ask_once(client, context, opts, :stream, LLM.by_feed(fun))

  defp ask_once(client, context, opts, mode, fun) do
    {own, opts} = Keyword.split(opts, [:on_retry])
    {asked, opts} = Keyword.split(opts, [:tools, :output])
    client |> open(asked ++ client.prepare(opts), mode) |> ask(context, own, fun)
  end

  # What all requests of one run have: `call` as the client decides it, `output` for a typed answer, the options and fields as
  # `prepared`, and the `request` without its body.
  @enforce_keys [:client, :opts, :mode, :call, :output, :request]
  defstruct @enforce_keys ++ [:prepared]

  @doc "Makes ready what requests with these options, which were checked, share. The keys are read, and the headers asked for, with each request."
  def open(client, opts, mode) do
    {tools, opts} = Keyword.pop(opts, :tools, [])
    {output, opts} = Keyword.pop(opts, :output, %{})
    call = client.call(opts, tools, mode)
    uri = uri(client, :base_url, opts[:base_url])
    path = String.trim_trailing(uri.path || "", "/") <> call.path
    uri = %{uri | path: path, query: query(uri.query, call[:query])}

    request = %{request("POST", uri, opts) | ssl: opts[:ssl]}

    opened = %__MODULE__{
      client: client,
      opts: opts,
      mode: mode,
      call: call,
      output: output,
      request: request
    }

    if opts[:cache_diagnostics],
      do: opened,
      else: %{opened | prepared: prepare_call(opened, call)}
  end

  # With the model's name, thinking that another model signed stays out of the request.
  defp prepare_call(%{opts: opts, output: output}, call) do
    own = name_fields(opts[:body])
    body = call.body |> Map.merge(own, &merge_field/3) |> put_output(output)
    options = opts[:request] |> Keyword.put_new(:model, opts[:model]) |> Keyword.put(:body, body)
    PreparedRequest.new(opts[:provider], options)
  end

  @doc "Makes one of these requests. `own` may have a smaller `:timeout` and `:on_retry`."
  def ask(%__MODULE__{opts: opts, mode: mode} = opened, context, own, fun) do
    # :infinity is greater than any number.
    own = [on_retry: own[:on_retry], timeout: min(opts[:timeout], own[:timeout] || :infinity)]

    with {:ok, request, secrets} <- request(opened, context),
         do: send_request(request, secrets, own ++ opts, mode, fun)
  end

  @doc "Sends a request by the transport of the options, again where that may help, and gives the events of the answer to `fun`."
  def send_request(request, secrets, opts, mode, fun) do
    call = %{opts: opts, mode: mode, fun: fun, request: request, secrets: secrets}
    attempt(Map.merge(call, %{deadline: Deadline.new(opts[:timeout]), done: 0}))
  end

  @doc "Returns a request with the limits that the options have."
  def request(method, uri, opts) do
    limits = Keyword.take(opts, [:connect_timeout, :first_byte_timeout, :idle_timeout])
    struct!(Request, [method: method, uri: uri, max_bytes: opts[:max_response_bytes]] ++ limits)
  end

  defp request(%{client: client, opts: opts} = opened, context) do
    {call, prepared} = call_for(opened, context)

    with {:ok, credentials} <- credentials(client, opts),
         {:ok, prepared} <- prepared,
         {:ok, body} <- PreparedRequest.encode(prepared, context) do
      given = Enum.map(opts[:headers], fn {name, value} -> {name, value.()} end)
      plain = [{"content-type", "application/json"}, {"accept", accept(opened.mode)}]
      plain = fn -> merge(plain, call[:headers] || []) end
      request = %{opened.request | headers: plain, body: body}

      headers = fn ->
        plain.() |> merge(client.authorize(credentials, request, opts)) |> merge(given)
      end

      {:ok, %{request | headers: headers}, secrets(credentials, given)}
    else
      {:error, %Error{}} = error -> error
      {:error, error} -> {:error, Error.from_request(error)}
    end
  end

  # The comparison names the answer before.
  defp call_for(%{prepared: nil} = opened, context) do
    call = opened.client.compare(opened.call, Context.Audit.get_response_id(context))
    {call, prepare_call(opened, call)}
  end

  defp call_for(opened, _context), do: {opened.call, opened.prepared}

  # A field of the application takes the place of the client's, but the comparison stays asked for.
  defp merge_field("prompt_cache_options", ours, given) when is_map(given),
    do: Map.merge(ours, given)

  defp merge_field(_name, _ours, given), do: given

  @secret ~r/authori[sz]ation|password|secret|credential|cookie|api_?key|_token\z|\Atoken\z/i

  @doc "Returns what a request asks for beside messages and tools, without what could be a key."
  def describe(client, opts, mode) do
    uri = uri(client, :base_url, opts[:base_url])

    body =
      client.call(opts, [], mode).body |> Map.merge(name_fields(opts[:body])) |> hide_secrets()

    asked = [cache: opts[:request][:cache], cache_diagnostics: opts[:cache_diagnostics]]

    known =
      for {key, value} <- asked,
          value not in [nil, false],
          into: %{"server" => uri.host, "port" => uri.port, "body" => body},
          do: {to_string(key), if(value == true, do: true, else: to_string(value))}

    # The encoding of messages, so that the request can be made again.
    request =
      for {name, value} <- opts[:request],
          name != :cache and value != nil,
          into: %{},
          do: {to_string(name), if(is_atom(value), do: to_string(value), else: value)}

    if request == %{}, do: known, else: Map.put(known, "request", request)
  end

  defp name_fields(fields), do: Map.new(fields, fn {name, value} -> {to_string(name), value} end)

  defp hide_secrets(%{} = fields) when not is_struct(fields) do
    Map.new(fields, fn {name, value} ->
      if is_binary(value) and to_string(name) =~ @secret,
        do: {name, "(hidden)"},
        else: {name, hide_secrets(value)}
    end)
  end

  # A part that is encoded already.
  defp hide_secrets(%module{}), do: "(#{inspect(module)})"
  defp hide_secrets(list) when is_list(list), do: Enum.map(list, &hide_secrets/1)
  defp hide_secrets(value), do: value

  @doc "Puts the fields that ask for a typed answer beside the caller's own in the same objects, such as `generationConfig` and `text`."
  def put_output(body, fields) do
    Map.merge(body, fields, fn
      _name, %{} = own, %{} = field -> own |> name_fields() |> put_output(field)
      _name, _own, field -> field
    end)
  end

  defp credentials(client, opts) do
    with {:error, exception} <- client.credentials(opts),
         do: {:error, Error.from_request(exception)}
  end

  defp accept(:chat), do: "application/json"
  defp accept(:stream), do: "text/event-stream, application/json;q=0.9, */*;q=0.5"

  defp query(nil, query), do: query
  defp query(query, nil), do: query
  defp query(one, other), do: one <> "&" <> other

  # The later ones win, but the features that they switch on are added.
  @added "anthropic-beta"

  defp merge(headers, []), do: headers

  defp merge(headers, over) do
    over =
      for {name, value} <- over do
        with @added <- name,
             {_name, before} <- List.keyfind(headers, @added, 0),
             do: {name, before <> "," <> value},
             else: (_other -> {name, value})
      end

    names = Enum.map(over, &elem(&1, 0))
    Enum.reject(headers, fn {name, _} -> name in names end) ++ over
  end

  defp secrets(credentials, headers) do
    own =
      cond do
        is_nil(credentials) -> []
        is_binary(credentials) -> [credentials]
        is_map(credentials) -> Map.values(credentials)
      end

    Enum.filter(own ++ Request.secrets(headers), &is_binary/1)
  end

  ## Attempts

  @first_delay 500
  @longest_delay 8_000

  # Once a part of an answer was delivered, another answer would not continue it.
  defp attempt(call) do
    case once(call) do
      {:ok, response} ->
        {:ok, response}

      {:error, error, delivered?} ->
        delay = error.retry_after || backoff(call.done)

        if not delivered? and again?(error, delay, call) do
          # The caller hears of it while it waits.
          if notify = call.opts[:on_retry],
            do: notify.(%{error: error, attempt: call.done + 1, wait: delay})

          Process.sleep(delay)
          attempt(%{call | done: call.done + 1})
        else
          {:error, %{error | attempt: call.done + 1}}
        end
    end
  end

  defp again?(error, delay, call) do
    error.retryable? and error.reason != :timeout and call.done < call.opts[:max_retries] and
      delay <= call.opts[:max_retry_delay] and delay < Deadline.left(call.deadline)
  end

  # Doubles, with up to a quarter off, so that clients that failed together do not come back together.
  defp backoff(done) do
    delay = min(@first_delay * Integer.pow(2, min(done, 8)), @longest_delay)
    delay - :rand.uniform(div(delay, 4))
  end

  defp once(call) do
    {transport, opts} = call.opts[:transport]
    request = %{call.request | timeout: max(Deadline.left(call.deadline), 1)}
    log = ByteLog.begin(request, call.secrets)
    reading = Reading.new(call.opts, call.mode, call.secrets, call.fun, log)

    request
    |> transport.stream(reading, &Reading.take/2, opts)
    |> Reading.result()
  end

  ## Making requests and answers

  @doc "A schema as providers accept it: an object says which properties it has, even when there are none."
  def parameters(schema) do
    properties? = Map.has_key?(schema, "properties") or Map.has_key?(schema, :properties)
    type = to_string(schema["type"] || schema[:type] || "object")

    cond do
      type != "object" or properties? -> schema
      Map.has_key?(schema, :type) -> Map.put(schema, :properties, %{})
      true -> Map.merge(%{"type" => "object", "properties" => %{}}, schema)
    end
  end

  @doc "A tool's name, description, if it has one, and parameters, under `key`."
  def tool(tool, key) do
    described = if tool.description, do: %{"description" => tool.description}, else: %{}
    Map.merge(described, %{"name" => tool.name, key => parameters(tool.parameters)})
  end

  @doc "Returns the options of a client with the dialect of its requests: the one of its option `:dialect`, or that of a known host."
  def put_dialect(opts, provider, known) do
    dialect = with :auto <- opts[:dialect], do: known[URI.parse(opts[:base_url]).host]

    if dialect && opts[:provider] == provider,
      do: Keyword.update!(opts, :request, &Keyword.put_new(&1, :dialect, dialect)),
      else: opts
  end

  @doc "Returns the body with the field that asks for a stream."
  def put_stream(body, :chat), do: body
  def put_stream(body, :stream), do: Map.put(body, "stream", true)

  @doc "The tools, each as `write` makes it; no field when there are none."
  def put_tools(body, [], _write), do: body
  def put_tools(body, tools, write), do: Map.put(body, "tools", Enum.map(tools, write))

  @doc "The tools as `/v1/chat/completions` has them."
  def put_functions(body, tools),
    do: put_tools(body, tools, &%{"type" => "function", "function" => tool(&1, "parameters")})
end
