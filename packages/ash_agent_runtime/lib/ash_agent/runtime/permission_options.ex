defmodule AshAgent.Runtime.PermissionOptions do
  @moduledoc false

  # The options of AshAgent.Runtime.Permissions. They are also options of a run, whose module is compiled with this one: what
  # decides about calls needs the modules of runs, so it stands elsewhere.

  alias AshAgent.Options

  @schema Options.schema([
            {:allowed_tools, {:or, [{:list, {:custom, &__MODULE__.name?/1}}, nil]},
             [type_doc: "a list of names, or `nil` for all tools", default: nil],
             "the tools that may be called."},
            {:permission_rules, {:list, {:custom, &__MODULE__.rule?/1}},
             [
               type_doc:
                 "a list of rules: `{:allow | :deny, pattern}` or `{:allow | :deny, pattern, function of arity 1}`",
               default: []
             ], "see `t:rule/0`."}
          ])

  def schema, do: @schema

  def name?(name), do: is_binary(name) or (is_atom(name) and name not in [nil, true, false])

  def rule?({kind, pattern}), do: kind in [:allow, :deny] and name?(pattern)
  def rule?({kind, pattern, predicate}), do: rule?({kind, pattern}) and is_function(predicate, 1)
  def rule?(_other), do: false
end
