defmodule AshAgent.StoreTest do
  use ExUnit.Case, async: true

  doctest AshAgent.Store
  doctest AshAgent.Store.SQLite
  doctest AshAgent.Store.Postgres
  doctest AshAgent.Store.Postgres.Migrations

  # Runs the examples of the guide from "Writing and loading" on, and checks every `#=>`. The others need a database of Ecto.
  test "the examples of the guide on stores give what they say" do
    [_, guide] = "guides/stores.md" |> File.read!() |> String.split("## Writing and loading")

    blocks =
      Regex.scan(~r/```elixir\n(?!defmodule|defp)(.*?)```/s, guide, capture: :all_but_first)

    example = Enum.join(blocks, "\n")
    checked = Regex.replace(~r/^(?!#)(.+)\n#=> (.+)$/m, example, "true = (\\1) === (\\2)")

    results = length(Regex.scan(~r/^#=> /m, example))
    assert results == length(Regex.scan(~r/^true = /m, checked))
    assert results >= 9
    assert {_, _} = Code.eval_string(checked)
  end
end
