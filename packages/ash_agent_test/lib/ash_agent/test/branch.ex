defmodule AshAgent.Test.Branch do
  @moduledoc """
  A run that continued from the middle of another one with one thing changed, as `AshAgent.Test.branch/3` returns it.

    * `original` - the context that it was made from
    * `iteration` - the number of the iteration where they part
    * `change` - what was changed, in words
    * `result` - what `AshAgent.Runtime.run/2` returned
    * `context` - the conversation of the branch
  """

  use AshAgent.Arguments

  alias AshAgent.{ChatContext, Context, Options, Runtime, Trace}
  alias AshAgent.Trace.Stored

  @enforce_keys [:original, :iteration, :change, :result, :context]
  defstruct @enforce_keys

  @type t :: %__MODULE__{
          original: Context.t(),
          iteration: pos_integer(),
          change: String.t(),
          result: {:ok | :error | :paused, struct()},
          context: Context.t()
        }

  @changes Options.schema([
             {:tool_result, {:custom, &__MODULE__.result?/1},
              [type_doc: "`{id, {:ok, term}}` or `{id, {:error, reason}}`"],
              "the result that a call of the iteration has instead of its own."},
             {:user, {:or, [:string, :list]}, [type_doc: "a string or a list of parts"],
              "what the user says in this iteration instead."},
             {:system_prompt, {:or, [:string, :list]}, [type_doc: "a string or a list of parts"],
              "the system prompt that the model has from this iteration on."}
           ])
  @schema @changes ++
            Options.schema([
              {:run, :keyword_list, [required: true],
               "the options of `AshAgent.Runtime.run/2`, with the model and tools."}
            ])

  @doc false
  def options, do: @schema

  @doc false
  def result?({id, {tag, _term}}), do: is_binary(id) and tag in [:ok, :error]
  def result?(_other), do: false

  @doc false
  def new(%Context{} = context, iteration, opts) when is_integer(iteration) do
    {run, changes} = opts |> Options.validate!(@schema) |> Keyword.pop!(:run)

    if length(changes) > 1,
      do: AshAgent.Caller.refuse!("expected one change, got #{inspect(Keyword.keys(changes))}")

    change = List.first(changes)

    {_tag, %{context: end_context}} =
      result = context |> start(iteration, change) |> Runtime.run(run)

    parts = [original: context, iteration: iteration, change: describe(change)]
    struct!(__MODULE__, parts ++ [result: result, context: end_context])
  end

  defp describe(nil), do: "the model"
  defp describe({:tool_result, {id, _result}}), do: "the result of #{id}"
  defp describe({:user, _words}), do: "the user's words"
  defp describe({:system_prompt, _prompt}), do: "the system prompt"

  ## The conversation up to where the two part

  defp start(context, number, change) do
    said = context |> Context.get_iteration(number) |> check(context, number) |> without_late()
    messages = Enum.reject(said.messages, &(&1.role == :system or results?(&1)))
    {users, rest} = Enum.split_while(messages, &(&1.role == :user))
    base = base(context, number)

    case change do
      {:user, words} ->
        missing =
          "iteration #{number} does not begin with a user's message, so there are no words to change"

        if users == [], do: refuse(missing)

        add_all(base, List.replace_at(users, -1, %{List.last(users) | content: words}))

      {:tool_result, {id, result}} ->
        ids = for call <- said.tool_calls, do: call.id

        if id not in ids,
          do: refuse("iteration #{number} has no call #{inspect(id)}; it has #{inspect(ids)}")

        results = for call <- said.tool_calls, into: %{}, do: {call.id, call[:result]}
        branch = base |> add_all(users ++ rest) |> ask(number, context)
        add_results(branch, said, Map.put(results, id, result))

      {:system_prompt, prompt} ->
        base |> add_all(users) |> Context.put_system_prompt(prompt)

      nil ->
        add_all(base, users)
    end
  end

  defp check(nil, context, number),
    do:
      refuse(
        "there is no iteration #{number}; they are #{first(context)} to #{context.current_iteration}"
      )

  defp check(iteration, _context, _number), do: iteration

  # A branch gets no late results, and a handle names one start of a call.
  defp without_late(%{tool_calls: calls} = iteration) do
    own = for call <- calls, not match?(%{arrived: %{iteration: _}}, call), do: call

    calls =
      for call <- own do
        with %{result: {:waiting, wait}} <- call,
             do: %{call | result: {:waiting, %{wait | handle: nil}}}
      end

    %{iteration | tool_calls: calls}
  end

  defp refuse(words), do: AshAgent.Caller.refuse!(words)
  defp first(context), do: context.current_iteration - Context.count_iterations(context) + 1

  defp base(context, number) do
    if number > first(context),
      do: context |> Context.rewind(to: number - 1) |> Context.fork(),
      else: context |> Context.rewind(to: number) |> Context.fork() |> empty(number)
  end

  # Before the first iteration there are no messages, and all else is the conversation's.
  defp empty(context, number) do
    prompt = Context.system_prompt(context)
    first = Context.get_iteration(context, number)
    nothing = %{first | messages: [], tool_calls: [], completed_at: nil}
    empty = Context.update!(context, iterations: [nothing])
    if prompt, do: Context.put_system_prompt(empty, prompt), else: empty
  end

  defp add_all(base, messages), do: Enum.reduce(messages, base, &add/2)

  defp add(%{role: :user, content: content} = message, base),
    do: Context.add_user_message(base, content, metadata: message[:metadata])

  defp add(%{role: :assistant, content: content} = message, base) do
    calls = Map.get(message, :tool_calls, [])
    Context.add_assistant_message(base, content, calls, metadata: message[:metadata])
  end

  # A pause of the original is one of the branch.
  defp ask(branch, number, %{current_iteration: number} = context) do
    Enum.reduce(Context.Calls.asked_tool_calls(context), branch, fn %{id: id} = call, branch ->
      question? = is_map_key(call, :question)
      Context.Calls.ask_about_tool_call(branch, id, nil, question: question?)
    end)
  end

  defp ask(branch, _number, _context), do: branch

  # Calls that are still open stay so.
  defp add_results(context, said, results) do
    given = for %{id: id} <- said.tool_calls, result = results[id], do: {id, result}
    Context.add_tool_results(context, given)
  end

  defp results?(%{role: :user, content: [%{type: :tool_result} | _]}), do: true
  defp results?(_message), do: false

  ## Looking

  @options [width: [type: :pos_integer, default: 160, doc: "the columns of both together."]]

  @doc """
  Returns both conversations side by side, from the iteration where they diverge, with the original on the left.

  ## Options

  #{Options.docs(@options)}

  ## Examples

      branch = AshAgent.Test.branch(context, 3, system_prompt: "Be brief.", run: [llm: llm])
      IO.puts(AshAgent.Test.Branch.to_text(branch))
  """
  @doc since: "0.1.0"
  @spec to_text(t(), keyword()) :: String.t()
  def to_text(%__MODULE__{} = branch, opts \\ []) do
    column = div(Options.validate!(opts, @options)[:width] - 3, 2)
    left = lines(branch.original, branch.iteration, column)
    right = lines(branch.context, branch.iteration, column)
    numbers = Enum.uniq(Map.keys(left) ++ Map.keys(right)) |> Enum.sort()

    rows =
      for number <- numbers,
          row <- zip(Map.get(left, number, []), Map.get(right, number, [])),
          do: join(row, column)

    head = ["changed: ", branch.change, "\n", join({"original", "branch"}, column)]
    IO.iodata_to_binary([head | rows])
  end

  # The lines of each iteration, as they are printed.
  defp lines(context, first, column) do
    {lines, _number} =
      context
      |> Stored.print_text(width: column, limit: :infinity)
      |> String.split("\n", trim: true)
      |> Enum.map_reduce(0, fn line, number ->
        case Regex.run(~r/\Aiteration (\d+), [^,]*,[^,]*/, line) do
          [_line, digits] ->
            {{String.to_integer(digits), "iteration " <> digits}, String.to_integer(digits)}

          nil ->
            {{number, line}, number}
        end
      end)

    lines
    |> Enum.filter(fn {number, _line} -> number >= first end)
    |> Enum.group_by(&elem(&1, 0), &elem(&1, 1))
  end

  defp zip([], []), do: []
  defp zip([left | lefts], []), do: [{left, ""} | zip(lefts, [])]
  defp zip([], [right | rights]), do: [{"", right} | zip([], rights)]
  defp zip([left | lefts], [right | rights]), do: [{left, right} | zip(lefts, rights)]

  defp join({left, right}, column) do
    left = left |> String.slice(0, column) |> String.pad_trailing(column)
    [String.trim_trailing("#{left} | #{String.slice(right, 0, column)}"), "\n"]
  end

  @doc """
  Returns the page of `AshAgent.Trace.to_html/2` with both conversations as branches of one chat. Takes its options.
  """
  @doc since: "0.1.0"
  @spec to_html(t(), keyword()) :: String.t()
  def to_html(%__MODULE__{} = branch, opts \\ []) when is_list(opts) do
    title = [title: "Changed: #{branch.change}"]

    ChatContext.new(context: branch.original)
    |> ChatContext.branch("changed")
    |> ChatContext.update_context(fn _original -> branch.context end, branch: "changed")
    |> Trace.to_html(if(List.keymember?(opts, :title, 0), do: opts, else: title ++ opts))
  end
end
