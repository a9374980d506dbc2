defmodule AshAgent.Trace.Stored do
  @moduledoc """
  Shows conversations of a store: as pages, at a terminal, as a list. Works in a release, where there is no Mix:

      bin/my_app rpc 'AshAgent.Trace.Stored.print(MyApp.store(), "user-17")'

  `mix ash_agent.trace` does the same on the command line, and `AshAgent.Trace.Plug` of `ash_agent_web` in a browser. Nothing is claimed or changed, so you can look at
  running conversations, as they were last written.
  """

  use AshAgent.Arguments

  alias AshAgent.{ChatContext, Context, Deadline, Options, Prices, Store, Trace}
  alias AshAgent.Runtime.{Ended, Spent}
  alias AshAgent.Store.Error

  @masked Options.schema([
            {:masked, :boolean, [default: true],
             "whether texts that the conversation's view masks are masked here."}
          ])
  @html Options.schema([
          {:title, :string, "the page's title. Defaults to the conversation's id."},
          {:children, :boolean, [default: true],
           "whether the stored conversations of sub-agents are shown with their calls."},
          {:request, {:custom, &Trace.request?/1},
           [type_doc: "a provider, or `{provider, options}`"],
           "shows the request that would be sent to this provider now. Defaults to none."}
        ]) ++ Prices.schema() ++ @masked
  @print Options.schema([
           {:limit, :pos_integer, [default: 50], "how many of the newest messages to print."},
           {:width, {:or, [:pos_integer, {:in, [:infinity]}]},
            [type_doc: "a number of columns or `:infinity`"],
            "where lines are cut. Defaults to that of `AshAgent.Context.print/2`."}
         ]) ++ @masked
  @list Options.schema([
          {:status, {:in, Store.Conversation.statuses()},
           "only those of this status. Defaults to all."},
          {:limit, :pos_integer, [default: 20], "how many, those that changed last."},
          {:model, :string, "only those in which this model answered."},
          {:outcome, {:in, Ended.outcomes()}, "only those whose last turn ended so."},
          {:day, {:struct, Date}, "only those that changed last on this day, in UTC."},
          {:above, :non_neg_integer,
           "only those that cost more than this, in 10^-12 US dollars."},
          {:most, :pos_integer, [default: 500],
           "how many are looked at for these four. Nor is more than five seconds."}
        ]) ++ Prices.schema()

  # Milliseconds.
  @patience 5_000

  # Sub-agents of a conversation that are shown.
  @children 1_000

  @doc """
  Returns `{:ok, page}` with the HTML of `AshAgent.Trace.to_html/2`, or `{:error, :not_found | %AshAgent.Store.Error{}}`.

  ## Options

  #{Options.docs(@html)}

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Store.create(store, AshAgent.Context.new("Hello!", id: "c1"))
      iex> {:ok, page} = AshAgent.Trace.Stored.to_html(store, "c1")
      iex> page =~ "Hello!"
      true
      iex> AshAgent.Trace.Stored.to_html(store, "c2")
      {:error, :not_found}
  """
  @doc since: "0.1.0"
  @spec to_html(Store.t(), Store.id(), keyword()) ::
          {:ok, String.t()} | {:error, :not_found | Error.t()}
  def to_html(store, id, opts \\ []) when is_binary(id) do
    {children?, opts} = opts |> Options.validate!(@html) |> Keyword.pop!(:children)

    with {:ok, %{value: shown}} <- Store.fetch(store, id),
         {:ok, children} <- if(children?, do: fetch_children(store, id), else: {:ok, []}) do
      {:ok, Trace.to_html(shown, [children: children] ++ Keyword.put_new(opts, :title, id))}
    end
  end

  @doc """
  Prints a conversation, or the active branch of a chat, as `AshAgent.Context.print/2` does. Returns `:ok` or an error.

  ## Options

  #{Options.docs(@print)}
  """
  @doc since: "0.1.0"
  @spec print(Store.t(), Store.id(), keyword()) :: :ok | {:error, :not_found | Error.t()}
  def print(store, id, opts \\ []) when is_binary(id) do
    opts = Options.validate!(opts, @print)

    with {:ok, %{value: shown}} <- Store.fetch(store, id) do
      shown |> active() |> Context.print(opts)
      :ok
    end
  end

  @doc """
  Returns `{:ok, rows}` with the conversations that changed last, or `{:error, error}`.

  A row has the `:id`, the `:status`, `:updated_at`, how many `:iterations` and `:failures` there are
  (see `AshAgent.Context.Audit.failures/1`), the `:models` that answered, the `:outcome` of the last turn, the `:usage`, and the `:cost` in 10^-12
  US dollars: what its turns cost when they ran with `:prices`, sub-agents included; otherwise, with `:prices` here, what the answers of the log cost, and
  else `nil`. What a fork has from its source counts there. Each row's
  conversation is loaded, so a list of 20 takes as long as opening 20.

  ## Options

  #{Options.docs(@list)}

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Store.create(store, AshAgent.Context.new("Hello!", id: "c1"))
      iex> {:ok, [row]} = AshAgent.Trace.Stored.list(store)
      iex> {row.id, row.status, row.iterations, row.failures}
      {"c1", :idle, 1, 0}
  """
  @doc since: "0.1.0"
  @spec list(Store.t(), keyword()) :: {:ok, [map()]} | {:error, Error.t()}
  def list(store, opts \\ []) do
    opts = Options.validate!(opts, @list)
    with {:ok, found, _looked} <- find(store, opts), do: {:ok, Enum.take(found, opts[:limit])}
  end

  @filters [:model, :outcome, :day, :above]

  @doc false
  # Returns `{:ok, rows, looked}` with all that were found among so many, of which a list without filters has as many as it shows.
  def find(store, opts) do
    filters = Keyword.take(opts, @filters)
    most = if filters == [], do: opts[:limit], else: opts[:most]
    listed = [limit: most] ++ Keyword.take(opts, [:status]) ++ day(filters[:day])
    deadline = Deadline.new(@patience)

    with {:ok, %{conversations: kept}} <- Store.list(store, listed) do
      looked = for one <- kept, Deadline.left(deadline) > 0, do: row(store, one, opts[:prices])

      {:ok, looked |> Enum.concat() |> Enum.filter(&meets?(&1, filters)), length(looked)}
    end
  end

  defp day(nil), do: []

  defp day(day) do
    [since, until] = for date <- [day, Date.add(day, 1)], do: DateTime.new!(date, ~T[00:00:00])
    [since: since, until: until]
  end

  @doc false
  def meets?(row, filters) do
    Enum.all?(filters, fn
      {:model, model} -> model in row.models
      {:outcome, outcome} -> row.outcome == outcome
      {:day, day} -> DateTime.to_date(row.updated_at) == day
      {:above, cost} -> row.cost != nil and row.cost > cost
    end)
  end

  # One that was deleted in the meantime has no row.
  defp row(store, %{id: id} = kept, prices) do
    with {:ok, %{value: shown}} <- Store.fetch(store, id),
         {:ok, spent, outcome} <- Spent.fetch(store, id) do
      context = active(shown)
      row = describe(context, kept.status, kept.updated_at, nil)
      [%{add_requests(row, context, prices) | id: id, outcome: outcome} |> put_paid(spent)]
    else
      {:error, _reason} -> []
    end
  end

  # Where all has been paid for, that counts, and no price of today.
  defp put_paid(row, %{cost: cost, unpriced: nil} = spent) when cost != nil,
    do: %{row | cost: cost, usage: spent}

  defp put_paid(%{cost: nil} = row, %{input_tokens: input} = spent) when input != nil,
    do: %{row | cost: spent.cost, usage: spent}

  defp put_paid(row, _spent), do: row

  @doc false
  # Adds what the answers tell, but for those that a fork has from another conversation.
  def add_requests(row, context, prices) do
    since = with %{iteration: number} <- context[:origin], do: number, else: (nil -> 1)
    account = Context.Audit.account(context, prices: prices || [], since: since)

    usage =
      Enum.reduce(account.requests, %{}, fn one, sums ->
        Map.merge(sums, one.usage, fn _, a, b -> a + b end)
      end)

    models = for %{model: model} when model != nil <- account.requests, uniq: true, do: model
    cost = if prices not in [nil, []], do: account.cost
    Map.merge(row, %{models: models, outcome: nil, usage: usage, cost: cost})
  end

  @doc false
  def describe(context, status, updated_at, prices) do
    %{
      id: context[:id],
      status: status,
      updated_at: updated_at,
      iterations: Context.count_iterations(context),
      failures: context |> Context.Audit.failures() |> Enum.map(& &1.count) |> Enum.sum(),
      cost: cost(context, prices)
    }
  end

  @doc false
  # Costs are in 10^-12 dollars.
  def format_cost(nil), do: ""
  def format_cost(cost), do: "$#{:erlang.float_to_binary(cost / 1.0e12, decimals: 4)}"

  @doc false
  def cost(_context, prices) when prices in [nil, []], do: nil

  def cost(context, prices) do
    case Context.Audit.fetch_cost(context, prices: prices) do
      {:ok, cost} -> cost
      {:error, _no_price} -> nil
    end
  end

  @doc false
  def active(%ChatContext{} = chat), do: ChatContext.active(chat).context
  def active(%Context{} = context), do: context

  @doc false
  # What is printed with these options, without colours.
  def print_text(context, opts) do
    {:ok, device} = StringIO.open("")
    Context.print(context, [device: device, color: false] ++ opts)
    {:ok, {_input, text}} = StringIO.close(device)
    text
  end

  # Forks have the same parent, and are conversations of their own.
  defp fetch_children(store, id) do
    with {:ok, %{conversations: found}} <- Store.list(store, parent_id: id, limit: @children) do
      contexts =
        for %{metadata: %{parent_id: ^id}} = kept <- found,
            {:ok, %{value: context}} <- [Store.fetch(store, kept.id)],
            do: context

      deeper =
        for context <- contexts, {:ok, more} <- [fetch_children(store, context[:id])], do: more

      {:ok, contexts ++ List.flatten(deeper)}
    end
  end
end
