defmodule AshAgent.Runtime.SubAgent do
  @moduledoc """
  A tool that is an agent: each call runs a conversation of its own, with its own system prompt, model and tools, and
  the answer is the call's result.

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
      iex> {noted.status, noted.iterations, noted.usage}
      {:answered, 1, %{input_tokens: 20, output_tokens: 1}}

  ## What the conversations know of each other

  The child's context has `:parent_id` and `:tool_call_id` in its metadata. The parent's message with the results has,
  in its metadata under `:sub_agents` and the call's id, a map with the child's `:id`, `:status` (`:answered`,
  `:halted` or `:error`), `:iterations` and `:usage`. The usage of a child is not added to that of the parent. To keep the
  child's conversation, give `:on_child` or `:on_change`.

  A child that fails, for whatever reason, makes the call an error that the model of the parent reads.

  ## Limits

  A call takes as long as any other tool may: the run's `:tool_timeout`, or `:timeout` when it is given, and no longer than
  the run itself has left. The child is told that time and ends by itself; if it does not, it is killed. With the
  parent's run, for whatever reason that ends, the child and all its tools end too.

  The child's tools get the tool context of the parent, with its actor and tenant.

  The parent's `:allowed_tools` and `:permission_rules` always hold for the child's calls, at every depth, and come first:
  what they deny, no rule of the child allows. So a list of allowed tools names those of sub-agents as well. The child's own
  make this narrower, never wider.

  The parent's `:before_tool`, `:after_tool` and `:approval` hold as well, unless `:inherit` says otherwise; the child's
  own hooks come after these, and an `:approval` of its own replaces the parent's. Nobody can be waited for in the middle
  of a call: what needs a person's decision (`:ask`) is denied, and the child's model reads why.

  What the outermost run may use up, `:max_calls`, `:max_total_tokens` and `:max_sub_agents` of `AshAgent.Runtime.run/2`, is
  for all sub-agents together.

  A sub-agent may have sub-agents among its tools. With `:tools` as a function, even itself; how deep that goes is limited
  by `:max_depth`.
  """

  alias AshAgent.{Context, LLM, Runtime}
  alias AshAgent.Runtime.{Bounds, Error, Events, Options, Result, Tool, ToolExecutor}

  defmodule Outcome do
    @moduledoc false
    # A result with what is noted beside it.
    @enforce_keys [:result, :metadata]
    defstruct [:result, :metadata]
  end

  @inherited [:before_tool, :after_tool, :approval]

  # How long a child whose time is up may take to say so.
  @grace 1_000

  @parameters %{
    "type" => "object",
    "properties" => %{
      "task" => %{
        "type" => "string",
        "description" => "What to do, with all that one needs to know for it"
      }
    },
    "required" => ["task"]
  }

  @passed [
    :allowed_tools,
    :permission_rules,
    :max_iterations,
    :llm_timeout,
    :tool_timeout,
    :max_concurrency,
    :on_event,
    :on_change
  ]

  @options [
             :name,
             :description,
             :llm,
             :system_prompt,
             :input,
             :timeout,
             :on_child,
             inherit: @inherited,
             parameters: @parameters,
             max_depth: 3,
             tools: %{}
           ] ++ @inherited ++ @passed

  @doc """
  Makes the tool.

  ## Options

    * `:name` - what the model calls it. Required.
    * `:llm` - the child's model, see `t:AshAgent.LLM.t/0`. Required.
    * `:description` - what it is good for, for the model. Defaults to none.
    * `:system_prompt` - the child's. Defaults to none.
    * `:tools` - the child's, see `AshAgent.Runtime.Tool`, or a function without arguments that returns them when the
      child starts. Defaults to none.
    * `:parameters` - the JSON schema of the arguments. Defaults to one text, `task`.
    * `:input` - a function that makes the child's user message of the arguments. Defaults to taking `task`.
    * `:timeout` - milliseconds for a call, or `:infinity`. Defaults to the run's `:tool_timeout`.
    * `:max_depth` - how many sub-agents within each other there may be, this one counted. Defaults to `3`.
    * `:inherit` - which of `:before_tool`, `:after_tool` and `:approval` of the run hold for the child. Its allowed tools and
      permission rules always do. Defaults to all.
    * `:on_child` - a function that gets the child's context at the end, to store it. When it fails, that is logged.
      Defaults to none.
    * `:permission_rules`, `:before_tool`, `:after_tool`, `:approval`, `:allowed_tools`, `:max_iterations`, `:llm_timeout`,
      `:tool_timeout`, `:max_concurrency`, `:on_event`, `:on_change` - for the child, as in `AshAgent.Runtime.run/2`.

  Raises `ArgumentError` for unknown and wrong options.

  ## Examples

      iex> AshAgent.Runtime.SubAgent.tool(name: "helper", llm: fn _ -> {:ok, %{}} end).parameters["required"]
      ["task"]
  """
  @doc since: "0.1.0"
  @spec tool(keyword()) :: Tool.t()
  def tool(opts) when is_list(opts) do
    opts = options(opts)
    definition = %{function: fn _ -> nil end} |> Map.merge(described(opts))
    [tool] = Tool.new([definition])

    %{
      tool
      | run: fn arguments, tool_context, scope -> call(opts, arguments, tool_context, scope) end,
        timeout: opts[:timeout],
        grace: @grace
    }
  end

  defp described(opts), do: opts |> Keyword.take([:name, :description, :parameters]) |> Map.new()

  @doc false
  def inherited, do: @inherited

  defp options(opts) do
    opts = Options.validate!(opts, @options)
    if opts[:timeout], do: ToolExecutor.timeout!(opts[:timeout], :timeout)
    ToolExecutor.positive!(opts[:max_depth], :max_depth)

    for {key, arity} <- [input: 1, on_child: 1],
        opts[key] != nil and not is_function(opts[key], arity),
        do: raise(ArgumentError, "expected #{inspect(key)} to be a function of arity #{arity}")

    unless is_list(opts[:inherit]) and opts[:inherit] -- @inherited == [],
      do:
        raise(
          ArgumentError,
          "expected :inherit to be a list of #{inspect(@inherited)}; allowed tools and permission rules always hold"
        )

    # Whatever is wrong is to be known before the first call.
    tools = if is_function(opts[:tools], 0), do: %{}, else: Tool.new(opts[:tools])
    opts = Keyword.put(opts, :llm, LLM.new(opts[:llm]))

    opts
    |> Keyword.take([:llm | @inherited ++ @passed])
    |> Keyword.put(:tools, tools)
    |> Runtime.options()

    opts
  end

  ## A call

  defp call(opts, arguments, tool_context, scope) do
    with :ok <- depth(opts, scope),
         :ok <- started(scope.bounds),
         do: start(opts, arguments, tool_context, scope)
  end

  defp depth(opts, scope) do
    if scope.depth >= opts[:max_depth],
      do:
        {:error, "sub-agents may be nested #{opts[:max_depth]} deep at most; do it without one"},
      else: :ok
  end

  # Alone, outside of a run, it has bounds of its own.
  defp started(nil), do: :ok

  defp started(bounds) do
    with {:error, {:max_sub_agents_exceeded, max}} <- Bounds.start_sub_agent(bounds),
         do: {:error, "the run has started all of its #{max} sub-agents; do it without one"}
  end

  defp start(opts, arguments, tool_context, scope) do
    with {:ok, child} <- child(opts, arguments, scope) do
      within = %{
        depth: scope.depth + 1,
        permissions: scope.permissions,
        bounds: scope.bounds
      }

      reply = Runtime.run(child, run_options(opts, tool_context, scope), within)
      {_, %{context: context}} = reply
      if opts[:on_child], do: Events.safely(fn -> opts[:on_child].(context) end, ":on_child")
      outcome(reply)
    end
  end

  defp child(opts, arguments, scope) do
    metadata = %{parent_id: scope.context_id, tool_call_id: scope.tool_call_id}
    prompt = Keyword.take(opts, [:system_prompt])
    prompt = if prompt[:system_prompt], do: prompt, else: []

    case input(opts[:input], arguments) do
      {:ok, input} -> {:ok, Context.new(input, [metadata: metadata] ++ prompt)}
      error -> error
    end
  end

  defp input(nil, arguments) do
    case Tool.field(arguments, :task) do
      task when is_binary(task) and task != "" -> {:ok, task}
      _other -> {:error, "the argument \"task\" is text that says what to do"}
    end
  end

  defp input(function, arguments), do: {:ok, function.(arguments)}

  defp run_options(opts, tool_context, scope) do
    own = Keyword.take(opts, [:llm | @passed])
    tools = if is_function(opts[:tools], 0), do: opts[:tools].(), else: opts[:tools]
    inherited = Keyword.take(scope.inherited, opts[:inherit])

    [
      tools: tools,
      runtime_context: tool_context,
      timeout: min(scope.timeout, max(ToolExecutor.left(scope.deadline), 1)),
      before_tool: both(inherited, opts, :before_tool),
      after_tool: both(inherited, opts, :after_tool),
      approval: without_asking(opts[:approval] || inherited[:approval])
    ] ++ own
  end

  defp both(inherited, opts, key), do: List.wrap(inherited[key]) ++ List.wrap(opts[key])

  defp without_asking(function) when is_function(function, 2) do
    fn call, tool_context ->
      with :ask <- function.(call, tool_context),
           do: {:deny, "it needs a person's decision, which a sub-agent cannot wait for"}
    end
  end

  defp without_asking(_auto), do: :auto

  ## What comes of it

  defp outcome({:ok, %Result{} = result}),
    do: noted({:ok, result.output}, result.status, result.iterations, result)

  defp outcome({:error, %Error{} = error}),
    do: noted({:error, words(error.reason)}, :error, error.iterations, error)

  defp noted(result, status, iterations, %{context: context, usage: usage}) do
    noted = %{id: context[:id], status: status, iterations: iterations, usage: usage}
    %Outcome{result: result, metadata: {:sub_agents, noted}}
  end

  # What the model of the parent may know: no reason of foreign code in full.
  defp words({:max_iterations_exceeded, max}),
    do: "the sub-agent had no answer after #{max} iterations"

  defp words({:max_calls_exceeded, max}),
    do: "the run has made all of its #{max} model calls, and the sub-agent had no answer yet"

  defp words({:max_total_tokens_exceeded, max}),
    do: "the run has used up its #{max} tokens, and the sub-agent had no answer yet"

  defp words({:timeout, timeout}), do: "the sub-agent took longer than #{timeout} ms"
  defp words({:llm_timeout, timeout}), do: "the sub-agent's model took longer than #{timeout} ms"
  defp words({:llm_error, _reason}), do: "the sub-agent's model failed"

  defp words({:llm_exception, kind, reason}),
    do: "the sub-agent's model #{Tool.failure(kind, reason)}"

  defp words({:on_change_error, _reason}), do: "the sub-agent's conversation could not be kept"
  defp words({:invalid_answer, _reason}), do: "the sub-agent's model gave no valid answer"
end
