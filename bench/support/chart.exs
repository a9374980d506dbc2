defmodule AshAgent.Bench.Chart do
  @moduledoc "A line chart with two logarithmic axes, and bars, as SVG."

  @width 640
  @height 400
  @left 70
  @right 150
  @top 40
  @bottom 50

  @doc """
  Draws lines `[{name, colour, [{x, y}]}]`; both axes go over whole powers of ten.
  """
  def svg(title, x_title, y_title, lines) do
    points = Enum.flat_map(lines, &elem(&1, 2))
    xs = decades(Enum.map(points, &elem(&1, 0)))
    ys = decades(Enum.map(points, &elem(&1, 1)))

    [
      ~s(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 #{@width} #{@height}" font-family="sans-serif" font-size="12">\n),
      ~s(<rect width="#{@width}" height="#{@height}" fill="white"/>\n),
      text(@left, 22, title, ~s( font-size="15" font-weight="bold")),
      text(@left, @height - 10, x_title, ""),
      text(8, @top - 8, y_title, ""),
      Enum.map(xs, &grid_x(&1, xs)),
      Enum.map(ys, &grid_y(&1, ys)),
      Enum.map(lines, &line(&1, xs, ys)),
      "</svg>\n"
    ]
  end

  @doc """
  Draws shares as bars from a line in the middle: groups `[{name, [{label, colour, share}]}]`, less to the left and more to the right.
  """
  def bars(title, note, groups) do
    rows = groups |> Enum.map(fn {_name, bars} -> 26 + 20 * length(bars) end) |> Enum.sum()
    height = @top + rows + 30
    all = for {_name, bars} <- groups, {_label, _colour, share} <- bars, do: abs(share)
    unit = 190 / Enum.max(all)

    {drawn, _y} =
      Enum.map_reduce(groups, @top, fn {name, bars}, y ->
        shown = for {bar, n} <- Enum.with_index(bars), do: bar(bar, y + 26 + 20 * n, unit)
        {[text(8, y + 16, name, ~s( font-weight="bold")), shown], y + 26 + 20 * length(bars)}
      end)

    [
      ~s(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 #{height}" font-family="sans-serif" font-size="12">\n),
      ~s(<rect width="760" height="#{height}" fill="white"/>\n),
      text(8, 22, title, ~s( font-size="15" font-weight="bold")),
      drawn,
      ~s(<path d="M540 #{@top}V#{@top + rows}" stroke="#888888"/>\n),
      text(8, height - 10, note, ~s( fill="#555555")),
      "</svg>\n"
    ]
  end

  defp bar({label, colour, share}, y, unit) do
    width = Float.round(abs(share) * unit, 1)

    {x, place, anchor} =
      if share < 0, do: {540 - width, 536 - width, "end"}, else: {540, 544 + width, "start"}

    [
      text(24, y + 11, label, ""),
      ~s(<rect x="#{Float.round(x / 1, 1)}" y="#{y}" width="#{width}" height="14" fill="#{colour}"/>\n),
      text(Float.round(place / 1, 1), y + 11, percent(share), ~s( text-anchor="#{anchor}"))
    ]
  end

  defp percent(share) do
    sign = if share > 0, do: "+", else: ""
    sign <> :erlang.float_to_binary(100 * share, decimals: 0) <> " %"
  end

  # The powers of ten around numbers.
  defp decades(numbers) do
    first = numbers |> Enum.min() |> :math.log10() |> floor()
    last = numbers |> Enum.max() |> :math.log10() |> ceil()
    Enum.to_list(first..last)
  end

  defp grid_x(power, powers) do
    x = place(power, powers, @left, @width - @right)

    [
      ~s(<path d="M#{x} #{@top}V#{@height - @bottom}" stroke="#dddddd"/>\n),
      text(x, @height - @bottom + 16, label(power), ~s( text-anchor="middle"))
    ]
  end

  defp grid_y(power, powers) do
    y = place(power, powers, @height - @bottom, @top)

    [
      ~s(<path d="M#{@left} #{y}H#{@width - @right}" stroke="#dddddd"/>\n),
      text(@left - 6, y + 4, label(power), ~s( text-anchor="end"))
    ]
  end

  defp line({name, colour, points}, xs, ys) do
    places =
      for {x, y} <- points do
        {place(:math.log10(x), xs, @left, @width - @right),
         place(:math.log10(y), ys, @height - @bottom, @top)}
      end

    {x, y} = List.last(places)
    path = Enum.map_join(places, " ", fn {x, y} -> "#{x},#{y}" end)

    [
      ~s(<polyline points="#{path}" fill="none" stroke="#{colour}" stroke-width="2"/>\n),
      Enum.map(places, fn {x, y} -> ~s(<circle cx="#{x}" cy="#{y}" r="3" fill="#{colour}"/>\n) end),
      text(x + 8, y + 4, name, ~s( fill="#{colour}"))
    ]
  end

  defp place(power, powers, from, to) do
    {first, last} = {hd(powers), List.last(powers)}
    Float.round(from + (to - from) * (power - first) / max(last - first, 1), 1)
  end

  defp label(power) when power >= 0, do: to_string(Integer.pow(10, power))
  defp label(power), do: :erlang.float_to_binary(:math.pow(10, power), decimals: -power)

  defp text(x, y, text, attributes), do: ~s(<text x="#{x}" y="#{y}"#{attributes}>#{text}</text>\n)
end
