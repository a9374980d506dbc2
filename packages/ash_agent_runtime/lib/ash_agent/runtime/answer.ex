defmodule AshAgent.Runtime.Answer do
  @moduledoc false

  # One answer of a model, requested in its own process and collected as it comes.
  #
  # The model's process waits after each piece until it was received: a slow watcher makes the provider wait. The pieces are
  # kept on this side, so that they survive the other process.

  alias AshAgent.LLM
  alias AshAgent.Runtime.{Events, ToolExecutor}
  alias AshAgent.Trace.Caller

  # `call` says what to ask and how, see `ask/1`, and `tag` is where the model's process sends pieces to. `response` is the
  # stream so far, and `first` is the time until its first piece. `unkept` are the bytes since the last call of `keep`, and
  # `since` is the time when the first of them came. `refused` is the error that `keep` returned.
  #
  # `outcome` is set at the end: `{:returned, reply}`, `{:raised, kind, reason, stacktrace}`, `{:exit, reason}`, `:timeout`,
  # or `{:refused, reason}`.
  defstruct [
    :call,
    :tag,
    :task,
    :started,
    :deadline,
    :response,
    :first,
    :since,
    :refused,
    :outcome,
    unkept: 0
  ]

  @doc """
  Asks a model and returns the answer with its outcome. Its `response` is the part of a stream that came, or `nil`.

  `call` has `:llm`, `:context`, `:tools`, `:timeout`, `:supervisor`, `:stream?`, `:watch`, a function of the events and the
  response, and `:keep`, a function of the response or `nil`. It is called when `:keep_bytes` bytes of text came, or
  when the first of them is `:keep_interval` milliseconds old.
  """
  def ask(call) do
    tag = :erlang.alias()
    {run, timeout} = {self(), call.timeout}
    work = fn -> ToolExecutor.guarded(fn -> call_model(call, run, tag) end) end

    await(%__MODULE__{
      call: call,
      tag: tag,
      task: Caller.task(call.supervisor, work),
      started: System.monotonic_time(),
      deadline: ToolExecutor.deadline(timeout)
    })
  end

  ## In the model's process

  defp call_model(%{stream?: false} = call, _run, _tag),
    do: LLM.chat(call.llm, call.context, model_opts(call))

  defp call_model(call, run, tag) do
    monitor = Process.monitor(run)

    LLM.stream(call.llm, call.context, model_opts(call), fn events, response ->
      send(tag, {tag, self(), events, response})

      receive do
        {^tag, :more} -> :ok
        # Its supervisor may outlive it.
        {:DOWN, ^monitor, :process, _pid, _reason} -> exit(:shutdown)
      end
    end)
  end

  defp model_opts(call), do: [tools: call.tools, timeout: call.timeout]

  ## In the run's

  defp await(%{task: %{ref: ref}, tag: tag} = answer) do
    receive do
      {^tag, model, events, response} ->
        answer = add_piece(answer, events, response)

        if over?(answer) do
          stop(answer)
        else
          send(model, {tag, :more})
          await(answer)
        end

      {^ref, reply} ->
        Process.demonitor(ref, [:flush])
        finish(answer, reply)

      {:DOWN, ^ref, :process, _pid, reason} ->
        finish(answer, {:exit, reason})
    after
      timeout(answer) ->
        answer = keep_if_due(answer)
        if over?(answer), do: stop(answer), else: await(answer)
    end
  end

  defp over?(answer), do: answer.refused != nil or ToolExecutor.left(answer.deadline) == 0

  defp timeout(%{since: nil, deadline: deadline}), do: ToolExecutor.left(deadline)

  defp timeout(answer),
    do:
      min(
        ToolExecutor.left(answer.deadline),
        ToolExecutor.left(answer.since + answer.call.keep_interval)
      )

  defp stop(%{task: task} = answer) do
    outcome =
      case Task.shutdown(task, :brutal_kill) do
        {:ok, reply} -> reply
        {:exit, reason} -> {:exit, reason}
        nil -> :timeout
      end

    finish(answer, outcome)
  end

  # A piece that is on its way came, too.
  defp finish(%{tag: tag} = answer, outcome) do
    :erlang.unalias(tag)

    receive do
      {^tag, _model, events, response} -> answer |> add_piece(events, response) |> finish(outcome)
    after
      0 ->
        outcome = if answer.refused, do: {:refused, answer.refused}, else: outcome
        %{answer | outcome: outcome}
    end
  end

  defp add_piece(answer, events, response) do
    answer.call.watch.(events, response)

    keep_if_due(%{
      answer
      | response: response,
        first: answer.first || Events.since(answer.started),
        unkept: answer.unkept + bytes(events),
        since: answer.since || (answer.call.keep && now())
    })
  end

  defp keep_if_due(%{since: nil} = answer), do: answer
  defp keep_if_due(%{refused: refused} = answer) when refused != nil, do: answer

  defp keep_if_due(%{call: call} = answer) do
    if answer.unkept >= call.keep_bytes or now() - answer.since >= call.keep_interval,
      do: keep(%{answer | unkept: 0, since: nil}),
      else: answer
  end

  # A complete answer is about to be stored as such.
  defp keep(%{response: %{state: :complete}} = answer), do: answer

  defp keep(answer) do
    case answer.call.keep.(answer.response) do
      :ok -> answer
      {:error, reason} -> %{answer | refused: reason}
    end
  end

  @doc "Returns the bytes of text in events: of texts, thinking and the arguments of calls."
  def bytes(events), do: Enum.reduce(events, 0, &(text_bytes(&1) + &2))

  defp text_bytes({kind, _position, text}) when kind in [:text, :thinking, :tool_call_arguments],
    do: byte_size(text)

  defp text_bytes(_event), do: 0

  defp now, do: System.monotonic_time(:millisecond)
end
