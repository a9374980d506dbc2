defmodule AshAgent.ChatContext.Config do
  @moduledoc """
  The settings of an agent that belong to a whole chat and not to one of its branches.

      iex> config = AshAgent.ChatContext.Config.new(model_id: "m1", parameters: %{temperature: 0.2}, max_turns: 10)
      iex> {config.model_id, config.parameters, config.allowed_tools}
      {"m1", %{temperature: 0.2}, nil}

  A configuration is only kept and stored: your application reads it when it calls a model or a tool. `AshAgent.Runtime`
  takes options named `allowed_tools` and `permission_rules` with the same values, and `AshAgent.MCP` starts its MCP servers.

  Each field has an empty value, its default, and `AshAgent.ChatContext.dump/1` leaves empty fields out. For
  `allowed_tools` that is `nil`, which allows every tool; `[]` allows none and is stored.

  ## Values that are not stored

  Functions, pids, ports and references live only in this VM. A toolbox, an entry of `parameters` or of an MCP server, or
  an `extended_thinking` that contains one is left out of a dump as a whole.

  A permission rule that contains one is stored as a rule that denies, so that loading never allows anything that was
  denied before: `{:deny, "delete", predicate}` is stored as `{:deny, "delete"}`. An allow rule with a predicate is left
  out; if no other allow rule remains, `{:deny, "*"}` is added. `{:deny, "*"}` is also added for a rule of any other form.
  To get the original rules back, put them with `AshAgent.ChatContext.put_config/2` after loading.

  Everything else is stored as it is, including the `env` and `headers` of MCP servers and the `env` of toolboxes: keep secrets
  out of them, or store the dump where secrets may be stored.
  """

  use AshAgent.Arguments

  alias AshAgent.ChatContext.MCPServers
  alias AshAgent.Context.UnknownAtom
  alias AshAgent.Options

  @name [type: {:custom, &__MODULE__.name?/1}, type_doc: "a string or an atom", default: nil]

  @schema Options.schema([
            {:model_id, @name, "the model."},
            {:mode, @name, "what the agent is doing, such as `:plan`."},
            {:session_id, :string, [default: nil], "the application's id of the session."},
            {:agent_name, @name, "the agent."},
            {:allowed_tools, {:list, {:custom, &__MODULE__.name?/1}},
             [type_doc: "a list of strings and atoms", default: nil],
             "the tools that may be called; `nil` allows all of them."},
            {:permission_rules, {:list, :any}, [type_doc: "a list", default: []],
             "rules, any terms."},
            {:max_turns, :pos_integer, [default: nil], "how many turns the agent may take."},
            {:parameters, {:custom, &__MODULE__.parameters?/1}, [type_doc: "a map", default: %{}],
             "the parameters of calls to the model, such as `%{temperature: 0.2}`."},
            {:extended_thinking, {:or, [:boolean, :pos_integer, :map]},
             [type_doc: "a boolean, a number of tokens or a map", default: nil],
             "whether and how the model thinks; a map holds the provider's own settings."},
            {:mcp_servers, {:custom, &__MODULE__.servers?/1},
             [type_doc: "a list of maps with `:name` and `:command` or `:url`", default: []],
             "the MCP servers, see `t:mcp_server/0`. `AshAgent.MCP.start_link/1` starts and reaches them."},
            {:toolboxes, {:list, :any}, [type_doc: "a list", default: []],
             "modules, or other terms that say where the tools are."}
          ])

  @names Keyword.keys(@schema)
  @fields for {name, option} <- @schema, do: {name, option[:default]}

  # In every field, `nil` stands for its empty value.
  @given for {name, option} <- @schema,
             do:
               {name,
                Keyword.merge(Keyword.delete(option, :default), type: {:or, [option[:type], nil]})}

  defstruct @fields ++ [extra: %{}]

  @typedoc "An atom, a string, or the stand-in for an atom that this VM does not have."
  @type name :: atom() | String.t() | UnknownAtom.t()

  @typedoc """
  An MCP server: a program with a `:command`, `:args` and `:env`, which may be left out, or one that is reached at a `:url` with
  `:headers`, which may be left out. `AshAgent.MCP` describes the other keys that it reads. Further keys are kept.
  """
  @type mcp_server :: %{
          required(:name) => String.t(),
          optional(:command) => String.t(),
          optional(:args) => [String.t()],
          optional(:env) => %{optional(String.t()) => String.t()},
          optional(:url) => String.t(),
          optional(:headers) => %{optional(String.t()) => String.t()},
          optional(:cwd | :prefix) => String.t(),
          optional(:inherit_env) => [String.t()] | true,
          optional(:trust_annotations) => boolean(),
          optional(:per_actor) => boolean(),
          optional(term()) => term()
        }

  @typedoc """
  The settings.

  #{Options.docs(@schema)}

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
  Makes a configuration from a keyword list or a map with the fields of `t:t/0`, all optional. A given configuration is
  checked again.

  Raises `ArgumentError` for unknown fields and wrong values.

  ## Examples

      iex> config = AshAgent.ChatContext.Config.new(mcp_servers: [%{name: "files", command: "mcp-files"}])
      iex> config.mcp_servers
      [%{name: "files", command: "mcp-files", args: [], env: %{}}]

      iex> AshAgent.ChatContext.Config.new(max_turns: 0)
      ** (ArgumentError) invalid value for option :max_turns: expected a positive integer or nil, got: 0
  """
  @doc since: "0.1.0"
  @spec new(t() | keyword() | map()) :: t()
  def new(fields \\ [])

  def new(%__MODULE__{extra: extra} = config),
    do: %{put(%__MODULE__{}, Map.take(config, @names)) | extra: extra}

  def new(fields), do: put(%__MODULE__{}, fields)

  @doc """
  Changes the given fields, and returns the new configuration.

  ## Examples

      iex> config = AshAgent.ChatContext.Config.new(model_id: "m1", mode: :plan)
      iex> config = AshAgent.ChatContext.Config.put(config, mode: :build)
      iex> {config.model_id, config.mode}
      {"m1", :build}
  """
  @doc since: "0.1.0"
  @spec put(t(), keyword() | map()) :: t()
  def put(%__MODULE__{} = config, fields) when is_list(fields) or is_map(fields) do
    fields = if is_map(fields) and not is_struct(fields), do: Map.to_list(fields), else: fields

    Enum.reduce(Options.validate!(fields, @given), config, fn {field, value}, config ->
      {:ok, value} = check(field, value)
      %{config | field => value}
    end)
  end

  @doc false
  # The names of the fields in a document.
  def keys, do: Enum.map(@names, &Atom.to_string/1)

  @doc false
  # The stored form: string keys, nothing empty, nothing that lives only in this VM.
  def to_terms(%__MODULE__{} = config) do
    config = new(config)

    for field <- @names,
        value <- [drop_unlasting(field, Map.fetch!(config, field))],
        not empty?(field, value),
        into: %{} do
      {Atom.to_string(field), value}
    end
  end

  @doc false
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
    case Options.check(value, @schema[field]) do
      :ok -> {:ok, if(empty?(field, value), do: @fields[field], else: value)}
      {:error, expected} -> {:error, [], expected}
    end
  end

  # An empty list allows no tool; nil allows every tool.
  defp empty?(:allowed_tools, []), do: false
  defp empty?(_field, value), do: value in [nil, "", [], %{}]

  @doc false
  def name?(name) when is_atom(name), do: name not in [nil, true, false]
  def name?(name), do: is_binary(name) or is_struct(name, UnknownAtom)

  @doc false
  def parameters?(map), do: is_map(map) and not is_struct(map)

  @doc false
  def servers?(servers), do: match?({:ok, _}, MCPServers.check(servers))

  defp drop_unlasting(:parameters, parameters),
    do: for({key, value} <- parameters, lasting?({key, value}), into: %{}, do: {key, value})

  defp drop_unlasting(:mcp_servers, servers),
    do: Enum.map(servers, &MCPServers.to_terms(&1, fn term -> lasting?(term) end))

  # A rule that cannot be stored denies.
  defp drop_unlasting(:permission_rules, rules) do
    kept = Enum.flat_map(rules, &keep_rule/1)
    lost = Enum.reject(rules, &(lasting?(&1) or narrowed?(&1)))

    # With one allow rule fewer less is allowed, unless it was the last one.
    if lost == [] or (Enum.all?(lost, &allows?/1) and Enum.any?(kept, &allows?/1)),
      do: kept,
      else: kept ++ [{:deny, "*"}]
  end

  defp drop_unlasting(_field, list) when is_list(list), do: Enum.filter(list, &lasting?/1)
  defp drop_unlasting(_field, value), do: if(lasting?(value), do: value)

  defp keep_rule(rule) do
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

  # A term that can outlive this VM.
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
