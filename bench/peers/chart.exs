# The chart of the cost by turn, assets/peers.svg, from the table that bin/peers prints: bin/peers | elixir bench/peers/chart.exs

Code.require_file("../support/chart.exs", __DIR__)

rows =
  for line <- IO.stream(:stdio, :line),
      match?("|" <> _, line),
      do: line |> String.split("|", trim: true) |> Enum.map(&String.trim/1) |> Enum.drop(-1)

[[_cpu | names] | rows] = rows

turns =
  for ["a turn of " <> count | cells] <- rows do
    us = for cell <- cells, do: cell |> String.replace(",", "") |> Float.parse() |> elem(0)
    {String.to_integer(count), us}
  end

colours = ~w(#2060b0 #b03030 #c08020 #308040 #805090 #208090)

lines =
  for {name, at} <- Enum.with_index(names),
      do: {name, Enum.at(colours, at), for({count, us} <- turns, do: {count, Enum.at(us, at)})}

title = "CPU of one turn, by the turns of the run"
chart = AshAgent.Bench.Chart.svg(title, "turns of the run", "microseconds", lines)
File.write!(Path.join(__DIR__, "../../assets/peers.svg"), chart)
