defmodule AshAgent.Runtime.OutputGuideTest do
  use ExUnit.Case, async: true

  test "the guide's examples give what it says",
    do: assert(AshAgent.TestSupport.Guide.run(File.read!("guides/answers.md")) == 12)
end
