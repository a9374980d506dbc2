defmodule AshAgent.ChatContext.ConfigTest do
  # What the runtime reads of a chat's settings, after they were stored.
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Generators

  alias AshAgent.{ChatContext, Toolbox}
  alias AshAgent.Runtime.Permissions

  defp round_trip(chat), do: chat |> ChatContext.dump() |> ChatContext.load!()
  defp config(fields), do: round_trip(ChatContext.new(config: fields)).config

  test "toolboxes come back equal, unless they hold what lives in this VM only" do
    toolbox = Toolbox.new(name: "now", command: "date")
    assert config(toolboxes: [toolbox]).toolboxes == [toolbox]
    assert config(toolboxes: [%Toolbox{name: "a", command: fn -> nil end}]).toolboxes in [nil, []]
  end

  test "permission rules never allow more after loading, whatever the rules" do
    names = ~w(read read_all delete)

    check_all("stored permission rules", [runs: 300, max_size: 5], fn size ->
      rules = for _ <- 1..between(1, size), do: permission_rule(names)
      chat = ChatContext.new(config: [permission_rules: rules])
      loaded = round_trip(chat).config.permission_rules

      [before, later] = for rules <- [rules, loaded], do: Permissions.new(permission_rules: rules)

      for name <- names, n <- 0..1 do
        call = %{name: name, arguments: %{"n" => n}}

        if Permissions.check(before, call) != :ok,
          do: assert({:deny, _} = Permissions.check(later, call))
      end

      unless Enum.any?(rules, &(tuple_size(&1) == 3)), do: assert(loaded == rules)
    end)
  end

  defp permission_rule(names) do
    kind = one_of([:allow, :deny])
    pattern = one_of(["*", "read*", "d*" | names])

    if chance(40),
      do: {kind, pattern, one_of([&(&1["n"] == 1), fn _ -> false end, fn _ -> true end])},
      else: {kind, pattern}
  end
end
