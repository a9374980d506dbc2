defmodule AshAgent.Sessions.NewCodeTest do
  use ExUnit.Case, async: true

  alias AshAgent.TestSupport.{NewCode, Nodes}

  test "sessions go on when every module is loaded twice, whatever they do" do
    {peer, _node} = Nodes.start(:new_code)
    outcomes = :peer.call(peer, NewCode, :run, [], 60_000)
    :peer.stop(peer)
    assert length(outcomes) == 9
    for {kind, output} <- outcomes, do: assert({kind, output} == {kind, "Done"})
  end
end
