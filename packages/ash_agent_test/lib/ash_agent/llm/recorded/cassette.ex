defmodule AshAgent.LLM.Recorded.Cassette do
  @moduledoc false

  # The process of a cassette: finds recordings, each in its turn, and writes new ones.

  use GenServer

  alias AshAgent.LLM.Difference
  alias AshAgent.LLM.Recorded.{Form, MissingError, Scrub}

  # path: of the file. ignore, scrub: see AshAgent.LLM.Recorded. recordings: in the order of the file. played: how often each request
  # was asked for, by its key. recorded: the keys of what this process recorded.
  @enforce_keys [:path, :ignore, :scrub, :recordings]
  defstruct [:path, :ignore, :scrub, :recordings, played: %{}, recorded: MapSet.new()]

  @doc "Opens a cassette. Raises `ArgumentError` if the file is not one."
  def start_link(opts) do
    state = %__MODULE__{
      path: opts[:cassette],
      ignore: opts[:ignore] || [],
      scrub: opts[:scrub] || [],
      recordings: if(opts[:mode] == :record_all, do: [], else: load!(opts[:cassette]))
    }

    GenServer.start_link(__MODULE__, state)
  end

  @doc "Returns `{:ok, recording}`, or `{:error, exception}` if there is none of this request."
  def find(cassette, path, body), do: GenServer.call(cassette, {:find, path, body}, :infinity)

  @doc "Adds a recording and writes the file, without these secrets."
  def record(cassette, recording, secrets),
    do: GenServer.call(cassette, {:record, recording, secrets}, :infinity)

  defp load!(path) do
    with {:ok, text} <- File.read(path),
         {:ok, recordings} <- Form.read(text) do
      recordings
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
    state = %{state | recordings: state.recordings ++ [recording]}
    key = key(recording, state)
    played = Map.update(state.played, key, 1, &(&1 + 1))
    state = %{state | played: played, recorded: MapSet.put(state.recorded, key)}
    write!(state)
    {:reply, :ok, state}
  end

  defp key(recording, state),
    do: {recording.path, Scrub.ignore(recording.body, state.ignore)}

  # A reader never sees half a file.
  defp write!(state) do
    File.mkdir_p!(Path.dirname(state.path))
    new = state.path <> ".new"
    File.write!(new, Form.write(state.recordings))
    File.rename!(new, state.path)
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
