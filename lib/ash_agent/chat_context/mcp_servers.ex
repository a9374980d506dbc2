defmodule AshAgent.ChatContext.MCPServers do
  @moduledoc false

  # The MCP servers of a configuration: maps with the keys below, and further keys as they were given. A server is a program
  # with a :command, or is reached at a :url.

  @program %{args: [], env: %{}}
  @remote %{headers: %{}}
  @optional [:args, :env, :headers, :cwd, :inherit_env, :prefix, :trust_annotations]
  @keys [:name, :command, :url | @optional]

  @doc "The servers with all keys, from maps or keyword lists with these keys as atoms or strings."
  def check(servers) do
    if is_list(servers) and not List.improper?(servers) do
      servers |> Enum.with_index() |> check([])
    else
      {:error, [], "a list of maps with :name and :command or :url"}
    end
  end

  defp check([], checked), do: {:ok, Enum.reverse(checked)}

  defp check([{server, index} | rest], checked) do
    case server(server) do
      {:ok, server} -> check(rest, [server | checked])
      {:error, path, expected} -> {:error, [index | path], expected}
    end
  end

  defp server([_ | _] = server) do
    if Keyword.keyword?(server), do: server(Map.new(server)), else: server(nil)
  end

  defp server(%{} = server) when not is_struct(server) do
    server = Map.new(server, &to_known/1)
    {needed, defaults} = if remote?(server), do: {:url, @remote}, else: {:command, @program}
    server = Map.merge(defaults, server)

    wrong =
      Enum.find([:name, needed], &(not valid?(&1, server[&1]))) ||
        Enum.find(@keys, &(is_map_key(server, &1) and not valid?(&1, server[&1])))

    if wrong, do: {:error, [Atom.to_string(wrong)], describe(wrong)}, else: {:ok, server}
  end

  defp server(_other), do: {:error, [], "a map with :name and :command or :url"}

  defp remote?(server), do: is_map_key(server, :url) and not is_map_key(server, :command)

  for key <- @keys,
      do: defp(to_known({unquote(Atom.to_string(key)), value}), do: {unquote(key), value})

  defp to_known(pair), do: pair

  defp valid?(:args, args), do: texts?(args)
  defp valid?(:inherit_env, names), do: names == true or texts?(names)
  defp valid?(:trust_annotations, trust), do: is_boolean(trust)

  defp valid?(key, map) when key in [:env, :headers],
    do: is_map(map) and not is_struct(map) and texts?(Map.keys(map) ++ Map.values(map))

  defp valid?(_key, text), do: is_binary(text) and text != ""

  defp texts?(list),
    do: is_list(list) and not List.improper?(list) and Enum.all?(list, &is_binary/1)

  defp describe(:args), do: "a list of strings"
  defp describe(:inherit_env), do: "a list of strings or true"
  defp describe(:trust_annotations), do: "a boolean"
  defp describe(key) when key in [:env, :headers], do: "a map of strings"
  defp describe(_key), do: "a non-empty string"

  @doc "A server to be stored: nothing empty, and of the further keys those that `lasting?` lets pass."
  def to_terms(server, lasting?) do
    for {key, value} <- server,
        not (key in [:args, :env, :headers] and Enum.empty?(value)),
        lasting?.({key, value}),
        into: %{},
        do: {if(key in @keys, do: Atom.to_string(key), else: key), value}
  end
end
