defmodule AshAgent.Context.TrustTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Stranger
  import AshAgent.TestSupport.Assertions
  import AshAgent.TestSupport.Generators

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.Context.{Error, JSON}

  @at ~U[2026-01-02 10:00:00.000000Z]
  # The four ways in, each with what it makes of a document.
  defp ways(document, opts) do
    base = Context.new("Hello!", id: document["id"])
    chat = %{"version" => 1, "id" => "chat", "active_branch" => "main"}
    chat = Map.put(chat, "branches", [%{"name" => "main", "context" => document}])
    active = fn chat -> ChatContext.active(chat).context end

    [
      Context.load!(document, opts),
      Context.load!(base, Map.put(document, "since", 1), opts),
      Context.load!(JSON.encode(document), opts),
      active.(ChatContext.load!(chat, opts)),
      active.(ChatContext.from_snapshot!(JSON.encode(chat), opts))
    ]
  end

  describe "approvals: :drop" do
    test "leaves no decision, whatever the document says" do
      calls = [
        call("approved", %{"status" => "approved", "decision" => decision(true)}),
        call("ran", %{
          "status" => "ok",
          "decision" => decision(true),
          "result" => %{"value" => "done"}
        }),
        call("failed", %{
          "status" => "error",
          "decision" => decision(true),
          "result" => %{"value" => "gone"}
        }),
        call("denied", %{
          "status" => "denied",
          "decision" => decision(false),
          "result" => %{"value" => "denied: no"}
        }),
        call("pending", %{})
      ]

      for context <- ways(document(calls), approvals: :drop) do
        statuses = for %{"id" => id} <- calls, do: Context.Calls.tool_call_status(context, id)
        assert statuses == [:pending, :ok, :error, :error, :pending]
        for %{"id" => id} <- calls, do: refute(Context.Calls.tool_call_decision(context, id))

        assert Enum.map(Context.pending_tool_calls(context), & &1.id) == ["approved", "pending"]

        assert Enum.map(Context.get_iteration(context, 1).tool_calls, & &1.result) ==
                 [nil, {:ok, "done"}, {:error, "gone"}, {:error, "denied: no"}, nil]

        assert Context.equal?(Context.load!(Context.dump(context)), context)

        assert Context.Calls.tool_call_status(
                 Context.Calls.approve_tool_call(context, "approved"),
                 "approved"
               ) == :approved
      end

      for context <- ways(document(calls), []) do
        statuses = for %{"id" => id} <- calls, do: Context.Calls.tool_call_status(context, id)
        assert statuses == [:approved, :ok, :error, :denied, :pending]
        assert %{by: "the boss"} = Context.Calls.tool_call_decision(context, "ran")
      end
    end

    test "changes nothing about a context without decisions" do
      check_all("no decisions", [runs: 40, max_size: 10], fn size ->
        {new, _operations, _model} = conversation(size)
        context = apply(Context, :new, new)
        dump = Context.dump(context)
        assert Context.equal?(Context.load!(dump, approvals: :drop), context)
      end)
    end
  end

  describe "structs: :drop" do
    test "keeps all data, and no struct anywhere" do
      check_all("no structs", [runs: 150, max_size: 14], fn size ->
        context = random_context(size)
        text = Context.to_snapshot(context)

        for loaded <- [
              Context.load!(Context.dump(context), structs: :drop),
              Context.load!(text, structs: :drop)
            ] do
          assert_same(plain(told(context)), told(loaded))
          assert Context.equal?(Context.load!(Context.dump(loaded)), loaded)
          assert Context.equal?(Context.load!(Context.dump(loaded), structs: :drop), loaded)
        end

        assert Context.equal?(Context.load!(Context.dump(context), structs: :keep), context)
      end)
    end

    test "gives a tool no file to open" do
      stream = %{
        ":__struct__" => %{"$atom" => "Elixir.File.Stream"},
        ":path" => "/etc/hostname",
        ":modes" => [%{"$atom" => "raw"}, %{"$atom" => "read_ahead"}, %{"$atom" => "binary"}],
        ":line_or_bytes" => %{"$atom" => "line"},
        ":raw" => true
      }

      in_pairs = %{"$map" => for({":" <> key, value} <- stream, do: [%{"$atom" => key}, value])}

      for file <- [stream, in_pairs] do
        document = document([call("a", %{"arguments" => %{"file" => file}})])
        read = fn context -> hd(Context.pending_tool_calls(context)).arguments["file"] end

        for structs <- [:drop, :known], context <- ways(document, structs: structs) do
          assert %{path: "/etc/hostname"} = file = read.(context)
          refute is_map_key(file, :__struct__)
          assert Enumerable.impl_for(file) == Enumerable.Map
        end

        for context <- ways(document, []), do: assert(%File.Stream{} = read.(context))
      end
    end

    test "reaches every place where values stand" do
      struct = %{":__struct__" => %{"$atom" => "Elixir.URI"}, ":path" => "/"}
      values = %{"v" => struct, ":__struct__" => %{"$atom" => "Elixir.URI"}}
      part = %{"type" => "text", "text" => "T", "provider_metadata" => values}
      block = %{"type" => "provider_block", "provider" => "anthropic", "data" => values}

      calls = [
        call("a", %{
          "arguments" => values,
          "provider_metadata" => values,
          "extra" => values,
          "status" => "ok",
          "result" => %{"value" => [values, %{"$tuple" => [struct]}]},
          "decision" => %{decision(true) | "by" => struct}
        }),
        call("b", %{"status" => "ok", "result" => %{"parts" => [part]}})
      ]

      message = %{
        "role" => "assistant",
        "content" => [part, block],
        "metadata" => values,
        "results_metadata" => values,
        "tool_calls" => calls
      }

      summary = %{"role" => "user", "content" => [part], "metadata" => values}
      system = %{"role" => "system", "content" => [part], "metadata" => values}
      cover = %{"first" => 1, "last" => 1, "summary" => summary}

      document =
        document([])
        |> Map.merge(%{
          "metadata" => values,
          "system" => system,
          "view" => %{"covers" => [cover]}
        })
        |> put_in(["iterations", Access.at(0), "metadata"], values)
        |> put_in(["iterations", Access.at(0), "messages"], [message])

      assert Context.to_snapshot(Context.load!(document)) =~ "Elixir.URI"

      for context <- ways(document, structs: :drop) do
        refute Context.to_snapshot(context) =~ "Elixir.URI"
        refute Context.to_snapshot(context) =~ "__struct__"
        assert %{by: %{path: "/"}} = Context.Calls.tool_call_decision(context, "a")
      end
    end

    test "leaves text keys that look like the mark of a struct alone" do
      values = %{"__struct__" => "x", "$:__struct__" => "y"}
      document = Map.put(document([]), "metadata", values)

      for structs <- [:keep, :known, :drop], context <- ways(document, structs: structs) do
        assert Context.metadata(context) == %{"__struct__" => "x", ":__struct__" => "y"}
      end
    end

    test "reaches the settings of a chat" do
      chat = ChatContext.new(config: [parameters: %{when: ~D[2026-01-01], how: 1..3}])
      loaded = fn opts -> ChatContext.load!(ChatContext.dump(chat), opts).config.parameters end
      range = %{first: 1, last: 3, step: 1}

      assert loaded.([]) == %{when: ~D[2026-01-01], how: 1..3}
      assert loaded.(structs: :known) == %{when: ~D[2026-01-01], how: range}

      assert loaded.(structs: :drop) ==
               %{when: Map.delete(~D[2026-01-01], :__struct__), how: range}
    end
  end

  describe "structs: :known" do
    @decimal %{__struct__: Decimal, sign: 1, coef: 314, exp: -2}

    test "keeps the values of Elixir's own types" do
      for value <- [
            ~D[2026-02-28],
            ~D[-0001-12-31],
            ~T[23:59:59.999999],
            ~T[00:00:00],
            ~N[2024-02-29 12:00:00.5],
            ~U[2026-01-01 00:00:00Z],
            %{
              ~U[2026-07-01 10:00:00Z]
              | time_zone: "Europe/Rome",
                zone_abbr: "CEST",
                utc_offset: 3600,
                std_offset: 3600
            },
            @decimal,
            %{@decimal | coef: :NaN, exp: 0},
            %{@decimal | coef: :inf, exp: 0, sign: -1},
            %{@decimal | coef: 0x10000000000000000000}
          ] do
        assert known(value) == value
      end
    end

    test "keeps no other struct, whether its module is there or not" do
      for value <- [
            1..3,
            MapSet.new([1]),
            URI.parse("https://example.com"),
            %RuntimeError{message: "x"},
            %Date.Range{
              first: ~D[2026-01-01],
              last: ~D[2026-01-02],
              first_in_iso_days: 1,
              last_in_iso_days: 2,
              step: 1
            },
            Context.new("Hello!"),
            %{__struct__: No.Such.Module, value: 1},
            %{__struct__: "Elixir.Date", calendar: Calendar.ISO, year: 2026, month: 1, day: 1},
            %{__struct__: 7}
          ] do
        assert known(value) == known(Map.delete(value, :__struct__))
        refute is_map_key(known(value), :__struct__)
      end
    end

    # A field of another value, one too few, one too many: what the type's own module refuses is not kept.
    test "keeps no struct that its own module would not make" do
      check_all("forged structs", [runs: 3_000], fn _ ->
        value =
          one_of([
            ~D[2026-02-28],
            ~T[23:59:59.5],
            ~N[2024-02-29 00:00:00],
            ~U[2026-01-01 00:00:00Z],
            @decimal
          ])

        forged = forge(value, one_of(Map.keys(value) -- [:__struct__]))
        kept = known(forged)

        if sound?(forged),
          do: assert_same(forged, kept),
          else: assert_same(plain(forged), kept)
      end)
    end

    @numbers [-10_000, -9_999, -1, 0, 1, 2, 12, 13, 23, 24, 28, 29, 30, 31, 32, 59, 60, 61] ++
               [
                 6_176,
                 6_177,
                 -6_176,
                 -6_177,
                 9_999,
                 10_000,
                 86_399,
                 86_400,
                 1_000_000_000_000,
                 -0x8000000000000000
               ]

    defp forge(value, field) do
      weighted([
        {8, fn -> Map.put(value, field, one_of(@numbers)) end},
        {2, fn -> Map.put(value, field, {one_of(@numbers), one_of([-1, 0, 6, 7, "6"])}) end},
        {2,
         fn ->
           Map.put(value, field, one_of(["Etc/UTC", "UTC", "", <<255>>, nil, 1.0, [], %{}]))
         end},
        {2, fn -> Map.put(value, field, one_of([:ok, Calendar.ISO, File, :NaN, :inf])) end},
        {1, fn -> Map.put(value, field, 0x10000000000000000) end},
        {1, fn -> Map.delete(value, field) end},
        {1, fn -> Map.put(value, :more, 1) end},
        {1, fn -> Map.put(value, "day", 1) end},
        {1, fn -> value end}
      ]).()
    end

    # What Elixir says of the fields, apart from what it leaves to the caller: the zone and the exponent.
    defp sound?(%{__struct__: Decimal} = value) do
      Map.keys(value) == Map.keys(@decimal) and value.sign in [1, -1] and value.exp in -6176..6176 and
        ((is_integer(value.coef) and value.coef >= 0) or value.coef in [:NaN, :inf])
    end

    defp sound?(%module{} = value) do
      Map.keys(value) == Map.keys(module.__struct__()) and value.calendar == Calendar.ISO and
        day?(value) and clock?(value) and zone?(value)
    end

    # Newer Elixir knows days beyond the year 9999, which its ISO texts do not.
    defp day?(%{year: year, month: month, day: day}),
      do:
        year in -9999..9999 and
          Enum.all?([year, month, day], &is_integer/1) and
          match?({:ok, _}, Date.new(year, month, day))

    defp day?(_time), do: true

    defp clock?(%{hour: hour, minute: minute, second: second, microsecond: {micros, digits}}) do
      Enum.all?([hour, minute, second, micros, digits], &is_integer/1) and
        match?({:ok, _}, Time.new(hour, minute, second, {micros, digits}))
    end

    defp clock?(value), do: not is_map_key(value, :hour)

    defp zone?(%{time_zone: "Etc/UTC"} = value),
      do: match?(%{zone_abbr: "UTC", utc_offset: 0, std_offset: 0}, value)

    defp zone?(%{time_zone: zone, zone_abbr: abbr, utc_offset: utc, std_offset: std}) do
      is_binary(zone) and String.valid?(zone) and is_binary(abbr) and String.valid?(abbr) and
        utc in -86_399..86_399 and std in -86_399..86_399
    end

    defp zone?(_value), do: true
  end

  describe "the options" do
    test "are checked, also when the document is wrong" do
      dump = Context.dump(Context.new("Hello!"))
      chat = ChatContext.new()

      for opts <- [[approvals: :known], [structs: true], [struct: :drop], [{:structs, :drop}, :x]],
          document <- [dump, %{}, 7] do
        assert_caller_bug(fn -> Context.load(document, opts) end)
        assert_caller_bug(fn -> Context.load!(document, opts) end)
        assert_caller_bug(fn -> Context.load(Context.new("Hello!"), document, opts) end)
        assert_caller_bug(fn -> Context.load("", opts) end)
        assert_caller_bug(fn -> ChatContext.load(document, opts) end)
        assert_caller_bug(fn -> ChatContext.from_snapshot("", opts) end)

        assert_caller_bug(fn ->
          ChatContext.from_snapshot!(ChatContext.to_snapshot(chat), opts)
        end)
      end

      error = assert_caller_bug(fn -> Context.load(dump, structs: :some) end)

      assert Exception.message(error) =~ "expected one of :keep, :known, :drop, got: :some"
    end

    test "say how far a delta is believed, not what it is put onto" do
      context =
        Context.new("Hello!", metadata: %{a: 1..3})
        |> Context.put_iteration_metadata(1, :day, 1..3)

      context = Context.add_assistant_message(context, "Hi!") |> Context.add_user_message("Bye")
      delta = Context.dump(Context.put_iteration_metadata(context, 2, :day, 1..3), since: 2)
      loaded = Context.load!(context, delta, structs: :drop)

      assert Context.get_iteration(loaded, 1).metadata == %{day: 1..3}
      assert Context.get_iteration(loaded, 2).metadata == %{day: %{first: 1, last: 3, step: 1}}
    end

    test "leave errors as they are" do
      for opts <- [[], [approvals: :drop, structs: :drop], [structs: :known]] do
        wrong = call("a", %{"status" => "approved"})

        assert {:error, %Error{reason: {:invalid, path, _}}} =
                 Context.load(document([wrong]), opts)

        assert List.last(path) == "decision"
      end
    end
  end

  # A value after it was stored and loaded again.
  defp known(value) do
    dump = Context.dump(Context.new("Hello!", metadata: %{value: value}, at: @at))
    Context.metadata(Context.load!(dump, structs: :known)).value
  end

  # What a conversation has of the application's terms. The text that a model reads of a result is made of it.
  defp told(context) do
    for %{messages: messages, tool_calls: calls, metadata: metadata} <- context do
      {Enum.map(messages, &without_results/1), calls, metadata}
    end
    |> then(&{Context.metadata(context), &1})
  end

  defp without_results(%{role: :user, content: [%{type: :tool_result} | _] = results} = message),
    do: %{message | content: Enum.map(results, & &1.tool_use_id)}

  defp without_results(message), do: message

  # The same without structs.
  defp plain(map) when is_map(map),
    do:
      for(
        {key, value} <- Map.delete(map, :__struct__) |> Map.to_list(),
        into: %{},
        do: {plain(key), plain(value)}
      )

  defp plain(list) when is_list(list), do: Enum.map(list, &plain/1)

  defp plain(tuple) when is_tuple(tuple),
    do: tuple |> Tuple.to_list() |> plain() |> List.to_tuple()

  defp plain(other), do: other
end
