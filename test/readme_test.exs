defmodule ReadmeTest do
  use ExUnit.Case, async: true

  test "the README's example gives what it says", do: AshAgent.TestSupport.Readme.run("README.md")
end
