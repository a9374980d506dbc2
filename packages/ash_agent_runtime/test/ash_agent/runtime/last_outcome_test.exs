defmodule AshAgent.Runtime.LastOutcomeTest do
  # The store knows how a turn ended, from a run and from a session.
  use ExUnit.Case, async: true

  alias AshAgent.{Context, LLM, Runtime, Session, Store}
  alias AshAgent.LLM.Scripted
  alias AshAgent.Runtime.{Ended, Error}

  @moduletag :capture_log

  @secret "sk-SECRET"
  @call %{tool_calls: [%{id: "1", name: "stop", arguments: %{}}]}

  defp store do
    {:ok, store} = Store.SQLite.open(":memory:")
    store
  end

  defp run(store, opts) do
    {:ok, kept} = Store.create(store, Context.new("Hi", id: "c"))
    Runtime.run(kept.value, [store: store, kept: kept] ++ opts)
  end

  defp last(store, id) do
    {:ok, writes} = Store.history(store, id)
    Ended.find(writes)
  end

  defp fails(reason), do: fn _context -> {:error, reason} end
  defp raises, do: fn _context -> raise @secret end
  defp halts, do: %{stop: fn _arguments, _context -> {:halt, "over"} end}
  defp finishes(word), do: Scripted.new([%{content: "Half", finish_reason: word}])

  defp overloaded,
    do: %LLM.Error{
      reason: {:status, 529},
      kind: :overloaded,
      status: 529,
      provider_message: @secret
    }

  # What the run is given, how its turn ends, and the kind of what went wrong.
  defp ends do
    [
      {[llm: Scripted.new(["Good."])], :answered, nil},
      {[llm: finishes(:length)], :length, nil},
      {[llm: finishes(:refusal)], :refused, nil},
      {[llm: finishes(:content_filter)], :filtered, nil},
      {[llm: Scripted.new([@call]), tools: halts()], :halted, nil},
      {[llm: fails(overloaded())], :failed, "overloaded"},
      {[llm: fails(%{overloaded() | kind: :refused})], :filtered, "refused"},
      {[llm: fails(@secret)], :failed, "llm_error"},
      {[llm: raises()], :failed, "llm_exception"},
      {[llm: Scripted.new(["Good."]), tools: fn -> raise @secret end], :failed,
       "tools_exception"},
      {[
         llm: Scripted.new([@call, @call]),
         tools: %{stop: fn _a, _c -> {:ok, 1} end},
         max_iterations: 1
       ], :max_iterations, "max_iterations_exceeded"},
      {[llm: Scripted.new([@call, "x"]), tools: %{stop: fn _a, _c -> {:ok, 1} end}, max_calls: 1],
       :budget, "max_calls_exceeded"},
      {[llm: fn _context -> Process.sleep(:infinity) end, llm_timeout: 20], :timeout,
       "llm_timeout"}
    ]
  end

  test "of a run, and of a session, without words that are not ours" do
    for entrance <- [:run, :session], {opts, outcome, kind} <- ends() do
      store = store()
      enter(entrance, store, opts)
      assert %{outcome: ^outcome, error: error} = last(store, "c")
      assert {outcome, error && error["kind"]} == {outcome, kind}
      refute inspect(error) =~ "SECRET"
      if error, do: assert(is_binary(error["words"]))
    end
  end

  defp enter(:run, store, opts), do: run(store, opts)

  defp enter(:session, store, opts) do
    {:ok, session} = Session.start_link([id: "c", store: store] ++ opts)
    Session.prompt(session, "Hi")
    GenServer.stop(session)
  end

  test "a turn that was cancelled, and one that was answered after it" do
    store = store()
    test = self()

    llm = fn context ->
      send(test, :asked)
      last = context |> Context.to_messages() |> List.last()
      if last.content == "Hi", do: Process.sleep(:infinity), else: {:ok, %{content: "Good."}}
    end

    {:ok, session} = Session.start_link(id: "c", store: store, llm: llm)
    {:ok, _ref} = Session.prompt_async(session, "Hi")
    assert_receive :asked
    Session.cancel(session)
    assert %{outcome: :cancelled} = last(store, "c")
    Session.prompt(session, "And now?")
    assert %{outcome: :answered, error: nil} = last(store, "c")
  end

  test "a turn that waits or goes on elsewhere has not ended" do
    for reason <- [:parked, :drained, {:missing_option, :approval}, {:store_error, :stale}],
        do: assert(Ended.note({:failed, reason}) == %{})

    store = store()
    opts = [llm: Scripted.new([@call]), tools: halts(), approval: fn _call, _context -> :ask end]
    assert {:paused, _} = run(store, opts)
    assert last(store, "c") == nil
  end

  test "every reason has an outcome and words" do
    for reason <- [
          {:exit, @secret},
          {:llm_error, @secret},
          {:invalid_answer, @secret},
          {:refused, @secret},
          :dropped,
          :cancelled
        ] do
      assert %{ended: %{"outcome" => outcome, "error" => error}} = Ended.note({:failed, reason})
      assert outcome in Enum.map(Ended.outcomes(), &Atom.to_string/1)
      refute inspect(error) =~ "SECRET"
      assert %Error{reason: reason, context: nil} |> Exception.message() |> is_binary()
    end
  end
end
