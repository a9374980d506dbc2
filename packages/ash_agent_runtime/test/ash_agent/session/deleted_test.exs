defmodule AshAgent.Session.DeletedTest do
  use ExUnit.Case, async: true

  # A conversation is deleted while a session has it: whoever waits is told that it is gone, and of no message that it is stored.

  import AshAgent.TestSupport.StoredSessions, only: [sqlite: 0]

  alias AshAgent.{Session, Sessions, Store}
  alias AshAgent.Runtime.Error

  @moduletag :capture_log

  setup do
    Process.flag(:trap_exit, true)
    {:ok, store: sqlite()}
  end

  defp thinking do
    test = self()

    fn _context ->
      send(test, {:thinking, self()})
      receive do: (:answer -> {:ok, %{content: "Hello!"}})
    end
  end

  defp start(store, lease) do
    {:ok, session} = Session.start_link(store: store, id: "c", lease: lease, llm: thinking())
    session
  end

  defp await_error(ref) do
    assert_receive {Session, ^ref, {:error, error}}, 5_000
    error
  end

  defp gone?(%Error{} = error) do
    words = Exception.message(error)

    error.reason == {:store_error, :not_found} and error.stored == false and
      words =~ "was deleted" and not (words =~ "is stored") and not (words =~ "send it again")
  end

  # What happens next, while a message runs and another one waits, and the lease: with a short one, the renewer finds it.
  for {name, lease} <- [
        nothing: 600,
        answer: 60_000,
        cancel: 60_000,
        prompt: 60_000,
        steer: 60_000
      ] do
    test "#{name} after it is told that it is gone", %{store: store} do
      session = start(store, unquote(lease))
      {:ok, running} = Session.prompt_async(session, "Hi")
      assert_receive {:thinking, model}
      {:ok, waiting} = Session.prompt_async(session, "And?")
      :ok = Store.delete(store, "c")

      case unquote(name) do
        :nothing ->
          :ok

        :answer ->
          send(model, :answer)

        :cancel ->
          Session.cancel(session)

        :prompt ->
          assert({:error, error} = Session.prompt_async(session, "More")) && assert(gone?(error))

        :steer ->
          assert({:error, error} = Session.steer(session, "More")) && assert(gone?(error))
      end

      for ref <- [running, waiting], do: assert(gone?(await_error(ref)))
      assert_receive {:EXIT, ^session, {:shutdown, :lost}}
      assert Store.fetch(store, "c") == {:error, :not_found}
    end
  end

  test "so is who asked a session of a node", %{store: store} do
    name = Module.concat(__MODULE__, Node)
    start_supervised!({Sessions, name: name, store: store, llm: thinking(), lease: 300})
    {:ok, ref} = Sessions.prompt_async(name, "c", "Hi")
    assert_receive {:thinking, _model}
    :ok = Store.delete(store, "c")
    assert gone?(await_error(ref))
  end
end
