defmodule AshAgent.Runtime.Permissions do
  @moduledoc """
  Which tools a model may call, and with which arguments: a list of allowed names, and rules that allow and deny.

      iex> alias AshAgent.Runtime.Permissions
      iex> permissions =
      ...>   Permissions.new(
      ...>     permission_rules: [
      ...>       {:allow, "file_*"},
      ...>       {:deny, "file_delete"},
      ...>       {:deny, "file_*", fn arguments -> String.starts_with?(arguments["path"], "/etc/") end}
      ...>     ]
      ...>   )
      iex> Permissions.check(permissions, %{name: "file_read", arguments: %{"path" => "/tmp/notes"}})
      :ok
      iex> Permissions.check(permissions, %{name: "file_delete", arguments: %{"path" => "/tmp/notes"}})
      {:deny, "the tool \\"file_delete\\" is denied by the rule {:deny, \\"file_delete\\"}"}
      iex> Permissions.check(permissions, %{name: "send_mail", arguments: %{}})
      {:deny, "no rule allows the tool \\"send_mail\\""}

  `AshAgent.Runtime` applies them before every call, under the options `:allowed_tools` and `:permission_rules`. Nothing
  here knows of a run, so they serve other loops as well.

  ## Rules

  A rule is `{:allow | :deny, pattern}` or `{:allow | :deny, pattern, predicate}`.

  A pattern is a tool's name, an atom or text, in which `*` stands for any text, also for none. Every other character
  stands for itself, and the whole name must match, in its case.

  A predicate is a function of the call's arguments, a map as it stands in the call, with the keys that it has there. The
  rule matches when it returns `true`, and does not when it returns `false` or `nil`.

  ## What decides

    1. With a list of allowed names, what is not in it is denied.
    2. What a deny rule matches is denied, wherever the rule stands.
    3. When there is any allow rule, what no allow rule matches is denied.

  The reason names the first rule that decided. What cannot be decided is denied, and the reason says so: a predicate
  that raises, throws, exits or returns something else, and arguments that are no JSON object where a predicate would
  have to see them.
  """

  alias AshAgent.Runtime.{Options, Tool}

  defguardp is_name(name)
            when is_binary(name) or (is_atom(name) and name not in [nil, true, false])

  @enforce_keys [:allowed, :deny, :allow]
  defstruct [:allowed, :deny, :allow]

  @typedoc "Permissions. Its fields are private."
  @type t :: %__MODULE__{allowed: %{String.t() => true} | nil, deny: [tuple()], allow: [tuple()]}

  @type name :: atom() | String.t()
  @type predicate :: (map() -> boolean() | nil)
  @type rule ::
          {:allow | :deny, pattern :: name()} | {:allow | :deny, pattern :: name(), predicate()}

  @doc """
  Makes permissions.

  ## Options

    * `:allowed_tools` - a list of names, atoms or text, or `nil` for all. Defaults to `nil`.
    * `:permission_rules` - a list of `t:rule/0`. Defaults to `[]`.

  Raises `ArgumentError` for what is no name and no rule.

  ## Examples

      iex> AshAgent.Runtime.Permissions.new(permission_rules: [{:forbid, "rm"}])
      ** (ArgumentError) expected a rule to be {:allow | :deny, pattern} or {:allow | :deny, pattern, function of arity 1}, got: {:forbid, "rm"}
  """
  @doc since: "0.1.0"
  @spec new(allowed_tools: [name()] | nil, permission_rules: [rule()]) :: t()
  def new(opts \\ []) when is_list(opts) do
    opts = Options.validate!(opts, allowed_tools: nil, permission_rules: [])
    rules = rules(opts[:permission_rules])

    %__MODULE__{
      allowed: allowed(opts[:allowed_tools]),
      deny: for({:deny, _, _, _} = rule <- rules, do: rule),
      allow: for({:allow, _, _, _} = rule <- rules, do: rule)
    }
  end

  @doc """
  Decides about a call, a map with `:name` and `:arguments` as `AshAgent.Context.pending_tool_calls/1` gives it; keys may
  also be text.

  ## Examples

      iex> permissions = AshAgent.Runtime.Permissions.new(allowed_tools: [:search])
      iex> AshAgent.Runtime.Permissions.check(permissions, %{"name" => "search"})
      :ok
      iex> AshAgent.Runtime.Permissions.check(permissions, %{name: :delete})
      {:deny, "the tool \\"delete\\" is not among the allowed ones"}
  """
  @doc since: "0.1.0"
  @spec check(t(), map()) :: :ok | {:deny, String.t()}
  def check(%__MODULE__{} = permissions, call) when is_map(call) do
    name = call |> Tool.field(:name) |> Tool.name()

    with :ok <- listed(permissions, name),
         arguments = arguments(Tool.field(call, :arguments)),
         :ok <- denied(permissions.deny, name, arguments),
         do: allowed(permissions.allow, name, arguments)
  end

  @doc """
  Tells whether a tool of this name may be offered to the model: whether it is among the allowed ones. Rules are for
  calls.

  ## Examples

      iex> permissions = AshAgent.Runtime.Permissions.new(allowed_tools: ["search"], permission_rules: [{:deny, "*"}])
      iex> {AshAgent.Runtime.Permissions.offer?(permissions, :search), AshAgent.Runtime.Permissions.offer?(permissions, "delete")}
      {true, false}
  """
  @doc since: "0.1.0"
  @spec offer?(t(), name()) :: boolean()
  def offer?(%__MODULE__{} = permissions, name) when is_atom(name) or is_binary(name),
    do: listed(permissions, Tool.name(name)) == :ok

  @doc """
  Tells whether a name matches a pattern. Costs O(n) for each `*`.

  ## Examples

      iex> AshAgent.Runtime.Permissions.matches?("file_*", "file_read")
      true
      iex> AshAgent.Runtime.Permissions.matches?("file_?", "file_1")
      false
  """
  @doc since: "0.1.0"
  @spec matches?(pattern :: name(), name()) :: boolean()
  def matches?(pattern, name)
      when (is_binary(pattern) or is_atom(pattern)) and (is_binary(name) or is_atom(name)),
      do: pattern |> glob() |> fits?(Tool.name(name))

  @doc false
  # Whether functions of the application take part in deciding.
  def predicates?(%__MODULE__{deny: deny, allow: allow}),
    do: Enum.any?(deny ++ allow, fn {_kind, _glob, predicate, _shown} -> predicate != nil end)

  ## What was given

  defp allowed(nil), do: nil

  defp allowed(names) when is_list(names) do
    Map.new(names, fn
      name when is_name(name) ->
        {Tool.name(name), true}

      other ->
        raise ArgumentError, "expected a name in :allowed_tools, got: #{inspect(other)}"
    end)
  end

  defp allowed(other) do
    raise ArgumentError,
          "expected :allowed_tools to be a list of names or nil, got: #{inspect(other)}"
  end

  defp rules(rules) when is_list(rules), do: Enum.map(rules, &rule/1)

  defp rules(other) do
    raise ArgumentError,
          "expected :permission_rules to be a list of rules, got: #{inspect(other)}"
  end

  defp rule({kind, pattern}) when kind in [:allow, :deny] and is_name(pattern),
    do: {kind, glob(pattern), nil, "{#{inspect(kind)}, #{inspect(pattern)}}"}

  defp rule({kind, pattern, predicate})
       when kind in [:allow, :deny] and is_name(pattern) and is_function(predicate, 1),
       do: {kind, glob(pattern), predicate, "{#{inspect(kind)}, #{inspect(pattern)}, predicate}"}

  defp rule(other) do
    raise ArgumentError,
          "expected a rule to be {:allow | :deny, pattern} or {:allow | :deny, pattern, function of arity 1}, " <>
            "got: #{inspect(other)}"
  end

  ## What decides

  defp listed(%{allowed: allowed}, name) do
    if allowed == nil or is_map_key(allowed, name),
      do: :ok,
      else: {:deny, "the tool #{inspect(name)} is not among the allowed ones"}
  end

  defp denied(rules, name, arguments) do
    case first(rules, name, arguments) do
      nil -> :ok
      {:match, rule} -> {:deny, "the tool #{inspect(name)} is denied by the rule #{rule}"}
      {:undecided, words} -> {:deny, words}
    end
  end

  defp allowed([], _name, _arguments), do: :ok

  defp allowed(rules, name, arguments) do
    case first(rules, name, arguments) do
      nil -> {:deny, "no rule allows the tool #{inspect(name)}"}
      {:match, _rule} -> :ok
      {:undecided, words} -> {:deny, words}
    end
  end

  defp first(rules, name, arguments) do
    Enum.find_value(rules, fn {_kind, glob, predicate, shown} ->
      if fits?(glob, name), do: decide(predicate, arguments, shown)
    end)
  end

  defp decide(nil, _arguments, shown), do: {:match, shown}

  defp decide(_predicate, :error, shown),
    do: {:undecided, "the arguments are not a JSON object, and the rule #{shown} needs one"}

  defp decide(predicate, {:ok, arguments}, shown) do
    case predicate.(arguments) do
      true -> {:match, shown}
      no when no in [false, nil] -> nil
      _other -> {:undecided, "the predicate of the rule #{shown} returned no boolean"}
    end
  catch
    kind, reason ->
      {:undecided, "the predicate of the rule #{shown} #{Tool.failure(kind, reason)}"}
  end

  defp arguments(arguments) do
    case Tool.arguments(arguments) do
      {:ok, arguments} -> {:ok, arguments}
      {:error, _words} -> :error
    end
  end

  ## Names and patterns

  # A pattern's texts between the stars.
  defp glob(pattern), do: pattern |> Tool.name() |> :binary.split("*", [:global])

  defp fits?([text], name), do: text == name

  defp fits?([first | rest], name),
    do: String.starts_with?(name, first) and between?(rest, without(name, first))

  defp between?([last], name), do: String.ends_with?(name, last)
  defp between?(["" | rest], name), do: between?(rest, name)

  # The leftmost place leaves the most for what follows.
  defp between?([text | rest], name) do
    case :binary.split(name, text) do
      [_skipped, name] -> between?(rest, name)
      [_not_there] -> false
    end
  end

  defp without(name, first),
    do: binary_part(name, byte_size(first), byte_size(name) - byte_size(first))
end
