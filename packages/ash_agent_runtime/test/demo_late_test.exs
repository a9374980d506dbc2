defmodule AshAgent.DemoLateTest do
  # The parts of `bin/demo --late`, each in a VM of its own.
  use ExUnit.Case, async: true

  alias AshAgent.{Context, Store}

  @moduletag :tmp_dir
  @moduletag timeout: 180_000

  defp tell(part, folder) do
    arguments = ~w(run --no-compile ../../demo/late.exs #{part} #{folder})
    System.cmd("mix", arguments, env: [{"MIX_ENV", "#{Mix.env()}"}], stderr_to_stdout: true)
  end

  test "the agent goes on by itself with a build that ended while its VM was dead", %{
    tmp_dir: folder
  } do
    {words, status} = tell("begin", folder)
    assert status == 137, words
    assert words =~ "I publish it when it is green."

    {words, status} = tell("build", folder)
    assert status == 0, words
    assert words =~ "{:ok, :kept}"

    {words, status} = tell("go_on", folder)
    assert status == 0, words
    assert words =~ ~r/green, 412 tests.*publish.*Release 7 is green, and published/s

    {:ok, store} = Store.SQLite.open(Path.join(folder, "store.db"))
    {:ok, kept} = Store.fetch(store, "release")

    assert [%{state: :placed, from: "build server", placed: 3}] =
             Context.Calls.late_calls(kept.value)

    assert {:ok, []} = Store.arrivals(store, "release")
  end
end
