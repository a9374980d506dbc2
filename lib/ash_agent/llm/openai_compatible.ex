defmodule AshAgent.LLM.OpenAICompatible do
  @moduledoc """
  A client for servers that speak OpenAI's `/v1/chat/completions`: OpenAI, Ollama, vLLM, llama.cpp and many others.

      llm = {AshAgent.LLM.OpenAICompatible, base_url: "http://127.0.0.1:11434/v1", model: "llama3.2"}
      {:ok, result} = AshAgent.Runtime.run(AshAgent.Context.new("Hello!"), llm: llm)

      llm =
        AshAgent.LLM.OpenAICompatible.new(
          model: "gpt-4o-mini",
          api_key: fn -> System.fetch_env!("OPENAI_API_KEY") end,
          body: %{temperature: 0}
        )

  Bodies come from `AshAgent.Context.encode_request/3`. Connections use the machine's CA certificates and check the
  server's name, for IPv4 and IPv6; redirects are not followed. Each call has a connection of its own, which closes
  when the process that asked ends: a cancelled answer is cancelled on the server too.

  ## Repetition

  Refusals with status 408, 429 and 5xx and connections that are refused or cut are tried again after half a second,
  then one, two and so on, or after the time the server asks for (`retry-after`), as long as that fits into the timeout.

  ## Secrets

  The key is not part of any log, error or inspected option; it is kept inside a function from the moment `new/1`,
  `AshAgent.Runtime.run/2` or `AshAgent.Session.start_link/1` has seen it. Given as a function, it is read at each call
  and never stands in a supervisor's specification either.
  """

  @behaviour AshAgent.LLM

  alias AshAgent.LLM.Client

  @defaults [base_url: "https://api.openai.com/v1", provider: :openai_chat, dialect: :auto]

  # What known hosts make of reasoning; the guide on requests has the sources.
  @dialects %{
    "api.openai.com" => :openai,
    "api.groq.com" => :openai,
    "api.deepseek.com" => :deepseek,
    "api.moonshot.ai" => :deepseek,
    "api.moonshot.cn" => :deepseek,
    "api.z.ai" => :deepseek,
    "openrouter.ai" => :openrouter
  }

  @doc """
  Checks the options and returns the model.

  ## Options

    * `:model` - the model's name, required.
    * `:base_url` - the URL up to and with the version. Defaults to `"https://api.openai.com/v1"`.
    * `:api_key` - text or a function that returns it, sent as bearer token. Defaults to none.
    * `:headers` - further headers, `{name, value}` with text or a function that returns it. Defaults to `[]`.
    * `:body` - further fields of the body, such as `%{temperature: 0}`. Defaults to `%{}`.
    * `:provider` - how `AshAgent.Context.encode_request/3` is to write messages. Defaults to `:openai_chat`.
    * `:dialect` - what the server makes of reasoning, see `AshAgent.Context.request/3`, or `:auto`: what its host is known
      to make of it. Defaults to `:auto`.
    * `:request` - further options of `AshAgent.Context.encode_request/3`. Defaults to `[]`.
    * `:timeout` - milliseconds for the answer, repetitions included, or `:infinity`. Defaults to `120_000`.
    * `:connect_timeout` - milliseconds for a connection. Defaults to `10_000`.
    * `:max_retries` - how often a call is repeated. Defaults to `2`.
    * `:max_response_bytes` - the longest answer that is read. Defaults to `33_554_432`.
    * `:ssl` - options of `:ssl`, such as `[cacertfile: path]`. Defaults to `[]`.

  Raises `ArgumentError` for options it does not know or cannot use.

  ## Examples

      iex> {AshAgent.LLM.OpenAICompatible, opts} = AshAgent.LLM.OpenAICompatible.new(model: "m", api_key: "secret")
      iex> inspect(opts) =~ "secret"
      false
  """
  @doc since: "0.1.0"
  @spec new(keyword()) :: {module(), keyword()}
  def new(opts) when is_list(opts), do: {__MODULE__, prepare(opts)}

  @impl true
  def prepare(opts) do
    opts = Client.prepare(opts, __MODULE__, @defaults)

    unless opts[:dialect] in [:auto, nil, :openai, :deepseek, :openrouter, :vllm],
      do: raise(ArgumentError, "#{inspect(__MODULE__)} expects :dialect to be a dialect or :auto")

    opts
  end

  @impl true
  def chat(context, opts) do
    {tools, opts} = Keyword.pop(opts, :tools, [])
    opts = prepare(opts)
    body = %{"model" => opts[:model]} |> put_tools(tools)
    authorization = fn key -> [{"authorization", "Bearer " <> key}] end

    with {:ok, answer} <-
           Client.post(
             __MODULE__,
             "/chat/completions",
             opts[:provider],
             context,
             body,
             put_dialect(opts),
             authorization
           ),
         do: read(answer)
  end

  defp put_dialect(opts) do
    dialect =
      case opts[:dialect] do
        :auto -> @dialects[URI.parse(opts[:base_url]).host]
        dialect -> dialect
      end

    if dialect && opts[:provider] == :openai_chat,
      do: Keyword.update!(opts, :request, &Keyword.put_new(&1, :dialect, dialect)),
      else: opts
  end

  defp put_tools(body, []), do: body

  defp put_tools(body, tools) do
    Map.put(
      body,
      "tools",
      for tool <- tools do
        function = %{"name" => tool.name, "parameters" => Client.schema(tool.parameters)}

        function =
          if tool.description,
            do: Map.put(function, "description", tool.description),
            else: function

        %{"type" => "function", "function" => function}
      end
    )
  end

  defp read(%{"choices" => [%{"message" => %{} = message} = choice | _]} = answer) do
    with {:ok, content} <- content(message),
         {:ok, calls} <- calls(message["tool_calls"] || []) do
      {:ok,
       %{
         content: content,
         tool_calls: calls,
         usage: usage(answer["usage"]),
         finish_reason: text(choice["finish_reason"]),
         model: text(answer["model"])
       }
       |> Map.merge(reasoning(message, content))}
    end
  end

  # Some gateways answer with status 200 and an error in the body.
  defp read(%{"error" => error}) do
    words = if is_map(error), do: error["message"], else: error

    Client.invalid(
      if is_binary(words), do: String.slice(words, 0, 2_000), else: "an error without words"
    )
  end

  defp read(_answer), do: Client.invalid("no choices")

  defp content(%{"content" => text}) when is_binary(text) and text != "", do: {:ok, text}

  defp content(%{"content" => [_ | _] = parts}) do
    if Enum.all?(parts, &is_map/1),
      do: {:ok, parts |> Enum.map(&(text(&1["text"]) || "")) |> IO.iodata_to_binary()},
      else: Client.invalid("content of an unknown kind")
  end

  defp content(%{"refusal" => words}) when is_binary(words) and words != "", do: {:ok, words}

  defp content(message) do
    if message["content"] in [nil, "", []],
      do: {:ok, message["content"] && ""},
      else: Client.invalid("content of an unknown kind")
  end

  # What the model reasoned stands beside the content, under the names that servers have for it.
  defp reasoning(message, content) do
    details =
      case message["reasoning_details"] do
        [_ | _] = details -> details
        _ -> nil
      end

    text =
      text(message["reasoning_content"]) || text(message["reasoning"]) ||
        (details && Enum.map_join(details, &((is_map(&1) && text(&1["text"])) || "")))

    if text in [nil, ""] and details == nil do
      %{}
    else
      metadata = %{provider: :openai_chat}

      metadata = if details, do: Map.put(metadata, :reasoning_details, details), else: metadata

      thinking = %{type: :thinking, text: text || "", provider_metadata: metadata}
      said = if content in [nil, ""], do: [], else: [%{type: :text, text: content}]
      %{parts: [thinking | said]}
    end
  end

  defp calls(calls) when is_list(calls) do
    calls
    |> Enum.reduce_while([], fn call, done ->
      case call do
        %{"function" => %{"name" => name} = function} when is_binary(name) and name != "" ->
          arguments = function["arguments"]

          arguments =
            if is_binary(arguments) and String.trim(arguments) == "", do: nil, else: arguments

          {:cont, [%{id: text(call["id"]), name: name, arguments: arguments} | done]}

        %{"custom" => %{"name" => name, "input" => input}}
        when is_binary(name) and name != "" and is_binary(input) ->
          {:cont, [%{id: text(call["id"]), kind: :custom, name: name, arguments: input} | done]}

        _ ->
          {:halt, :invalid}
      end
    end)
    |> case do
      :invalid -> Client.invalid("a tool call without a function's name")
      calls -> {:ok, Enum.reverse(calls)}
    end
  end

  defp calls(_other), do: Client.invalid("tool_calls is no list")

  defp usage(reported) do
    Client.usage(reported,
      input_tokens: ["prompt_tokens"],
      output_tokens: ["completion_tokens"],
      total_tokens: ["total_tokens"],
      cached_tokens: ["prompt_tokens_details", "cached_tokens"],
      reasoning_tokens: ["completion_tokens_details", "reasoning_tokens"]
    )
  end

  defp text(text) when is_binary(text), do: text
  defp text(_other), do: nil
end
