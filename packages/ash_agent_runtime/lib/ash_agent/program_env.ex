defmodule AshAgent.ProgramEnv do
  @moduledoc false

  # The environment variables of the VM that a tool's program gets: these six, as in MCP's own SDKs, and those that are named.
  # The others may be keys.

  @always ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"]

  @doc "Returns true for a list of names, or `true`."
  def inherit?(true), do: true

  def inherit?(names),
    do: is_list(names) and not List.improper?(names) and Enum.all?(names, &name?/1)

  defp name?(name),
    do: is_binary(name) and String.valid?(name) and name != "" and not (name =~ ~r/[=\0]/)

  @doc "Returns the names of the variables that a program gets, those of its own environment included."
  def list_kept(true, env), do: list_kept(Map.keys(System.get_env()), env)
  def list_kept(names, env), do: Enum.uniq(@always ++ names ++ Map.keys(env))

  @doc "Returns a map with `nil` for each variable of the VM that a program does not get."
  def unset_others(true), do: %{}

  def unset_others(names),
    do: System.get_env() |> Map.drop(@always ++ names) |> Map.new(fn {name, _} -> {name, nil} end)
end
