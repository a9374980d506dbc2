defmodule Mix.Tasks.AshAgent.Replay do
  @shortdoc "Makes the requests of stored conversations again and compares them"

  @moduledoc """
  Makes the requests of stored conversations again with today's code, and compares them with what was sent.

      mix ash_agent.replay agents.db
      mix ash_agent.replay MyApp.Repo --with MyApp.Agent.today
      mix ash_agent.replay agents.db --id user-17
      mix ash_agent.replay talk.json other.json --against gemini

  An argument is a store, as `mix ash_agent.trace` takes it, or the file of a snapshot. The rendered messages are compared byte by byte, see
  `AshAgent.Test.replay/2`. No model is asked, no tool runs, and no connection is opened but that to the store.

  `--with` names a function of the application that returns the options of `AshAgent.Test.replay/2`: the model, tools, prompt and views of today. It
  gets the conversation, an `AshAgent.Context`, if it takes one argument, and returns `nil` for those whose messages alone are to be compared. So a deployment changes no prompt, schema or option unnoticed:

      def today, do: [llm: llm(), tools: tools(), system_prompt: prompt()]

  The first differences of each conversation are listed, then the causes with how many conversations have them. Conversations that keep
  nothing of their requests are counted as not comparable.

  The exit status is 1 if something differs or a conversation cannot be loaded, so that CI can use it, and 2 if nothing could be compared.

  ## Options

    * `--id ID` - this conversation alone; may be given several times. Needs one store.
    * `--status STATUS` - those of this status alone, such as `idle`.
    * `--limit NUMBER` - the newest alone. Without it, all conversations of the stores are compared.
    * `--with FUNCTION` - see above.
    * `--against PROVIDER` - tells instead what each conversation would lose if it went on with this provider.
    * `--show NUMBER` - how many conversations to list. Defaults to 20.
    * `--json` - prints a line of JSON for each that differs, and no bar.
  """

  use Mix.Task

  defmodule Tally do
    @moduledoc false

    # compared, unknown, broken: conversations that were, that keep nothing, and that cannot be loaded. requests: those
    # compared. causes: the number of conversations with each. shown: lines that were printed.
    defstruct [compared: 0, unknown: 0, broken: 0, different: 0] ++
                [requests: 0, causes: %{}, shown: 0]
  end

  alias AshAgent.{ChatContext, Context, Store}
  alias AshAgent.Context.JSON
  alias AshAgent.LLM.Difference
  alias AshAgent.Test.Replay
  alias Mix.AshAgent.Sources

  @requirements ["app.config"]

  @options [id: :keep, status: :string, limit: :integer, with: :string] ++
             [against: :string, show: :integer, json: :boolean]

  @usage "usage: mix ash_agent.replay STORE|FILE..., with [--id ID] [--status STATUS] [--limit NUMBER] [--with FUNCTION] " <>
           "[--against PROVIDER] [--show NUMBER] [--json]"

  @impl true
  def run(args) do
    case OptionParser.parse(args, strict: @options) do
      {opts, [_ | _] = sources, []} -> replay(sources, opts)
      {_opts, _sources, [{option, _value} | _]} -> Mix.raise("wrong option #{option}; #{@usage}")
      {_opts, [], []} -> Mix.raise("expected a store or a file; #{@usage}")
    end
  end

  defp replay(sources, opts) do
    compare = compare(opts)
    {counts, lists} = sources |> Enum.map(&list(&1, opts)) |> Enum.unzip()
    total = Enum.sum(counts)

    state =
      lists
      |> Stream.concat()
      |> Task.async_stream(&compare_one(&1, compare), timeout: :infinity)
      |> Stream.with_index(1)
      |> Enum.reduce(%Tally{}, fn {{:ok, {id, outcome}}, number}, state ->
        unless opts[:json], do: draw_bar(number, total)
        count(state, id, outcome, opts)
      end)

    unless opts[:json], do: summarize(state, opts)

    cond do
      state.different > 0 or state.broken > 0 -> exit({:shutdown, 1})
      state.compared == 0 -> exit({:shutdown, 2})
      true -> :ok
    end
  end

  ## The conversations

  # Returns the number of conversations, and functions that load them.
  defp list(source, opts) do
    ids = Keyword.get_values(opts, :id)

    cond do
      not Sources.store?(source) and ids == [] ->
        {1, [{source, fn -> Sources.load_file(source) end}]}

      not Sources.store?(source) ->
        Mix.raise("--id needs a store, and #{source} is none")

      true ->
        store = Sources.open_store(source, "")
        list = fn -> list_ids(store, filter(opts), opts[:limit] || :infinity, []) end
        ids = if ids == [], do: list.(), else: ids
        {length(ids), for(id <- ids, do: {id, fn -> Store.fetch(store, id) end})}
    end
  end

  @page 500

  defp list_ids(store, filter, left, found) do
    page = if left == :infinity, do: @page, else: min(left, @page)
    listed = Sources.ok!(Store.list(store, [limit: page] ++ filter))
    found = [Enum.map(listed.conversations, & &1.id) | found]
    left = if left == :infinity, do: left, else: left - length(listed.conversations)

    if listed.next == nil or left == 0,
      do: found |> Enum.reverse() |> Enum.concat(),
      else: list_ids(store, Keyword.put(filter, :after, listed.next), left, found)
  end

  @statuses Store.Conversation.statuses()

  defp filter(opts) do
    if opts[:limit] && opts[:limit] < 1, do: Mix.raise("--limit takes a positive number")

    for name <- List.wrap(opts[:status]) do
      status = Enum.find(@statuses, &(Atom.to_string(&1) == name))
      {:status, status || Mix.raise("a status is one of #{Enum.join(@statuses, ", ")}")}
    end
  end

  ## Comparing

  defp compare(opts) do
    provider = Sources.provider(opts[:against])
    today = if opts[:with], do: Sources.find_function(opts[:with], [0, 1], "--with ")

    cond do
      provider && today ->
        Mix.raise("--against and --with exclude each other")

      provider ->
        &compare_with(&1, provider)

      true ->
        &Replay.run(&1, today(today, &1))
    end
  end

  defp today(nil, _context), do: []
  defp today(function, _context) when is_function(function, 0), do: function.() || []
  defp today(function, context), do: function.(context) || []

  # Parts that another provider would not take as they are.
  defp compare_with(context, provider) do
    changes =
      for change <- Context.request_report(context, provider, pending: :interrupt) do
        difference = %Difference{
          cause: :message,
          where: describe_change(context, change, provider)
        }

        %{iteration: change.iteration, differences: [difference]}
      end

    count = Context.count_iterations(context)
    %Replay{requests: count, compared: count, different: changes}
  end

  defp describe_change(context, change, provider) do
    what = change.change |> to_string() |> String.replace("_", " ")

    "#{Replay.describe_message(context, change.iteration, change.position)}, for #{provider}: #{what}"
  end

  defp compare_one({id, load}, compare) do
    case load.() do
      {:ok, %Store.Conversation{value: value}} -> {id, value |> contexts() |> merge(compare)}
      {:ok, value} -> {id, value |> contexts() |> merge(compare)}
      {:error, :not_found} -> {id, {:broken, "there is no such conversation"}}
      {:error, error} -> {id, {:broken, Exception.message(error)}}
    end
  end

  # The common iterations of a chat's branches are compared with each, and reported once.
  defp contexts(%ChatContext{} = chat),
    do: for(%{context: %Context{} = context} <- ChatContext.branches(chat), do: context)

  defp contexts(%Context{} = context), do: [context]

  defp merge(contexts, compare) do
    found = Enum.map(contexts, compare)

    %Replay{
      requests: found |> Enum.map(& &1.requests) |> Enum.sum(),
      compared: found |> Enum.map(& &1.compared) |> Enum.sum(),
      different: found |> Enum.flat_map(& &1.different) |> Enum.uniq()
    }
  end

  ## Telling

  defp count(state, id, {:broken, words}, opts) do
    tell(%{state | broken: state.broken + 1}, opts, "#{id}: #{words}", %{id: id, error: words})
  end

  defp count(state, _id, %{compared: 0, different: []}, _opts),
    do: %{state | unknown: state.unknown + 1}

  defp count(state, _id, %{different: []} = found, _opts), do: add_compared(state, found)

  defp count(state, id, %{different: different} = found, opts) do
    all =
      for %{iteration: number, differences: differences} <- different,
          one <- differences,
          do: one |> Map.take([:cause, :where, :was, :is]) |> Map.put(:iteration, number)

    causes = all |> Enum.map(& &1.cause) |> Enum.uniq() |> Map.new(&{&1, 1})
    causes = Map.merge(state.causes, causes, fn _cause, count, one -> count + one end)
    [%{iteration: number, differences: [first | _]} | _] = different
    line = "#{id}, request of iteration #{number}: #{first}"
    state = %{add_compared(state, found) | different: state.different + 1, causes: causes}
    tell(state, opts, line, %{id: id, differences: all})
  end

  defp add_compared(state, found),
    do: %{state | compared: state.compared + 1, requests: state.requests + found.compared}

  defp tell(state, opts, line, json) do
    cond do
      opts[:json] ->
        Mix.shell().info(JSON.encode(json))

      state.shown < (opts[:show] || 20) ->
        clear_bar()
        Mix.shell().info(line)

      true ->
        :ok
    end

    %{state | shown: state.shown + 1}
  end

  defp summarize(state, opts) do
    clear_bar()
    hidden = state.shown - (opts[:show] || 20)
    if hidden > 0, do: Mix.shell().info("and #{hidden} more conversations")

    for {cause, count} <- Enum.sort_by(state.causes, &{-elem(&1, 1), elem(&1, 0)}),
        do: Mix.shell().info("#{describe_cause(cause)}: #{count} conversations")

    Mix.shell().info(
      "#{state.compared} conversations with #{state.requests} requests compared, #{state.different} differ; " <>
        "#{state.unknown} not comparable" <>
        if(state.broken > 0, do: "; #{state.broken} cannot be loaded", else: "")
    )
  end

  @causes %{
    message: "messages",
    field: "model and options",
    system: "system prompt",
    view: "views"
  }

  defp describe_cause(:version), do: "version of the package"
  defp describe_cause(cause), do: Map.get(@causes, cause, to_string(cause))

  ## The bar

  @width 40

  # A terminal shows it; a file of CI's does not.
  defp draw_bar(number, total) do
    if total > 1 and terminal?() and
         (number == total or rem(number, max(div(total, 200), 1)) == 0) do
      full = div(number * @width, total)
      bar = String.duplicate("#", full) <> String.duplicate(".", @width - full)
      IO.write(:stderr, "\r#{bar} #{number}/#{total}")
    end
  end

  defp clear_bar, do: if(terminal?(), do: IO.write(:stderr, "\r\e[2K"))

  defp terminal?, do: match?({:ok, _columns}, :io.columns(:standard_error))
end
