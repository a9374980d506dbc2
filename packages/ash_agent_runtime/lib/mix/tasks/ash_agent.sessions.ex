defmodule Mix.Tasks.AshAgent.Sessions do
  @shortdoc "Lists conversations that run, wait or are parked, and pauses, resumes and cancels them"

  @moduledoc """
  Lists the conversations that run, wait or are parked, with age, cost, last failure and owner. Also pauses, resumes and cancels turns.

      mix ash_agent.sessions --store agents.db
      mix ash_agent.sessions --store MyApp.Repo --prices prices.json --texts
      mix ash_agent.sessions --node my_app@host --sessions MyApp.Sessions
      mix ash_agent.sessions --node my_app@host --sessions MyApp.Sessions --pause user-17
      mix ash_agent.sessions --node my_app@host --sessions MyApp.Sessions --resume user-17 --max-cost 5.00

  A store, see `mix ash_agent.trace`, is enough for the list. To change something, name the `AshAgent.Sessions` and a node that runs them. Without
  `--node`, the application is started here. In a release, use `AshAgent.Sessions.print_overview/2` and the functions beside it.

  ## Options

    * `--store STORE` - lists the conversations of this store.
    * `--sessions NAME` - the name of the `AshAgent.Sessions`.
    * `--node NODE`, `--cookie COOKIE` - a node that runs them, and its cookie if it is not that of `~/.erlang.cookie`.
    * `--all` - lists idle conversations, too.
    * `--limit NUMBER` - how many to list. Defaults to 100.
    * `--prices FILE` - a file that `AshAgent.Prices.read/2` reads: the list has what the conversations cost.
    * `--texts` - shows the newest messages, and what servers said of failures. Control characters are made visible.
    * `--pause ID` - pauses the turn at its next step.
    * `--resume ID` - goes on with the turn, and waits for its end.
    * `--cancel ID` - cancels the turn.
    * `--max-cost DOLLARS`, `--max-iterations NUMBER`, `--max-calls NUMBER`, `--max-total-tokens NUMBER` - with `--resume`, the limits of the
      turn from now on.
  """

  use Mix.Task

  alias AshAgent.Sessions
  alias AshAgent.Sessions.Overview
  alias Mix.AshAgent.Sources

  @requirements ["app.config"]

  @limits [max_iterations: :integer, max_calls: :integer, max_total_tokens: :integer] ++
            [max_cost: :float]
  @texts ~w(store sessions node cookie prices pause resume cancel)a
  @options Enum.map(@texts, &{&1, :string}) ++
             @limits ++ [limit: :integer, all: :boolean, texts: :boolean]

  @usage "usage: mix ash_agent.sessions --store STORE or --sessions NAME [--node NODE], with [--all] [--texts] [--limit NUMBER] " <>
           "[--prices FILE], or with --pause ID, --resume ID or --cancel ID"

  @impl true
  def run(args) do
    with {opts, [], []} <- OptionParser.parse(args, strict: @options),
         true <- Keyword.has_key?(opts, :store) != Keyword.has_key?(opts, :sessions) do
      case Keyword.take(opts, [:pause, :resume, :cancel]) do
        [] -> list(opts)
        [{action, id}] -> act(action, id, Map.new(opts))
        _several -> Mix.raise("one of --pause, --resume and --cancel at a time; #{@usage}")
      end
    else
      {_opts, _names, [{option, _value} | _]} -> Mix.raise("wrong option #{option}; #{@usage}")
      _wrong -> Mix.raise("expected --store or --sessions; #{@usage}")
    end
  end

  defp list(opts) do
    status = if opts[:all], do: [status: AshAgent.Store.Conversation.statuses()], else: []
    how = Keyword.take(opts, [:limit, :texts]) ++ Sources.prices(opts[:prices]) ++ status

    rows =
      if opts[:store],
        do: opts[:store] |> Sources.open_store("--store ") |> Sessions.overview(how),
        else: call(opts, :overview, [how])

    case Sources.ok!(rows) do
      [] -> Mix.shell().info("nothing runs, waits or is parked")
      rows -> for row <- rows, do: Mix.shell().info(Overview.line(row))
    end
  end

  defp act(_action, _id, %{store: _}), do: Mix.raise("a store alone runs nothing; #{@usage}")

  defp act(action, id, opts) do
    limits =
      for {name, most} <- Map.take(opts, Keyword.keys(@limits)),
          do: {name, if(name == :max_cost, do: round(most * 1.0e12), else: most)}

    args = if action == :resume, do: [id, limits], else: [id]

    case call(opts, action, args) do
      :ok -> Mix.shell().info("#{id}: done")
      {:ok, %{status: status}} -> Mix.shell().info("#{id}: #{status}")
      {:paused, _paused} -> Mix.shell().info("#{id}: waits for a decision")
      {:error, reason} when is_atom(reason) -> Mix.raise("#{id}: #{reason}")
      {:error, error} -> Mix.raise("#{id}: " <> Exception.message(error))
    end
  end

  defp call(opts, function, args) do
    args = [Module.concat([opts[:sessions]]) | args]

    if opts[:node] do
      :erpc.call(connect(opts[:node], opts[:cookie]), Sessions, function, args)
    else
      Mix.Task.run("app.start")
      apply(Sessions, function, args)
    end
  end

  defp connect(name, cookie) do
    node = String.to_atom(name)
    kind = if name =~ ~r/@.*\./, do: :longnames, else: :shortnames
    host = name |> String.split("@") |> List.last()
    unless Node.alive?(), do: {:ok, _} = Node.start(:"ash_agent_#{System.pid()}@#{host}", kind)
    if cookie, do: Node.set_cookie(node, String.to_atom(cookie))
    if Node.connect(node) == true, do: node, else: Mix.raise("the node #{name} cannot be reached")
  end
end
