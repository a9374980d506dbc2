defmodule AshAgent.Runtime.SubAgent do
  @moduledoc """
  A tool that is an agent: each call runs its own conversation, with its own system prompt, model and tools, and the answer is the
  call's result.

      iex> alias AshAgent.{Context, LLM, Runtime}
      iex> researcher =
      ...>   Runtime.SubAgent.tool(
      ...>     name: "research",
      ...>     description: "Looks something up",
      ...>     system_prompt: "Answer in one word.",
      ...>     llm: fn _child -> {:ok, %{content: "Paris", usage: %{input_tokens: 20, output_tokens: 1}}} end
      ...>   )
      iex> llm = LLM.Scripted.new([
      ...>   %{tool_calls: [%{id: "call_1", name: "research", arguments: %{"task" => "The capital of France"}}]},
      ...>   "It is Paris."
      ...> ])
      iex> {:ok, result} = Runtime.run(Context.new("What is the capital of France?"), llm: llm, tools: [researcher])
      iex> result.output
      "It is Paris."
      iex> %{metadata: %{sub_agents: %{"call_1" => noted}}} = result.context |> Context.get_iteration_messages(1) |> List.last()
      iex> {noted.status, noted.iterations, noted.usage.total_tokens}
      {:answered, 1, 21}

  ## Parent and child

  The child's context has `:parent_id` and `:tool_call_id` in its metadata. The parent's message with the results has in
  its metadata, under `:sub_agents` and the call's id, a map with the child's `:id`, `:status` (`:answered`, `:halted`,
  `:error`, or `:interrupted` if it was killed), `:iterations`, `:usage` and, in a run with `:prices`, `:cost`. A child's usage is not added to the parent's. To store the child's conversation,
  use `:on_child` or `:on_change`.

  If a child fails, for whatever reason, the call gets an error that the parent's model reads.

  ## Limits

  A call may take as long as any other tool: the run's `:tool_timeout`, or the option `:timeout`, and no longer than the
  run has left. The child knows that time and ends by itself, or it is killed. When the parent's run ends,
  for whatever reason, the child and all its tools end too.

  The child's tools get the parent's tool context, with its actor and tenant. Its model reads under the masks of the parent's context, see
  `AshAgent.Context.View.put_masks/3`.

  The parent's `:allowed_tools` and `:permission_rules` always apply to the child's calls, at every depth, and come first:
  the child's rules cannot allow a call that they deny. So a list of allowed tools has to contain those of sub-agents as
  well. The child's own permissions can only restrict it further.

  The parent's `:before_tool`, `:after_tool` and `:approval` apply as well, unless `:inherit` says otherwise. The child's
  own hooks run after them, and its own `:approval` replaces the parent's. A run cannot wait for a person in the middle of
  a call: calls that need a person's decision (`:ask`) are denied, and the child's model is told why.

  The limits `:max_calls`, `:max_total_tokens`, `:max_cost` and `:max_sub_agents`, and the `:prices`, of the outermost
  `AshAgent.Runtime.run/2` apply to all sub-agents together.

  A sub-agent may have sub-agents among its tools, and with `:tools` as a function even itself; `:max_depth` limits the
  depth.
  """

  use AshAgent.Arguments

  alias AshAgent.{Context, Deadline, LLM, Runtime}
  alias AshAgent.Options, as: Check
  alias AshAgent.Runtime.{Bounds, Error, Events, Late, Options, Outcome, Result, Tool, Underway}

  @inherited Options.list_inherited()

  # A child that timed out may take so long to report it.
  @grace 1_000

  @task "The task, with everything one needs to know for it"
  @parameters %{
    "type" => "object",
    "properties" => %{"task" => %{"type" => "string", "description" => @task}},
    "required" => ["task"]
  }

  @passed ~w(output output_mode max_retries hide_retries allowed_tools permission_rules)a ++
            ~w(max_iterations llm_timeout tool_timeout max_concurrency stream view summarize)a ++
            ~w(request_notes check_arguments on_event on_change on_change_bytes on_change_interval)a

  @schema AshAgent.Options.schema([
            {:name, {:or, [:string, :atom]}, [required: true], "the tool's name for the model."},
            {:llm, :any, [required: true, type_doc: "a model"],
             "the child's model, see `t:AshAgent.LLM.t/0`."},
            {:description, {:or, [:string, nil]},
             "tells the model when to use it. Defaults to no description."},
            {:system_prompt, {:or, [:string, :list, nil]},
             [type_doc: "a string or a list of text parts"],
             "the child's system prompt. Defaults to no system prompt."},
            {:tools, {:or, [:map, :list, {:fun, 0}]}, [default: %{}],
             "the child's tools, see `AshAgent.Runtime.Tool`, or a function that returns them when the child starts."},
            {:parameters, :map,
             "the JSON schema of the arguments. Defaults to a schema with a single string, `task`."},
            {:input, {:or, [{:fun, 1}, nil]}, [type_doc: "a function of arity 1"],
             "makes the child's user message from the arguments. Defaults to using `task`."},
            {:timeout, {:or, [:pos_integer, {:in, [:infinity, nil]}]},
             [type_doc: "milliseconds or `:infinity`"],
             "the time for a call. Defaults to the run's `:tool_timeout`."},
            {:max_depth, :pos_integer, [default: 3],
             "how deep sub-agents may be nested, including this one."},
            {:inherit, {:list, {:in, @inherited}},
             [
               type_doc:
                 "a list of `:before_tool`, `:after_tool` and `:approval`; allowed tools and permission rules always apply",
               default: @inherited
             ], "the hooks and the approval function of the run that also apply to the child."},
            {:on_child, {:or, [{:fun, 1}, nil]}, [type_doc: "a function of arity 1"],
             "gets the child's context at the end, to store it. If it fails, that is logged. Defaults to no function."}
          ])

  # Their defaults are the run's: an approval function of the parent is inherited unless there is another.
  @run_schema for {name, option} <- Options.take_schema(@inherited ++ @passed),
                  do: {name, Keyword.delete(option, :default)}

  @doc """
  Makes the tool, and returns it.

  ## Options

  #{Check.docs(@schema)}

  It also takes `:output`, `:output_mode`, `:max_retries` and `:hide_retries`, so that the parent's tool has a typed result, and
  `:permission_rules`, `:before_tool`, `:after_tool`, `:approval`, `:allowed_tools`, `:max_iterations`, `:llm_timeout`,
  `:tool_timeout`, `:max_concurrency`, `:stream`, `:view`, `:summarize`, `:request_notes`, `:check_arguments`, `:on_event`, `:on_change`, `:on_change_bytes` and `:on_change_interval` for the child, as
  in `AshAgent.Runtime.run/2`.

  Raises `ArgumentError` for unknown and wrong options.

  ## Examples

      iex> AshAgent.Runtime.SubAgent.tool(name: "helper", llm: fn _ -> {:ok, %{}} end).parameters["required"]
      ["task"]
  """
  @doc since: "0.1.0"
  @spec tool(keyword()) :: Tool.t()
  def tool(opts) when is_list(opts) do
    opts = options(opts)
    described = opts |> Keyword.take([:name, :description, :parameters]) |> Map.new()
    [tool] = Tool.new([Map.put(described, :function, fn _ -> nil end)])

    %{
      tool
      | run: fn arguments, tool_context, scope -> call(opts, arguments, tool_context, scope) end,
        timeout: opts[:timeout],
        grace: @grace,
        agent?: true
    }
  end

  defp options(opts) do
    opts =
      [parameters: @parameters] |> Keyword.merge(Check.validate!(opts, @schema ++ @run_schema))

    # Mistakes should be found before the first call.
    tools = if is_function(opts[:tools], 0), do: %{}, else: Tool.new(opts[:tools])
    if is_list(tools), do: Late.check!(tools, opts, 1)
    opts = opts |> Keyword.put(:llm, LLM.new(opts[:llm])) |> Runtime.prepare_output()

    opts
    |> Keyword.take([:llm | @inherited ++ @passed])
    |> Keyword.put(:tools, tools)
    |> Runtime.options()

    opts
  end

  ## A call

  defp call(opts, arguments, tool_context, scope) do
    with :ok <- check_depth(opts, scope),
         :ok <- count_sub_agent(scope.bounds),
         do: run_child(opts, arguments, tool_context, scope)
  end

  defp check_depth(opts, scope) do
    most = "sub-agents may be nested #{opts[:max_depth]} deep at most; do it without one"
    if scope.depth >= opts[:max_depth], do: {:error, most}, else: :ok
  end

  # Outside of a run, it has its own bounds.
  defp count_sub_agent(nil), do: :ok

  defp count_sub_agent(bounds) do
    with {:error, {:max_sub_agents_exceeded, max}} <- Bounds.start_sub_agent(bounds),
         do: {:error, "the run has started all of its #{max} sub-agents; do it without one"}
  end

  defp run_child(opts, arguments, tool_context, scope) do
    with {:ok, child} <- new_child(opts, arguments, scope) do
      within = Map.take(scope, [:permissions, :bounds, :underway])
      within = Map.put(within, :depth, scope.depth + 1)
      reply = Runtime.run(child, run_options(opts, tool_context, scope), within)
      {_, %{context: context}} = reply
      if opts[:on_child], do: Events.safely(fn -> opts[:on_child].(context) end, ":on_child")
      outcome(reply)
    end
  end

  defp new_child(opts, arguments, scope) do
    metadata = %{parent_id: scope.context_id, tool_call_id: scope.tool_call_id}
    prompt = Keyword.take(opts, [:system_prompt])
    prompt = if prompt[:system_prompt], do: prompt, else: []

    with {:ok, input} <- input(opts[:input], arguments) do
      child = Context.new(input, [metadata: metadata] ++ prompt)
      # What the parent's model may not read, the child's may not, either.
      parent = scope[:conversation]
      masks = if parent, do: Context.View.view(parent).masks, else: []
      {:ok, if(masks == [], do: child, else: Context.View.put_masks(child, masks))}
    end
  end

  defp input(nil, arguments) do
    case Tool.field(arguments, :task) do
      task when is_binary(task) and task != "" -> {:ok, task}
      _other -> {:error, "the argument \"task\" must be a non-empty string that says what to do"}
    end
  end

  defp input(function, arguments), do: {:ok, function.(arguments)}

  defp run_options(opts, tool_context, scope) do
    own = Keyword.take(opts, [:llm | @passed])
    tools = if is_function(opts[:tools], 0), do: opts[:tools].(), else: opts[:tools]
    inherited = Keyword.take(scope.inherited, opts[:inherit])

    [
      tools: tools,
      # The key is that of this call, not of the child's.
      runtime_context: Map.delete(tool_context, :idempotency_key),
      timeout: min(scope.timeout, max(Deadline.left(scope.deadline), 1)),
      before_tool: all_hooks(inherited, opts, :before_tool),
      after_tool: all_hooks(inherited, opts, :after_tool),
      approval: deny_questions(opts[:approval] || inherited[:approval])
    ] ++ own
  end

  defp all_hooks(inherited, opts, key), do: List.wrap(inherited[key]) ++ List.wrap(opts[key])

  defp deny_questions(function) when is_function(function, 2) do
    fn call, tool_context ->
      with :ask <- function.(call, tool_context),
           do: {:deny, "it needs a person's decision, which a sub-agent cannot wait for"}
    end
  end

  defp deny_questions(_auto), do: :auto

  ## Outcomes

  defp outcome({:ok, %Result{} = result}), do: outcome(result, result.status, :ok, result.output)

  defp outcome({:error, %Error{} = error}),
    do: outcome(error, :error, :error, words(error.reason))

  defp outcome(%{context: context, cost: cost} = ended, child_status, status, term) do
    %Outcome{
      status: status,
      term: term,
      metadata: {:sub_agents, Underway.note(ended, child_status)},
      contexts: [context | ended.sub_agents],
      cost: cost || 0
    }
  end

  # Words for the parent's model, without the reasons of foreign code.
  defp words({:invalid_output, error}),
    do: "the sub-agent's answer does not fit its schema: " <> Enum.join(error.lines, "; ")

  defp words({:output_cut, _error}), do: "the sub-agent's answer was cut by its token limit"
  defp words({:refused, words}), do: "the sub-agent refused: " <> words

  defp words({:max_iterations_exceeded, max}),
    do: "the sub-agent had no answer after #{max} iterations"

  defp words({:max_calls_exceeded, max}),
    do: "the run has made all of its #{max} model calls, and the sub-agent had no answer yet"

  defp words({:max_total_tokens_exceeded, max}),
    do: "the run has used up its #{max} tokens, and the sub-agent had no answer yet"

  defp words({:max_cost_exceeded, _max}),
    do: "the run has spent all that it may, and the sub-agent had no answer yet"

  defp words({:no_price, _model}),
    do: "the sub-agent's model has no price, so it may not be asked"

  defp words(:unknown_cost), do: "what the run has cost is not known, so no model may be asked"

  defp words({:timeout, timeout}), do: "the sub-agent took longer than #{timeout} ms"
  defp words({:llm_timeout, timeout}), do: "the sub-agent's model took longer than #{timeout} ms"
  defp words({:llm_error, _reason}), do: "the sub-agent's model failed"

  defp words({:llm_exception, kind, reason}),
    do: "the sub-agent's model #{Tool.failure(kind, reason)}"

  defp words({:on_change_error, _reason}), do: "the sub-agent's conversation could not be stored"

  defp words({:invalid_answer, _reason}),
    do: "the sub-agent's model did not return a valid answer"
end
