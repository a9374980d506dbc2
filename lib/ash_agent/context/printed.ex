defmodule AshAgent.Context.Printed do
  @moduledoc false

  # A conversation as text. It knows no struct, since AshAgent.Context is documented with its options.

  alias AshAgent.Context.{Error, Handle, Native}

  @masked AshAgent.Options.schema([
            {:masked, :boolean, [default: true], "whether to mask the texts that the view masks."}
          ])

  @options AshAgent.Options.schema([
             {:limit, {:or, [:pos_integer, {:in, [:infinity]}]}, [default: 50],
              "how many of the newest messages to print; results belong to the message with their calls."},
             {:width, {:or, [:pos_integer, {:in, [:infinity]}]},
              "the columns of a line. Each text is cut to one line; with `:infinity` it is printed whole. Defaults to the width " <>
                "of the terminal, or 120."},
             {:color, :boolean, "whether to print in colour. Defaults to `IO.ANSI.enabled?/0`."},
             {:mark, {:custom, &__MODULE__.mark?/1}, [type_doc: "`{iteration, position}`"],
              "puts an arrow before a call: the number of its iteration, and its position among the calls of that iteration, " <>
                "from 0. Defaults to no call."}
           ]) ++ @masked

  # No conversation has so many messages.
  @all 1_000_000_000

  def options, do: @options
  def mask_options, do: @masked

  def mark?({iteration, position}),
    do: is_integer(iteration) and is_integer(position) and iteration >= 0 and position >= 0

  def mark?(_other), do: false

  def text(context, opts) do
    opts = AshAgent.Options.validate!(opts, @options)
    width = Keyword.get_lazy(opts, :width, &columns/0)

    how = %{
      limit: if(opts[:limit] == :infinity, do: @all, else: opts[:limit]),
      width: if(width != :infinity, do: width),
      color: Keyword.get_lazy(opts, :color, &IO.ANSI.enabled?/0),
      mark: opts[:mark]
    }

    case Native.trace_print([describe(context, true)], opts[:masked], how) do
      {:ok, text} -> text
      {:error, reason} -> raise Error, reason: reason
    end
  end

  @doc "A context on its own, as the core is told of it; see `AshAgent.Trace`."
  def describe(%{ref: ref} = context, active?) do
    Handle.check!(context)
    id = Native.context_id(ref)
    {"conversation #{id}", id, nil, nil, active?, ref}
  end

  defp columns do
    case :io.columns() do
      {:ok, columns} -> max(columns, 60)
      _ -> 120
    end
  end
end
