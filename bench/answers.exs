# What a typed answer costs beside plain streaming: pieces followed, a whole partial value, and the answer read.
#
#     cd packages/ash_agent_runtime && MIX_ENV=prod mix run ../../bench/answers.exs

alias AshAgent.Output
alias AshAgent.Context.JSON

output = Output.new(items: {:list, [name: :string, text: :string, count: :integer]})

text = fn items ->
  JSON.encode(%{
    items:
      for(n <- 1..items, do: %{name: "item #{n}", text: String.duplicate("word ", 20), count: n})
  })
end

pieces = fn text -> for <<piece::binary-size(14) <- text>>, do: piece end

median = fn fun ->
  times = for _ <- 1..7, do: fun |> :timer.tc() |> elem(0)
  times |> Enum.sort() |> Enum.at(3)
end

for items <- [100, 1_000, 10_000] do
  text = text.(items)
  pieces = pieces.(text)
  count = length(pieces)

  follow = fn ->
    Enum.reduce(pieces, Output.follow(), fn piece, follow ->
      {follow, _changes} = Output.follow(output, follow, piece)
      follow
    end)
  end

  {:ok, %{items: read}, []} = Output.read(output, text)
  ^items = length(read)
  us = fn time -> Float.round(time / count, 2) end

  IO.puts(
    "#{count} pieces, #{div(byte_size(text), 1024)} KB: follow #{us.(median.(follow))} us a piece, " <>
      "partial #{median.(fn -> Output.read_partial(output, text) end)} us, read #{median.(fn -> Output.read(output, text) end)} us, " <>
      "JSON.decode #{median.(fn -> JSON.decode(text) end)} us"
  )
end
