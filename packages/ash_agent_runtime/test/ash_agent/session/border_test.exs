defmodule AshAgent.Session.BorderTest do
  use ExUnit.Case, async: true

  alias AshAgent.{Context, Runtime}
  alias AshAgent.Session.Border

  # The external term format of a process on a node that there is none of.
  defp away do
    name = "nobody@nowhere"
    :erlang.binary_to_term(<<131, 103, 100, byte_size(name)::16, name::binary, 1::32, 0::32, 1>>)
  end

  test "the conversations of sub-agents stay on their node" do
    child = Context.new("Look")
    result = %Runtime.Result{status: :answered, context: Context.new("Hi"), sub_agents: [child]}
    assert Border.pack({:ok, result}, self()) == {:ok, result}
    left = Border.pack({:ok, result}, away())
    assert {:ok, %Runtime.Result{sub_agents: [], context: context}} = Border.unpack(left)
    assert Context.equal?(context, result.context)

    error = %Runtime.Error{reason: :cancelled, context: child, sub_agents: [child]}
    assert {:error, %{sub_agents: []}} = Border.unpack(Border.pack({:error, error}, away()))
  end
end
