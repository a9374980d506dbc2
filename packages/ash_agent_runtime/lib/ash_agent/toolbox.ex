defmodule AshAgent.Toolbox do
  @moduledoc """
  A tool that is a program: it reads the arguments as JSON from its standard input and writes the result to its standard output.

      iex> toolbox = AshAgent.Toolbox.new(name: "shout", description: "Says it loudly", command: "tr", args: ["a-z", "A-Z"])
      iex> AshAgent.Toolbox.run(toolbox, %{"text" => "hello"})
      {:ok, ~s({"TEXT":"HELLO"})}

  Use it like any other tool:

      AshAgent.Runtime.run(context, llm: llm, tools: [toolbox])

  ## How it runs

  The program is started directly, with exactly the given arguments; no shell sees them, nor anything that the model
  wrote. Its input is a single JSON object. With exit code 0, its output is the result; with any other, the result is an
  error with the end of its standard error.

  The program leads its own process group. The whole group is killed when the program ends, when it takes too long, when
  the process that runs the tool ends for whatever reason, and when the VM dies. Only processes that leave the group
  (`setsid`) can outlive a call.

  The environment is `env`, plus `HOME`, `LOGNAME`, `PATH`, `SHELL`, `TERM` and `USER` and the variables named by
  `inherit_env` from the VM's environment: a program that a model runs sees no keys. `inherit_env: true` passes on everything.

  It needs a POSIX system with `sh`, `tail` and a `head` that knows `-c` (GNU, BSD and BusyBox have them), which take a
  few milliseconds to start.
  """

  use AshAgent.Arguments

  alias AshAgent.Context.{Error, JSON}
  alias AshAgent.{Deadline, Options, ProgramEnv}

  @default_parameters %{"type" => "object"}
  @max_output_bytes 1_000_000
  @stderr_bytes 2_000

  @enforce_keys [:name, :command]
  defstruct @enforce_keys ++
              [:description, parameters: @default_parameters, args: [], env: %{}] ++
              [inherit_env: [], search_hints: [], max_output_bytes: @max_output_bytes] ++
              [timeout: nil]

  @typedoc """
    * `name` - the tool's name for the model
    * `description` - tells the model when to use it
    * `parameters` - the JSON schema of its arguments
    * `command` - a program on the PATH, or a path
    * `args` - the program's arguments
    * `env` - additional environment variables; `nil` removes one
    * `inherit_env` - names of variables that the program gets from the VM besides the six above, or `true` for all
    * `search_hints` - words to find it by among many tools; the runtime does not use them
    * `max_output_bytes` - how much it may print; more is an error
    * `timeout` - the time that a call of it in a run may take, instead of the run's `:tool_timeout`
  """
  @type t :: %__MODULE__{
          name: String.t(),
          description: String.t() | nil,
          parameters: map(),
          command: String.t(),
          args: [String.t()],
          env: %{optional(String.t()) => String.t() | nil},
          inherit_env: [String.t()] | true,
          search_hints: [String.t()],
          max_output_bytes: pos_integer(),
          timeout: timeout() | nil
        }

  # A fixed text: nothing is ever inserted into it. $1 separates the program's output from the text after it, $2 is tail, $3
  # how much of standard error is wanted, $4 is head, $5 the number of input bytes, the rest the program.
  #
  # The BEAM cannot close the input of a port and go on reading its output, so exactly the bytes of the arguments are read
  # and then piped to the program; a dot after them tells that none is missing. (The shell's own `read` asks the system
  # for each byte, and takes half a second for a megabyte.) The port's input stays open as a lifeline: when it closes,
  # whoever closed it, the group is killed. The BEAM starts each port as the leader of a session of its own, so $$ is the
  # group.
  #
  # Standard error goes through tail, which keeps its end and prints it after the mark and the exit code, when all
  # writers are gone; that is what the TERM is for, which this shell, and with it tail, ignores.
  @wrapper ~S"""
  mark=$1 tail=$2 bytes=$3 head=$4 length=$5
  shift 5
  arguments=$("$head" -c "$length")
  case $arguments in *.) arguments=${arguments%.} ;; *) exit 1 ;; esac
  exec 3<&0 4>&1 </dev/null 2>/dev/null
  trap '' TERM
  ( read -r _ <&3; kill -s KILL -- "-$$" ) >/dev/null 4>&- &
  {
    printf '%s' "$arguments" | ( trap - TERM; exec "$@" ) 2>&1 >&4 3<&- 4>&-
    status=$?
    kill -s TERM -- "-$$"
    printf '%s%s ' "$mark" "$status" >&4
  } | "$tail" -c "$bytes" 3<&-
  kill -s KILL -- "-$$"
  """

  @doc """
  Makes a toolbox from its fields, see `t:t/0`.

  `name` and `command` are required; `parameters` defaults to `%{"type" => "object"}`, `args`, `inherit_env` and `search_hints` to `[]`, `env` to
  `%{}`, `max_output_bytes` to `1_000_000`, `timeout` to `nil`. Raises `ArgumentError` for unknown, repeated, missing and wrong fields, without showing
  their values, which may be secrets.

  ## Examples

      iex> AshAgent.Toolbox.new(name: "now", command: "date").parameters
      %{"type" => "object"}
  """
  @doc since: "0.1.0"
  @spec new(keyword() | map()) :: t()
  def new(fields) when is_list(fields) or is_map(fields) do
    fields = if is_map(fields), do: Map.to_list(fields), else: fields
    struct!(__MODULE__, Options.validate!(fields, schema()))
  end

  defp schema do
    text = [type: {:custom, &text?/1}, type_doc: "a non-empty UTF-8 string without NUL"]
    texts = [type: {:custom, &texts?/1}, type_doc: "a list of UTF-8 strings without NUL"]
    names = "a list of names of variables, or true"
    inherited = [type: {:custom, &ProgramEnv.inherit?/1}, type_doc: names]

    [
      name: [required: true] ++ text,
      command: [required: true] ++ text,
      description: [type: {:or, [:string, nil]}],
      parameters: [type: :map, type_doc: "a JSON schema as a map"],
      args: texts,
      search_hints: [type: {:list, :string}],
      env: [type: {:custom, &env?/1}, type_doc: "a map of names to strings, or to nil"],
      inherit_env: inherited,
      max_output_bytes: [type: :pos_integer],
      timeout: [type: {:or, [:milliseconds, nil]}, type_doc: "milliseconds or `:infinity`"]
    ]
  end

  defp text?(text), do: plain?(text) and text != ""

  defp texts?(list),
    do: is_list(list) and not List.improper?(list) and Enum.all?(list, &plain?/1)

  defp plain?(text),
    do: is_binary(text) and String.valid?(text) and not String.contains?(text, <<0>>)

  defp env?(env) do
    ((is_map(env) and not is_struct(env)) or Keyword.keyword?(env)) and
      Enum.all?(env, fn {name, value} -> variable?(name) and (value == nil or plain?(value)) end)
  end

  defp variable?(name) when is_atom(name), do: name != nil and variable?(Atom.to_string(name))
  defp variable?(name), do: text?(name) and not String.contains?(name, "=")

  @run_schema Options.schema([
                {:timeout, :timeout, [default: 60_000],
                 "the time after which the program and its children are killed."}
              ])

  @doc """
  Runs the program with these arguments and returns `{:ok, output}` or `{:error, words}`.

  The output is exactly what the program printed.

  ## Options

  #{Options.docs(@run_schema)}

  ## Examples

      iex> AshAgent.Toolbox.run(AshAgent.Toolbox.new(name: "fail", command: "ls", args: ["/nothing/here"]), %{}) |> elem(0)
      :error

      iex> AshAgent.Toolbox.run(AshAgent.Toolbox.new(name: "slow", command: "sleep", args: ["5"]), %{}, timeout: 10)
      {:error, "timed out after 10 ms"}
  """
  @doc since: "0.1.0"
  @spec run(t(), map(), keyword()) :: {:ok, binary()} | {:error, String.t()}
  def run(%__MODULE__{} = toolbox, arguments, opts \\ []) when is_map(arguments) do
    timeout = Options.validate!(opts, @run_schema)[:timeout]

    with {:ok, input} <- input(arguments),
         {:ok, sh} <- executable("sh"),
         {:ok, tail} <- executable("tail"),
         {:ok, head} <- executable("head"),
         {:ok, program} <- executable(toolbox.command) do
      mark = "\n" <> Base.encode16(:crypto.strong_rand_bytes(16)) <> "\n"
      length = Integer.to_string(byte_size(input))
      args = ["-c", @wrapper, "toolbox", mark, tail, Integer.to_string(@stderr_bytes)]
      args = args ++ [head, length, program] ++ toolbox.args
      options = [:binary, :exit_status, :hide, :use_stdio, args: args, env: env(toolbox)]
      port = Port.open({:spawn_executable, sh}, options)

      try do
        feed(port, input)

        limits = %{
          max: toolbox.max_output_bytes,
          timeout: timeout,
          deadline: Deadline.new(timeout)
        }

        collect(Map.merge(limits, %{port: port, mark: mark}), [], 0)
      after
        close(port)
      end
    end
  end

  # The encoder escapes line ends and NUL, which a shell's variable would lose.
  defp input(arguments) do
    {:ok, JSON.encode(arguments) <> "."}
  rescue
    error in Error ->
      {:error, "the arguments cannot be written as JSON: " <> Exception.message(error)}
  end

  defp executable(command) do
    case System.find_executable(command) do
      nil -> {:error, "the program #{command} does not exist or is not executable"}
      path -> {:ok, path}
    end
  end

  # A port inherits the whole environment; `false` takes a variable out.
  defp env(%{env: env, inherit_env: inherit}) do
    own = Map.new(env, fn {name, value} -> {to_string(name), value} end)

    for {name, value} <- Map.merge(ProgramEnv.unset_others(inherit), own),
        do: {String.to_charlist(name), if(value, do: String.to_charlist(value), else: false)}
  end

  defp feed(port, input) do
    Port.command(port, input)
  rescue
    # It has ended already; its exit status says why.
    ArgumentError -> true
  end

  defp collect(%{port: port} = state, output, size) do
    receive do
      {^port, {:data, data}} ->
        size = size + byte_size(data)

        # The output is followed by the mark, the exit code and the end of standard error.
        if size > state.max + @stderr_bytes + 64,
          do: {:error, too_long(state.max)},
          else: collect(state, [output, data], size)

      {^port, {:exit_status, _of_the_wrapper}} ->
        output |> IO.iodata_to_binary() |> result(state)
    after
      Deadline.left(state.deadline) -> {:error, "timed out after #{state.timeout} ms"}
    end
  end

  defp result(bytes, %{mark: mark, max: max}) do
    with [output, rest] <- :binary.split(bytes, mark),
         {status, " " <> stderr} <- Integer.parse(rest) do
      cond do
        byte_size(output) > max -> {:error, too_long(max)}
        status == 0 -> {:ok, output}
        true -> {:error, failure(status, stderr)}
      end
    else
      _ -> {:error, "the program was killed"}
    end
  end

  defp too_long(max), do: "the program printed more than #{max} bytes and was stopped"

  defp failure(status, stderr) do
    case String.trim(printable(stderr)) do
      "" -> "exit code #{status}"
      words -> "exit code #{status}: #{words}"
    end
  end

  # The end may begin in the middle of a character.
  defp printable(text) when byte_size(text) < @stderr_bytes - 4, do: text

  defp printable(text) do
    tails = for skipped <- 0..3, do: binary_part(text, skipped, byte_size(text) - skipped)
    Enum.find(tails, text, &String.valid?/1)
  end

  defp close(port) do
    try do
      Port.close(port)
    rescue
      ArgumentError -> true
    end

    # Nothing of the port may stay in the mailbox of a caller that traps exits.
    Process.unlink(port)
    flush(port)
  end

  defp flush(port) do
    receive do
      {^port, _} -> flush(port)
      {:EXIT, ^port, _} -> flush(port)
    after
      0 -> :ok
    end
  end
end
