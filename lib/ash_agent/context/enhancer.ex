defmodule AshAgent.Context.Enhancer do
  @moduledoc """
  A behaviour for steps that shape the view of a context before a model sees it. `run/3` runs them.

      iex> alias AshAgent.Context
      iex> mask = fn context, _needs -> {:ok, Context.View.put_masks(context, [{~r/\\S+@\\S+/, "[address]"}])} end
      iex> place = fn context, needs -> {:ok, Context.View.put_prompt_block(context, :place, needs[:place])} end
      iex> context = Context.new("I am ann@example.com. Book a flight.", system_prompt: "You book flights.")
      iex> {:ok, context, %{skipped: []}} = Context.Enhancer.run(context, [mask, place], needs: [place: "The user is in Oslo."])
      iex> Context.to_messages(context)
      [
        %{role: :system, content: "You book flights.\\n\\nThe user is in Oslo."},
        %{role: :user, content: "I am [address] Book a flight."}
      ]

  Three come with the package `ash_agent_runtime`: `AshAgent.Context.Enhancer.Budget` keeps the view within a number of tokens,
  `AshAgent.Context.Enhancer.Memory` puts what the application remembers into the system prompt, and
  `AshAgent.Context.Enhancer.Redact` masks patterns. The guide [Keep secrets from the model](masks.html#enhancers) shows all three.

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

  An enhancer may call any function that changes the view, such as those of `AshAgent.Context.View`. It may not change the log, which is the
  iterations with their messages and results, the system prompt, metadata and the id: a context with another log is
  refused.

  Enhancers run again and again on the same conversation. An enhancer that changes nothing when it runs on its own output
  keeps the beginning of requests stable, and so preserves providers' prompt caches. The three above are like that.

  ## Failures

  An enhancer fails if it returns `{:error, reason}`, raises, throws, exits, returns anything else, or changes the log.
  The option `:on_error` of `AshAgent.Context.Enhancer.run/3` decides what happens then. If the enhancer is skipped, the next
  one gets the context from before it.

  Enhancers run in the calling process, one after the other. There is no time limit: set your own within the enhancer.
  """

  use AshAgent.Arguments

  alias AshAgent.Context
  alias AshAgent.Context.{Error, Handle, Options}
  alias AshAgent.Options, as: Check

  @typedoc """
  The needs by name. The value is the one that `AshAgent.Context.Enhancer.run/3` was given with the name, or `true`.
  """
  @type needs :: %{optional(atom()) => term()}

  @type result :: {:ok, Context.t()} | {:error, reason :: term()}

  @typedoc "An enhancer."
  @type t :: module() | {module(), keyword()} | (Context.t(), needs() -> result())

  @typedoc "The enhancer that an error is about: the module, without its options, or the function."
  @type name :: module() | (Context.t(), needs() -> result())

  @typedoc "The report of `AshAgent.Context.Enhancer.run/3`: the enhancers that failed and were skipped, in order."
  @type report :: %{skipped: [%{enhancer: name(), error: Error.t()}]}

  @doc """
  Changes the view of the context and returns `{:ok, context}` or `{:error, reason}`.

  `opts` are the enhancer's own options, as `c:prepare/1` returned them.
  """
  @callback enhance(context :: Context.t(), needs(), opts :: keyword()) :: result()

  @doc """
  Checks an enhancer's own options and returns those that `c:enhance/3` gets.

  It is called before the first enhancer runs. If it raises, `AshAgent.Context.Enhancer.run/3` raises, so that a wrong option is never
  skipped like a failure.
  """
  @callback prepare(opts :: keyword()) :: keyword()

  @optional_callbacks prepare: 1

  @doc """
  Runs enhancers on the context, one after the other, and returns `{:ok, context, report}` or `{:error, error}`.

  Enhancers change the view, which models see, and never the log: they keep it within a budget, put memory into the system
  prompt, or mask patterns. Each gets the context that the one before returned. `AshAgent.Context.Enhancer` describes how
  to write them, and lists the existing ones.

  The error's reason is `{:enhancer_failed, enhancer, reason}`. `report.skipped` lists the enhancers that were skipped,
  each with its error. Raises `ArgumentError` for anything that is not an enhancer and for wrong options of an enhancer.

  ## Options

  #{Options.docs(:enhance)}

  ## Examples

      iex> alias AshAgent.Context
      iex> profile = fn context, _needs -> {:ok, Context.View.put_prompt_block(context, :profile, "Ann, a pilot.")} end
      iex> {:ok, context, %{skipped: []}} = Context.Enhancer.run(Context.new("Hello!"), [profile])
      iex> hd(Context.to_messages(context))
      %{role: :system, content: "Ann, a pilot."}
      iex> {:error, error} = Context.Enhancer.run(context, [fn _context, _needs -> {:error, :down} end])
      iex> {:enhancer_failed, _function, :down} = error.reason
  """
  @doc since: "0.1.0"
  @spec run(Context.t(), [t()], keyword()) :: {:ok, Context.t(), report()} | {:error, Error.t()}
  def run(%Context{} = context, enhancers, opts \\ [])
      when is_list(enhancers) and is_list(opts) do
    Handle.check!(context)
    opts = Options.validate!(opts, :enhance)
    needs = needs(opts[:needs])
    enhancers |> Enum.map(&prepare!/1) |> each(context, needs, opts[:on_error], [])
  end

  defp each([], context, _needs, _on_error, skipped),
    do: {:ok, context, %{skipped: Enum.reverse(skipped)}}

  defp each([{name, fun} | rest], context, needs, on_error, skipped) do
    case attempt(fn -> context |> fun.(needs) |> check_return(context) end) do
      {:ok, next} ->
        each(rest, next, needs, on_error, skipped)

      {:error, reason} ->
        error = %Error{reason: {:enhancer_failed, name, reason}}

        if decide(on_error, name, error) == :skip,
          do: each(rest, context, needs, on_error, [%{enhancer: name, error: error} | skipped]),
          else: {:error, error}
    end
  end

  @doc false
  def attempt(fun) do
    fun.()
  rescue
    exception -> {:error, exception}
  catch
    kind, reason -> {:error, {kind, reason}}
  end

  defp check_return({:ok, %struct{ref: _} = next}, %struct{} = context),
    do: if(same_log?(context, next), do: {:ok, next}, else: {:error, :log_changed})

  defp check_return({:error, reason}, _context), do: {:error, reason}
  defp check_return(other, _context), do: {:error, {:bad_return, other}}

  defp same_log?(a, b),
    do: a.current_iteration == b.current_iteration and (a.ref == b.ref or equal_log?(a, b))

  # Shared parts are not compared, and mostly all of them are shared.
  defp equal_log?(a, b) do
    Enum.all?([:id, :created_at, :metadata], &(Context.fetch(a, &1) === Context.fetch(b, &1))) and
      Context.system_prompt(a) === Context.system_prompt(b) and
      Context.diff(a, b) == %{last_common: a.current_iteration, a: [], b: []}
  end

  defp decide(on_error, _name, _error) when is_atom(on_error), do: on_error

  defp decide(on_error, name, error) do
    decision = on_error.(name, error)

    if decision in [:skip, :stop],
      do: decision,
      else: refuse("expected :on_error to return :skip or :stop, got: ", Check.kind(decision))
  end

  @doc """
  Checks enhancers, their options and those of `AshAgent.Context.Enhancer.run/3` without running them, and returns `:ok`.

  Raises `ArgumentError` as `AshAgent.Context.Enhancer.run/3` does.

  ## Examples

      iex> AshAgent.Context.Enhancer.check!([fn context, _needs -> {:ok, context} end])
      :ok
      iex> AshAgent.Context.Enhancer.check!([String])
      ** (ArgumentError) expected an enhancer: a function of arity 2, or a module with enhance/3, alone or with its options, got: String, which has no enhance/3
  """
  @doc since: "0.1.0"
  @spec check!([t()], keyword()) :: :ok
  def check!(enhancers, opts \\ []) when is_list(enhancers) do
    Enum.each(enhancers, &prepare!/1)
    Options.validate!(opts, :enhance)
    :ok
  end

  defp prepare!(function) when is_function(function, 2), do: {function, function}
  defp prepare!(module) when is_atom(module), do: prepare!({module, []})

  defp prepare!({module, opts}) when is_atom(module) and is_list(opts) do
    unless Code.ensure_loaded?(module) and function_exported?(module, :enhance, 3),
      do: refuse("#{inspect(module)}, which has no enhance/3")

    unless Keyword.keyword?(opts),
      do: refuse("#{inspect(module)} with options that are not a keyword list")

    opts = if function_exported?(module, :prepare, 1), do: module.prepare(opts), else: opts
    {module, &module.enhance(&1, &2, opts)}
  end

  defp prepare!(other), do: refuse(Check.kind(other))

  @expected "expected an enhancer: a function of arity 2, or a module with enhance/3, alone or with its options, got: "

  # Options are not shown: they may hold keys.
  defp refuse(got), do: refuse(@expected, got)
  defp refuse(expected, got), do: AshAgent.Caller.refuse!(expected <> got)

  defp needs(needs) do
    for need <- needs,
        {name, value} = if(is_atom(need), do: {need, true}, else: need),
        value not in [nil, false],
        into: %{},
        do: {name, value}
  end
end
