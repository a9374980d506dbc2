defmodule AshAgent.Runtime.Model do
  @moduledoc false

  # The process that asks the model of a run, and what goes between both.
  #
  # A client of the package has one for all requests: it holds what these share, so that nothing of it is copied or checked again.
  # A request that went wrong, or was given up, is the last of its process. Any other model has a process for each request, since
  # it may leave messages and settings behind.
  #
  # It waits while as many pieces of a stream are on their way as its window has, and so does the provider. The window of other
  # models is one piece.

  alias AshAgent.{LLM, Response}
  alias AshAgent.LLM.Transport.HTTP1
  alias AshAgent.Runtime.{Output, ToolExecutor}
  alias AshAgent.Trace.Caller

  # `shared` is what the requests share, as the run has it. `window` has the number of pieces that are on their way, and whether the
  # process waits; it goes on when no more than `again` are left.
  @enforce_keys [:task, :shared, :window, :again]
  defstruct @enforce_keys

  @window 16

  # An idle process ends, and the next request has another one.
  @idle 30_000

  # Milliseconds in which it gives its connection back.
  @finish 1_000

  @waiting 1
  @ahead 2

  @doc """
  Asks for an answer, in the process of the last one if that goes on, and returns the process. `tag` is the address of what comes.
  """
  def ask(model, run, timeout, tag) do
    shared = Map.take(run, [:llm, :offered_tools, :output, :stream?])
    request = {run.context, timeout, tag}

    cond do
      model == nil or not alive?(model) ->
        start(run, shared, request)

      model.shared == shared ->
        send(model.task.pid, {:ask, request, Caller.current()})
        model

      true ->
        stop(model)
        start(run, shared, request)
    end
  end

  defp alive?(%{task: %{ref: ref}}) do
    receive do
      {:DOWN, ^ref, :process, _pid, _reason} -> false
    after
      0 -> true
    end
  end

  @doc "Returns the model with its process, if another request may be made there after this outcome, and otherwise `nil`."
  def keep(model, {:returned, {:ok, %Response{state: :complete}}}), do: model

  def keep(model, _outcome) do
    stop(model)
    nil
  end

  @doc "Ends the process. Returns its reply to a request, if that came, as `Task.shutdown/2` does."
  def stop(nil), do: nil
  def stop(%__MODULE__{task: task}), do: Task.shutdown(task, :brutal_kill)

  @doc "Ends the process, which gives its connection back first, when nothing is asked of it any more."
  def finish(nil), do: nil

  def finish(%__MODULE__{task: %{ref: ref, pid: pid}} = model) do
    send(pid, :over)

    receive do
      {:DOWN, ^ref, :process, ^pid, _reason} -> nil
    after
      @finish -> stop(model)
    end
  end

  @doc "Says that a piece was received."
  def receive_piece(%__MODULE__{window: window, task: task} = model, tag) do
    if :atomics.sub_get(window, @ahead, 1) <= model.again and take_waiting(window),
      do: send(task.pid, {tag, :more})
  end

  # Whoever finds the mark says that it goes on, or does that.
  defp take_waiting(window), do: :atomics.compare_exchange(window, @waiting, 1, 0) == :ok

  ## In the model's process, which gets no more of the run than it needs

  defp start(%{supervisor: supervisor}, shared, request) do
    run = self()
    opts = [tools: shared.offered_tools] ++ output_opts(shared)
    opener = LLM.opener(shared.llm, opts, if(shared.stream?, do: :stream, else: :chat))
    size = if opener, do: @window, else: 1
    window = {if(shared.stream?, do: :atomics.new(2, signed: true)), size}

    work =
      if opener do
        output = shared.output
        fn -> serve(opener, output, request, {window, Process.monitor(run)}) end
      else
        fn -> ask_once(shared, opts, request, {window, run}) end
      end

    task = Caller.task(supervisor, work)
    %__MODULE__{task: task, shared: shared, window: elem(window, 0), again: div(size, 2)}
  end

  defp output_opts(%{llm: llm}) when is_function(llm), do: []

  defp output_opts(%{output: output}) do
    fields = Output.fields(output)
    if fields, do: [output: fields], else: []
  end

  defp ask_once(%{llm: llm} = shared, opts, {context, timeout, tag}, {window, run}) do
    ToolExecutor.call_guarded(fn ->
      context = Output.instruct(shared.output, context)
      # A function takes no other options.
      own = if is_function(llm), do: [], else: [on_retry: on_retry(tag)]
      opts = [timeout: timeout] ++ own ++ opts

      if shared.stream?,
        do: LLM.stream(llm, context, opts, pass(tag, {window, Process.monitor(run)})),
        else: LLM.chat(llm, context, opts)
    end)
  end

  defp serve(opener, output, {context, timeout, tag}, run) do
    own = [timeout: timeout, on_retry: on_retry(tag)]

    reply =
      ToolExecutor.call_guarded(fn ->
        ask = if is_function(opener, 0), do: opener.(), else: opener
        context = Output.instruct(output, context)
        {ask, ask.(context, own, pass(tag, run))}
      end)

    case reply do
      {:returned, {ask, returned}} ->
        send(tag, {tag, :done, {:returned, returned}})
        await(ask, output, run)

      raised ->
        send(tag, {tag, :done, raised})
        await(opener, output, run)
    end
  end

  # Its supervisor may outlive the run.
  defp await(opener, output, {_window, monitor} = run) do
    receive do
      {:ask, request, trace} ->
        Caller.continue(trace)
        serve(opener, output, request, run)

      :over ->
        leave(:shutdown)

      {:DOWN, ^monitor, :process, _pid, _reason} ->
        leave(:shutdown)
    after
      @idle -> leave({:shutdown, :idle})
    end
  end

  defp leave(reason) do
    HTTP1.release_connection()
    exit(reason)
  end

  defp on_retry(tag), do: fn failed -> send(tag, {tag, :retry, failed}) end

  # An answer that is not streamed has no pieces.
  defp pass(_tag, {{nil, _size}, _monitor}), do: fn _events, _response -> :ok end

  defp pass(tag, {{window, size}, monitor}) do
    fn events, response ->
      send(tag, {tag, :piece, events, response})
      if :atomics.add_get(window, @ahead, 1) >= size, do: wait(window, div(size, 2), tag, monitor)
    end
  end

  defp wait(window, again, tag, monitor) do
    :atomics.put(window, @waiting, 1)

    # All may have been received just before the mark.
    unless :atomics.get(window, @ahead) <= again and take_waiting(window) do
      receive do
        {^tag, :more} -> :ok
        # Whoever waits for the next request has to see it, too.
        {:DOWN, ^monitor, :process, _pid, _reason} = down -> send(self(), down) && exit(:shutdown)
      end
    end
  end
end
