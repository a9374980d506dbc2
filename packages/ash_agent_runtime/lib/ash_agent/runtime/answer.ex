defmodule AshAgent.Runtime.Answer do
  @moduledoc false

  # One answer of a model, requested in its own process and collected as it comes.
  #
  # The model's process waits after each piece until it was received: a slow watcher makes the provider wait. The pieces are
  # kept on this side, so that they survive the other process.

  alias AshAgent.{Deadline, LLM}
  alias AshAgent.Runtime.{Events, ToolExecutor}
  alias AshAgent.Trace.Caller

  # `call` is the request, see `ask/1`, and `tag` is the address for pieces from the model's process. `response` is the stream
  # so far, and `first` is the time until its first piece. `unkept` are the bytes since the last call of `keep`, and `since`
  # is the time when the first of them came. `refused` is the error that `keep` returned.
  #
  # `follow` is the state of a typed answer, and `call.followed` returns the next such state and the events of a piece, none
  # at the time that is its `due`, or `:end`.
  #
  # `tries` are the failures after which the model tried again, the newest first, and `heard` is when the last sign of life came.
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
    :heard,
    :follow,
    unkept: 0,
    tries: []
  ]

  @doc """
  Asks a model and returns the answer with its outcome. Its `response` is the part of a stream that came, or `nil`.

  `call` has `:llm`, `:context`, `:tools`, `:timeout`, `:supervisor`, `:stream?`, `:watch`, a function of the events and the
  response, `:tell`, which emits an event, and `:keep`, a function of the response or `nil`. It is called when `:keep_bytes` bytes of text came, or
  when the first of them is `:keep_interval` milliseconds old.
  """
  def ask(call) do
    tag = :erlang.alias()
    {run, timeout} = {self(), call.timeout}
    work = fn -> ToolExecutor.call_guarded(fn -> call_model(call, run, tag) end) end

    await(%__MODULE__{
      call: call,
      tag: tag,
      task: Caller.task(call.supervisor, work),
      started: System.monotonic_time(),
      heard: Deadline.now(),
      deadline: Deadline.new(timeout),
      follow: call.follow
    })
  end

  ## In the model's process

  defp call_model(%{stream?: false} = call, _run, tag),
    do: LLM.chat(call.llm, call.context, model_opts(call, tag))

  defp call_model(call, run, tag) do
    monitor = Process.monitor(run)

    LLM.stream(call.llm, call.context, model_opts(call, tag), fn events, response ->
      send(tag, {tag, self(), events, response})

      receive do
        {^tag, :more} -> :ok
        # Its supervisor may outlive it.
        {:DOWN, ^monitor, :process, _pid, _reason} -> exit(:shutdown)
      end
    end)
  end

  # A function takes these options only.
  defp model_opts(%{llm: llm} = call, _tag) when is_function(llm),
    do: [tools: call.tools, timeout: call.timeout]

  defp model_opts(call, tag) do
    on_retry = fn failed -> send(tag, {tag, :retry, failed}) end
    own = if call.fields, do: [output: call.fields], else: []
    [tools: call.tools, timeout: call.timeout, on_retry: on_retry] ++ own
  end

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

      {^tag, :retry, failed} ->
        answer |> add_try(failed) |> await()

      {^ref, reply} ->
        Process.demonitor(ref, [:flush])
        finish(answer, reply)

      {:DOWN, ^ref, :process, _pid, reason} ->
        finish(answer, {:exit, reason})
    after
      timeout(answer) ->
        answer = answer |> keep_if_due() |> follow([]) |> tell_waiting()
        if over?(answer), do: stop(answer), else: await(answer)
    end
  end

  defp over?(answer), do: answer.refused != nil or Deadline.left(answer.deadline) == 0

  @silence 10_000

  # Numbers are less than atoms: no deadline is the latest.
  defp timeout(answer) do
    due = if answer.since, do: answer.since + answer.call.keep_interval, else: :infinity
    shown = (answer.follow && answer.follow.due) || :infinity

    [answer.deadline, due, shown, answer.heard + @silence]
    |> Enum.map(&Deadline.left/1)
    |> Enum.min()
  end

  # Nobody should have to watch a still cursor.
  defp tell_waiting(%{heard: heard, call: call} = answer) do
    if Deadline.now() - heard >= @silence do
      call.tell.([:llm, :waiting], %{duration: Events.since(answer.started)}, %{})
      %{answer | heard: Deadline.now()}
    else
      answer
    end
  end

  defp add_try(answer, failed) do
    failure =
      failed.error |> LLM.Error.to_failure() |> Map.merge(Map.take(failed, [:attempt, :wait]))

    answer.call.tell.([:llm, :retry], Map.take(failed, [:attempt, :wait]), %{kind: failure.kind})
    %{answer | tries: [failure | answer.tries], heard: Deadline.now() + failed.wait}
  end

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
      {^tag, :retry, failed} -> answer |> add_try(failed) |> finish(outcome)
      {^tag, _model, events, response} -> answer |> add_piece(events, response) |> finish(outcome)
    after
      0 ->
        outcome = if answer.refused, do: {:refused, answer.refused}, else: outcome
        follow(%{answer | outcome: outcome}, :end)
    end
  end

  defp add_piece(answer, events, response) do
    answer.call.watch.(events, response)
    answer = follow(answer, events)

    keep_if_due(%{
      answer
      | response: response,
        heard: Deadline.now(),
        first: answer.first || Events.since(answer.started),
        unkept: answer.unkept + bytes(events),
        since: answer.since || (answer.call.keep && Deadline.now())
    })
  end

  defp follow(answer, events),
    do: %{answer | follow: answer.call.followed.(answer.follow, events)}

  defp keep_if_due(%{since: nil} = answer), do: answer
  defp keep_if_due(%{refused: refused} = answer) when refused != nil, do: answer

  defp keep_if_due(%{call: call} = answer) do
    if answer.unkept >= call.keep_bytes or Deadline.now() - answer.since >= call.keep_interval,
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
end
