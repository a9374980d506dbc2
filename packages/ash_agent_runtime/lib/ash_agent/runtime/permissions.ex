defmodule AshAgent.Runtime.Permissions do
  @moduledoc """
  Decides which tools a model may call, and with which arguments, by a list of allowed names and by rules that allow and deny.

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

  `AshAgent.Runtime` applies permissions before every call, with the options `:allowed_tools` and `:permission_rules`. They do not
  depend on a run, so you can use them in other loops as well.

  ## Rules

  A rule is `{:allow | :deny, pattern}` or `{:allow | :deny, pattern, predicate}`.

  A pattern is a tool's name, an atom or a string, in which `*` stands for any text, including none. Every other character
  stands for itself. The whole name must match, and case matters.

  A predicate is a function of the call's arguments: the map from the call, with its keys as they are. The rule matches if
  it returns `true`, and does not match if it returns `false` or `nil`.

  ## How a call is decided

    1. If there is a list of allowed names, a tool that is not in it is denied.
    2. A call that matches a deny rule is denied, wherever the rule is in the list.
    3. If there are allow rules, a call that matches none of them is denied.

  The reason names the first rule that decided. Calls that cannot be decided are denied, and the reason says so: if a
  predicate raises, throws, exits or returns something else, or if a predicate would need arguments that are not a JSON
  object.
  """

  use AshAgent.Arguments

  alias AshAgent.Options
  alias AshAgent.Runtime.{PermissionOptions, Tool}

  @enforce_keys [:allowed, :deny, :allow]
  defstruct @enforce_keys

  @typedoc "Permissions. Its fields are private."
  @type t :: %__MODULE__{allowed: %{String.t() => true} | nil, deny: [tuple()], allow: [tuple()]}

  @type name :: atom() | String.t()
  @type predicate :: (map() -> boolean() | nil)
  @type rule ::
          {:allow | :deny, pattern :: name()} | {:allow | :deny, pattern :: name(), predicate()}

  @schema PermissionOptions.schema()

  @doc """
  Makes permissions.

  ## Options

  #{Options.docs(@schema)}

  Raises `ArgumentError` for anything that is not a name or a rule.

  ## Examples

      iex> AshAgent.Runtime.Permissions.new(permission_rules: [{:forbid, "rm"}])
      ** (ArgumentError) invalid value for option :permission_rules: expected a list of rules: `{:allow | :deny, pattern}` or `{:allow | :deny, pattern, function of arity 1}`, got: a tuple of 2 elements at index 0
  """
  @doc since: "0.1.0"
  @spec new(allowed_tools: [name()] | nil, permission_rules: [rule()]) :: t()
  def new(opts \\ []) when is_list(opts), do: opts |> Options.validate!(@schema) |> index()

  @doc false
  # Makes an index of options that were checked.
  def index(opts) do
    rules = Enum.map(opts[:permission_rules], &rule/1)

    %__MODULE__{
      allowed: index_allowed(opts[:allowed_tools]),
      deny: for({:deny, _, _, _} = rule <- rules, do: rule),
      allow: for({:allow, _, _, _} = rule <- rules, do: rule)
    }
  end

  @doc """
  Decides about a call, a map with `:name` and `:arguments` as `AshAgent.Context.pending_tool_calls/1` returns it; keys may also be
  strings. Returns `:ok` or `{:deny, reason}`.

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

    with :ok <- check_listed(permissions, name),
         arguments = Tool.arguments(Tool.field(call, :arguments)),
         :ok <- check_denied(permissions.deny, name, arguments),
         do: check_allowed(permissions.allow, name, arguments)
  end

  @doc """
  Returns whether a tool of this name may be offered to the model, which is whether it is in the list of allowed names. Rules apply
  to calls only.

  ## Examples

      iex> permissions = AshAgent.Runtime.Permissions.new(allowed_tools: ["search"], permission_rules: [{:deny, "*"}])
      iex> {AshAgent.Runtime.Permissions.offer?(permissions, :search), AshAgent.Runtime.Permissions.offer?(permissions, "delete")}
      {true, false}
  """
  @doc since: "0.1.0"
  @spec offer?(t(), name()) :: boolean()
  def offer?(%__MODULE__{} = permissions, name) when is_atom(name) or is_binary(name),
    do: check_listed(permissions, Tool.name(name)) == :ok

  @doc """
  Returns whether a name matches a pattern. Costs O(n) for each `*`.

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
  # Returns true if functions of the application decide, too.
  def predicates?(%__MODULE__{deny: deny, allow: allow}),
    do: Enum.any?(deny ++ allow, fn {_kind, _glob, predicate, _shown} -> predicate != nil end)

  ## Options

  defp index_allowed(nil), do: nil

  defp index_allowed(names), do: Map.new(names, &{Tool.name(&1), true})

  defp rule({kind, pattern}),
    do: {kind, glob(pattern), nil, "{#{inspect(kind)}, #{inspect(pattern)}}"}

  defp rule({kind, pattern, predicate}),
    do: {kind, glob(pattern), predicate, "{#{inspect(kind)}, #{inspect(pattern)}, predicate}"}

  ## Deciding

  defp check_listed(%{allowed: allowed}, name) do
    if allowed == nil or is_map_key(allowed, name),
      do: :ok,
      else: {:deny, "the tool #{inspect(name)} is not among the allowed ones"}
  end

  defp check_denied(rules, name, arguments) do
    case first(rules, name, arguments) do
      nil -> :ok
      {:match, rule} -> {:deny, "the tool #{inspect(name)} is denied by the rule #{rule}"}
      {:undecided, words} -> {:deny, words}
    end
  end

  defp check_allowed([], _name, _arguments), do: :ok

  defp check_allowed(rules, name, arguments) do
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

  defp decide(_predicate, {:error, _words}, shown),
    do: {:undecided, "the arguments are not a JSON object, and the rule #{shown} needs one"}

  defp decide(predicate, {:ok, arguments}, shown) do
    case predicate.(arguments) do
      true -> {:match, shown}
      no when no in [false, nil] -> nil
      _other -> {:undecided, "the predicate of the rule #{shown} did not return a boolean"}
    end
  catch
    kind, reason ->
      {:undecided, "the predicate of the rule #{shown} #{Tool.failure(kind, reason)}"}
  end

  ## Names and patterns

  # A pattern's texts between the stars.
  defp glob(pattern), do: pattern |> Tool.name() |> :binary.split("*", [:global])

  defp fits?([text], name), do: text == name

  defp fits?([first | rest], name),
    do: String.starts_with?(name, first) and between?(rest, without(name, first))

  defp between?([last], name), do: String.ends_with?(name, last)
  defp between?(["" | rest], name), do: between?(rest, name)

  # The leftmost place leaves the most for the rest.
  defp between?([text | rest], name) do
    case :binary.split(name, text) do
      [_skipped, name] -> between?(rest, name)
      [_not_there] -> false
    end
  end

  defp without(name, first),
    do: binary_part(name, byte_size(first), byte_size(name) - byte_size(first))
end
