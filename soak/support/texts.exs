defmodule AshAgent.Soak.Texts do
  @moduledoc """
  What people, models and tools say: mostly plain text of a usual length, now and then what the tests' generators make.

  All draws come from `:rand`, from the state of the calling process.
  """

  import AshAgent.TestSupport.Generators, only: [between: 2, chance: 1, many: 2, one_of: 1]

  alias AshAgent.TestSupport.{ContextGenerators, Generators}

  @size 256 * 1024

  @doc "Makes the text that all others are pieces of."
  def start do
    :rand.seed(:exsss, {1, 2, 3})

    words =
      for _ <- 1..40_000 do
        one_of(
          ~w(the agent asks a tool and reads what it says Zürich 42 café {"key": true} \n def end)
        )
      end

    text = words |> Enum.join(" ") |> String.duplicate(2) |> ascii()
    :persistent_term.put(__MODULE__, binary_part(text, 0, @size))
  end

  # So that any piece of it is text.
  defp ascii(text), do: for(<<byte <- text>>, byte < 128, into: "", do: <<byte>>)

  @doc "A text of `low` to `high` bytes, short ones oftener."
  def text(low, high) do
    size = low |> skewed(high) |> min(@size)
    binary_part(:persistent_term.get(__MODULE__), between(0, @size - size), size)
  end

  @doc "A number between the two whose logarithm is even."
  def skewed(low, high), do: round(low * :math.pow(high / low, :rand.uniform()))

  def question, do: if(chance(8), do: odd(), else: text(20, 2_000))

  def answer do
    cond do
      chance(6) -> Generators.assistant_parts()
      chance(6) -> odd()
      chance(20) -> nil
      true -> text(20, 4_000)
    end
  end

  def calls do
    if chance(8),
      do: Generators.tool_calls(6),
      else: many(one_of([1, 1, 1, 2, 3, 5]), &call/0) |> Enum.uniq_by(& &1.id)
  end

  defp call do
    %{
      id: "call_#{between(1, 1_000_000)}",
      name: one_of([:search, "read_file", :get_weather, "run"]),
      arguments:
        if(chance(30), do: ~s({"path":"#{between(1, 99)}.ex"}), else: %{query: text(5, 300)})
    }
  end

  def result do
    if chance(20), do: Generators.result(6), else: {:ok, text(20, 8_000)}
  end

  defp odd do
    case ContextGenerators.text() do
      "" -> "x"
      text -> text
    end
  end

  @doc "About how many bytes a message adds."
  def size(text) when is_binary(text), do: byte_size(text)
  def size(nil), do: 0
  def size(term), do: :erlang.external_size(term)
end
