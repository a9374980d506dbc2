# How a context is inspected, and how its iterations are enumerated.

defimpl Inspect, for: AshAgent.Context do
  alias AshAgent.Context.{Error, Handle, Native}

  # Counts only: this ends up in logs. A handle from another node is still a context.
  def inspect(context, opts) do
    counts = counts(context)

    if opts.custom_options[:messages] == true,
      do: counts <> "\n" <> messages(context, opts),
      else: counts
  end

  defp messages(context, opts) do
    limit = if is_integer(opts.limit) and opts.limit < 1, do: 1, else: opts.limit
    width = if is_integer(opts.width) and opts.width > 0, do: opts.width, else: :infinity

    String.trim_trailing(
      AshAgent.Context.Printed.text(context, limit: limit, width: width, color: false)
    )
  rescue
    ArgumentError -> ""
  end

  defp counts(context) do
    %{messages: messages, pending: pending, hidden: view?} = Native.context_summary(context.ref)
    shown = if view?, do: "messages in view", else: "messages"

    "#AshAgent.Context<iteration #{context.current_iteration}, #{messages} #{shown}, #{pending} pending>"
  rescue
    ArgumentError ->
      "#AshAgent.Context<iteration #{context.current_iteration}, #{where(Handle.check(context))}>"
  end

  defp where({:error, %Error{reason: {:foreign_handle, node}}}) when node != node(),
    do: "on the node #{node}"

  defp where(_error), do: "without a handle of this VM"
end

defimpl Enumerable, for: AshAgent.Context do
  alias AshAgent.Context
  alias AshAgent.Context.Native

  def count(context), do: {:ok, Context.count_iterations(context)}

  def member?(_context, _iteration), do: {:error, __MODULE__}

  def slice(context) do
    first = Native.context_first_iteration(context.ref)

    slicer = fn start, length, step ->
      for offset <- start..(start + (length - 1) * step)//step,
          do: Context.get_iteration(context, first + offset)
    end

    {:ok, Context.count_iterations(context), slicer}
  end

  def reduce(context, acc, fun) do
    first = Native.context_first_iteration(context.ref)
    reduce(context, first, first + Context.count_iterations(context) - 1, acc, fun)
  end

  defp reduce(_context, _number, _last, {:halt, acc}, _fun), do: {:halted, acc}

  defp reduce(context, number, last, {:suspend, acc}, fun),
    do: {:suspended, acc, &reduce(context, number, last, &1, fun)}

  defp reduce(_context, number, last, {:cont, acc}, _fun) when number > last, do: {:done, acc}

  defp reduce(context, number, last, {:cont, acc}, fun),
    do:
      reduce(
        context,
        number + 1,
        last,
        fun.(Context.get_iteration(context, number), acc),
        fun
      )
end
