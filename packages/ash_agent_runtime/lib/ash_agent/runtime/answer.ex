defmodule AshAgent.Runtime.Answer do
  @moduledoc false

  # One answer of a model, requested in its own process and collected as it comes.
  #
  # The model's process waits after each piece until it was received: a slow watcher makes the provider wait. The pieces are
  # kept on this side, so that they survive the other process.

  alias AshAgent.{LLM, Response}
  alias AshAgent.Runtime.{Events, ToolExecutor}
  alias AshAgent.Trace.Caller

  # call: what to ask and how, see `ask/1`. tag: where pieces are sent to. response: what came. first: after how long
  # the first piece came. unkept: bytes since the last time that `keep` was called; since: when the first of them came.
  # refused: why `keep` wants no more.
  @enforce_keys [:call, :tag, :task, :started, :deadline]
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
    unkept: 0
  ]

  @doc """
  Asks a model and returns `{outcome, answer}`.

  The outcome is `{:returned, reply}`, `{:raised, kind, reason, stacktrace}`, `{:exit, reason}`, `:timeout` or, when `:keep`
  returned an error, `{:refused, reason}`. The answer's `response` is what came of a stream, or `nil`.

  `call` has `:llm`, `:context`, `:tools`, `:timeout`, `:supervisor`, `:stream?`, `:watch`, a function of the events and the
  response, and `:keep`, a function of the response that is called when so much or so old text came as `:keep_bytes` and
  `:keep_interval` say, or `nil`.
  """
  def ask(call) do
    tag = :erlang.alias()
    {run, timeout} = {self(), call.timeout}
    work = fn -> ToolExecutor.guarded(fn -> answer(call, run, tag) end) end

    await(%__MODULE__{
      call: call,
      tag: tag,
      task: Caller.task(call.supervisor, work),
      started: System.monotonic_time(),
      deadline: if(timeout == :infinity, do: timeout, else: now() + timeout)
    })
  end

  ## In the model's process

  defp answer(%{stream?: false} = call, _run, _tag),
    do: LLM.chat(call.llm, call.context, opts(call))

  defp answer(call, run, tag) do
    monitor = Process.monitor(run)

    LLM.stream(call.llm, call.context, opts(call), fn events, response ->
      send(tag, {tag, self(), events, response})

      receive do
        {^tag, :more} -> :ok
        # Its supervisor may outlive it.
        {:DOWN, ^monitor, :process, _pid, _reason} -> exit(:shutdown)
      end
    end)
  end

  defp opts(call), do: [tools: call.tools, timeout: call.timeout]

  ## In the run's

  defp await(%{task: %{ref: ref}, tag: tag} = answer) do
    receive do
      {^tag, model, events, response} ->
        answer = took(answer, events, response)

        if over?(answer) do
          stop(answer)
        else
          send(model, {tag, :more})
          await(answer)
        end

      {^ref, reply} ->
        Process.demonitor(ref, [:flush])
        done(answer, reply)

      {:DOWN, ^ref, :process, _pid, reason} ->
        done(answer, {:exit, reason})
    after
      wait(answer) ->
        answer = kept(answer)
        if over?(answer), do: stop(answer), else: await(answer)
    end
  end

  defp over?(answer), do: answer.refused != nil or ToolExecutor.left(answer.deadline) == 0

  defp wait(%{since: nil, deadline: deadline}), do: ToolExecutor.left(deadline)

  defp wait(answer),
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

    done(answer, outcome)
  end

  # A piece that is on its way came, too.
  defp done(%{tag: tag} = answer, outcome) do
    :erlang.unalias(tag)

    receive do
      {^tag, _model, events, response} -> answer |> took(events, response) |> done(outcome)
    after
      0 -> {if(answer.refused, do: {:refused, answer.refused}, else: outcome), answer}
    end
  end

  defp took(answer, events, response) do
    answer.call.watch.(events, response)

    kept(%{
      answer
      | response: response,
        first: answer.first || Events.since(answer.started),
        unkept: answer.unkept + bytes(events),
        since: answer.since || (answer.call.keep && now())
    })
  end

  defp kept(%{since: nil} = answer), do: answer
  defp kept(%{refused: refused} = answer) when refused != nil, do: answer

  defp kept(%{call: call} = answer) do
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

  @doc "The bytes of text that events bring: of what the model says, thinks and passes to tools."
  def bytes(events), do: Enum.reduce(events, 0, &(size(&1) + &2))

  defp size({kind, _position, text}) when kind in [:text, :thinking, :tool_call_arguments],
    do: byte_size(text)

  defp size(_event), do: 0

  @doc "The response, when the rest does not come any more for this reason; `nil` when nothing came."
  def interrupted(%{response: nil}, _reason), do: nil
  def interrupted(%{response: response}, reason), do: Response.interrupt(response, reason)

  defp now, do: System.monotonic_time(:millisecond)
end
