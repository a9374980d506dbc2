defmodule AshAgent.Conversation.Structure do
  @moduledoc false

  # What a dump of a database's structure (`mix ecto.dump`) has of conversations, as the calls of migrations that made it: where old
  # migrations are gone, the dump stands for them.

  @version ~r/^COMMENT ON TABLE (\S+)\.ash_agent_conversations IS '(\d+)';/m
  @trigger ~r/^CREATE TRIGGER ash_agent_delete AFTER DELETE ON (.+) FOR EACH ROW EXECUTE FUNCTION (\S+)\(\);/m
  @deletes ~r/where id = '(.+):' \|\| cast\(old\.(".+") as text\)/

  @doc "Returns the calls that `AshAgent.Conversation.Codegen` would have found in the migrations."
  def read(sql) do
    stores =
      for [_, schema, version] <- Regex.scan(@version, sql),
          do: {[:Postgres, :Migrations], [version: String.to_integer(version)] ++ prefix(schema)}

    ties =
      for [_, place, function] <- Regex.scan(@trigger, sql),
          [schema, table] <- [String.split(place, ".", parts: 2)],
          [_, name, key] <- [find_body(sql, function)] do
        tie = [version: 1, table: unquote_name(table), key: unquote_name(key)]

        {[:Conversation, :Migrations],
         tie ++ [name: String.replace(name, "''", "'")] ++ prefix(schema)}
      end

    stores ++ ties
  end

  defp find_body(sql, function) do
    # PostgreSQL chooses the quotes.
    body = ~r/^CREATE FUNCTION #{Regex.escape(function)}\(\).*?\bAS (\$\w*\$)(.*?)\1;/ms
    with [_, _quotes, body] <- Regex.run(body, sql), do: Regex.run(@deletes, body)
  end

  # Without a schema, the tables are in the first one of the `search_path`.
  defp prefix("public"), do: []
  defp prefix(schema), do: [prefix: unquote_name(schema)]

  defp unquote_name(name), do: name |> String.trim("\"") |> String.replace("\"\"", "\"")
end
