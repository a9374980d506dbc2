defmodule AshAgent.Runtime.BuildTest do
  # What others compile meanwhile would be seen.
  use ExUnit.Case, async: false

  # They share a folder, as the applications of an umbrella do.
  test "nothing is compiled when one goes from one package to another and back" do
    for _ <- 1..2, folder <- ["../..", "."] do
      env = [{"MIX_ENV", to_string(Mix.env())}]

      {said, status} =
        System.cmd("mix", ["compile"], cd: folder, env: env, stderr_to_stdout: true)

      assert status == 0, said
      refute said =~ "Compiling", "in #{folder}: #{said}"
    end
  end
end
