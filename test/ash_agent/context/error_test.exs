defmodule AshAgent.Context.ErrorTest do
  use ExUnit.Case, async: true

  alias AshAgent.Context.Error
  alias AshAgent.Response

  # The core has the table of reasons, and Elixir their words. A reason without words would be shown as it is.

  # Reasons that never reach a user as an error of a context.
  @inside ["reserved_field", "too_much_work"]

  defp names(file, table) do
    [_, table] =
      "native/ash_agent_context_core/src/#{file}"
      |> File.read!()
      |> then(&Regex.run(table, &1))

    ~r/(?:\(|= )\s*"([a-z_]+)"/
    |> Regex.scan(table, capture: :all_but_first)
    |> List.flatten()
    |> Enum.uniq()
  end

  defp typed(module) do
    {:ok, types} = Code.Typespec.fetch_types(module)
    [reasons] = for {:type, {:reason, {:type, _, :union, reasons}, []}} <- types, do: reasons

    Enum.map(reasons, fn
      {:type, _, :tuple, [{:atom, _, name} | _]} -> Atom.to_string(name)
      {:atom, _, name} -> Atom.to_string(name)
    end)
  end

  test "every reason of the core has a type and words" do
    names = names("error.rs", ~r/^errors! \{(.*?)^\}/ms)
    assert length(names) > 25
    assert names -- (typed(Error) ++ @inside) == []

    words = File.read!("lib/ash_agent/context/error.ex")
    for name <- names -- @inside, do: assert(words =~ ~r/^ {6}\{?:#{name}\b.* ->$/m, name)
  end

  test "every fault of the core has a type and words" do
    names = names("fault.rs", ~r/fn reason\(&self\)(.*?)\n    }\n/s) -- @inside
    assert length(names) > 5
    assert names -- typed(Response.Error) == []

    words = File.read!("lib/ash_agent/response/error.ex")
    for name <- names, do: assert(words =~ ~r/^ +(\{:#{name}\b.* ->|#{name}:)$/m, name)
  end
end
