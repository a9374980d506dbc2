defmodule AshAgent.Context.Enhancer do
  @moduledoc """
  A behaviour for steps that shape the view of a context before a model sees it. `AshAgent.Context.enhance/3` runs them.

      iex> alias AshAgent.Context
      iex> alias AshAgent.Context.Enhancer.{Budget, Memory, Redact}
      iex> context = Context.new("I am ann@example.com. Book my usual flight.", system_prompt: "You book flights.")
      iex> enhancers = [
      ...>   {Redact, patterns: [:email]},
      ...>   {Memory, profile: fn _context -> "Flies from Oslo, aisle seat." end},
      ...>   {Budget, budget: 8_000, reserve: 1_000}
      ...> ]
      iex> {:ok, context, %{skipped: []}} = Context.enhance(context, enhancers, needs: [:profile])
      iex> Context.to_messages(context)
      [
        %{role: :system, content: "You book flights.\\n\\n## User profile\\n\\nFlies from Oslo, aisle seat."},
        %{role: :user, content: "I am [redacted]. Book my usual flight."}
      ]

  `AshAgent.Context.Enhancer.Budget` keeps the view within a number of tokens, `AshAgent.Context.Enhancer.Memory` puts
  what the application remembers into the system prompt, and `AshAgent.Context.Enhancer.Redact` masks patterns. The guide
  [Budgets and views](budgets.html) shows all three.

  Order matters. Put `Redact` first, so that no loader and no summariser sees masked text, and `Budget` last, so that it
  counts the text that the others add.

  ## Writing an enhancer

  An enhancer is a function that takes the context and the needs, or a module, alone or with its options:

      defmodule MyApp.Clock do
        @behaviour AshAgent.Context.Enhancer

        @impl true
        def prepare(opts), do: Keyword.validate!(opts, zone: "Etc/UTC")

        @impl true
        def enhance(context, needs, opts) do
          time = if needs[:clock], do: "It is \#{DateTime.now!(opts[:zone])}."
          {:ok, AshAgent.Context.put_prompt_block(context, :clock, time)}
        end
      end

  An enhancer may call any function that changes the view: `AshAgent.Context.fit/3`, `compact/3`, `clear_tool_results/2`,
  `put_max_result_bytes/3`, `put_prompt_block/4`, `put_masks/3`, `expand/3`. It may not change the log, which is the
  iterations with their messages and results, the system prompt, metadata and the id: a context with another log is
  refused.

  Enhancers run again and again on the same conversation. An enhancer that changes nothing when it runs on its own output
  keeps the beginning of requests stable, and with it providers' prompt caches. Those of this package do.

  ## Failures

  An enhancer fails if it returns `{:error, reason}`, raises, throws, exits, returns anything else, or changes the log.
  The option `:on_error` of `AshAgent.Context.enhance/3` decides what happens then. If the enhancer is skipped, the next
  one gets the context from before it.

  Enhancers run in the calling process, one after the other. There is no time limit: set your own within the enhancer.
  """

  alias AshAgent.Context

  @typedoc """
  The needs by name. The value is the one that `AshAgent.Context.enhance/3` was given with the name, or `true`.
  """
  @type needs :: %{optional(atom()) => term()}

  @type result :: {:ok, Context.t()} | {:error, reason :: term()}

  @typedoc "An enhancer."
  @type t :: Context.enhancer()

  @typedoc "The enhancer that an error is about: the module, without its options, or the function."
  @type name :: module() | (Context.t(), needs() -> result())

  @typedoc "The report of `AshAgent.Context.enhance/3`: the enhancers that failed and were skipped, in order."
  @type report :: %{skipped: [%{enhancer: name(), error: Context.Error.t()}]}

  @doc """
  Changes the view of the context and returns `{:ok, context}` or `{:error, reason}`.

  `opts` are the enhancer's own options, as `c:prepare/1` returned them.
  """
  @callback enhance(context :: Context.t(), needs(), opts :: keyword()) :: result()

  @doc """
  Checks an enhancer's own options and returns those that `c:enhance/3` gets.

  It is called before the first enhancer runs. If it raises, `AshAgent.Context.enhance/3` raises, so that a wrong option is never
  skipped like a failure.
  """
  @callback prepare(opts :: keyword()) :: keyword()

  @optional_callbacks prepare: 1
end
