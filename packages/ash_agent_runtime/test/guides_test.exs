defmodule AshAgent.GuidesTest do
  use ExUnit.Case, async: true

  alias AshAgent.TestSupport.Guide

  @results ~r/^#=> /m

  @here Enum.map(
          ~w(budgets tokens recall costs cache masks request-changes untrusted late),
          &"../../guides/#{&1}.md"
        ) ++
          Enum.map(~w(answers partial-answers after-a-crash erase), &"guides/#{&1}.md")

  # The tests of these run them with what they need: modules and tables, a view, a server, Ash.
  @elsewhere ~w(../../guides/getting-started.md ../../guides/cheatsheet.cheatmd ../../guides/branches.md ../../guides/history.md) ++
               ~w(../../guides/storage.md guides/sessions.md guides/stores.md guides/deliver.md guides/mcp.md ../ash_agent_test/guides/testing.md) ++
               ~w(../ash_agent_test/guides/evaluations.md ../ash_agent_resources/guides/coming-from-ash-agent.md) ++
               ~w(../ash_agent_resources/guides/coming-from-ash-agent-context.md ../ash_agent_resources/guides/coming-from-ash-ai.md)

  # These show calls of modules and answers that the reader has.
  @shown ~w(guides/runtime.md guides/clients.md guides/late-results.md)

  for page <- @here do
    test "the examples of #{page} give what it says" do
      guide = File.read!(unquote(page))
      results = length(Regex.scan(@results, guide))
      assert results > 0
      assert Guide.run(guide) == results
    end
  end

  test "each page that shows results is run by a test" do
    pages =
      for folder <-
            ~w(../../guides guides ../ash_agent_test/guides ../ash_agent_resources/guides),
          page <- Path.wildcard("#{folder}/*.{md,cheatmd}"),
          File.read!(page) =~ @results,
          do: page

    assert (pages -- @here) -- (@elsewhere ++ @shown) == []
  end

  # Those of packages that are not here are left to these.
  test "the functions that guides and rules for users name exist" do
    pages =
      for pattern <- ~w(guides/* usage-rules.md packages/*/guides/* packages/*/usage-rules.md),
          page <- Path.wildcard("../../" <> pattern),
          do: page

    named =
      for page <- pages,
          [_all, module, name, arity] <-
            Regex.scan(~r/\b(AshAgent(?:\.[A-Z]\w*)+)\.(\w+[?!]?)\/(\d)/, File.read!(page)),
          Code.ensure_loaded?(Module.concat([module])),
          do: {page, module, name, String.to_integer(arity)}

    assert length(named) > 100

    for {page, module, name, arity} <- named do
      exports = Module.concat([module]).__info__(:functions)
      callbacks = for {callback, _types} <- callbacks(module), do: callback

      assert Enum.any?(exports ++ callbacks, &(&1 == {String.to_atom(name), arity})),
             "#{page} names #{module}.#{name}/#{arity}"
    end
  end

  defp callbacks(module) do
    case Code.Typespec.fetch_callbacks(Module.concat([module])) do
      {:ok, callbacks} -> callbacks
      :error -> []
    end
  end
end
