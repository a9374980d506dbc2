defmodule AshAgent.OutputRecordedTest do
  # Answers that providers sent as the arguments of calls, in the pieces in which they came: what is shown of each grows, and ends as
  # the arguments that the response has.
  use ExUnit.Case, async: true

  alias AshAgent.{Output, Response}
  alias AshAgent.TestSupport.Recorded

  defp events(response, body, found) when byte_size(body) <= 97,
    do: response |> feed(body) |> elem(1) |> then(&Enum.concat(Enum.reverse([&1 | found])))

  defp events(response, body, found) do
    <<piece::binary-size(97), rest::binary>> = body
    {response, events} = feed(response, piece)
    events(response, rest, [events | found])
  end

  defp feed(response, bytes) do
    case Response.feed(response, bytes) do
      {:ok, response, events} -> {response, events}
      {:error, _broken} -> {response, []}
    end
  end

  defp part?(part, whole) when is_map(part) and is_map(whole),
    do:
      Enum.all?(part, fn {key, value} -> is_map_key(whole, key) and part?(value, whole[key]) end)

  defp part?(part, whole) when is_list(part) and is_list(whole),
    do:
      length(part) <= length(whole) and
        Enum.all?(Enum.zip(part, whole), fn {a, b} -> part?(a, b) end)

  defp part?(part, whole) when is_binary(part) and is_binary(whole),
    do: String.starts_with?(whole, part)

  defp part?(part, whole), do: part == whole

  test "recorded arguments are read as they came" do
    output = Output.new(:map)

    read =
      for %{provider: provider, type: type, body: body} <- Recorded.answers(),
          events = events(Response.new(provider, content_type: type), body, []),
          {:tool_call, %{arguments: %{} = arguments}} <- events,
          position <- 0..5,
          pieces = for({:tool_call_arguments, ^position, piece} <- events, do: piece),
          text = IO.iodata_to_binary(pieces),
          {:ok, ^arguments, []} <- [Output.read(output, text, strict: true)] do
        for count <- 1..length(pieces) do
          begun = pieces |> Enum.take(count) |> IO.iodata_to_binary()

          case Output.read_partial(output, begun) do
            {:ok, partial} -> assert part?(partial, arguments)
            :none -> :ok
          end
        end

        assert {:ok, ^arguments} = Output.read_partial(output, text)
      end

    assert read != []
  end
end
