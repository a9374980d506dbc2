defmodule AshAgent.Runtime.Gate do
  @moduledoc false

  # The checks of a call on its way to its tool and back: permissions, hooks, approval.
  #
  # Each of the application's functions runs in its own process, so that the run continues in time whatever it does. A call
  # that they leave undecided is denied.

  alias AshAgent.Deadline
  alias AshAgent.Runtime.{Events, Permissions, Sealed, Tool, ToolArguments, ToolExecutor}

  @changed "the tool is no longer described as it was when the call was approved; call it again to ask for a decision about it"
  @others "the arguments differ from the approved ones; call the tool again to ask for a decision about them"

  @rewritten "a hook (:before_tool) changed the arguments that a person wrote, so it did not run"

  @nobody "a sub-agent cannot ask the person; end with what you know and say what is missing"

  @enforce_keys [:permissions, :before, :after, :approval]
  defstruct @enforce_keys

  @doc """
  The gate for these options. It also has the permissions of the runs that this one is within, the outermost first.
  """
  def new(opts, above \\ []) do
    own = Permissions.index(opts)

    %__MODULE__{
      permissions: above ++ [own],
      before: List.wrap(opts[:before_tool]),
      after: List.wrap(opts[:after_tool]),
      approval: opts[:approval] || :auto
    }
  end

  @doc "Returns true if a tool of this name is offered to the model."
  def offer?(%__MODULE__{permissions: permissions}, name),
    do: Enum.all?(permissions, &Permissions.offer?(&1, name))

  @doc """
  Decides about a call. `env` has `tools`, `tool_context`, `supervisor`, `timeout`, `deadline`, and for a call that was approved
  before `approved?`, a function that tells whether given arguments were approved; it is `nil` for other calls. `as_shown?` tells whether
  the tool of a name is described as in the request that the calls answer. With `edited?`, a
  person wrote them.

  Returns `{:run, call}` with the arguments for the tool, `{:approve, call}` if it was approved just now, `{:ask, call}`,
  `{:question, call}` if a person has to answer it, whatever the approval function would say, `{:refused, call}` if no tool can take it, `{:deny, by, reason}`, or `:timeout`.
  """
  def decide(%__MODULE__{} = gate, call, env) do
    # A model of the application's own may give its calls other keys.
    call = Map.delete(call, :repairs)

    with :ok <- permit(gate, call, env),
         {:ok, tool} <- ToolExecutor.find(env.tools, call.name),
         {:ok, _arguments} <- Tool.arguments(call.arguments),
         # A hook may give what the model left out.
         fitted = ToolArguments.fit(tool, call),
         shown = if(match?({:ok, _call}, fitted), do: elem(fitted, 1), else: call),
         :ok <- permit_change(gate, call, shown, env),
         {:ok, changed} <- prepare(gate, shown, env),
         fitted = if(changed === shown, do: fitted, else: ToolArguments.fit(tool, changed)),
         {:ok, ready} <- with({:error, _words} <- fitted, do: {:refused, changed}),
         :ok <- permit_change(gate, shown, ready, env) do
      # An approval of the arguments before their repair is one of the repaired.
      approved = if changed === shown, do: [ready, call], else: [ready]

      cond do
        tool.recall? or tool.waits? or (tool.asks? and tool.late != nil) ->
          {:run, ready}

        tool.asks? ->
          ask(gate, tool, ready)

        tool.foreign? and env[:approved?] != nil and not env.as_shown?.(call.name) ->
          {:deny, :approval, @changed}

        true ->
          approve(gate, ready, approved, env)
      end
    else
      {:error, _words} -> {:refused, call}
      decided -> decided
    end
  end

  # Only arguments that the rules allow get to a tool, whoever wrote them.
  defp permit_change(_gate, call, call, _env), do: :ok
  defp permit_change(gate, _call, changed, env), do: permit(gate, changed, env)

  defp permit(%{permissions: permissions}, call, env) do
    cond do
      own?(call, env) ->
        :ok

      Enum.any?(permissions, &Permissions.predicates?/1) ->
        isolate(env, env.timeout, :permissions, fn -> permission(permissions, call) end)

      true ->
        permission(permissions, call)
    end
  end

  # The model has read this text before, or waits, so nobody has to allow it.
  defp own?(call, env) do
    with {:ok, %Tool{} = tool} <- ToolExecutor.find(env.tools, call.name),
         do: tool.recall? or tool.waits?,
         else: (_unknown -> false)
  end

  # All have to let it through: a run within another cannot allow a call that the outer one denies.
  defp permission(permissions, call) do
    Enum.find_value(permissions, :ok, fn permissions ->
      with {:deny, words} <- Permissions.check(permissions, call),
           do: {:deny, :permissions, words},
           else: (:ok -> nil)
    end)
  end

  defp prepare(%{before: []}, call, _env), do: {:ok, call}

  defp prepare(gate, call, env) do
    before = fn -> before(gate.before, call, env.tool_context) end
    isolate(env, env.timeout, :before_tool, before)
  end

  defp before(hooks, call, tool_context) do
    Enum.reduce_while(hooks, {:ok, call}, fn hook, {:ok, call} ->
      case guard(:before_tool, fn -> hook.(call, tool_context) end) do
        {:returned, :ok} -> {:cont, {:ok, call}}
        {:returned, {:ok, %{} = changed}} -> check_change(call, changed)
        {:returned, {:deny, reason}} -> {:halt, {:deny, :before_tool, reason}}
        other -> {:halt, deny_undecided(:before_tool, describe(other))}
      end
    end)
  end

  # A hook may change the arguments. A changed id or name would be a call that the model did not make.
  defp check_change(call, call), do: {:cont, {:ok, call}}

  defp check_change(%{id: id, name: name} = call, changed) do
    case changed do
      %{id: ^id, name: ^name, arguments: %{} = arguments} ->
        {:cont, {:ok, %{call | arguments: arguments}}}

      _other ->
        words = "returned a call with another id or name, or without arguments"
        {:halt, deny_undecided(:before_tool, words)}
    end
  end

  defp approve(gate, call, approved, %{approved?: approved?} = env)
       when is_function(approved?, 1) do
    if Enum.any?(approved, &approved?.(&1.arguments)),
      do: if(env[:edited?], do: approve_edited(gate, call, env), else: {:run, call}),
      else: {:deny, :approval, if(env[:edited?], do: @rewritten, else: @others)}
  end

  defp approve(%{approval: :auto}, call, _approved, _env), do: {:run, call}

  defp approve(%{approval: approval}, call, _approved, env) do
    isolate(env, :infinity, :approval, fn ->
      case guard(:approval, fn -> approval.(call, env.tool_context) end) do
        {:returned, :approve} -> {:approve, call}
        {:returned, :ask} -> {:ask, call}
        {:returned, {:deny, reason}} -> {:deny, :approval, reason}
        other -> deny_undecided(:approval, describe(other))
      end
    end)
  end

  # Nobody talks to a run within another one.
  defp ask(%{permissions: [_own]}, tool, call) do
    {:ok, arguments} = Tool.arguments(call.arguments)
    {:question, %{call | arguments: Map.merge(arguments, tool.shown)}}
  end

  defp ask(_within_another, _tool, _call), do: {:deny, :approval, @nobody}

  # A person has allowed these arguments, but not what the application denies to everybody.
  defp approve_edited(gate, call, env) do
    case approve(gate, call, [], %{env | approved?: nil}) do
      {:deny, by, reason} -> {:deny, by, reason}
      :timeout -> :timeout
      _allowed -> {:run, call}
    end
  end

  @doc "Takes a call's result through the hooks after it. If they fail, the result becomes an error."
  def result(%__MODULE__{after: []}, _call, result, _env), do: result

  def result(%__MODULE__{after: hooks}, call, result, env) do
    reply =
      isolate(env, env.timeout, :after_tool, fn ->
        Enum.reduce_while(hooks, result, &afterwards(&1, call, &2, env.tool_context))
      end)

    case reply do
      {:deny, :after_tool, words} -> {:error, words}
      :timeout -> {:error, "the run timed out before a hook had seen the result"}
      result -> result
    end
  end

  defp afterwards(hook, call, result, tool_context) do
    case guard(:after_tool, fn -> hook.(call, result, tool_context) end) do
      {:returned, :ok} ->
        {:cont, result}

      {:returned, {:ok, {status, _term} = changed}} when status in [:ok, :error] ->
        {:cont, changed}

      other ->
        {:halt, deny_undecided(:after_tool, describe(other))}
    end
  end

  defp describe({:failed, words}), do: words
  defp describe({:returned, _other}), do: "returned something else"

  ## The application's functions

  defp guard(name, fun) do
    {:returned, fun.()}
  catch
    kind, reason ->
      Events.log(kind, reason, __STACKTRACE__, inspect(name))
      {:failed, Tool.failure(kind, reason)}
  end

  defp deny_undecided(:permissions, words),
    do: {:deny, :permissions, "a permission rule #{words}"}

  defp deny_undecided(:approval, words), do: {:deny, :approval, "the approval function #{words}"}
  defp deny_undecided(hook, words), do: {:deny, hook, "a hook (#{inspect(hook)}) #{words}"}

  defp isolate(env, limit, name, fun) do
    left = Deadline.left(env.deadline)

    case left != 0 && Sealed.run_task(env.supervisor, fun, min(limit, left)) do
      {:ok, reply} ->
        reply

      {:exit, _reason} ->
        deny_undecided(name, "was killed")

      _late ->
        over? = Deadline.left(env.deadline) == 0
        if over?, do: :timeout, else: deny_undecided(name, "took longer than #{limit} ms")
    end
  end
end
