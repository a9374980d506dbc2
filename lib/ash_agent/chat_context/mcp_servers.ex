defmodule AshAgent.ChatContext.MCPServers do
  @moduledoc false

  # The MCP servers of a configuration: maps with the keys below, and further keys as they were given. A server is a program
  # with a :command, or is reached at a :url.

  alias AshAgent.Options

  @program %{args: [], env: %{}}
  @remote %{headers: %{}}
  @optional [:args, :env, :headers, :cwd, :inherit_env, :prefix, :trust_annotations, :per_actor]
  @keys [:name, :command, :url | @optional]

  @texts {:list, :string}
  @pairs [type: {:custom, &__MODULE__.pairs?/1}, type_doc: "a map of strings"]
  @text [type: {:custom, &__MODULE__.text?/1}, type_doc: "a non-empty string"]
  @kinds %{
    args: [type: @texts, type_doc: "a list of strings"],
    inherit_env: [type: {:or, [@texts, {:in, [true]}]}, type_doc: "a list of strings or true"],
    trust_annotations: [type: :boolean],
    per_actor: [type: :boolean],
    env: @pairs,
    headers: @pairs
  }

  @doc "The servers with all keys, from maps or keyword lists with these keys as atoms or strings."
  def check(servers) do
    if is_list(servers) and not List.improper?(servers) do
      checked = Enum.map(servers, &server/1)

      with at when at != nil <- Enum.find_index(checked, &match?({:error, _, _}, &1)),
           {:error, path, expected} = Enum.at(checked, at),
           do: {:error, [at | path], expected},
           else: (nil -> {:ok, Enum.map(checked, &elem(&1, 1))})
    else
      {:error, [], "a list of maps with :name and :command or :url"}
    end
  end

  defp server([_ | _] = server) do
    if Keyword.keyword?(server), do: server(Map.new(server)), else: server(nil)
  end

  defp server(%{} = server) when not is_struct(server) do
    server = Map.new(server, &to_known/1)
    {needed, defaults} = if remote?(server), do: {:url, @remote}, else: {:command, @program}
    server = Map.merge(defaults, server)

    Enum.find_value([:name, needed] ++ @keys, {:ok, server}, fn key ->
      with true <- key in [:name, needed] or is_map_key(server, key),
           {:error, expected} <- Options.check(server[key], Map.get(@kinds, key, @text)),
           do: {:error, [Atom.to_string(key)], expected},
           else: (_fine -> nil)
    end)
  end

  defp server(_other), do: {:error, [], "a map with :name and :command or :url"}

  defp remote?(server), do: is_map_key(server, :url) and not is_map_key(server, :command)

  for key <- @keys,
      do: defp(to_known({unquote(Atom.to_string(key)), value}), do: {unquote(key), value})

  defp to_known(pair), do: pair

  def pairs?(map), do: is_map(map) and not is_struct(map) and Enum.all?(map, &texts?/1)
  def text?(text), do: is_binary(text) and text != ""

  defp texts?({key, value}), do: is_binary(key) and is_binary(value)

  @doc "A server to be stored: nothing empty, and of the further keys those that `lasting?` lets pass."
  def to_terms(server, lasting?) do
    for {key, value} <- server,
        not (key in [:args, :env, :headers] and Enum.empty?(value)),
        lasting?.({key, value}),
        into: %{},
        do: {if(key in @keys, do: Atom.to_string(key), else: key), value}
  end
end
