defmodule AshAgent.Context.HostileTest do
  # Not async: it counts atoms.
  use ExUnit.Case, async: false

  import AshAgent.TestSupport.Generators

  alias AshAgent.Context
  alias AshAgent.Context.{Error, JSON}

  @golden File.read!("test/fixtures/snapshot_v1.json")

  # A valid context or an error that can be shown; returns which.
  defp survive(fun) do
    case fun.() do
      {:ok, %Context{} = context} ->
        # What was accepted is a context like any other.
        assert is_list(Context.to_messages(context))
        assert Context.equal?(context, Context.load!(Context.dump(context)))
        :ok

      {:error, %Error{reason: reason} = error} ->
        assert is_binary(Exception.message(error))
        if match?({:invalid, _, _}, reason), do: assert(is_list(elem(reason, 1)))
        :error
    end
  end

  defp golden, do: JSON.decode!(@golden)

  # Every way into a value: keys and indexes, with the empty one.
  defp paths(value), do: paths(value, [])

  defp paths(map, path) when is_map(map),
    do: [
      Enum.reverse(path) | Enum.flat_map(map, fn {key, value} -> paths(value, [key | path]) end)
    ]

  defp paths(list, path) when is_list(list) do
    inner =
      list
      |> Enum.with_index()
      |> Enum.flat_map(fn {value, index} -> paths(value, [index | path]) end)

    [Enum.reverse(path) | inner]
  end

  defp paths(_value, path), do: [Enum.reverse(path)]

  defp put_at(_value, [], new), do: new
  defp put_at(map, [key], new) when is_map(map), do: Map.put(map, key, new)

  defp put_at(map, [key | path], new) when is_map(map),
    do: Map.update!(map, key, &put_at(&1, path, new))

  defp put_at(list, [index | path], new), do: List.update_at(list, index, &put_at(&1, path, new))

  @wrong [
    nil,
    true,
    0,
    -1,
    1.5,
    Bitwise.bsl(1, 200),
    "",
    "text",
    "\0",
    <<255>>,
    [],
    [nil],
    [[]],
    %{},
    %{"$atom" => 1},
    %{"$atom" => "x", "b" => 1},
    %{"$nothing" => 1},
    %{"$tuple" => %{}},
    %{"$map" => [[1]]},
    %{"$map" => [[%{"$map" => []}, 1], [1, 2], [1, 3]]},
    %{"$int" => "1x"},
    %{"$int" => ""},
    %{"$int" => "-"},
    %{"$int" => "0x"},
    %{"$int" => "--1"},
    %{"$int" => String.duplicate("9", 5000)},
    %{"$float" => "NaN"},
    %{"$float" => "inf"},
    %{"$float" => "1e999"},
    %{"$bytes" => "="},
    %{"$bytes" => "a==="},
    %{"$bytes" => "YQA"},
    %{"$bytes" => %{"$bytes" => "YQA="}},
    %{1 => 2},
    %{:atom => 1},
    %{nil => 1},
    :atom,
    {1, 2},
    ~D[2026-01-01]
  ]

  test "another value anywhere in attributes is read or refused" do
    attributes = Context.load!(@golden) |> Context.to_map()
    attributes = JSON.decode!(JSON.encode(attributes))

    for path <- paths(attributes), path != [], wrong <- @wrong do
      survive(fn -> Context.create(put_at(attributes, path, wrong)) end)
    end
  end

  test "what is wrong is named with its path" do
    document = golden()
    call = ["iterations", 0, "messages", 1, "tool_calls", 0]

    for {path, wrong, named} <- [
          {["version"], "1", ["version"]},
          {["id"], "", ["id"]},
          {["created_at"], "yesterday", ["created_at"]},
          {["iterations"], [], ["iterations"]},
          {["iterations", 1, "number"], 7, ["iterations", 1, "number"]},
          {["iterations", 0, "messages", 0, "role"], "robot",
           ["iterations", 0, "messages", 0, "role"]},
          {["iterations", 0, "messages", 0, "tool_calls"], [%{}],
           ["iterations", 0, "messages", 0, "tool_calls"]},
          {call ++ ["status"], "lost", call ++ ["status"]},
          {call ++ ["status"], "pending", call ++ ["result"]},
          {call ++ ["id"], "call_2", ["iterations", 0, "messages", 1, "tool_calls", 1, "id"]},
          {call ++ ["arguments", ":city"], %{"$atom" => [1]},
           call ++ ["arguments", ":city", "$atom"]},
          {call ++ ["arguments"], [], call ++ ["arguments"]},
          {["iterations", 0, "messages", 1, "tool_calls", 1, "arguments_json"], "{\"q\":\"b\"}",
           ["iterations", 0, "messages", 1, "tool_calls", 1, "arguments_json"]},
          {["iterations", 3, "messages", 0, "wire", "json"], ",{}],[{}",
           ["iterations", 3, "messages", 0, "wire", "json"]},
          {["iterations", 2, "messages", 0, "content"], %{"$atom" => "a"},
           ["iterations", 2, "messages", 0, "content"]}
        ] do
      assert {:error, %Error{reason: {:invalid, ^named, expected}}} =
               Context.load(put_at(document, path, wrong))

      assert is_binary(expected)
    end
  end

  test "no atom is made" do
    name = fn ->
      "hostile_#{System.unique_integer([:positive])}_#{:rand.uniform(1_000_000_000)}"
    end

    fields = for _ <- 1..50, into: %{}, do: {name.(), name.()}
    document = golden()

    texts = [
      put_at(
        document,
        ["metadata"],
        Map.new(1..200, fn _ -> {":" <> name.(), %{"$atom" => name.()}} end)
      ),
      Map.merge(document, fields),
      put_at(document, ["iterations", 0, "messages", 1, "tool_calls", 0, "name"], ":" <> name.()),
      put_at(document, ["iterations", 0, "messages", 0, "role"], name.())
    ]

    attributes = [
      fields,
      %{"iterations" => [fields]},
      %{"iterations" => [%{"messages" => [Map.put(fields, "role", name.())]}]},
      %{"metadata" => fields}
    ]

    run = fn ->
      for document <- texts do
        survive(fn -> Context.load(document) end)
        survive(fn -> Context.load(JSON.encode(document)) end)
      end

      for attributes <- attributes, do: survive(fn -> Context.create(attributes) end)
    end

    # The first run loads modules.
    run.()
    before = :erlang.system_info(:atom_count)
    run.()
    assert :erlang.system_info(:atom_count) == before
  end

  # More than linear work, or waiting, takes longer than this.
  @tag timeout: 60_000
  test "work grows with the document and no faster" do
    # A tag, a key and a call id at a time; quadratic work would take minutes.
    for {_name, build} <- [
          map: fn n -> %{"$map" => for(i <- 1..n, do: [i, i])} end,
          keys: fn n -> Map.new(1..n, &{":k#{&1}", &1}) end,
          same: fn n -> %{"$map" => List.duplicate([1, 1], n)} end,
          tuple: fn n -> %{"v" => %{"$tuple" => List.duplicate(%{"$atom" => "ok"}, n)}} end
        ] do
      document = put_at(golden(), ["metadata"], build.(100_000))
      assert {:ok, %Context{}} = Context.load(document)
    end

    calls =
      for i <- 1..20_000,
          do: %{"id" => "c#{i}", "name" => "n", "arguments" => %{}, "status" => "pending"}

    document = put_at(golden(), ["iterations", 3, "messages", 1, "tool_calls"], calls)
    assert {:ok, %Context{}} = Context.load(document)

    unknown = Map.merge(golden(), Map.new(1..100_000, &{"new#{&1}", &1}))
    assert {:ok, %Context{}} = Context.load(unknown)
  end

  test "anything but a map is refused" do
    for junk <- junk() do
      survive(fn -> Context.load(junk) end)
      survive(fn -> Context.load(%{"version" => 1, "id" => junk}) end)
      survive(fn -> Context.load(Context.new("hi"), junk) end)
    end
  end

  test "a forged delta is refused or gives a context" do
    base = Context.load!(@golden)
    delta = Context.dump(base, since: 3)

    for path <- paths(delta), wrong <- @wrong do
      survive(fn -> Context.load(base, put_at(delta, path, wrong)) end)
    end
  end
end
