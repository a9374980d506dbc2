defmodule AshAgent.Runtime.Gate do
  @moduledoc false

  # What a call passes on its way to its tool and back: permissions, hooks, approval.
  #
  # The application's functions run in a process of their own each time, so that whatever they do, the run goes on and
  # keeps its time. What they leave undecided is denied.

  alias AshAgent.Runtime.{Events, Permissions, Sealed, Tool, ToolExecutor}

  @others "the arguments are not those that were approved; call the tool again to have them decided about"

  @options [:allowed_tools, :permission_rules, :before_tool, :after_tool, :approval]

  @enforce_keys [:permissions, :before, :after, :approval]
  defstruct [:permissions, :before, :after, :approval]

  @doc "The options that `new/1` takes, among others."
  def options, do: @options

  @doc """
  The gate of these options, behind the permissions of the runs that this one is within, the outermost first.

  Raises `ArgumentError` for wrong options.
  """
  def new(opts, above \\ []) do
    own =
      Permissions.new(
        allowed_tools: opts[:allowed_tools],
        permission_rules: rules(opts[:permission_rules])
      )

    %__MODULE__{
      permissions: above ++ [own],
      before: hooks(opts, :before_tool, 2),
      after: hooks(opts, :after_tool, 3),
      approval: approval(opts[:approval])
    }
  end

  defp rules(nil), do: []
  defp rules(rules), do: rules

  defp hooks(opts, option, arity) do
    hooks = List.wrap(opts[option])

    unless Enum.all?(hooks, &is_function(&1, arity)),
      do:
        raise(
          ArgumentError,
          "expected #{inspect(option)} to be a function of arity #{arity} or a list of these"
        )

    hooks
  end

  defp approval(auto) when auto in [nil, :auto], do: :auto
  defp approval(function) when is_function(function, 2), do: function

  defp approval(_other),
    do: raise(ArgumentError, "expected :approval to be :auto or a function of arity 2")

  @doc "Whether a tool of this name is offered to the model."
  def offer?(%__MODULE__{permissions: permissions}, name),
    do: Enum.all?(permissions, &Permissions.offer?(&1, name))

  @doc """
  Decides about a call. `env` has `tools`, `tool_context`, `supervisor`, `timeout`, `deadline`, and, for a call that was
  approved before, `approved?`, which says of arguments whether these were; it is `nil` for all others.

  Returns `{:run, call}` with the arguments that the tool is to get, `{:approve, call}` when it was approved just now,
  `{:ask, call}`, `{:refused, call}` when no tool can take it, `{:deny, by, reason}`, or `:timeout`.
  """
  def decide(%__MODULE__{} = gate, call, env) do
    with :ok <- permitted(gate, call, env),
         :ok <- taken(ToolExecutor.find(env.tools, call.name), call),
         :ok <- taken(Tool.arguments(call.arguments), call),
         {:ok, call} <- prepared(gate, call, env),
         :ok <- taken(ToolExecutor.check(env.tools, call), call),
         do: approved(gate, call, env)
  end

  defp taken({:ok, _tool_or_arguments}, _call), do: :ok
  defp taken({:ok, _tool, _arguments}, _call), do: :ok
  defp taken({:error, _words}, call), do: {:refused, call}

  defp permitted(%{permissions: permissions}, call, env) do
    if Enum.any?(permissions, &Permissions.predicates?/1),
      do: isolated(env, env.timeout, :permissions, fn -> permission(permissions, call) end),
      else: permission(permissions, call)
  end

  # All have to let it through: what one run denies, none within it allows.
  defp permission(permissions, call) do
    Enum.find_value(permissions, :ok, fn permissions ->
      with {:deny, words} <- Permissions.check(permissions, call),
           do: {:deny, :permissions, words},
           else: (:ok -> nil)
    end)
  end

  defp prepared(%{before: []}, call, _env), do: {:ok, call}

  defp prepared(gate, call, env) do
    reply =
      isolated(env, env.timeout, :before_tool, fn ->
        before(gate.before, call, env.tool_context)
      end)

    # Nothing comes to a tool that the rules do not let through, whoever wrote it.
    with {:ok, changed} when changed !== call <- reply,
         :ok <- permitted(gate, changed, env),
         do: {:ok, changed}
  end

  defp before(hooks, call, tool_context) do
    Enum.reduce_while(hooks, {:ok, call}, fn hook, {:ok, call} ->
      case guarded(:before_tool, fn -> hook.(call, tool_context) end) do
        {:returned, :ok} -> {:cont, {:ok, call}}
        {:returned, {:ok, %{} = changed}} -> changed(call, changed)
        {:returned, {:deny, reason}} -> {:halt, {:deny, :before_tool, reason}}
        {:returned, _} -> {:halt, undecided(:before_tool, "returned something else")}
        {:failed, words} -> {:halt, undecided(:before_tool, words)}
      end
    end)
  end

  # Of a changed call, the arguments count. Another call is not what the model asked for.
  defp changed(%{id: id, name: name} = call, %{id: id, name: name, arguments: %{} = arguments}),
    do: {:cont, {:ok, %{call | arguments: arguments}}}

  defp changed(call, call), do: {:cont, {:ok, call}}

  defp changed(_call, _other),
    do:
      {:halt, undecided(:before_tool, "returned a call with another id or name, or no arguments")}

  defp approved(_gate, call, %{approved?: approved?}) when is_function(approved?, 1) do
    if approved?.(call.arguments), do: {:run, call}, else: {:deny, :approval, @others}
  end

  defp approved(%{approval: :auto}, call, _env), do: {:run, call}

  defp approved(%{approval: approval}, call, env) do
    isolated(env, :infinity, :approval, fn ->
      case guarded(:approval, fn -> approval.(call, env.tool_context) end) do
        {:returned, :approve} -> {:approve, call}
        {:returned, :ask} -> {:ask, call}
        {:returned, {:deny, reason}} -> {:deny, :approval, reason}
        {:returned, _} -> undecided(:approval, "returned something else")
        {:failed, words} -> undecided(:approval, words)
      end
    end)
  end

  @doc "Takes a call's result through the hooks behind it. What they do wrong makes it an error."
  def result(%__MODULE__{after: []}, _call, result, _env), do: result

  def result(%__MODULE__{after: hooks}, call, result, env) do
    reply =
      isolated(env, env.timeout, :after_tool, fn ->
        Enum.reduce_while(hooks, result, &afterwards(&1, call, &2, env.tool_context))
      end)

    case reply do
      {:deny, :after_tool, words} -> {:error, words}
      :timeout -> {:error, "the time of the run was up before a hook had seen the result"}
      result -> result
    end
  end

  defp afterwards(hook, call, result, tool_context) do
    case guarded(:after_tool, fn -> hook.(call, result, tool_context) end) do
      {:returned, :ok} ->
        {:cont, result}

      {:returned, {:ok, {status, _term} = changed}} when status in [:ok, :error] ->
        {:cont, changed}

      {:returned, _} ->
        {:halt, undecided(:after_tool, "returned something else")}

      {:failed, words} ->
        {:halt, undecided(:after_tool, words)}
    end
  end

  ## The application's functions

  defp guarded(name, fun) do
    {:returned, fun.()}
  catch
    kind, reason ->
      Events.log(kind, reason, __STACKTRACE__, inspect(name))
      {:failed, Tool.failure(kind, reason)}
  end

  defp undecided(:permissions, words), do: {:deny, :permissions, "a permission rule #{words}"}

  defp undecided(:approval, words), do: {:deny, :approval, "the approval function #{words}"}
  defp undecided(hook, words), do: {:deny, hook, "a hook (#{inspect(hook)}) #{words}"}

  defp isolated(env, limit, name, fun) do
    left = ToolExecutor.left(env.deadline)

    case left != 0 && reply(env.supervisor, fun, min(limit, left)) do
      {:ok, reply} -> reply
      {:exit, _reason} -> undecided(name, "was killed")
      _late -> late(env, limit, name)
    end
  end

  defp late(env, limit, name) do
    if ToolExecutor.left(env.deadline) == 0,
      do: :timeout,
      else: undecided(name, "took longer than #{limit} ms")
  end

  defp reply(supervisor, fun, timeout) do
    sealed = fn -> Sealed.run(fun) end
    task = Task.Supervisor.async_nolink(supervisor, sealed, shutdown: :brutal_kill)
    Task.yield(task, timeout) || Task.shutdown(task, :brutal_kill)
  end
end
