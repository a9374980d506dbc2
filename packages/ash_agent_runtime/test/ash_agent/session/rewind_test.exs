defmodule AshAgent.Session.RewindTest do
  use ExUnit.Case, async: true

  @moduletag :capture_log

  alias AshAgent.{Context, LLM, Session, Sessions, Store}

  defp open(answers, opts \\ []) do
    {:ok, store} = Store.SQLite.open(":memory:")
    name = Module.concat(__MODULE__, "S#{System.unique_integer([:positive])}")
    own = [name: name, store: store, llm: LLM.Scripted.new(answers), system_prompt: "Be brief."]
    {:ok, _} = Sessions.start_link(Keyword.merge(own, opts))
    {name, store}
  end

  defp texts(store) do
    {:ok, stored} = Store.fetch(store, "c")
    for %{content: text} <- Context.to_messages(stored.value), is_binary(text), do: text
  end

  for {to, left} <- [{0, []}, {1, ["one", "1"]}, {2, ["one", "1", "two", "2"]}] do
    test "back to #{to} is stored, told, and gone on from" do
      {name, store} = open(["1", "2", "3"])
      for text <- ["one", "two"], do: {:ok, _} = Sessions.prompt(name, "c", text, key: text)
      {:ok, ref, _} = Sessions.subscribe(name, "c")
      assert Sessions.rewind(name, "c", unquote(to)) == :ok
      assert texts(store) == ["Be brief." | unquote(left)]
      if unquote(to) < 2, do: assert_receive({Session, ^ref, _, {:context, _}})
      # Another session, which reads it.
      {:ok, session} = Sessions.fetch_session(name, "c")
      monitor = Process.monitor(session)
      Process.exit(session, :kill)
      assert_receive {:DOWN, ^monitor, _, _, _}
      assert {:ok, %{output: "3"}} = Sessions.prompt(name, "c", "three", key: "three")
      assert texts(store) == ["Be brief." | unquote(left)] ++ ["three", "3"]
    end
  end

  test "not to what is not there, and not while something runs or waits" do
    test = self()

    llm = fn _ ->
      send(test, {:asked, self()})
      receive do: (answer -> {:ok, answer})
    end

    {name, store} =
      open([], llm: llm, approval: fn _, _ -> :ask end, tools: %{go: fn _ -> {:ok, 1} end})

    {:ok, _} = Sessions.prompt_async(name, "c", "one")
    assert_receive {:asked, model}
    assert Sessions.rewind(name, "c", 0) == {:error, :busy}
    send(model, %{tool_calls: [%{id: "a", name: "go"}]})
    {:ok, session} = Sessions.fetch_session(name, "c")
    wait_paused(session)
    assert Sessions.rewind(name, "c", 0) == {:error, :paused}
    :ok = Sessions.cancel(name, "c")

    for to <- [-1, 7],
        do:
          assert(
            {:error, %Context.Error{reason: {:unknown_iteration, ^to, _}}} =
              Sessions.rewind(name, "c", to)
          )

    assert "one" in texts(store)
    assert Sessions.rewind(name, "c", 0) == :ok
    assert texts(store) == ["Be brief."]
  end

  defp wait_paused(session) do
    unless match?({:paused, [_]}, Session.status(session)) do
      Process.sleep(5)
      wait_paused(session)
    end
  end
end
