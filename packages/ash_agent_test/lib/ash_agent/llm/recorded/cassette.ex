defmodule AshAgent.LLM.Recorded.Cassette do
  @moduledoc false

  # The process of a cassette: finds recordings, each in its turn, and adds new ones to the file, which others may record into as well.

  use GenServer

  alias AshAgent.LLM.Difference
  alias AshAgent.LLM.Recorded.{Form, MissingError, Scrub}

  # Five seconds of waiting for the file: nobody holds it for longer than a write.
  @tries 250

  # path: of the file. ignore, scrub: see AshAgent.LLM.Recorded. recordings: in the order of the file. replaced: the text of the file that
  # is begun anew. played: how often each request was asked for, by its key. recorded: the keys of what this process recorded.
  @enforce_keys [:path, :ignore, :scrub, :recordings]
  defstruct [:path, :ignore, :scrub, :recordings, :replaced, played: %{}, recorded: MapSet.new()]

  @doc "Opens a cassette. Raises `ArgumentError` if the file is not one."
  def start_link(opts) do
    path = opts[:cassette]

    # All tests of a run with `ASH_AGENT_CASSETTES=record_all` record into the file that the first of them began.
    begun? = opts[:once] && :persistent_term.get({__MODULE__, Path.expand(path)}, false)
    new? = opts[:mode] == :record_all and !begun?

    state = %__MODULE__{
      path: path,
      ignore: opts[:ignore] || [],
      scrub: opts[:scrub] || [],
      recordings: if(new?, do: [], else: load!(path, opts[:scrub] || [])),
      replaced: if(new?, do: File.read(path))
    }

    GenServer.start_link(__MODULE__, state)
  end

  @doc "Returns `{:ok, recording}`, or `{:error, exception}` if there is none of this request."
  def find(cassette, path, body), do: GenServer.call(cassette, {:find, path, body}, :infinity)

  @doc "Adds a recording to the file, without these secrets. Returns `:ok`, or `{:error, exception}` if another one has the file."
  def record(cassette, recording, secrets),
    do: GenServer.call(cassette, {:record, recording, secrets}, :infinity)

  # What was written before a field or a form was replaced is found as well.
  defp load!(path, patterns) do
    with {:ok, text} <- File.read(path),
         {:ok, recordings} <- Form.read(text) do
      for recording <- recordings do
        asked = Scrub.scrub(%{recording | pieces: []}, patterns, [])
        %{recording | path: asked.path, body: asked.body}
      end
    else
      {:error, :enoent} ->
        []

      {:error, reason} when is_atom(reason) ->
        AshAgent.Caller.refuse!("#{path} cannot be read: #{:file.format_error(reason)}")

      {:error, words} ->
        AshAgent.Caller.refuse!("#{path} cannot be played: #{words}")
    end
  end

  @impl true
  def init(state), do: {:ok, state}

  @impl true
  def handle_call({:find, path, body}, _from, state) do
    asked = Scrub.scrub(%{path: path, body: body, headers: [], pieces: []}, state.scrub, [])
    key = key(asked, state)

    recordings = Enum.filter(state.recordings, &(key(&1, state) == key))
    turn = Map.get(state.played, key, 0)

    # After the last recording comes that again, unless this is where it was made: a second try has an answer of its own.
    recording =
      Enum.at(recordings, turn) || if(key not in state.recorded, do: List.last(recordings))

    if recording,
      do: {:reply, {:ok, recording}, %{state | played: Map.put(state.played, key, turn + 1)}},
      else: {:reply, {:error, describe_missing(asked, state)}, state}
  end

  # A new recording has been played, too.
  def handle_call({:record, recording, secrets}, _from, state) do
    recording = Scrub.scrub(recording, state.scrub, secrets)
    key = key(recording, state)
    state = lock(state.path, fn -> add!(state, recording) end, @tries)
    played = Map.update(state.played, key, 1, &(&1 + 1))
    {:reply, :ok, %{state | played: played, recorded: MapSet.put(state.recorded, key)}}
  rescue
    error in ArgumentError -> {:reply, {:error, error}, state}
  end

  defp key(recording, state),
    do: {recording.path, Scrub.ignore(recording.body, state.ignore)}

  # Other models, tests and processes of the machine may have added to the file since it was read. One that is begun anew loses
  # what was there before, and nothing that came since. A reader never sees half a file.
  defp add!(state, recording) do
    anew? = state.replaced != nil and state.replaced == File.read(state.path)
    recordings = if(anew?, do: [], else: load!(state.path, state.scrub)) ++ [recording]
    new = state.path <> ".new"
    File.write!(new, Form.write(recordings))
    File.rename!(new, state.path)
    if anew?, do: :persistent_term.put({__MODULE__, Path.expand(state.path)}, true)
    %{state | recordings: recordings, replaced: nil}
  end

  defp lock(path, fun, tries) do
    File.mkdir_p!(Path.dirname(path))
    lock = path <> ".lock"

    case File.write(
           lock,
           "#{inspect(self())} of the operating system's process #{System.pid()}",
           [:exclusive]
         ) do
      :ok ->
        try do
          fun.()
        after
          File.rm!(lock)
        end

      {:error, :eexist} when tries > 0 ->
        Process.sleep(20)
        lock(path, fun, tries - 1)

      {:error, :eexist} ->
        AshAgent.Caller.refuse!(
          "#{path} is being written by #{File.read!(lock)}: record again when that has ended, and remove #{lock} if it was killed"
        )

      {:error, reason} ->
        AshAgent.Caller.refuse!("#{lock} cannot be written: #{:file.format_error(reason)}")
    end
  end

  ## The nearest recording

  defp describe_missing(asked, state) do
    error = %MissingError{cassette: state.path, path: asked.path}
    asked_body = Scrub.ignore(asked.body, state.ignore)

    state.recordings
    |> Enum.with_index(1)
    |> Enum.map(fn {recording, number} ->
      body = Scrub.ignore(recording.body, state.ignore)
      differences = address(recording.path, asked.path) ++ Difference.between(body, asked_body)
      {number, Difference.count_common(body, asked_body), differences}
    end)
    |> Enum.sort_by(fn {_number, common, differences} -> {length(differences), -common} end)
    |> case do
      [] -> error
      [{number, _common, found} | _] -> %{error | nearest: number, differences: found}
    end
  end

  defp address(same, same), do: []
  defp address(was, is), do: [%Difference{cause: :address, where: "the path", was: was, is: is}]
end
