# What a door costs beside a subscriber of the session in the VM: CPU time of this VM, with whoever reads a socket in another process of the
# system.
#
#     cd packages/ash_agent_runtime && ELIXIR_ERL_OPTIONS="+sbwt none +sbwtdcpu none +sbwtdio none" MIX_ENV=prod mix run ../../bench/door.exs
#
# An answer of many pieces comes as fast as it is taken, and one piece a millisecond, as models send them at most. Schedulers that wait actively would count
# as work, so they do not.

Code.require_file("support/harness.exs", __DIR__)

# Doors need nothing of their package's other parts, which need Ash and Phoenix.
unless Code.ensure_loaded?(AshAgent.Door) do
  sources =
    Path.wildcard(
      Path.expand("../packages/ash_agent_web/lib/ash_agent/{door.ex,door/**/*.ex}", __DIR__)
    )

  {:ok, _modules, _warnings} = Kernel.ParallelCompiler.compile(sources)
end

unless Process.whereis(AshAgent.Door.Feed.Names),
  do: {:ok, _pid} = AshAgent.Door.Application.start(:normal, [])

defmodule AshAgent.Bench.Door.Model do
  @moduledoc false

  @behaviour AshAgent.LLM

  alias AshAgent.{Context, Response}

  @impl true
  def chat(_context, _opts), do: {:error, :only_streams}

  # The message says how many pieces there are, whether they come one a millisecond, and whether they wait for `:go`.
  @impl true
  def stream(context, _opts, fun) do
    %{content: text} =
      context |> Context.to_messages() |> Enum.filter(&(&1.role == :user)) |> List.last()

    [pieces, pace | wait] = text |> text() |> String.split(" ")
    if wait != [], do: wait()
    response = Response.new(nil, model: "bench")

    response =
      for n <- 1..String.to_integer(pieces), reduce: response do
        response ->
          if pace == "paced", do: Process.sleep(1)
          push(response, {:text, "word#{n} "}, fun)
      end

    {:ok, push(response, {:finish, :stop}, fun)}
  end

  defp text(text) when is_binary(text), do: text
  defp text([%{text: text} | _]), do: text

  defp wait do
    Process.register(self(), :the_model)
    receive do: (:go -> Process.unregister(:the_model))
  end

  defp push(response, event, fun) do
    {:ok, response, events} = Response.push(response, [event])
    if events != [], do: fun.(events, response)
    response
  end
end

defmodule AshAgent.Bench.Door.Counting do
  @moduledoc false

  # The protocol of the AI SDK, with somebody who counts what is written.
  alias AshAgent.Door.AISDK

  defdelegate shape, to: AISDK
  defdelegate own?(event), to: AISDK
  defdelegate begin(turn, opts), to: AISDK
  defdelegate record(chunk, seq, id), to: AISDK
  defdelegate last, to: AISDK
  defdelegate headers, to: AISDK
  defdelegate read(body, limits), to: AISDK

  def chunks(event, opts) do
    :counters.add(:persistent_term.get(__MODULE__), 1, 1)
    AISDK.chunks(event, opts)
  end
end

defmodule AshAgent.Bench.Door do
  @moduledoc false

  alias AshAgent.Bench.Door.{Counting, Model}
  alias AshAgent.Bench.Harness
  alias AshAgent.{Door, Session, Sessions, Store}

  @repeats if Harness.quick?(), do: 3, else: 9
  @fast if Harness.quick?(), do: 3_000, else: 20_000
  @paced if Harness.quick?(), do: 300, else: 2_000
  @idle if Harness.quick?(), do: 100, else: 1_000

  def main do
    {:ok, store} = Store.SQLite.open(":memory:")
    {:ok, _} = Sessions.start_link(name: __MODULE__, store: store, llm: {Model, []})
    IO.puts("#{Harness.environment()}; microseconds of CPU for a piece of an answer\n")

    IO.puts(
      "| protocol, pace | a subscriber in the VM | and the socket's write | a door's client on a socket | ratio | aim |"
    )

    IO.puts("|---|--:|--:|--:|--:|---|")
    for {protocol, pace} <- cases(), do: one(protocol, pace)

    IO.puts("\n| protocol, pace | a further client, without its socket | aim |\n|---|--:|---|")
    for {protocol, pace} <- cases(), do: further(protocol, pace)

    IO.puts("\n| what | | aim |\n|---|--:|---|")
    once()
    idle()
    slow()
  end

  defp cases,
    do:
      for(
        protocol <- [:ai_sdk, :ag_ui, :responses],
        pace <- [:fast, :paced],
        do: {protocol, pace}
      )

  defp pieces(:fast), do: @fast
  defp pieces(:paced), do: @paced

  ## One client

  defp one(protocol, pace) do
    count = pieces(pace)
    write = write(protocol)

    times =
      for _ <- 1..@repeats do
        subscriber = cpu(fn -> subscribe(pace) end) / count
        socket = cpu(fn -> write.(count) end) / count
        {subscriber, subscriber + socket, cpu(fn -> socket(protocol, pace) end) / count}
      end

    [subscriber, both, door] = for n <- 0..2, do: Harness.median(for t <- times, do: elem(t, n))
    ratio = Harness.median(for {_, both, door} <- times, do: door / both)

    IO.puts(
      "| #{protocol}, #{pace} | #{f(subscriber)} | #{f(both)} | #{f(door)} | #{f(ratio)} | at most 2: #{yes(ratio <= 2)} |"
    )
  end

  defp f(number), do: :erlang.float_to_binary(number * 1.0, decimals: 2)
  defp yes(true), do: "yes"
  defp yes(false), do: "NO"

  # Microseconds of all threads of this VM.
  defp cpu(fun) do
    :erlang.garbage_collect()
    {before, _} = :erlang.statistics(:runtime)
    fun |> Task.async() |> Task.await(:infinity)
    {later, _} = :erlang.statistics(:runtime)
    (later - before) * 1000
  end

  defp id, do: "c#{System.unique_integer([:positive])}"
  defp text(pace), do: "#{pieces(pace)} #{pace}"

  # The session's turn with somebody who puts the words together.
  defp subscribe(pace) do
    id = id()
    {:ok, context} = AshAgent.Context.create(%{id: id})
    {:ok, _} = Store.create(AshAgent.Sessions.Node.config!(__MODULE__).store, context)
    {:ok, session} = Sessions.fetch_session(__MODULE__, id)
    {:ok, ref, %{number: number}} = Session.subscribe(session)
    {:ok, _} = Sessions.prompt_async(__MODULE__, id, text(pace))
    true = hear(session, ref, number, []) > 5 * pieces(pace)
  end

  defp hear(session, ref, known, words) do
    receive do
      {Session, ^ref, _number, :behind} ->
        %{number: number} = Session.snapshot(session)
        hear(session, ref, number, words)

      {Session, ^ref, number, _change} when number <= known ->
        hear(session, ref, known, words)

      {Session, ^ref, number, {:delta, events}} ->
        hear(session, ref, number, [for({:text, _, text} <- events, do: text) | words])

      {Session, ^ref, _number, {:event, [:run, :stop], _, _}} ->
        byte_size(IO.iodata_to_binary(words))

      {Session, ^ref, number, _other} ->
        hear(session, ref, number, words)
    end
  end

  # As many writes to a socket as there are pieces, each of a chunk's size.
  defp write(protocol) do
    size = size(protocol)

    fn count ->
      {:ok, listener} =
        :gen_tcp.listen(0, [:binary, ip: {127, 0, 0, 1}, active: false, nodelay: true])

      {:ok, port} = :inet.port(listener)
      reader = reader(port, "")
      {:ok, socket} = :gen_tcp.accept(listener)
      bytes = String.duplicate("x", size)
      for _ <- 1..count, do: :ok = :gen_tcp.send(socket, bytes)
      :gen_tcp.close(socket)
      :gen_tcp.close(listener)
      await(reader)
    end
  end

  defp size(protocol) do
    {200, _, {:stream, bytes}} = Door.call(door(protocol), ask(protocol, id(), "100 paced"))
    sent = Enum.to_list(bytes)
    div(IO.iodata_length(sent), length(sent))
  end

  # Another process of the system reads the answer to a request, and throws it away.
  defp reader(port, request) do
    script = "exec 3<>/dev/tcp/127.0.0.1/#{port}; printf %s \"$1\" >&3; cat <&3 >/dev/null"
    options = [:binary, :exit_status, args: ["-c", script, "reader", request]]
    Port.open({:spawn_executable, System.find_executable("bash")}, options)
  end

  defp await(reader) do
    receive do: ({^reader, {:exit_status, 0}} -> :ok)
  end

  defp socket(protocol, pace) do
    {:ok, server} = Door.Server.start_link(door: door(protocol))
    %{headers: headers, body: body} = ask(protocol, id(), text(pace))
    lines = for {name, value} <- headers, do: "#{name}: #{value}\r\n"
    head = "POST /api/chat HTTP/1.1\r\n#{lines}content-length: #{byte_size(body)}\r\n\r\n"
    server |> Door.Server.port() |> reader(head <> body) |> await()
    Process.unlink(server)
    GenServer.stop(server)
  end

  defp door(protocol) do
    identify = fn %{asks: asks} -> {:ok, %{conversation: asks || id()}} end

    Door.new(
      sessions: __MODULE__,
      identify: identify,
      hosts: ["localhost"],
      cookies: false,
      protocol: protocol
    )
  end

  defp ask(protocol, id, text) do
    body =
      case protocol do
        :ai_sdk ->
          %{id: id, messages: [%{id: id, role: "user", parts: [%{type: "text", text: text}]}]}

        :ag_ui ->
          %{threadId: id, runId: "r", messages: [%{id: id, role: "user", content: text}]}

        :responses ->
          %{conversation: id, input: text, stream: true}
      end

    headers = [{"host", "localhost"}, {"content-type", "application/json"}]
    %{method: "POST", path: [], headers: headers, body: AshAgent.Context.JSON.encode(body)}
  end

  ## More clients

  defp further(protocol, pace) do
    count = pieces(pace)
    more = 10

    cost =
      Harness.median(
        for _ <- 1..@repeats do
          one = cpu(fn -> clients(door(protocol), protocol, pace, 1) end)
          all = cpu(fn -> clients(door(protocol), protocol, pace, 1 + more) end)
          (all - one) / more / count
        end
      )

    IO.puts("| #{protocol}, #{pace} | #{f(cost)} | at most 10: #{yes(cost <= 10)} |")
  end

  # The others send the same message, which is said once, and get what comes of it.
  defp clients(door, protocol, pace, count) do
    asked = ask(protocol, id(), text(pace) <> " wait")
    asked = Map.update!(asked, :headers, &[{"idempotency-key", "k"} | &1])
    first = Task.async(fn -> read(door, asked) end)
    model = await_model()
    others = for _ <- 2..count//1, do: Task.async(fn -> read(door, asked) end)
    Process.sleep(200)
    send(model, :go)
    Task.await_many([first | others], :infinity)
  end

  defp read(door, asked) do
    {200, _, {:stream, bytes}} = Door.call(door, asked)
    Enum.each(bytes, &IO.iodata_length/1)
  end

  defp once do
    :persistent_term.put(Counting, :counters.new(1, []))
    door = %{door(:ai_sdk) | protocol: Counting}
    asked = ask(:ai_sdk, id(), "1000 fast wait")
    first = Task.async(fn -> read(door, asked) end)
    model = await_model()
    others = for _ <- 2..10, do: Task.async(fn -> read(door, asked) end)
    Process.sleep(200)
    send(model, :go)
    Task.await_many([first | others], :infinity)
    written = :counters.get(:persistent_term.get(Counting), 1)

    IO.puts(
      "| events written for 10 clients of an answer of 1,000 pieces | #{written} | at most 1,010: #{yes(written <= 1_010)} |"
    )
  end

  ## Memory

  # What other rows have left for those who come back.
  defp clear do
    for {_, feed, _, _} <- Supervisor.which_children(Door.Feed.Supervisor),
        do: Process.exit(feed, :kill)

    Process.sleep(200)
  end

  defp idle do
    clear()
    asked = ask(:ai_sdk, id(), "1 fast wait")
    first = Task.async(fn -> read(door(:ai_sdk), asked) end)
    model = await_model()
    before = memory()
    clients = for _ <- 1..@idle, do: Task.async(fn -> read(door(:ai_sdk), asked) end)
    Process.sleep(2_000)
    each = (memory() - before) / @idle / 1000
    send(model, :go)
    Task.await_many([first | clients], :infinity)
    IO.puts("| KB of each of #{@idle} clients of a turn that says nothing | #{f(each)} | |")
  end

  # They read a little, and nothing more before the turn is over.
  defp slow do
    clear()
    asked = ask(:ai_sdk, id(), "#{@fast} fast wait")
    test = self()
    first = Task.async(fn -> read(door(:ai_sdk), asked) end)
    model = await_model()

    clients =
      for _ <- 1..100 do
        Task.async(fn ->
          {200, _, {:stream, bytes}} = Door.call(door(:ai_sdk), asked)

          Enum.reduce(bytes, 0, fn bytes, sum ->
            if sum == 0 do
              send(test, :slow)
              receive do: (:read -> :ok)
            end

            sum + IO.iodata_length(bytes)
          end)
        end)
      end

    for _ <- clients, do: receive(do: (:slow -> :ok))
    before = memory()
    send(model, :go)
    Task.await(first, :infinity)
    each = (memory() - before) / 100 / 1000
    for %{pid: pid} <- clients, do: send(pid, :read)
    sums = Task.await_many(clients, :infinity)
    true = Enum.all?(sums, &(&1 > 5 * @fast))

    IO.puts(
      "| KB of each of 100 clients that did not read an answer of #{@fast} pieces | #{f(each)} | |"
    )
  end

  defp memory do
    for pid <- Process.list(), do: :erlang.garbage_collect(pid)
    :erlang.memory(:total)
  end

  # The model, when it waits.
  defp await_model do
    with nil <- Process.whereis(:the_model) do
      Process.sleep(50)
      await_model()
    end
  end
end

AshAgent.Bench.Door.main()
