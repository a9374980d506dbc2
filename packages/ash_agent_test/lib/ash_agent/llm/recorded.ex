defmodule AshAgent.LLM.Recorded do
  @moduledoc """
  Records what a provider answers, once, and plays it back without network, for tests.

      llm =
        AshAgent.LLM.Recorded.new(
          AshAgent.LLM.Anthropic.new(model: "claude-sonnet-4-5", api_key: fn -> System.fetch_env!("ANTHROPIC_API_KEY") end),
          cassette: "test/cassettes/refund.json"
        )

      {:ok, result} = AshAgent.Runtime.run(AshAgent.Context.new("Hello!"), llm: llm)

  The first time, run the test with `ASH_AGENT_CASSETTES=record_missing mix test`: it asks the provider and writes the cassette. From then
  on the test needs neither network nor key.

  The client renders its requests as always. A recording belongs to the request that it answered, by its path and body. If
  the prompt, a tool's schema, a message or an option has changed since, there is no recording, and the model raises an
  `AshAgent.LLM.Recorded.MissingError` that says how the request differs from the nearest recording, see `AshAgent.LLM.Difference`:

      the nearest is request 2, but message 3 (user), tool result of call_1: was "12 degrees", is "13 degrees"

  Answers are played back as they came, whole or streamed, in the original pieces, including failures and retries. A repeated
  request gets its next recording, and after the last one that one again.

  ## Modes

    * `:replay` - plays, and never asks the provider. The default, which suits CI
    * `:record_missing` - plays, and asks the provider for what is missing
    * `:record_all` - begins a new cassette and asks the provider for everything. Set by the environment, all tests of the run that
      name the same cassette record into one

  The environment variable `ASH_AGENT_CASSETTES` sets the mode of all models that do not have the option `:mode`.

  ## Cassettes

  A cassette is one JSON file with a block for each request, to be committed and read in a review: a message that an earlier request has
  as well is not repeated, and writing the same recordings again gives the same file. Use a cassette for each test. Models, tests and processes of
  the machine that record into the same one at the same time all add to it, each in its turn; one that cannot write raises an error that names
  the other.

  Keys, organisations and users are kept out of a cassette: of the headers, only the content type and `retry-after` do, and in bodies
  the key of the client, texts that look like keys and tokens, also in addresses, the fields that name a user (`user`, `user_id`,
  `safety_identifier`, `prompt_cache_key`) and the texts in `metadata` are replaced by asterisks, as is what the option `:scrub` names, also
  where a streamed answer has it in several events. A test that depends on such a text cannot be played.
  Bedrock's streams are binary and not read easily in a review; the same is replaced in them.

  What the conversation masks, see `AshAgent.Context.View.put_masks/3`, is kept out of its answers, too: the cassette has the words of the
  masks, and the conversation that is played has them as well. A thought that is masked loses its signature, and is left out where the next
  request does not have it. An answer that would not be played alike is not recorded, and the model raises an `ArgumentError` that says so: a
  mask finds something in what a mask wrote, in a provider's own block, or in a thought with parts of another kind.

  ## Limits

  Only the clients of ash_agent_runtime can be recorded. `AshAgent.LLM.ReqLLM` and your own models cannot, since they send requests themselves.
  The process that holds the cassette is linked to the caller of `new/2`.
  """

  use AshAgent.Arguments

  @behaviour AshAgent.LLM

  alias AshAgent.{Context, LLM}
  alias AshAgent.LLM.Recorded.{Cassette, Transport}

  @modes [:replay, :record_missing, :record_all]
  @variable "ASH_AGENT_CASSETTES"

  @schema AshAgent.Options.schema([
            {:cassette, :string, [required: true], "the path of the file."},
            {:mode, {:in, @modes},
             "see above. Defaults to the environment's `#{@variable}`, and without it to `:replay`."},
            {:ignore, {:custom, &__MODULE__.ignored?/1}, [type_doc: "a list", default: []],
             "differences between a request and a recording that do not count: `:ids` (of calls), `:dates` (dates and times in texts), and " <>
               "keys of the body as strings, wherever they are. The order of keys never counts."},
            {:scrub, {:list, {:struct, Regex}}, [type_doc: "a list of regexes", default: []],
             "further texts of requests and answers that are replaced by asterisks."},
            {:pace, :boolean, [default: false],
             "whether the pieces of an answer come as slowly as they did."}
          ])

  @doc """
  Returns a model that records the model, or plays what was recorded of it.

  ## Options

  #{AshAgent.Options.docs(@schema)}

  Raises `ArgumentError` for wrong options, for a model that is not a client of ash_agent_runtime, and for a file that is not a cassette.

  ## Examples

      llm = AshAgent.LLM.Recorded.new({AshAgent.LLM.Ollama, model: "llama3.2"}, cassette: "test/cassettes/hello.json")
      {:ok, result} = AshAgent.Runtime.run(AshAgent.Context.new("Hello!"), llm: llm)
  """
  @doc since: "0.1.0"
  @spec new(LLM.t(), keyword()) :: LLM.t()
  def new(llm, opts) do
    opts = AshAgent.Options.validate!(opts, @schema)
    {module, own} = llm |> LLM.new() |> check_client()
    mode = opts[:mode] || mode_of_environment()
    {once, opts} = {opts[:mode] == nil, Keyword.put(opts, :mode, mode)}
    {:ok, cassette} = Cassette.start_link([once: once] ++ opts)
    recorded = %{client: module, cassette: cassette, mode: mode, pace: opts[:pace]}
    {__MODULE__, [recorded: recorded] ++ offline(own, mode)}
  end

  @doc false
  def ignored?(names),
    do: is_list(names) and Enum.all?(names, &(&1 in [:ids, :dates] or is_binary(&1)))

  defp check_client({module, own}) do
    if function_exported?(module, :call, 3) and Keyword.has_key?(own, :transport),
      do: {module, own},
      else: refuse()
  end

  defp check_client(_function), do: refuse()

  defp refuse,
    do:
      AshAgent.Caller.refuse!(
        "only the clients of ash_agent_runtime can be recorded, such as AshAgent.LLM.Anthropic"
      )

  # CI has no keys, and functions that ask for them must not be called there.
  defp offline(own, :replay), do: Keyword.merge(own, api_key: fn -> "recorded" end, headers: [])
  defp offline(own, _mode), do: own

  defp mode_of_environment do
    text = System.get_env(@variable, "replay")

    Enum.find(@modes, &(Atom.to_string(&1) == text)) ||
      AshAgent.Caller.refuse!("expected #{@variable} to be one of #{Enum.join(@modes, ", ")}")
  end

  @impl true
  def prepare(opts), do: opts

  @impl true
  def chat(context, opts) do
    {client, opts} = through_cassette(opts, context, :chat)
    client.chat(context, opts)
  end

  @impl true
  def stream(context, opts, fun) do
    {client, opts} = through_cassette(opts, context, :stream)
    client.stream(context, opts, fun)
  end

  @doc false
  def describe(opts, mode) do
    {recorded, opts} = Keyword.pop!(opts, :recorded)
    recorded.client.describe(opts, mode)
  end

  defp through_cassette(opts, context, mode) do
    {recorded, opts} = Keyword.pop!(opts, :recorded)
    answer = {mode, Keyword.take(opts, [:provider, :model, :max_response_bytes])}
    masks = if(recorded.mode == :replay, do: [], else: Context.View.view(context).masks)
    own = %{transport: opts[:transport], masks: masks, answer: answer}
    recorded = Map.merge(recorded, own)
    {recorded.client, Keyword.put(opts, :transport, {Transport, Map.to_list(recorded)})}
  end
end
