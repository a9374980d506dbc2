defmodule AshAgent.Resource.Turn do
  @moduledoc false

  # One call of an agent: preparing its action, running it, and reading the result.

  alias AshAgent.{Context, Info, Runtime, Section, Tools}
  alias AshAgent.Resource.{Client, Error, Output, Prompt, Tool}
  alias AshAgent.Runtime.{Paused, Result}

  # Options have keys, and the runtime context has the actor.
  @derive {Inspect, only: [:resource]}
  @enforce_keys [:resource, :call, :options, :shape, :context]
  defstruct @enforce_keys

  @doc "A call with a new message, from its action's input."
  def new(input, context) do
    turn = prepare(input, context)

    with {:ok, turn} <- hook(turn, :before_call),
         {:ok, turn} <- render(turn),
         {:ok, turn} <- hook(turn, :after_render),
         {:ok, conversation} <- say(turn, input.arguments[:context]) do
      {:ok, %{turn | context: conversation}}
    else
      {:error, error} -> {:error, run_error_hooks(turn, error)}
    end
  end

  @doc "A call that goes on with a context as it is."
  def resume(input, context), do: %{prepare(input, context) | context: input.arguments.context}

  @doc "Runs it, and returns what the action returns. `watch` gets the pieces of answers, and `{:value, value}` of a typed one."
  def run(%__MODULE__{} = turn, watch \\ nil) do
    reply =
      case Runtime.run(turn.context, watch(turn, watch)) do
        {:ok, %Result{} = result} -> read(turn, result)
        {:paused, %Paused{} = paused} -> {:ok, paused}
        {:error, error} -> {:error, to_error(error)}
      end

    with {:error, error} <- reply, do: {:error, run_error_hooks(turn, error)}
  end

  ## Making ready

  defp prepare(input, context) do
    resource = input.resource
    shape = make!(Output.shape(resource))
    given = input.context[:ash_agent][:options] || []

    %__MODULE__{
      resource: resource,
      call: %{
        agent: resource,
        input: Map.delete(input.arguments, :context),
        rendered_prompt: nil,
        response: nil,
        error: nil
      },
      options:
        resource
        |> options()
        |> Keyword.merge(given)
        |> Keyword.merge(Output.options(shape))
        |> for_caller(input, context),
      shape: shape,
      context: nil
    }
  end

  defp options(resource) do
    config = Info.tool_config(resource)
    llm = make!(Client.model(Info.option(resource, :client)))

    tools =
      Enum.map(Info.tools(resource), &make!(Tool.definition(&1))) ++
        Tools.list(Info.domains(resource))

    own = [
      llm: llm,
      tools: tools,
      max_iterations: config.max_iterations,
      tool_timeout: config.timeout
    ]

    budget =
      if Info.budget_strategy(resource) == :halt and Info.token_budget(resource),
        do: [max_total_tokens: Info.token_budget(resource)],
        else: []

    resource |> Info.option(:options) |> Keyword.merge(own ++ budget)
  end

  # The compiler has warned of it.
  defp make!({:ok, made}), do: made
  defp make!({:error, words}), do: raise(ArgumentError, words)

  # Options of the caller: none of them is stored, and nothing else can set them.
  defp for_caller(options, input, context) do
    Keyword.put(options, :runtime_context, %{
      agent: input.resource,
      domain: input.domain,
      actor: context.actor,
      tenant: context.tenant,
      authorize?: context.authorize?
    })
  end

  defp render(%{call: call} = turn) do
    prompt = Info.option(turn.resource, :prompt)
    text = Prompt.render(prompt, call.input, Output.format(turn.shape))
    {:ok, put_in(turn.call.rendered_prompt, text)}
  end

  # Arguments are the message; without any, the prompt is.
  defp say(%{call: call}, context) do
    arguments = Map.reject(call.input, fn {_name, value} -> value == nil end)
    message = message(arguments)

    case {arguments == %{}, call.rendered_prompt} do
      {true, nil} -> {:error, error(:no_message, context)}
      {true, prompt} -> {:ok, add(context, prompt, nil)}
      {false, prompt} -> {:ok, add(context, message, prompt)}
    end
  rescue
    error in Context.Error -> {:error, error(error, context)}
  end

  # Text or parts. The other arguments are for the prompt.
  defp message(%{message: message}) when is_binary(message) or is_list(message), do: message
  defp message(arguments), do: arguments

  defp add(nil, message, prompt), do: Context.new(message, system_prompt: prompt)
  defp add(context, message, nil), do: Context.add_user_message(context, message)

  defp add(context, message, prompt),
    do: context |> Context.put_system_prompt(prompt) |> add(message, nil)

  ## Reports of a run while it goes on

  defp watch(turn, watch) do
    %{resource: resource, options: options} = turn
    warned = budget_warner(resource)
    halts? = Info.tool_config(resource).on_error == :halt
    on_event = options[:on_event]
    on_change = options[:on_change]
    run = make_ref()

    tell = fn event, measurements, metadata ->
      if halts?, do: note(run, event, metadata)
      warned.(event, metadata)
      Section.tell(on_event, event, measurements, metadata)
      if watch, do: watch.(came(event, metadata))
    end

    options = Keyword.put(options, :on_event, tell)
    if halts?, do: Keyword.put(options, :on_change, &halt(run, on_change, &1)), else: options
  end

  defp came([_, _, :llm, :delta], %{events: events}), do: events

  defp came([_, _, :llm, :value], %{value: value}),
    do: with({:ok, value} <- value.(), do: [{:value, value}], else: (:none -> []))

  defp came(_event, _metadata), do: []

  # Events and changes of a run come from the one process that runs it, a failed tool's before the change with its result.
  # After an invalid answer, the model tries again.
  defp note(run, [_, _, :tool, step], %{tool: tool} = told)
       when step == :exception or (step == :stop and told.status == :error) do
    Process.put(run, tool)
  end

  defp note(_run, _event, _metadata), do: nil

  defp halt(run, on_change, context) do
    kept = on_change && on_change.(context)

    case {kept, Process.delete(run)} do
      {{:error, _reason}, _tool} -> kept
      {_kept, nil} -> :ok
      {_kept, tool} -> {:error, {__MODULE__, :tool_error, tool}}
    end
  end

  @threshold 80

  # Reports a budget that is nearly used up, which does not end the run.
  defp budget_warner(resource) do
    case {Info.token_budget(resource), Info.budget_strategy(resource)} do
      {budget, :warn} when budget != nil ->
        used = :counters.new(1, [])
        fn event, metadata -> warn(event, metadata, resource, used, budget) end

      _other ->
        fn _event, _metadata -> :ok end
    end
  end

  defp warn([_, _, :llm, :stop], %{usage: usage}, resource, used, budget) do
    :counters.add(used, 1, usage[:total_tokens] || 0)
    sum = :counters.get(used, 1)

    if sum * 100 >= budget * @threshold do
      measured = %{cumulative_tokens: sum}
      told = %{agent: resource, limit: budget, threshold_percent: @threshold}
      told = Map.merge(told, measured)
      # Ash has it; this package does not depend on it.
      apply(:telemetry, :execute, [[:ash_agent, :token_limit_warning], measured, told])
    end
  end

  defp warn(_event, _metadata, _resource, _used, _budget), do: :ok

  ## The end

  defp read(turn, result) do
    turn = put_in(turn.call.response, Output.read(result, turn.shape))
    with {:ok, %{call: %{response: response}}} <- hook(turn, :after_call), do: {:ok, response}
  end

  defp to_error(%Runtime.Error{reason: reason, context: context}) do
    case reason do
      {:on_change_error, {__MODULE__, :tool_error, tool}} -> {:tool_error, tool}
      {:invalid_output, error} -> {:invalid_output, Enum.join(error.lines, "; ")}
      reason -> reason
    end
    |> error(context)
  end

  defp error(reason, context), do: Error.exception(reason: reason, context: context)

  ## Hooks

  # A hook may be a guard: a missing one, or one that returns neither yes nor no, is an error.
  defp hook(%{call: call} = turn, name) do
    hooks = Info.option(turn.resource, :hooks)

    if hooks != nil and function_exported?(Code.ensure_loaded!(hooks), name, 1) do
      case apply(hooks, name, [call]) do
        {:ok, %{input: %{}, rendered_prompt: _, response: _} = call} ->
          {:ok, %{turn | call: call}}

        {:error, error} when is_exception(error) ->
          {:error, error}

        {:error, reason} ->
          {:error, error({:hook, reason}, turn.context)}

        _other ->
          raise ArgumentError,
                "#{inspect(hooks)}.#{name}/1 must return {:ok, call} or {:error, reason}"
      end
    else
      {:ok, turn}
    end
  end

  defp run_error_hooks(turn, error) do
    case hook(put_in(turn.call.error, error), :on_error) do
      {:ok, _turn} -> error
      {:error, other} -> other
    end
  end
end
