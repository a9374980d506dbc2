defmodule AshAgent.MCP.MissingTest do
  # Where `ex_mcp`, or the Elixir that it needs, is not there.
  use ExUnit.Case, async: true

  alias AshAgent.MCP.Server

  doctest Server

  test "a server is one, or says in a line what is missing" do
    identify = fn _request -> {:error, :unauthenticated} end

    opts = [
      sessions: MyApp.Sessions,
      identify: identify,
      secrets: [{"k1", String.duplicate("s", 32)}]
    ]

    case Server.available() do
      :ok ->
        assert inspect(Server.new(opts)) =~ ~r/\A#AshAgent.MCP.Server</

      {:error, words} ->
        assert words =~ ~r/\Aan MCP server needs (Elixir 1.17|ex_mcp)[^\n]*\z/
        assert_raise ArgumentError, words, fn -> Server.new(opts) end
    end

    for {name, wrong} <- [
          secrets: [{"k1", "short"}],
          secrets: [],
          tools: MyApp.Offered,
          sessions: nil,
          identify: nil
        ],
        do: assert_raise(ArgumentError, fn -> Server.new(Keyword.put(opts, name, wrong)) end)
  end
end
