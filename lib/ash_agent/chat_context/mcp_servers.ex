defmodule AshAgent.ChatContext.MCPServers do
  @moduledoc false

  # The MCP servers of a configuration: maps with the keys below, and further keys as they were given.

  @keys [:name, :command, :args, :env]

  @type error :: {:error, path :: list(), expected :: String.t()}

  @doc "The servers with all keys, from maps or keyword lists with these keys as atoms or strings."
  @spec check(term()) :: {:ok, [map()]} | error()
  def check(servers) do
    if is_list(servers) and not List.improper?(servers) do
      servers |> Enum.with_index() |> check([])
    else
      {:error, [], "a list of maps with :name, :command, :args and :env"}
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
    server = Map.merge(%{args: [], env: %{}}, Map.new(server, &known/1))
    wrong = Enum.find(@keys, &(not valid?(&1, server[&1])))
    if wrong, do: {:error, [Atom.to_string(wrong)], expected(wrong)}, else: {:ok, server}
  end

  defp server(_other), do: {:error, [], "a map with :name, :command, :args and :env"}

  for key <- @keys,
      do: defp(known({unquote(Atom.to_string(key)), value}), do: {unquote(key), value})

  defp known(pair), do: pair

  defp valid?(:args, args), do: texts?(args)

  defp valid?(:env, env),
    do: is_map(env) and not is_struct(env) and texts?(Map.keys(env) ++ Map.values(env))

  defp valid?(_key, text), do: is_binary(text) and text != ""

  defp texts?(list),
    do: is_list(list) and not List.improper?(list) and Enum.all?(list, &is_binary/1)

  defp expected(:args), do: "a list of strings"
  defp expected(:env), do: "a map of strings"
  defp expected(_key), do: "a non-empty string"

  @doc "A server to be stored: nothing empty, and of the further keys those that `lasting?` lets pass."
  @spec to_terms(map(), (term() -> boolean())) :: map()
  def to_terms(server, lasting?) do
    for {key, value} <- server,
        not (key in [:args, :env] and Enum.empty?(value)),
        lasting?.({key, value}),
        into: %{},
        do: {if(key in @keys, do: Atom.to_string(key), else: key), value}
  end
end
