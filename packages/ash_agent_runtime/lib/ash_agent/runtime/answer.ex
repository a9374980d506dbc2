defmodule AshAgent.Runtime.Answer do
  @moduledoc false

  # One answer of a model, requested in a process of the model's and collected as it comes.
  #
  # A slow watcher makes the provider wait, see `AshAgent.Runtime.Model`. The pieces are kept on this side, so that they survive
  # the other process.

  alias AshAgent.{Deadline, LLM}
  alias AshAgent.Runtime.{Events, Model, ModelCall, TypedAnswer}

  # `model` is the model's process, `nil` when that has ended, and `tag` is the address for what comes from it. `response`
  # is the stream so far, and `first` is the time until its first piece. `unkept` are the bytes since `:on_change` got the answer, and `since` is the time when the first of them came.
  # `refused` is the error that it returned.
  #
  # `follow` is the state of a typed answer, see `AshAgent.Runtime.TypedAnswer`.
  #
  # `tries` are the failures after which the model tried again, the newest first, and `heard` is when the last sign of life came.
  #
  # `outcome` is set at the end: `{:returned, reply}`, `{:raised, kind, reason, stacktrace}`, `{:exit, reason}`, `:timeout`,
  # or `{:refused, reason}`.
  defstruct ~w(run tag model started deadline response first since refused outcome heard follow)a ++
              [unkept: 0, tries: []]

  @doc """
  Asks the model of a run and returns the answer with its outcome. Its `response` is the part of a stream that came, or `nil`.

  The run's `:on_change` gets the answer so far when `:on_change_bytes` bytes of text came, or when the first of them is
  `:on_change_interval` milliseconds old.
  """
  def ask(run, timeout) do
    answer = %__MODULE__{
      run: run,
      model: run.model_process,
      follow: TypedAnswer.follow(run),
      tag: :erlang.alias(),
      started: System.monotonic_time(),
      heard: Deadline.now(),
      deadline: Deadline.new(timeout)
    }

    answer |> request(timeout) |> await()
  end

  defp request(%{run: run, model: model} = answer, timeout),
    do: %{answer | model: Model.ask(model, run, timeout, answer.tag)}

  defp await(%{model: %{task: %{ref: ref}}, tag: tag} = answer) do
    receive do
      {^tag, :piece, events, response} ->
        answer = add_piece(answer, events, response)

        if over?(answer) do
          stop(answer)
        else
          Model.receive_piece(answer.model, tag)
          await(answer)
        end

      {^tag, :retry, failed} ->
        answer |> add_try(failed) |> await()

      {^tag, :done, reply} ->
        finish(%{answer | model: Model.keep(answer.model, reply)}, reply)

      {^ref, reply} ->
        Process.demonitor(ref, [:flush])
        finish(%{answer | model: nil}, reply)

      # It had not seen the request.
      {:DOWN, ^ref, :process, _pid, {:shutdown, :idle}} ->
        %{answer | model: nil} |> request(Deadline.left(answer.deadline)) |> await()

      {:DOWN, ^ref, :process, _pid, reason} ->
        finish(%{answer | model: nil}, {:exit, reason})
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
    due = if answer.since, do: answer.since + answer.run.on_change_interval, else: :infinity
    shown = (answer.follow && answer.follow.due) || :infinity

    [answer.deadline, due, shown, answer.heard + @silence] |> Enum.min() |> Deadline.left()
  end

  # Nobody should have to watch a still cursor.
  defp tell_waiting(%{heard: heard, run: run} = answer) do
    if Deadline.now() - heard >= @silence do
      Events.emit(run.events, [:llm, :waiting], %{duration: Events.since(answer.started)}, %{})
      %{answer | heard: Deadline.now()}
    else
      answer
    end
  end

  defp add_try(answer, failed) do
    measured = Map.take(failed, [:attempt, :wait])
    %{kind: kind} = LLM.Error.to_failure(failed.error)

    Events.emit(answer.run.events, [:llm, :retry], measured, %{kind: kind})
    tries = [{failed.error, measured} | answer.tries]
    %{answer | tries: tries, heard: Deadline.now() + failed.wait}
  end

  defp stop(%{model: model, tag: tag} = answer) do
    outcome =
      case Model.stop(model) do
        {:ok, reply} -> reply
        {:exit, reason} -> {:exit, reason}
        nil -> receive(do: ({^tag, :done, reply} -> reply), after: (0 -> :timeout))
      end

    finish(%{answer | model: nil}, outcome)
  end

  # A piece that is on its way came, too.
  defp finish(%{tag: tag} = answer, outcome) do
    :erlang.unalias(tag)

    receive do
      {^tag, :retry, failed} -> answer |> add_try(failed) |> finish(outcome)
      {^tag, :piece, events, response} -> answer |> add_piece(events, response) |> finish(outcome)
    after
      0 ->
        outcome = if answer.refused, do: {:refused, answer.refused}, else: outcome
        follow(%{answer | outcome: outcome}, :end)
    end
  end

  defp add_piece(answer, events, response) do
    size = bytes(events)
    show_delta(answer.run, events, response, size)
    answer = follow(answer, events)

    keep_if_due(%{
      answer
      | response: response,
        heard: Deadline.now(),
        first: answer.first || Events.since(answer.started),
        unkept: answer.unkept + size,
        since: answer.since || (answer.run.on_change && Deadline.now())
    })
  end

  # Only the application's function gets texts.
  defp show_delta(run, events, response, size) do
    if run.watch, do: run.watch.({:delta, events, response})
    Events.emit(run.events, [:llm, :delta], %{bytes: size}, %{}, %{events: events})
  end

  defp follow(%{follow: nil} = answer, _events), do: answer

  defp follow(answer, events),
    do: %{answer | follow: TypedAnswer.follow(answer.run, answer.follow, events)}

  defp keep_if_due(%{since: nil} = answer), do: answer
  defp keep_if_due(%{refused: refused} = answer) when refused != nil, do: answer

  defp keep_if_due(%{run: run} = answer) do
    if answer.unkept >= run.on_change_bytes or
         Deadline.now() - answer.since >= run.on_change_interval,
       do: keep(%{answer | unkept: 0, since: nil}),
       else: answer
  end

  # A complete answer is about to be stored as such.
  defp keep(%{response: %{state: :complete}} = answer), do: answer

  defp keep(answer) do
    case ModelCall.store_partial(answer.run, answer.response) do
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
