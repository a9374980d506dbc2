defmodule AshAgent.Context.EctoTypeTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.Context.{EctoType, JSON}
  alias AshAgent.TestSupport.OtherVM

  doctest EctoType
  doctest ChatContext.EctoType

  defmodule TextType do
    use AshAgent.Context.EctoType, storage: :text, accept: [:dump], max_bytes: 2_000
  end

  defmodule ClosedType do
    use AshAgent.Context.EctoType
  end

  defmodule ShortType do
    use AshAgent.Context.EctoType, accept: [:messages], max_iterations: 2
  end

  defmodule ChatTextType do
    use AshAgent.ChatContext.EctoType, storage: :text, accept: [:dump, :config], max_iterations: 2
  end

  setup do
    %{context: Context.new("hi", metadata: %{a: :b}) |> Context.add_assistant_message("hello")}
  end

  # What a JSONB column gives back.
  defp through_database(stored), do: stored |> JSON.encode() |> JSON.decode!()

  test "the column is a map, and embedded schemas hold a dump" do
    assert EctoType.type() == :map
    assert EctoType.embed_as(:json) == :dump
  end

  test "load/1 gives what dump/1 stored", %{context: context} do
    assert {:ok, stored} = EctoType.dump(context)
    assert {:ok, loaded} = EctoType.load(through_database(stored))
    assert Context.equal?(context, loaded)
  end

  test "nil stays nil" do
    assert EctoType.cast(nil) == {:ok, nil}
    assert EctoType.load(nil) == {:ok, nil}
    assert EctoType.dump(nil) == {:ok, nil}
  end

  test "cast/1 takes a context, a dump and what to_map/1 gives", %{context: context} do
    assert {:ok, ^context} = EctoType.cast(context)

    for input <- [Context.dump(context), Context.to_map(context)] do
      assert {:ok, cast} = EctoType.cast(input)
      assert Context.equal?(context, cast)
    end

    # With string keys, as parameters of a form are.
    assert {:ok, cast} =
             EctoType.cast(%{
               "iterations" => [%{"messages" => [%{"role" => "user", "content" => "hi"}]}]
             })

    assert Context.to_messages(cast) == [%{role: :user, content: "hi"}]
  end

  test "cast/1 says what is wrong" do
    assert {:error, message: message} = EctoType.cast(%{"version" => 1, "id" => 1})
    assert message == ~s(expected text at ["id"])
    assert {:error, message: _} = EctoType.cast(%{unknown: 1})

    for wrong <- [1, "text", [], [1], [1 | 2], :atom, ~D[2026-01-01], {}],
        do: assert({:error, message: _} = EctoType.cast(wrong))
  end

  test "load/1 and dump/1 refuse anything else", %{context: context} do
    for wrong <- [1, "text", [], %{}, %{"version" => 2}, context],
        do: assert(EctoType.load(wrong) == :error)

    for wrong <- [1, "text", [], %{}], do: assert(EctoType.dump(wrong) == :error)
  end

  test "equal?/2 compares contents", %{context: context} do
    copy = Context.load!(Context.dump(context))
    assert EctoType.equal?(context, copy)
    refute EctoType.equal?(context, Context.put_metadata(copy, :a, 1))
    refute EctoType.equal?(context, nil)
    refute EctoType.equal?(nil, context)
    assert EctoType.equal?(nil, nil)
  end

  test "JSON text is taken where a dump is", %{context: context} do
    text = Context.to_snapshot(context)

    for type <- [EctoType, TextType] do
      assert {:ok, cast} = type.cast(text)
      assert Context.equal?(context, cast)
      for wrong <- ["text", "", "{}", "null", <<255>>], do: assert({:error, _} = type.cast(wrong))
    end

    assert {:error, message: message} = ShortType.cast(text)
    assert message =~ "add :dump to the type's option :accept"
  end

  test "a list of messages is taken where messages are" do
    messages = [%{"role" => "user", "content" => "hi"}, %{role: :assistant, content: "Hello!"}]

    for type <- [EctoType, ShortType] do
      assert {:ok, context} = type.cast(messages)
      assert [%{content: "hi"}, %{content: "Hello!"}] = Context.to_messages(context)
    end

    for type <- [TextType, ClosedType], do: assert({:error, _} = type.cast(messages))
  end

  test "a struct that nobody of the package made is refused", %{context: context} do
    chat = ChatContext.new(context: context)

    for wrong <- [
          %{__struct__: Context},
          %{__struct__: Context, current_iteration: 1},
          %{context | ref: "ref"},
          %{context | current_iteration: nil},
          %{__struct__: Context, ref: context.ref},
          Map.put(Context.dump(context), :__struct__, Date),
          %{__struct__: Date, iterations: [%{messages: []}]}
        ],
        type <- [EctoType, TextType, ClosedType, ShortType],
        do: assert({:error, message: _} = type.cast(wrong))

    for wrong <- [
          %{__struct__: ChatContext},
          %{chat | branches: %{}},
          %{chat | branches: %{"main" => 1}},
          %{chat | active_branch_name: "b"},
          context
        ],
        type <- [ChatContext.EctoType, ChatTextType],
        do: assert({:error, message: _} = type.cast(wrong))
  end

  test "what another node made is refused, with the node's name" do
    {:ok, context} = OtherVM.run(Context, :new, ["Hello!"], :elsewhere)
    {:ok, chat} = OtherVM.run(ChatContext, :new, [[input: "Hello!"]], :elsewhere)

    for {type, value} <- [
          {EctoType, context},
          {TextType, context},
          {ClosedType, context},
          {ChatContext.EctoType, chat},
          {ChatTextType, chat}
        ] do
      assert {:error, message: message} = type.cast(value)
      assert message =~ "elsewhere@127.0.0.1"
      error = assert_caller_bug(fn -> type.dump(value) end)
      assert Exception.message(error) =~ "elsewhere@127.0.0.1"
    end
  end

  test "a type that accepts nothing takes contexts", %{context: context} do
    assert ClosedType.cast(context) == {:ok, context}
    assert ClosedType.cast(nil) == {:ok, nil}

    for wrong <- [Context.dump(context), Context.to_map(context), Context.to_snapshot(context), 7] do
      assert {:error, message: "expected a context" <> _} = ClosedType.cast(wrong)
    end
  end

  test "an empty map is no conversation" do
    for empty <- [%{}, %{iterations: []}, %{"iterations" => []}, %{current_iteration: 1}, []],
        type <- [EctoType, TextType, ClosedType, ShortType, ChatContext.EctoType],
        do: assert({:error, message: _} = type.cast(empty))
  end

  test "limits hold for every form", %{context: context} do
    long = Context.new(String.duplicate("x", 2_000))

    for input <- [long, Context.dump(long), Context.to_snapshot(long)] do
      assert {:error, message: message} = TextType.cast(input)
      assert message =~ "expected at most 2000 bytes, got 2"
    end

    many =
      Enum.reduce(1..2, context, fn _, context ->
        context |> Context.add_user_message("And?") |> Context.add_assistant_message("No.")
      end)

    for input <- [many, Context.to_map(many), Context.to_messages(many)] do
      assert {:error, message: message} = ShortType.cast(input)
      assert message =~ "expected at most 2 iterations, got 3"
    end

    chat = ChatContext.new(context: many)
    assert {:error, message: _} = ChatTextType.cast(chat)
    assert {:error, message: _} = ChatTextType.cast(ChatContext.dump(chat))

    assert {:ok, _} =
             ChatTextType.cast(ChatContext.branch(ChatContext.new(context: context), "b"))
  end

  test "parameters bring neither approvals nor structs; what is stored does" do
    context =
      Context.new("Clean up", metadata: %{file: %File.Stream{path: "/etc/hostname"}})
      |> Context.add_assistant_message(nil, [%{id: "a", name: "rm", arguments: %{}}])
      |> Context.Calls.approve_tool_call("a", by: "the boss")

    for input <- [Context.dump(context), Context.to_snapshot(context)] do
      assert {:ok, cast} = EctoType.cast(input)
      assert Context.Calls.tool_call_status(cast, "a") == :pending
      assert Context.Calls.tool_call_decision(cast, "a") == nil
      refute is_struct(Context.metadata(cast).file)
      assert {:ok, loaded} = EctoType.load(input)
      assert Context.equal?(loaded, context)
    end

    chat = ChatContext.new(context: context)

    for input <- [ChatContext.dump(chat), ChatContext.to_snapshot(chat)] do
      assert {:ok, cast} = ChatContext.EctoType.cast(input)
      assert Context.Calls.tool_call_status(ChatContext.active(cast).context, "a") == :pending
      assert {:ok, loaded} = ChatContext.EctoType.load(input)
      assert ChatContext.equal?(loaded, chat)
    end
  end

  test "parameters set a chat's settings only where they may" do
    server = %{name: "a", command: "rm -rf /"}
    chat = ChatContext.new(input: "hi", config: [mcp_servers: [server]])
    dump = ChatContext.dump(chat)
    assert {:error, message: message} = ChatContext.EctoType.cast(dump)
    assert message =~ "accept: [:dump, :config]"
    assert {:ok, cast} = ChatTextType.cast(dump)
    assert ChatContext.equal?(cast, chat)
    assert ChatContext.EctoType.cast(chat) == {:ok, chat}
  end

  test "a column of text holds the snapshot", %{context: context} do
    assert TextType.type() == :string
    assert {:ok, text} = TextType.dump(context)
    assert text == Context.to_snapshot(context)
    assert {:ok, loaded} = TextType.load(text)
    assert Context.equal?(context, loaded)

    chat = ChatContext.new(context: context)
    assert {:ok, text} = ChatTextType.dump(chat)
    assert text == ChatContext.to_snapshot(chat)
    assert {:ok, loaded} = ChatTextType.load(text)
    assert ChatContext.equal?(chat, loaded)
    assert ChatTextType.dump(context) == :error
    assert ChatTextType.cast(context) == {:error, message: "expected a chat, or a map of one"}
  end

  test "wrong options are refused when the type is compiled" do
    for {type, options} <- [
          {EctoType, [storage: :jsonb]},
          {EctoType, [accept: :dump]},
          {EctoType, [accept: [:config]]},
          {EctoType, [max_bytes: 0]},
          {EctoType, [max_iterations: "2"]},
          {EctoType, [maximum: 2]},
          {ChatContext.EctoType, [accept: [:messages]]}
        ] do
      code =
        "defmodule AshAgent.TestSupport.WrongType do use #{inspect(type)}, #{inspect(options)} end"

      assert_caller_bug(fn -> Code.compile_string(code) end)
    end
  end
end
