defmodule AshAgent.Runtime.TelemetryTest do
  # A stand-in for the application :telemetry is loaded for the whole VM.
  use ExUnit.Case, async: false

  alias AshAgent.{Context, LLM, Runtime}

  defp run(opts \\ []),
    do:
      Runtime.run(
        Context.new("Hi"),
        Keyword.put_new(opts, :llm, fn _ -> {:ok, %{content: "Hi"}} end)
      )

  defp stand_in do
    test = self()

    quoted =
      quote do
        def execute(event, measurements, metadata) do
          send(
            unquote(Macro.escape(:erlang.pid_to_list(test))) |> :erlang.list_to_pid(),
            {event, measurements, metadata}
          )

          raise "a handler's fault"
        end
      end

    Module.create(:telemetry, quoted, Macro.Env.location(__ENV__))

    on_exit(fn ->
      :code.purge(:telemetry)
      :code.delete(:telemetry)
    end)
  end

  @events for name <- [
                [:iteration, :start],
                [:llm, :start],
                [:llm, :stop],
                [:iteration, :stop],
                [:run, :stop]
              ],
              do: [:ash_agent, :runtime | name]

  if Code.ensure_loaded?(:telemetry) do
    test "the application's telemetry cannot stop a run" do
      assert {:ok, %{output: "Hi"}} = run()
    end
  else
    @tag :capture_log
    test "gets the events of a run when it is there, and cannot stop it" do
      stand_in()
      assert {:ok, %{output: "Hi"}} = run()
      for event <- @events, do: assert_receive({^event, %{}, %{iteration: 1}})
    end

    @tag :capture_log
    test "gets no text of what streams in" do
      stand_in()
      test = self()
      opts = [llm: LLM.Scripted.new(["SECRET words"]), on_event: &send(test, {:told, &1})]
      assert {:ok, %{output: "SECRET words"}} = run(opts)
      assert_receive {[_, _, :llm, :delta], %{bytes: 7}, %{iteration: 1} = metadata}
      assert metadata |> Map.keys() |> Enum.sort() == [:context_id, :iteration]
      assert_receive {:told, %{metadata: %{events: [{:text, 0, "SECRET "}]}}}
      assert_receive {[_, _, :run, :stop], %{duration: _}, metadata}
      assert metadata |> Map.keys() |> Enum.sort() == [:context_id, :iteration, :status]
      assert_receive {:told, %{metadata: %{status: :answered, context: %Context{}}}}
    end

    @tag :capture_log
    test "that comes later gets the events from then on" do
      assert {:ok, _} = run()

      # Loaded in the middle of a run, when its second event is told.
      load = fn
        [_, _, :llm, :start], _, _ -> stand_in()
        _, _, _ -> :ok
      end

      assert {:ok, %{output: "Hi"}} = run(on_event: load)
      [_, _ | events] = @events
      for event <- events, do: assert_receive({^event, %{}, %{iteration: 1}})
    end

    test "that is not there is not looked for: a run asks the code server for nothing" do
      assert {:ok, _} = run()
      runner = Task.async(fn -> receive(do: (:go -> run())) end)
      :erlang.trace(runner.pid, true, [:send, :set_on_spawn])
      send(runner.pid, :go)
      assert {:ok, _} = Task.await(runner)
      :erlang.trace(:all, false, [:send])
      server = Process.whereis(:code_server)
      sent = traced()
      assert sent != []
      assert for({message, to} <- sent, to in [server, :code_server], do: message) == []
    end

    defp traced do
      receive do
        {:trace, _, :send, message, to} -> [{message, to} | traced()]
        {:trace, _, :send_to_non_existing_process, _, _} -> traced()
      after
        0 -> []
      end
    end
  end
end
