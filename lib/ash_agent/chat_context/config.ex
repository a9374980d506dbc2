defmodule AshAgent.ChatContext.Config do
  @moduledoc """
  What an agent is run with: the settings that belong to a whole chat and not to one of its branches.

      iex> config = AshAgent.ChatContext.Config.new(model_id: "m1", parameters: %{temperature: 0.2}, max_turns: 10)
      iex> {config.model_id, config.parameters, config.allowed_tools}
      {"m1", %{temperature: 0.2}, nil}

  It is kept and stored, and nothing here acts on it: the application reads it when it calls a model or a tool.
  `allowed_tools` and `permission_rules` are what `AshAgent.Runtime` takes under these names.

  Each field has one empty value, its default, and an empty field is left out of what `AshAgent.ChatContext.dump/1` gives.
  No `allowed_tools` at all (`nil`) allows every tool; `[]` allows none, and is stored.

  ## What is not stored

  Functions, pids, ports and references live in this VM only. A toolbox, an entry of `parameters` or of an MCP server, or
  an `extended_thinking` that has one anywhere in it is left out of a dump as a whole.

  A permission rule that has one leaves a rule that denies, so that nothing is allowed after loading that was denied
  before: `{:deny, "delete", predicate}` is stored as `{:deny, "delete"}`. An allow rule with a predicate is left out,
  and `{:deny, "*"}` comes in when no other allow rule is left, as it does for a rule of any other form. To have the
  whole rules again, put them back with `AshAgent.ChatContext.put_config/2` after loading.

  Everything else is stored as it is, the `env` of MCP servers and toolboxes included: keep secrets out of them, or the
  dump where secrets may be.
  """

  alias AshAgent.ChatContext.MCPServers
  alias AshAgent.Context.UnknownAtom

  @fields [
    model_id: nil,
    mode: nil,
    session_id: nil,
    agent_name: nil,
    allowed_tools: nil,
    permission_rules: [],
    max_turns: nil,
    parameters: %{},
    extended_thinking: nil,
    mcp_servers: [],
    toolboxes: []
  ]
  @names Keyword.keys(@fields)

  defstruct @fields ++ [extra: %{}]

  @typedoc "An atom or text, or what stands for an atom that this VM does not have."
  @type name :: atom() | String.t() | UnknownAtom.t()

  @typedoc "How to start an MCP server. Further keys are kept."
  @type mcp_server :: %{
          required(:name) => String.t(),
          required(:command) => String.t(),
          required(:args) => [String.t()],
          required(:env) => %{optional(String.t()) => String.t()},
          optional(term()) => term()
        }

  @typedoc """
  The settings.

    * `model_id` - the model, text or an atom. Defaults to `nil`.
    * `mode` - what the agent is at, such as `:plan`, text or an atom. Defaults to `nil`.
    * `session_id` - the application's id of the session, text. Defaults to `nil`.
    * `agent_name` - text or an atom. Defaults to `nil`.
    * `allowed_tools` - a list of names, texts and atoms, or `nil` for all tools. Defaults to `nil`.
    * `permission_rules` - a list of rules, any terms. Defaults to `[]`.
    * `max_turns` - a positive integer. Defaults to `nil`.
    * `parameters` - what the model is called with, a map such as `%{temperature: 0.2}`. Defaults to `%{}`.
    * `extended_thinking` - `true`, `false`, a number of tokens, or a map of the provider's settings. Defaults to `nil`.
    * `mcp_servers` - a list of maps with `:name` and `:command`, and perhaps `:args` (texts) and `:env` (a map of
      texts). Defaults to `[]`.
    * `toolboxes` - modules, or other terms that say where tools are. Defaults to `[]`.

  The field `extra` is private.
  """
  @type t :: %__MODULE__{
          model_id: name() | nil,
          mode: name() | nil,
          session_id: String.t() | nil,
          agent_name: name() | nil,
          allowed_tools: [name()] | nil,
          permission_rules: list(),
          max_turns: pos_integer() | nil,
          parameters: map(),
          extended_thinking: boolean() | pos_integer() | map() | nil,
          mcp_servers: [mcp_server()],
          toolboxes: list(),
          extra: map()
        }

  @doc """
  Makes a configuration of a keyword list or a map with the fields of `t:t/0`, all optional. A configuration comes back
  checked again.

  Raises `ArgumentError` for unknown fields and wrong values.

  ## Examples

      iex> config = AshAgent.ChatContext.Config.new(mcp_servers: [%{name: "files", command: "mcp-files"}])
      iex> config.mcp_servers
      [%{name: "files", command: "mcp-files", args: [], env: %{}}]

      iex> AshAgent.ChatContext.Config.new(max_turns: 0)
      ** (ArgumentError) expected :max_turns to be a positive integer, got: 0
  """
  @doc since: "0.1.0"
  @spec new(t() | keyword() | map()) :: t()
  def new(fields \\ [])

  def new(%__MODULE__{extra: extra} = config),
    do: %{put(%__MODULE__{}, Map.take(config, @names)) | extra: extra}

  def new(fields), do: put(%__MODULE__{}, fields)

  @doc """
  Puts other values into the fields that are given, and returns the new configuration.

  ## Examples

      iex> config = AshAgent.ChatContext.Config.new(model_id: "m1", mode: :plan)
      iex> config = AshAgent.ChatContext.Config.put(config, mode: :build)
      iex> {config.model_id, config.mode}
      {"m1", :build}
  """
  @doc since: "0.1.0"
  @spec put(t(), keyword() | map()) :: t()
  def put(%__MODULE__{} = config, fields) when is_list(fields) or is_map(fields) do
    Enum.reduce(pairs!(fields), config, fn {field, value}, config ->
      case check(field, value) do
        {:ok, value} -> %{config | field => value}
        {:error, _path, expected} -> wrong!(field, expected, value)
      end
    end)
  end

  defp pairs!(fields) do
    pairs = if is_map(fields) and not is_struct(fields), do: Map.to_list(fields), else: fields

    unless is_list(pairs) and Keyword.keyword?(pairs),
      do:
        raise(
          ArgumentError,
          "expected a keyword list or a map of fields, got: #{inspect(fields)}"
        )

    Keyword.validate!(pairs, @names)
  end

  @spec wrong!(atom(), String.t(), term()) :: no_return()
  defp wrong!(field, expected, value) do
    raise ArgumentError, "expected #{inspect(field)} to be #{expected}, got: #{inspect(value)}"
  end

  @doc false
  # The names of the fields in a document.
  @spec keys() :: [String.t()]
  def keys, do: Enum.map(@names, &Atom.to_string/1)

  @doc false
  # What is to be stored: string keys, nothing empty, nothing that lives in this VM only.
  @spec to_terms(t()) :: %{optional(String.t()) => term()}
  def to_terms(%__MODULE__{} = config) do
    config = new(config)

    for field <- @names,
        value <- [lasting(field, Map.fetch!(config, field))],
        not empty?(field, value),
        into: %{} do
      {Atom.to_string(field), value}
    end
  end

  @doc false
  @spec from_terms(map(), map()) :: {:ok, t()} | {:error, path :: list(), expected :: String.t()}
  def from_terms(terms, extra) do
    Enum.reduce_while(@names, {:ok, %__MODULE__{extra: extra}}, fn field, {:ok, config} ->
      key = Atom.to_string(field)

      case check(field, Map.get(terms, key)) do
        {:ok, value} -> {:cont, {:ok, %{config | field => value}}}
        {:error, path, expected} -> {:halt, {:error, [key | path], expected}}
      end
    end)
  end

  # An empty value is the field's own.
  defp check(field, nil), do: {:ok, @fields[field]}
  defp check(:mcp_servers, servers), do: MCPServers.check(servers)

  defp check(field, value) do
    {valid?, expected} = rule(field)

    cond do
      not valid?.(value) -> {:error, [], expected}
      empty?(field, value) -> {:ok, @fields[field]}
      true -> {:ok, value}
    end
  end

  # No tool is not every tool.
  defp empty?(:allowed_tools, []), do: false
  defp empty?(_field, value), do: value in [nil, "", [], %{}]

  defp rule(field) when field in [:model_id, :mode, :agent_name],
    do: {&name?/1, "text or an atom"}

  defp rule(:session_id), do: {&is_binary/1, "text"}

  defp rule(:allowed_tools),
    do: {&list_of?(&1, fn name -> name?(name) end), "a list of texts and atoms"}

  defp rule(:max_turns), do: {&(is_integer(&1) and &1 > 0), "a positive integer"}
  defp rule(:parameters), do: {&(is_map(&1) and not is_struct(&1)), "a map"}

  defp rule(:extended_thinking) do
    {&(is_boolean(&1) or is_map(&1) or (is_integer(&1) and &1 > 0)),
     "true, false, a number of tokens or a map"}
  end

  defp rule(field) when field in [:permission_rules, :toolboxes],
    do: {&list_of?(&1, fn _ -> true end), "a list"}

  defp name?(name) when is_atom(name), do: name not in [nil, true, false]
  defp name?(name), do: is_binary(name) or is_struct(name, UnknownAtom)

  defp list_of?(list, valid?),
    do: is_list(list) and not List.improper?(list) and Enum.all?(list, valid?)

  defp lasting(:parameters, parameters),
    do: for({key, value} <- parameters, lasting?({key, value}), into: %{}, do: {key, value})

  defp lasting(:mcp_servers, servers),
    do: Enum.map(servers, &MCPServers.to_terms(&1, fn term -> lasting?(term) end))

  # What cannot be stored of the rules denies.
  defp lasting(:permission_rules, rules) do
    kept = Enum.flat_map(rules, &lasting_rule/1)
    lost = Enum.reject(rules, &(lasting?(&1) or narrowed?(&1)))

    # An allow rule less allows less, unless it was the last one.
    if lost == [] or (Enum.all?(lost, &allows?/1) and Enum.any?(kept, &allows?/1)),
      do: kept,
      else: kept ++ [{:deny, "*"}]
  end

  defp lasting(_field, list) when is_list(list), do: Enum.filter(list, &lasting?/1)
  defp lasting(_field, value), do: if(lasting?(value), do: value)

  defp lasting_rule(rule) do
    cond do
      lasting?(rule) -> [rule]
      narrowed?(rule) -> [{:deny, elem(rule, 1)}]
      true -> []
    end
  end

  # Without its predicate, it denies more.
  defp narrowed?({:deny, pattern, _predicate}), do: name?(pattern)
  defp narrowed?(_rule), do: false

  defp allows?(rule), do: is_tuple(rule) and tuple_size(rule) in 2..3 and elem(rule, 0) == :allow

  # Whether a term can outlive this VM.
  defp lasting?(term)
       when is_function(term) or is_pid(term) or is_port(term) or is_reference(term),
       do: false

  defp lasting?([head | tail]), do: lasting?(head) and lasting?(tail)
  defp lasting?(tuple) when is_tuple(tuple), do: tuple |> Tuple.to_list() |> lasting?()
  defp lasting?(map) when is_map(map), do: map |> Map.to_list() |> lasting?()
  defp lasting?(_term), do: true

  defimpl Inspect do
    # Counts only: settings may hold secrets.
    def inspect(config, _opts) do
      count =
        config
        |> Map.from_struct()
        |> Enum.count(fn {_, value} -> value not in [nil, [], %{}] end)

      "#AshAgent.ChatContext.Config<#{count} set>"
    end
  end
end
