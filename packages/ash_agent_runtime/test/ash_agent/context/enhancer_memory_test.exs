defmodule AshAgent.Context.Enhancer.MemoryTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions

  alias AshAgent.Context
  alias AshAgent.Context.Enhancer.Memory
  alias AshAgent.Context.Error

  doctest AshAgent.Context.Enhancer.Memory

  @blocks [:recall, :pending_tasks, :profile, :summaries, :outcomes]

  defp hello, do: Context.new("Hello!", system_prompt: "Be brief.")

  defp run(context \\ hello(), opts, needs) do
    {:ok, context, %{skipped: []}} = Context.Enhancer.run(context, [{Memory, opts}], needs: needs)
    context
  end

  defp memory(opts, needs) do
    case Context.View.view(run(opts, needs)).blocks do
      [{"memory", text}] -> text
      [] -> nil
    end
  end

  defp failure(load) do
    {:error, %Error{reason: {:enhancer_failed, Memory, {:recall, reason}}}} =
      Context.Enhancer.run(hello(), [{Memory, recall: load}], needs: [:recall])

    reason
  end

  test "stands behind the system prompt" do
    context = run([profile: fn _ -> "A pilot." end], [:profile])
    assert hd(Context.to_messages(context)).content == "Be brief.\n\n## User profile\n\nA pilot."
    assert Context.system_prompt(context) == "Be brief."
  end

  test "has all blocks under their headings in one order" do
    loaders = for block <- Enum.reverse(@blocks), do: {block, fn _ -> "#{block}!" end}

    assert memory(loaders, Enum.shuffle(@blocks)) |> String.split("\n\n") ==
             ["## Recalled", "recall!", "## Pending tasks", "pending_tasks!", "## User profile"] ++
               ["profile!", "## Summaries", "summaries!", "## Outcomes", "outcomes!"]
  end

  test "loads only what is asked for" do
    me = self()
    loaders = for block <- @blocks, do: {block, fn _ -> send(me, block) && "text" end}
    memory(loaders, [:profile, :weather, outcomes: nil, recall: false])
    assert_received :profile
    refute_received _
    assert memory(loaders, []) == nil
    refute_received _
    assert memory([profile: nil], [:profile, :recall]) == nil
  end

  test "gives loaders the context, and the value of the need" do
    assert memory([recall: fn context -> "#{Context.count_messages(context)}" end], [:recall]) ==
             "## Recalled\n\n2"

    assert memory([recall: fn _, what -> what end], recall: "maps") == "## Recalled\n\nmaps"
    assert memory([recall: fn _, what -> inspect(what) end], [:recall]) == "## Recalled\n\ntrue"
  end

  test "takes text, lists and nothing, alone or with :ok" do
    for {loaded, text} <- [
          {" text\n", "text"},
          {["a", "b\nc", " "], "- a\n- b\n  c"},
          {{:ok, "text"}, "text"},
          {{:ok, ["a"]}, "- a"}
        ] do
      assert memory([recall: fn _ -> loaded end], [:recall]) == "## Recalled\n\n" <> text
    end

    for nothing <- [nil, "", " \n", [], ["", " "], {:ok, nil}, {:ok, []}],
        do: assert(memory([recall: fn _ -> nothing end], [:recall]) == nil)
  end

  test "fails with the block when a loader does, and leaves the prompt" do
    assert failure(fn _ -> {:error, :down} end) == :down
    assert %RuntimeError{} = failure(fn _ -> raise "no" end)
    assert failure(fn _ -> throw(:no) end) == {:throw, :no}
    assert failure(fn _ -> exit(:no) end) == {:exit, :no}

    context = run([recall: fn _ -> "Old" end], [:recall])
    opts = [needs: [:recall, :profile], on_error: :skip]
    loaders = [recall: fn _ -> "New" end, profile: fn _ -> raise "no database" end]

    assert {:ok, ^context, %{skipped: [%{error: error}]}} =
             Context.Enhancer.run(context, [{Memory, loaders}], opts)

    assert Exception.message(error) =~ "Memory failed: :profile: no database."
  end

  test "fails for what is no text" do
    lists = [~c"text", ["a", <<255>>], ["a", nil], ["a" | "b"], [["a"]]]
    others = [:atom, 1, <<255>>, %{}, {:ok, 1}, {:ok, {:ok, "a"}}, <<1::3>>]
    for other <- lists ++ others, do: assert(failure(fn _ -> other end) == :no_text)
  end

  test "goes away when it is not asked for or empty" do
    context = run([recall: fn _ -> "Old" end], [:recall])
    assert Context.View.view(run(context, [recall: fn _ -> "Old" end], [])).blocks == []
    assert Context.View.view(run(context, [recall: fn _ -> nil end], [:recall])).blocks == []

    assert Context.View.view(run(context, [recall: fn _ -> "New" end], [:recall])).blocks == [
             {"memory", "## Recalled\n\nNew"}
           ]
  end

  test "gives the context as it is when nothing has changed" do
    context = run([recall: fn _ -> "Old" end], [:recall])
    assert run(context, [recall: fn _ -> "Old" end], [:recall]) == context
    assert run(hello = hello(), [], []) == hello
  end

  test "leaves other prompt blocks, and takes a name of its own" do
    context = Context.View.put_prompt_block(hello(), :clock, "Noon")
    context = run(context, [recall: fn _ -> "a" end], [:recall])
    context = run(context, [name: "more", recall: fn _ -> "b" end], [:recall])

    assert [{"clock", "Noon"}, {"memory", "## Recalled\n\na"}, {"more", "## Recalled\n\nb"}] =
             Context.View.view(context).blocks

    assert [{"clock", _}, {"more", _}] = Context.View.view(run(context, [], [])).blocks
  end

  test "takes other headings" do
    opts = [headings: [recall: "# Notes"], recall: fn _ -> "a" end, profile: fn _ -> "b" end]
    assert memory(opts, [:recall, :profile]) == "# Notes\n\na\n\n## User profile\n\nb"
  end

  test "cuts blocks on character boundaries, the note included" do
    for char <- ["x", "ü", "日", "👩"], most <- 100..108 do
      "## Recalled\n\n" <> text =
        memory([recall: fn _ -> String.duplicate(char, 1_000) end, max_bytes: most], [:recall])

      assert byte_size(text) in (most - 4)..most
      assert [head, left_out] = String.split(text, "\n[... ")
      assert left_out == "#{1_000 * byte_size(char) - byte_size(head)} bytes left out ...]"
      assert String.valid?(text)
    end

    whole = String.duplicate("x", 100)

    assert memory([recall: fn _ -> whole end, max_bytes: 100], [:recall]) ==
             "## Recalled\n\n" <> whole
  end

  test "limits each block by itself" do
    long = fn _ -> String.duplicate("x", 300) end
    opts = [recall: long, profile: long, outcomes: long, max_bytes: [recall: 100, profile: 200]]

    sizes =
      opts
      |> memory([:recall, :profile, :outcomes])
      |> String.split(~r/## .*\n\n/, trim: true)
      |> Enum.map(&byte_size(String.trim(&1)))

    assert sizes == [100, 200, 300]
  end

  test "refuses wrong options" do
    headings = [%{recall: "a"}, [notes: "a"], [recall: :a], [recall: <<255>>]]

    for {option, values} <- [
          recall: ["text", fn -> 1 end],
          notes: [fn _ -> 1 end],
          headings: headings,
          max_bytes: [99, [recall: nil], [notes: 100]],
          name: [nil, 1, <<255>>]
        ],
        value <- values,
        do: assert_caller_bug(fn -> Memory.prepare([{option, value}]) end)
  end
end
