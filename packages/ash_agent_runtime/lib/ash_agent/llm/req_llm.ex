defmodule AshAgent.LLM.ReqLLM do
  @moduledoc """
  A model over `ReqLLM`, for applications that have it, with all of its providers.

      llm =
        AshAgent.LLM.ReqLLM.new(
          model: "groq:llama-3.3-70b-versatile",
          api_key: fn -> System.fetch_env!("GROQ_API_KEY") end,
          options: [temperature: 0]
        )

  The conversation goes to ReqLLM as `AshAgent.Context.ReqLLM.to_req_llm/1` writes it, and ReqLLM makes the request and reads the answer.
  Reasoning that its provider signed is kept for the next request, as far as ReqLLM returns it: its version 1.9 loses the signatures of
  Anthropic and Google in streams.

  Streaming, time limits, retries, errors and secrets are those of the other clients, see `AshAgent.LLM`, with two exceptions. ReqLLM
  reads ahead of a slow consumer. And a provider's own words about an error are those that ReqLLM passes on.

  The clients of this package need no dependency, and encode each message only once: for the providers that they cover, they are the
  better choice.
  """

  use AshAgent.Arguments

  @behaviour AshAgent.LLM

  alias AshAgent.{Context, LLM, Options}
  alias AshAgent.LLM.{Client, Error}
  alias AshAgent.LLM.ReqLLM.Stream

  @own Options.schema([
         {:model, {:or, [:string, :map]}, [required: true],
          "the model as ReqLLM takes it, such as `\"anthropic:claude-sonnet-4-5\"` or `%{provider: :openai, id: \"my-model\"}`."},
         {:options, :keyword_list, [default: []],
          "further options of `ReqLLM.stream_text/3`, such as `temperature: 0`, `base_url: url` and `provider_options: [...]`."}
       ])

  @common ~w(api_key timeout connect_timeout first_byte_timeout idle_timeout)a ++
            ~w(max_retries max_retry_delay max_response_bytes)a

  @schema @own ++ Keyword.take(Client.schema([]), @common)

  @doc """
  Checks the options and returns the model.

  ## Options

  #{Options.docs(@schema)}

  Raises `ArgumentError` for unknown and wrong options. Without ReqLLM, asking the model returns an error that says what to add.

  ## Examples

      iex> {AshAgent.LLM.ReqLLM, opts} = AshAgent.LLM.ReqLLM.new(model: "openai:gpt-5", api_key: "secret")
      iex> inspect(opts) =~ "secret"
      false
  """
  @doc since: "0.1.0"
  @spec new(keyword()) :: {module(), keyword()}
  def new(opts) when is_list(opts), do: {__MODULE__, prepare(opts)}

  @impl true
  def prepare(opts) do
    opts = Options.validate!(opts, @schema)
    Keyword.put(opts, :api_key, Client.hide(__MODULE__, :api_key, opts[:api_key]))
  end

  @impl true
  def chat(context, opts), do: ask(context, opts, :chat, fn _events, _response -> :ok end)

  @impl true
  def stream(context, opts, fun), do: ask(context, opts, :stream, LLM.by_feed(fun))

  defp ask(context, opts, mode, fun) do
    {tools, opts} = Keyword.pop(opts, :tools, [])
    {on_retry, opts} = Keyword.pop(opts, :on_retry)
    opts = prepare(opts)

    with :ok <- check_loaded(), :ok <- check_answered(context) do
      key = Client.reveal(__MODULE__, :api_key, opts[:api_key])

      call = %{
        mode: mode,
        model: opts[:model],
        context: Context.ReqLLM.to_req_llm(context),
        tools: tools,
        key: fn -> key end,
        options: opts[:options]
      }

      name = if is_binary(opts[:model]), do: opts[:model]
      sent = [model: name, transport: {Stream, call: call}, on_retry: on_retry]
      request = Client.request("POST", %URI{host: "ReqLLM"}, opts)
      Client.send_request(request, List.wrap(key), Keyword.merge(opts, sent), mode, fun)
    end
  end

  @missing %ArgumentError{
    message: "ReqLLM is not available: add {:req_llm, \"~> 1.9\"} to the dependencies"
  }
  defp check_loaded, do: if(Code.ensure_loaded?(Elixir.ReqLLM), do: :ok, else: refuse(@missing))

  # ReqLLM would send them without an answer.
  defp check_answered(context) do
    with [_ | _] = ids <- for(call <- Context.pending_tool_calls(context), do: call.id),
         do: refuse(%Context.Error{reason: {:pending_tool_calls, ids}}),
         else: ([] -> :ok)
  end

  defp refuse(exception), do: {:error, Error.from_request(exception)}
end
