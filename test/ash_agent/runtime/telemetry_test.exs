defmodule AshAgent.Runtime.TelemetryTest do
  # A stand-in for the application :telemetry is loaded for the whole VM.
  use ExUnit.Case, async: false

  alias AshAgent.{Context, Runtime}

  setup do
    if Code.ensure_loaded?(:telemetry) do
      :ok
    else
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

      %{stand_in: true}
    end
  end

  @tag :capture_log
  test "gets the events of a run when it is there, and cannot stop it", context do
    assert {:ok, %{output: "Hi"}} =
             Runtime.run(Context.new("Hi"), llm: fn _ -> {:ok, %{content: "Hi"}} end)

    if context[:stand_in] do
      for name <- [[:iteration, :start], [:llm, :start], [:llm, :stop], [:iteration, :stop]] do
        event = [:ash_agent, :runtime | name]
        assert_receive {^event, %{}, %{iteration: 1}}
      end
    end
  end
end
