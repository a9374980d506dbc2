defmodule AshAgent.Context.Enhancers do
  @moduledoc false

  # Runs enhancers, one after the other, for `AshAgent.Context.enhance/3`. It knows a context only as what enhancers take
  # and return.

  alias AshAgent.Context.{Error, Options}
  alias AshAgent.Options, as: Check

  @type enhancer :: module() | {module(), keyword()} | (struct(), map() -> term())

  @type report :: %{skipped: [%{enhancer: module() | function(), error: Error.t()}]}

  @doc """
  Runs enhancers on a context. `same_log?` tells whether two contexts have the same log.
  """
  @spec run(struct(), [enhancer()], keyword(), (struct(), struct() -> boolean())) ::
          {:ok, struct(), report()} | {:error, Error.t()}
  def run(context, enhancers, opts, same_log?) do
    opts = Options.validate!(opts, :enhance)
    rules = %{needs: needs(opts[:needs]), on_error: opts[:on_error], same_log?: same_log?}
    enhancers |> Enum.map(&prepare!/1) |> each(context, rules, [])
  end

  defp each([], context, _rules, skipped),
    do: {:ok, context, %{skipped: Enum.reverse(skipped)}}

  defp each([{name, fun} | rest], context, rules, skipped) do
    case attempt(fn -> context |> fun.(rules.needs) |> checked(context, rules.same_log?) end) do
      {:ok, next} ->
        each(rest, next, rules, skipped)

      {:error, reason} ->
        error = %Error{reason: {:enhancer_failed, name, reason}}

        case decide(rules.on_error, name, error) do
          :skip ->
            each(rest, context, rules, [%{enhancer: name, error: error} | skipped])

          :stop ->
            {:error, error}
        end
    end
  end

  @doc "What a function returns, or `{:error, reason}` when it fails."
  @spec attempt(fun()) :: term() | {:error, term()}
  def attempt(fun) do
    fun.()
  rescue
    exception -> {:error, exception}
  catch
    kind, reason -> {:error, {kind, reason}}
  end

  defp checked({:ok, %module{} = next}, %module{} = context, same_log?),
    do: if(same_log?.(context, next), do: {:ok, next}, else: {:error, :log_changed})

  defp checked({:error, reason}, _context, _same_log?), do: {:error, reason}
  defp checked(other, _context, _same_log?), do: {:error, {:bad_return, other}}

  defp decide(on_error, _name, _error) when is_atom(on_error), do: on_error

  defp decide(on_error, name, error) do
    case on_error.(name, error) do
      decision when decision in [:skip, :stop] ->
        decision

      other ->
        raise ArgumentError,
              "expected :on_error to return :skip or :stop, got: #{Check.kind(other)}"
    end
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

  # Options are not shown: they may hold keys.
  defp refuse(got) do
    raise ArgumentError,
          "expected an enhancer: a function of arity 2, or a module with enhance/3, alone or with its options, got: #{got}"
  end

  defp needs(needs) do
    for need <- needs,
        {name, value} = if(is_atom(need), do: {need, true}, else: need),
        value not in [nil, false],
        into: %{},
        do: {name, value}
  end
end
