defmodule RuntimeArgumentsTest do
  alias AshAgent.{Context, LLM, Runtime, Session, Sessions, Store, Toolbox}
  alias AshAgent.LLM.Scripted
  alias AshAgent.Runtime.Permissions

  use AshAgent.TestSupport.ArgumentCases,
    app: :ash_agent_runtime,
    takes_anything: [{LLM, :streams?}, {AshAgent.Trace.Exporter, :on_event}]

  # Nothing is asked of a database or a process before the arguments are checked.
  defp calls do
    context = Context.new("Hi")
    store = Store.Postgres.new(__MODULE__)
    toolbox = Toolbox.new(name: "now", command: "date")

    %{
      {Runtime, :run} => [context, [llm: Scripted.new(["Hi"])]],
      {Toolbox, :run} => [toolbox, %{}],
      {Permissions, :new} => [[]],
      {LLM, :new} => [fn _ -> {:ok, "Hi"} end],
      {LLM.Ollama, :new} => [[model: "m"]],
      {LLM.Anthropic, :new} => [[model: "m"]],
      {LLM.OpenAIResponses, :new} => [[model: "m"]],
      {LLM.Scripted, :new} => [["Hi"]],
      {Store, :call_key} => [context, "a"]
    }
    |> Map.merge(
      for(
        name <- [:claim, :release, :append, :create],
        into: %{},
        do: {{Store, name}, [store, nil, []]}
      )
    )
  end

  test "a process that is none is refused before it is asked" do
    for session <- [nil, "session", 1] do
      for call <- [
            &Session.prompt(&1, "Hi"),
            &Session.status/1,
            &Sessions.status(&1, "c1"),
            &Session.cancel/1
          ] do
        assert_raise ArgumentError, ~r/expected sessions? to be a/, fn -> call.(session) end
      end
    end
  end

  test "a text for a context is refused by name" do
    assert_raise ArgumentError,
                 ~r/expected context to be a %AshAgent.Context\{\}, got: a binary of 2 bytes/,
                 fn ->
                   Runtime.run("Hi", llm: LLM.Scripted.new(["Hi"]))
                 end
  end
end
