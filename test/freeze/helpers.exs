defmodule AshAgent.Freeze.Wire do
  @moduledoc false
  # A transport that tells of the request and answers what its options say.
  def stream(request, acc, fun, opts) do
    hidden = ~w(authorization x-amz-date user-agent)
    headers = for {name, _} = header <- request.headers.(), name not in hidden, do: header
    send(self(), {to_string(request.uri), headers, IO.iodata_to_binary(request.body)})

    with {:cont, acc} <- fun.({:head, opts[:status], [{"content-type", opts[:type]}]}, acc),
         {:cont, acc} <- fun.({:data, opts[:body]}, acc) do
      if opts[:cut], do: {:error, {:connection, :closed}, acc}, else: {:ok, acc}
    else
      {:halt, acc} -> {:ok, acc}
    end
  end
end

defmodule AshAgent.Freeze.Helpers do
  @moduledoc false

  # The words of operations.txt that are not functions of the package.

  import AshAgent.Freeze.Form, only: [attempt: 1]
  import AshAgent.TestSupport.Generators, only: [between: 2, chance: 1, one_of: 1]

  alias AshAgent.Freeze.{Names, Wire}
  alias AshAgent.Freeze.Old.{ChatContext, Context, LLM, Response, Runtime, Store}

  @compile {:no_warn_undefined,
            [ChatContext, Context, LLM, Response, Runtime, Runtime.ToolExecutor, Store] ++
              [Store.SQLite, Store.SQLite.Native, Context.JSON]}

  @at ~U[2031-07-15 12:00:00.000000Z]
  @own [at: @at]
  @sent [pending: :interrupt]

  def at, do: @at
  def new, do: [id: "new", at: @at]
  def methods, do: [:auto, :estimate, :o200k_base, :cl100k_base]
  def providers, do: ~w(anthropic openai_chat openai_responses gemini bedrock ollama mistral)a
  defdelegate module(name), to: Names

  def prices do
    [
      %{model: "m", input: 7, output: 11, context_window: 4_000},
      %{model: :any, input: 3_000, cache_read: 300, cache_write: 3_750, output: 15_000}
    ]
  end

  ## Contexts

  def first(c), do: c.current_iteration - Context.count_iterations(c) + 1

  def numbers(%{current_iteration: last} = c) do
    first = first(c)
    Enum.uniq([0, first, first + 1, div(first + last, 2), last - 1, last, last + 1])
  end

  def ids(c) do
    calls = Enum.flat_map(Context.iterations(c), & &1.tool_calls)
    ["none" | calls |> Enum.map(& &1.id) |> Enum.uniq() |> Enum.take(-3)]
  end

  def share(c, parts), do: c |> Context.count_tokens(method: :estimate) |> div(parts)
  def summarize(_messages), do: "They spoke of a fox in lib/a.ex, and of 17 errors."

  def forget(c) do
    c
    |> Context.put_recall(true, [index: 0.05, user_bytes: 300] ++ @own)
    |> Context.interrupt("stopped", @own)
    |> Context.add_user_message("And now?", @own)
    |> Context.keep_last_iterations(2, @own)
    |> Context.clear_tool_results([keep: 0] ++ @own)
  end

  def handles(c) do
    hits = for words <- ["fox", "user"], do: c |> forget() |> Context.search(words, limit: 2)
    hits |> List.flatten() |> Enum.map(& &1.handle) |> Enum.uniq()
  end

  def print(c, opts) do
    {:ok, device} = StringIO.open("")
    Context.print(c, [device: device, color: false] |> Keyword.merge(opts))
    StringIO.contents(device)
  end

  # What a provider and a person see of a context that something returned.
  def seen(%{ref: _, current_iteration: _} = c),
    do: attempt(fn -> {Context.to_messages(c), body(c, :anthropic, [cache: :auto] ++ @sent)} end)

  def seen(tuple) when is_tuple(tuple), do: tuple |> Tuple.to_list() |> Enum.map(&seen/1)
  def seen(_other), do: nil

  def body(c, p, opts) do
    with {:ok, body} <- Context.encode_request(c, p, [body: %{model: "m"}] ++ opts),
         do: IO.iodata_to_binary(body)
  end

  # A body as a foreign history, and back.
  def again(body, p) do
    with {:ok, c, report} <- Context.from_request(body, p, new()),
         do: {c, report, attempt(fn -> body(c, p, @sent) end)}
  end

  def options(p) do
    own =
      case p do
        :openai_chat -> for d <- [:openai, :deepseek, :openrouter, :vllm], do: [dialect: d]
        :openai_responses -> [[previous_response_id: "r"], [conversation: "c", since: 1]]
        :gemini -> [[model: "gemini-3-pro-preview"]]
        p when p in [:anthropic, :bedrock] -> [[cache: :auto]]
        _other -> []
      end

    for opts <- [[thinking: :text, model: "m", since: 2, max_result_bytes: 150] | own],
        do: opts ++ @sent
  end

  def chat(c) do
    rules = [{:deny, "x"}, {:allow, "a", fn _call -> true end}]
    config = [model_id: "m", mode: :plan, parameters: %{heat: 0.5}, permission_rules: rules]
    ask = &(&1 |> Context.interrupt("stopped", @own) |> Context.add_user_message("Why?", @own))

    ChatContext.new([context: c, id: "chat", config: config] ++ @own)
    |> ChatContext.branch("idea")
    |> ChatContext.branch("early", iteration: first(c))
    |> ChatContext.switch("idea")
    |> ChatContext.update_context(ask)
    |> ChatContext.branch("late", from: "main")
    |> ChatContext.put_system_prompt("Rhyme.", [branch: "late"] ++ @own)
    |> ChatContext.put_user_prompt("I am Ann.", [branch: "late"] ++ @own)
    |> ChatContext.rename_branch("early", "dawn")
  end

  # A store that gets a conversation piece by piece, and its rows.
  def store(c) do
    {:ok, store} = Store.SQLite.open(":memory:")
    [start | more] = for n <- numbers(c), n in first(c)..c.current_iteration, do: rewind(c, n)
    {:ok, kept} = Store.create(store, start, note: %{by: :ann})

    kept =
      Enum.reduce(more ++ [forget(c), start], kept, fn next, kept ->
        {:ok, kept} = Store.append(store, kept, next, note: %{by: {:turn, 1}})
        kept
      end)

    {:ok, _} = Store.enqueue(store, kept.id, "And then?", id: "p1", kind: :steer)
    {:ok, kept} = Store.claim(store, kept.id, owner: "a", status: :running)
    {:ok, kept, keys} = Store.start(store, kept, [%{key: "k", call: %{name: :pay}}])
    read = {keys, Store.waiting(store, kept.id), Store.search(store, "found")}
    ended = [finished: [%{key: "k", state: :ok}], taken: ["p1"]]
    {:ok, _} = Store.append(store, kept, forget(kept.value), ended)
    read = {read, Store.calls(store, kept.id), Store.history(store, kept.id)}
    [Store.append(store, kept, c), Store.dump(store, kept.id), read, rows(store)]
  end

  defp rewind(c, n), do: Context.rewind(c, to: n)

  defp rows(store) do
    for table <- ~w(conversations branches iterations calls prompts history blobs texts) do
      columns =
        select(store, """
        select name from pragma_table_info('ash_agent_#{table}')
        where name not in ('at', 'created_at', 'started_at', 'ended_at', 'lease_until')
        """)

      columns = Enum.join(columns, ", ")
      {table, select(store, "select #{columns} from ash_agent_#{table} order by 1, 2, 3")}
    end
  end

  defp select(store, sql) do
    reference = make_ref()
    :ok = Store.SQLite.Native.run(store.ref, {:read, reference}, [sql], [])
    {:ok, [rows]} = receive(do: ({:ash_agent_sqlite, ^reference, answer} -> answer))
    rows
  end

  # What a file of an older version has.
  def open_store(path) do
    copy = Path.join(System.tmp_dir!(), "freeze-#{System.unique_integer([:positive])}.db")
    File.cp!(path, copy)
    {:ok, store} = Store.SQLite.open(copy)
    for ending <- ["", "-wal", "-shm"], do: File.rm(copy <> ending)
    {:ok, %{conversations: all}} = Store.list(store, by: :created_at)
    fetched = for kept <- all, do: {Store.fetch(store, kept.id), Store.calls(store, kept.id)}
    {fetched, Store.search(store, "harbour"), rows(store)}
  end

  def used({_model, usage}) do
    Context.new("Hi", new())
    |> Context.add_assistant_message("Ho", [], @own)
    |> Context.add_token_usage(usage, @own)
  end

  ## Answers

  def open(x), do: Response.new(x.provider, content_type: x.type, model: "m")
  def cut("", _most), do: []

  def cut(bytes, most) do
    {piece, rest} = split(bytes, between(1, most))
    [piece | cut(rest, most)]
  end

  def split(bytes, at) do
    at = min(at, byte_size(bytes))
    <<piece::binary-size(at), rest::binary>> = bytes
    {piece, rest}
  end

  def feed(response, pieces) do
    Enum.reduce_while(pieces, {response, []}, fn piece, {response, events} ->
      case Response.feed(response, piece) do
        {:ok, response, more} -> {:cont, {response, [more | events]}}
        {:error, error} -> {:halt, {response, [error | events]}}
      end
    end)
  end

  # The conversation with an answer, which may have broken off, and what would be sent then.
  def keep({response, _events}) do
    {response, events} =
      case Response.finish(response) do
        {:ok, response, events} -> {response, events}
        {:error, error} -> {Response.interrupt(response, :cancelled), error}
      end

    c = Context.new("Hi", [system_prompt: "Be brief."] ++ new())
    times = [requested_at: DateTime.add(@at, -2), first_chunk_at: DateTime.add(@at, -1)] ++ @own

    with {:ok, c} <- Context.add_response(c, response, times) do
      next = c |> Context.interrupt("stopped", @own) |> Context.add_user_message("On", @own)
      bodies = for p <- providers(), do: {body(next, p, []), Context.request_report(next, p)}
      {events, c, Context.account(c, prices: prices()), bodies}
    end
  end

  # A long run whose provider reads from its cache what is forecast, with what policies do before each request.
  def session(p, model) do
    start = Context.new(String.duplicate("Read all of it. ", 400), new())

    {steps, c} =
      Enum.map_reduce(1..24, start, fn n, c ->
        at = DateTime.add(@at, 40 * n)
        {c, due} = Context.clear_when_due(c, keep: 2, prices: prices(), model: model, at: at)
        opts = if p == :anthropic, do: [cache: :auto], else: []
        {:ok, told} = Context.forecast(c, p, [prices: prices(), at: at] ++ opts)
        c = Context.put_request(c, %{"model" => model, "provider" => "#{p}"}, [])
        {:ok, c} = Context.put_sent(c, p, opts)
        names = for call <- 1..if(n == 12, do: 11, else: 1), do: "call_#{n}_#{call}"
        {:ok, response} = Response.decode(p, read_on(p, model, names, told))
        {:ok, c} = Context.add_response(c, response, requested_at: at, at: at)
        results = for name <- names, do: {name, {:ok, String.duplicate("line #{n}\n", 200)}}
        {{due, told}, Context.add_tool_results(c, results, at: at)}
      end)

    {steps, Context.account(c, prices: prices()), Context.replay(c), Context.view(c)}
  end

  defp read_on(:anthropic, model, names, told) do
    calls = for id <- names, do: %{type: "tool_use", id: id, name: "read", input: %{}}
    cache = %{cache_read_input_tokens: told.read, cache_creation_input_tokens: told.written}
    usage = Map.merge(cache, %{input_tokens: told.new, output_tokens: 20})
    %{type: "message", model: model, content: calls, stop_reason: "tool_use", usage: usage}
  end

  defp read_on(_chat, model, names, told) do
    read = %{name: "read", arguments: "{}"}
    calls = for id <- names, do: %{id: id, type: "function", function: read}
    usage = %{prompt_tokens: told.tokens, prompt_tokens_details: %{cached_tokens: told.read}}
    choice = %{message: %{tool_calls: calls}, finish_reason: "tool_calls"}
    %{model: model, choices: [choice], usage: Map.put(usage, :completion_tokens, 20)}
  end

  ## Damage

  @bytes ~c({}[]",:$0123456789abnrtu\\) ++ [0, 10, 127, 128, 255]
  @literals ["null", "[]", "{}", "-1", "\\ud800", "1e999", "\"\""]
  @words "../fixtures/freeze/words.txt"
         |> Path.expand(__DIR__)
         |> File.read!()
         |> String.split("\n", trim: true)

  # Those that the core compares something with.
  def words, do: @words

  # Each of a list with what becomes of it.
  def each(list, fun), do: for(one <- list, do: {one, attempt(fn -> fun.(one) end)})

  def texts(text), do: for(_ <- damages(), do: mutate(text))
  def terms(term), do: for(_ <- damages(), do: spoil(term))
  defp damages, do: 1..Application.get_env(:ash_agent_context, :freeze_damages, 25)

  def plain(term), do: term |> Context.JSON.encode() |> Context.JSON.decode!()
  def decode(text), do: with({:ok, term} <- Context.JSON.decode(text), do: term)
  # Otherwise it has an id by chance.
  def named(term), do: if(is_map(term), do: Map.put(term, "id", "c"), else: term)

  # Some bytes or words changed, taken away, said twice or cut.
  defp mutate(text), do: Enum.reduce(1..between(1, 3), text, fn _, text -> mutate_once(text) end)

  defp mutate_once(text) do
    {head, tail} = split(text, between(0, byte_size(text)))
    {piece, rest} = split(tail, between(1, 12))

    case between(1, 10) do
      n when n < 4 ->
        head <> <<one_of(@bytes)>> <> elem(split(tail, 1), 1)

      n when n < 7 ->
        head <> String.replace(tail, ~r/"\w+"/, ~s("#{one_of(@words)}"), global: false)

      7 ->
        head <> rest

      8 ->
        head <> piece <> tail

      9 ->
        head <> one_of(@literals) <> rest

      10 ->
        head
    end
  end

  @tags for {tag, value} <- [atom: 1, none: 1, tuple: %{}, map: [[1]], int: "1x", bytes: "="],
            do: %{"$#{tag}" => value}
  @wrong [nil, true, -1, 1.5, 10 ** 22, "", "text", <<255>>, [], [nil], %{}, :gone] ++ @tags

  # Another value somewhere in a term, or none, mostly deep in it.
  defp spoil(map) when is_map(map) and map_size(map) > 0 do
    {key, value} = map |> Enum.sort() |> pick()
    value = if chance(4), do: one_of(@wrong), else: spoil(value)
    if value == :gone, do: Map.delete(map, key), else: Map.put(map, key, value)
  end

  defp spoil([_ | _] = list) do
    {at, value} = 0..(length(list) - 1) |> Enum.zip(list) |> pick()
    List.replace_at(list, at, spoil(value))
  end

  defp spoil(_scalar), do: one_of(@wrong)

  defp pick(pairs) do
    inner = for {_, value} = pair <- pairs, is_map(value) or is_list(value), do: pair
    if inner != [] and chance(75), do: one_of(inner), else: one_of(pairs)
  end

  ## Words, wherever a provider may say one

  def block(:anthropic, x),
    do: %{"type" => x, "id" => "i", "name" => "n", "input" => %{}, "text" => "t", x => "t"}

  def block(:openai_responses, x) do
    call = %{"id" => "i", "call_id" => "c", "name" => "n", "arguments" => "{}"}
    Map.merge(call, %{"type" => x, "role" => "user", "content" => "t", x => "t"})
  end

  def block(p, x) when p in [:gemini, :bedrock],
    do: %{x => %{"name" => "n", "text" => "t", "toolUseId" => "i", "args" => %{}, x => "t"}}

  def block(_p, x), do: %{"type" => x, "text" => "t", x => %{"url" => "https://a.example/b.png"}}

  def request(p, x) do
    case p do
      :openai_responses -> %{"input" => [block(p, x)], x => 1}
      :gemini -> %{"contents" => [%{"role" => "user", "parts" => [block(p, x)]}], x => 1}
      _other -> %{"messages" => [%{"role" => "user", "content" => [block(p, x)], x => "t"}]}
    end
  end

  def reply(p, x, blocks) do
    usage = %{x => 7, "input_tokens" => 1}

    case p do
      :anthropic ->
        %{"type" => "message", "content" => blocks, "stop_reason" => x, "usage" => usage}

      :openai_responses ->
        ended = %{"status" => x, "incomplete_details" => %{"reason" => x}}
        Map.merge(ended, %{"object" => "response", "output" => blocks, "usage" => usage})

      :gemini ->
        candidate = %{"content" => %{"parts" => blocks}, "finishReason" => x}
        %{"candidates" => [candidate], "usageMetadata" => usage}

      :bedrock ->
        message = %{"role" => "assistant", "content" => blocks}
        %{"output" => %{"message" => message}, "stopReason" => x, "usage" => usage}

      :ollama ->
        %{"message" => %{"content" => "t", x => blocks}, "done" => true, "done_reason" => x}

      _chat ->
        choice = %{"message" => %{"content" => blocks, x => "t"}, "finish_reason" => x}
        %{"choices" => [choice], "usage" => usage}
    end
  end

  def refusal(x), do: %{"type" => "error", "error" => %{"type" => x, "message" => x, "code" => x}}

  ## Clients and runs

  def tools do
    schema = %{"type" => "object", "required" => ["a"]}

    %{
      add: %{function: fn %{"a" => a, "b" => b} -> {:ok, a + b} end, parameters: schema},
      fail: fn _ -> raise "secret" end,
      stop: fn _ -> {:halt, :done} end,
      look: fn _ -> {:ok, String.duplicate("All is well. ", 500)} end
    }
  end

  def execute(text) do
    calls = [%{id: "1", name: "add", arguments: text}, %{id: "2", name: :none, arguments: %{}}]
    c = Context.new("Hi", new()) |> Context.add_assistant_message(nil, calls, @own)
    calls = Context.pending_tool_calls(c)
    {calls, Runtime.ToolExecutor.execute_tools(calls, tools(), %{}), body(c, :gemini, @sent)}
  end

  def ask(p, mode, answer) do
    client = %{openai_chat: "OpenAICompatible", openai_responses: "OpenAIResponses"}
    module = module("LLM.#{client[p] || p |> Atom.to_string() |> String.capitalize()}")
    own = if p == :bedrock, do: [region: "eu-central-1"], else: []
    opts = [model: "m", api_key: "sk-secret", max_retries: 0, transport: {Wire, answer}] ++ own
    tools = [%{name: "look", description: "Looks", parameters: %{"type" => "object"}}]
    c = Context.new("Hi", [system_prompt: "Be brief."] ++ new())

    answer =
      if mode == :chat,
        do: LLM.chat(module.new(opts), c, tools: tools),
        else: LLM.stream(module.new(opts), c, [tools: tools], &send(self(), &1))

    {answer, told()}
  end

  defp told do
    receive do
      message -> [message | told()]
    after
      0 -> []
    end
  end

  def call(id, name, arguments) do
    calls = [%{id: id, name: name, arguments: arguments}]
    %{tool_calls: calls, usage: %{input_tokens: 9, output_tokens: 3}}
  end

  @clock [:duration, :system_time, :time_to_first_token, :stacktrace, :exception, :value]

  def run(script, opts) do
    me = self()
    llm = module("LLM.Scripted").new(script)

    tell = fn name, measured, metadata ->
      told = {name, Map.drop(measured, @clock), Map.drop(metadata, @clock)}
      unless List.last(name) == :value, do: send(me, told)
    end

    c = Context.new("1 + 2?", new())
    {status, ended} = Runtime.run(c, [llm: llm, tools: tools(), on_event: tell] ++ opts)
    {status, ended, seen(ended.context), told()}
  end
end
