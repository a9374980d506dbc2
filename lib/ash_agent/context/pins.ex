defmodule AshAgent.Context.Pins do
  @moduledoc """
  Pins: messages, results and facts that no policy removes from the view.

      iex> alias AshAgent.Context
      iex> context = Context.new("Book it") |> Context.add_assistant_message(nil, [%{id: "a", name: :book, arguments: %{}}])
      iex> context = Context.add_tool_results(context, [{"a", {:ok, "The booking is QX7R2M.\\nThank you."}}])
      iex> context = context |> Context.Pins.pin({:fact, "QX7R2M"}) |> Context.View.clear_tool_results(keep: 0)
      iex> [%{content: [%{content: text}]}] = context |> Context.to_messages() |> Enum.take(-1)
      iex> text
      "[Old tool result cleared]\\nThe booking is QX7R2M."

  | pin | what stays |
  |---|---|
  | `{:iteration, number}` | all of an iteration |
  | `{:message, number, position}` | a message: the number of its iteration, and its position there from 0 |
  | `{:call, id}` | a call with its result: the newest with this id |
  | `{:fact, text}` | the lines that have this text, of each message and result the first |

  A pinned result is neither cleared nor shortened. If an iteration is hidden or summarised, its pinned messages and
  results appear in the block or summary that replaces it. Masks apply to them.

  You need not pin the user's words: the block that replaces hidden iterations quotes them, the newest first, up to
  the option `:user_bytes` of `AshAgent.Context.Recall.put_recall/3` and an eighth of what is hidden. There
  is such a block if the view has handles.

  There may be 100 pins. If they leave a budget no room, `AshAgent.Context.View.fit/3` returns the error
  `{:pins_too_long, names, least}`. They are stored with the view. A rewind takes those of what it takes away.
  """

  use AshAgent.Arguments

  alias AshAgent.{Caller, Context}
  alias AshAgent.Context.{Error, Native, Options, Reply}
  alias AshAgent.Context.Options.Kinds

  @typedoc "A part of the conversation that stays in the view."
  @type pin ::
          {:iteration, pos_integer()}
          | {:message, pos_integer(), non_neg_integer()}
          | {:call, String.t()}
          | {:fact, String.t()}

  @doc """
  Pins something, and returns the new context.

  Takes the option `:at` as `AshAgent.Context.put_metadata/4` does. Raises `AshAgent.Context.Error` with
  `{:unknown_pin, name}` or `{:too_many_pins, most}`. Costs O(size of the log) if iterations are hidden.

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("Never delete anything.") |> Context.add_assistant_message("Fine.") |> Context.add_user_message("Go")
      iex> context |> Context.Pins.pin({:message, 1, 0}) |> Context.View.hide({:all_but_last, 1}) |> Context.to_messages()
      [
        %{role: :user, content: "[Iteration 1 is hidden]\\nuser: Never delete anything.", metadata: %{hidden: %{first: 1, last: 1}}},
        %{role: :user, content: "Go"}
      ]
  """
  @doc since: "0.1.0"
  @spec pin(Context.t(), pin(), keyword()) :: Context.t()
  def pin(%Context{ref: ref} = context, pin, opts \\ []) do
    found = find!(ref, pin) || raise Error, reason: {:unknown_pin, "call #{elem(pin, 1)}"}
    ref |> Native.context_pin(found, Options.time!(opts)) |> Reply.put!(context)
  end

  @doc """
  Removes a pin, and returns the new context. If there is no such pin, nothing changes.

  A summary keeps the text that was added to it for the pin. Takes the option `:at` as `AshAgent.Context.put_metadata/4`
  does.

  ## Examples

      iex> alias AshAgent.Context
      iex> "Hi" |> Context.new() |> Context.Pins.pin({:iteration, 1}) |> Context.Pins.unpin({:iteration, 1}) |> Context.Pins.pins()
      []
  """
  @doc since: "0.1.0"
  @spec unpin(Context.t(), pin(), keyword()) :: Context.t()
  def unpin(%Context{ref: ref} = context, pin, opts \\ []) do
    case find!(ref, pin) do
      nil -> context
      found -> ref |> Native.context_unpin(found, Options.time!(opts)) |> Reply.put!(context)
    end
  end

  @doc """
  Returns the pins, in the order in which they were put.

  ## Examples

      iex> "Hi" |> AshAgent.Context.new() |> AshAgent.Context.Pins.pin({:fact, "blue"}) |> AshAgent.Context.Pins.pins()
      [fact: "blue"]
  """
  @doc since: "0.1.0"
  @spec pins(Context.t()) :: [pin()]
  def pins(%Context{ref: ref}), do: ref |> Native.context_pins() |> Reply.ok!()

  defp find!(ref, {:call, id} = pin) do
    check!(pin, Kinds.words?(id))

    with {iteration, slot} <- ref |> Native.context_place_of_call(id) |> Reply.ok!(),
         do: {:result, iteration, slot}
  end

  defp find!(_ref, {:fact, text} = pin), do: check!(pin, Kinds.words?(text))
  defp find!(_ref, {:iteration, number} = pin), do: check!(pin, positive?(number))

  defp find!(_ref, {:message, number, position} = pin),
    do: check!(pin, positive?(number) and is_integer(position) and position >= 0)

  defp find!(_ref, pin), do: check!(pin, false)

  defp positive?(number), do: is_integer(number) and number > 0

  defp check!(pin, true), do: pin

  defp check!(_pin, false) do
    Caller.refuse!(
      "expected {:iteration, number}, {:message, number, position}, {:call, id} or {:fact, text}"
    )
  end
end
