defmodule AshAgent.Output do
  @moduledoc """
  The type of an answer: a JSON Schema for the model, and the Elixir value that its answer becomes.

      iex> alias AshAgent.Output
      iex> output = Output.new(city: :string, people: :integer, size: {:in, [:small, :large]})
      iex> {:ok, value, repairs} = Output.read(output, "Sure: {city: 'Ulm', people: \\"127000\\", size: 'Large'}")
      iex> value
      %{city: "Ulm", people: 127000, size: :large}
      iex> repairs |> Enum.map(& &1.kind) |> Enum.uniq() |> Enum.sort()
      [:choice, :number_from_text, :prose, :single_quotes, :unquoted_key]

  ## Types

    * a keyword list - an object with these fields, as a map with these keys. Each has a type, or a keyword list with `:type`,
      `:doc`, `:required` (defaults to `true`), `:default` (which makes it optional), and bounds of JSON Schema such as
      `:minimum`, `:max_length`, `:min_items` and `:pattern`
    * `{fields, into: module}` - the same, as a struct
    * a map - a JSON Schema. The answer is JSON data with string keys
    * `{schema, cast: fun}` - a JSON Schema and a function that makes the value, `{:ok, value}` or `{:error, words}`, of the JSON
      data. With `partial: fun` as well, that function makes what is shown of the JSON data of an answer that is still arriving
    * a module of an Ecto schema - its fields and embeds, as its struct, by its `changeset/2` if it has one
    * `{data, types}` - as a schemaless changeset of Ecto has them
    * an Ash type - as `AshAgent.Resource.output/2` returns it
    * a module with a function `output/0` that returns one of these types
    * `{:one_of, [name: type, ...]}` - one of several; the value is `{name, value}`. Modules need no names, since a struct says
      what it is
    * `{:list, type}`, `{:nullable, type}`, `{:in, [:a, :b]}` with atoms, strings or numbers
    * `:string`, `:integer`, `:pos_integer`, `:non_neg_integer`, `:float`, `:number`, `:boolean`, `:date`, `:time`, `:datetime`,
      `:naive_datetime`, `:uuid`, `:map` and `:any`

  Every keyword of a schema is checked. One that cannot be checked, such as `not` or `patternProperties`, is an error when the type is made.
  With `config :ash_agent_context, features: [:json_schema]`, all keywords of the draft 2020-12 are, by the crate `jsonschema`. Published
  libraries do not have it: yours is then built with Rust, which takes a minute more, and 3 MB larger.

  ## Reading

  `read/3` accepts the JSON that models really write: with prose and fences around it, trailing commas, comments, single quotes, unquoted keys,
  numbers, lists and objects as text, a single value for a list of one and vice versa, a list without the object around it, choices in
  another case, and keys in another style. It reports each repair, with the path of the key that it is about.

    * A text that is valid JSON and fits is never changed, and one that could be read in several ways is refused.
    * A part is never taken for the whole. An object begins with a brace and a quote, a key with a colon, or the other brace; all other
      braces are prose. If it is not JSON, for example because of typographic quotes or `NaN`, nothing inside it is read, and if it has a
      field of the answer, the text is refused. So is an object without its first brace.
    * A text that ends within its answer, or within a second one, counts as cut off: it is never repaired into an answer.
    * A text that says a list, such as `"[1]"`, is read as that list or refused, never as a list of one text. So is `"null"`.
    * An integer is exact: one with a point or an exponent is refused from 2 to the power of 53 on, where floats have gaps.
  """

  alias AshAgent.{Context, Options, Response}
  alias AshAgent.Output.{Cast, Error, Type}
  alias AshAgent.Response.Schema

  import AshAgent.Context.Requests, only: [is_provider: 1]

  @tool "submit_answer"

  @schema Options.schema([
            {:strict, :boolean, [default: false],
             "whether to read JSON only, and to repair nothing but a `null` for a field that may be left out, which is how providers write it " <>
               "that hold their models to a schema."}
          ])

  @enforce_keys [:ref, :schema, :type, :wrapped?]
  defstruct @enforce_keys

  @typedoc "A type, ready to read answers. Its fields are private, but for `schema`."
  @type t :: %__MODULE__{ref: reference(), schema: map(), type: term(), wrapped?: boolean()}

  @typedoc "A type as `new/1` takes it, see above."
  @type spec :: t() | keyword() | map() | module() | atom() | tuple()

  @typedoc "A repair: something that was read although it was not valid by the schema or as JSON."
  @type repair :: %{path: [String.t() | non_neg_integer()], kind: atom()}

  @doc """
  Makes a type, and returns it.

  Raises `ArgumentError` for what is not a type, and for schemas with a keyword that cannot be checked. Takes some microseconds a field, so
  make it once.

  ## Examples

      iex> AshAgent.Output.new({:list, :string}).schema
      %{
        "type" => "object",
        "properties" => %{"value" => %{"type" => "array", "items" => %{"type" => "string"}}},
        "required" => ["value"],
        "additionalProperties" => false
      }

      iex> AshAgent.Output.new(%{type: "object", patternProperties: %{}})
      ** (ArgumentError) the schema of the output has at patternProperties something else than a keyword of JSON Schema that is checked; the feature json_schema of the library checks all of them: set config :ash_agent_context, features: [:json_schema] and run mix deps.compile ash_agent_context --force, which builds it with Rust
  """
  @doc since: "0.1.0"
  @spec new(spec()) :: t()
  def new(%__MODULE__{} = output), do: output

  def new(spec) do
    {schema, type} = Type.read!(spec)
    # Providers want an object, and an object is found in prose.
    wrapped? = not object?(schema)
    schema = if wrapped?, do: Type.wrap(schema), else: schema

    case Schema.new(schema) do
      {:ok, ref, schema} ->
        %__MODULE__{ref: ref, schema: schema, type: type, wrapped?: wrapped?}

      {:error, reason} ->
        raise ArgumentError, refuse(reason)
    end
  end

  defp object?(schema), do: to_string(schema["type"] || schema[:type]) == "object"

  defp refuse({:invalid, [], expected}),
    do: "the schema of the output is something else than #{expected}"

  defp refuse({:invalid, path, expected}) do
    at = Enum.join(path, "/")
    "the schema of the output has at #{at} something else than #{expected}" <> hint(expected)
  end

  defp refuse(reason),
    do: "the schema of the output: " <> Exception.message(%Context.Error{reason: reason})

  # Published libraries do not have it.
  @hint ": set config :ash_agent_context, features: [:json_schema] and run mix deps.compile ash_agent_context --force, " <>
          "which builds it with Rust"
  defp hint(expected) do
    all? =
      String.ends_with?(expected, "the feature json_schema of the library checks all of them")

    if all?, do: @hint, else: ""
  end

  @doc """
  Reads an answer, and returns `{:ok, value, repairs}` or `{:error, error}`.

  The error is an `AshAgent.Output.Error`. Its `lines` say what is wrong in words for the model, and show nothing of the answer.

  ## Options

  #{Options.docs(@schema)}

  Raises `ArgumentError` for unknown and wrong options.

  ## Examples

      iex> output = AshAgent.Output.new(city: :string, people: [type: :integer, minimum: 1])
      iex> {:error, error} = AshAgent.Output.read(output, ~s({"city": "Ulm", "people": 0}))
      iex> error.lines
      ["/people: expected at least 1"]

      iex> output = AshAgent.Output.new(city: :string, people: :integer)
      iex> {:error, error} = AshAgent.Output.read(output, ~s({"city": "Ulm", "peop))
      iex> {error.reason, error.value}
      {:cut, %{city: "Ulm"}}
  """
  @doc since: "0.1.0"
  @spec read(t(), String.t(), keyword()) :: {:ok, term(), [repair()]} | {:error, Error.t()}
  def read(%__MODULE__{} = output, text, opts \\ []) when is_binary(text) and is_list(opts) do
    opts = Options.validate!(opts, @schema)

    if String.valid?(text),
      do: output.ref |> Schema.read(text, opts[:strict]) |> settle(output),
      else: invalid(["the answer: is not valid UTF-8"], nil)
  end

  @doc """
  Checks JSON data, such as the arguments of a call, and returns as `read/3` does. Takes the same options.

  ## Examples

      iex> output = AshAgent.Output.new(on: :date)
      iex> AshAgent.Output.check(output, %{"on" => "2026-01-31"})
      {:ok, %{on: ~D[2026-01-31]}, []}
  """
  @doc since: "0.1.0"
  @spec check(t(), term(), keyword()) :: {:ok, term(), [repair()]} | {:error, Error.t()}
  def check(%__MODULE__{} = output, value, opts \\ []) when is_list(opts) do
    opts = Options.validate!(opts, @schema)
    output.ref |> Schema.check(value, opts[:strict]) |> settle(output)
  end

  defp settle({:ok, {:fits, value, [], mends}}, output) do
    case output.type |> Cast.cast(unwrap(value, output)) do
      {:ok, value} -> {:ok, value, repairs(mends, output)}
      {:error, lines} -> invalid(lines, value)
    end
  end

  defp settle({:ok, {:misfits, value, issues, _mends}}, _output),
    do: invalid(for({_path, _words, line} <- issues, do: line), value)

  defp settle({:ok, {:cut, value, _issues, _mends}}, output) do
    shown = with {:ok, value} <- show(value, output), do: value, else: (:none -> nil)

    {:error,
     %Error{reason: :cut, lines: ["the answer: ends before it is complete"], value: shown}}
  end

  defp settle({:error, reason}, _output),
    do: invalid(["the answer: " <> Exception.message(%Context.Error{reason: reason})], nil)

  defp invalid(lines, value), do: {:error, %Error{reason: :invalid, lines: lines, value: value}}

  defp unwrap(%{"value" => value}, %{wrapped?: true}), do: value
  defp unwrap(value, _output), do: value

  @kinds ~w(prose trailing_comma comment single_quotes unquoted_key control_character literal number_from_text boolean_from_text
            whole_number text_from_number json_from_text missing_object wrapped unwrapped choice key_style dropped_null)a
  @names Map.new(@kinds, &{Atom.to_string(&1), &1})

  defp repairs(mends, output) do
    for repair <- to_repairs(mends), do: %{repair | path: unwrap_path(repair.path, output)}
  end

  @doc false
  def to_repairs(mends),
    do: for({path, kind} <- mends, do: %{path: path, kind: Map.fetch!(@names, kind)})

  defp unwrap_path(["value" | path], %{wrapped?: true}), do: path
  defp unwrap_path(path, _output), do: path

  @doc """
  Returns `{:ok, value}` with the value as far as the text has arrived, or `:none`.

  Takes a text, an `AshAgent.Response`, or its message, which a session's snapshot has: of the latter two it reads the arguments of the
  call that gives the answer, or the text. `nil`, the message of a snapshot between answers, has no value. Texts are included as
  far as they have arrived, everything else once it is complete. A value returned for the beginning of a text is part of the value
  for more of it.

  ## Examples

      iex> output = AshAgent.Output.new(title: :string, pages: :integer, tags: {:list, :string})
      iex> AshAgent.Output.read_partial(output, ~s({"title": "Moby Dick", "pages": 63))
      {:ok, %{title: "Moby Dick"}}
      iex> AshAgent.Output.read_partial(output, "Let me see: ")
      :none
  """
  @doc since: "0.1.0"
  @spec read_partial(t(), String.t() | Response.t() | map() | nil) :: {:ok, term()} | :none
  def read_partial(%__MODULE__{} = output, %Response{} = response),
    do: read_partial(output, Response.message(response))

  def read_partial(%__MODULE__{}, nil), do: :none

  def read_partial(%__MODULE__{} = output, message) when is_map(message) do
    calls = Map.get(message, :tool_calls, []) ++ Map.get(message, :unfinished_tool_calls, [])

    case Enum.find(calls, &(to_string(&1.name) == @tool)) do
      nil -> read_partial(output, Response.text(message) || "")
      %{arguments: text} when is_binary(text) -> read_partial(output, text)
      %{arguments: arguments} -> read_partial(output, Context.JSON.encode(arguments || %{}))
    end
  end

  def read_partial(%__MODULE__{} = output, text) when is_binary(text) do
    case Schema.read_partial(output.ref, text) do
      {:ok, value} -> show(value, output)
      {:error, _not_utf8} -> :none
    end
  end

  # Before anything is shown, there is no value of any type.
  defp show(none, _output) when none in [nil, :none], do: :none
  defp show(object, %{wrapped?: true}) when not is_map_key(object, "value"), do: :none

  defp show(value, output),
    do: {:ok, Cast.cast_partial(output.type, unwrap(value, output))}

  @doc false
  # The tool whose arguments are an answer, where the provider has no field for it.
  def tool_name, do: @tool

  @doc false
  # An empty stream, for `follow/3`.
  defdelegate follow(), to: Schema

  @doc false
  # Reads a piece of a stream, and returns the changes: `{path, {:text, more}}` or `{path, {:value, json}}`.
  def follow(%__MODULE__{} = output, follow, piece) do
    case Schema.follow(output.ref, follow, piece) do
      {:ok, {follow, parts}} ->
        parts = for {path, came} <- parts, path = visible(path, output), do: {path, came}
        {follow, parts}

      {:error, _not_utf8} ->
        {follow, []}
    end
  end

  # If a value got an object of its own, the object is not shown.
  defp visible([], %{wrapped?: true}), do: nil
  defp visible(path, output), do: unwrap_path(path, output)

  @doc false
  # The fields of a request for an answer of the type, or the reason to ask for it in another way.
  def constrain(%__MODULE__{} = output, provider, model, opts) when is_provider(provider) do
    asked = {opts[:beside_tools?] == true, opts[:forced?] == true}

    with {:error, {:invalid, path, expected}} <-
           Schema.constrain(output.ref, provider, model, asked) do
      place = if path == [], do: "", else: ", at #{Enum.join(path, "/")}"
      {:error, "it needs #{expected}#{place}"}
    end
  end

  defimpl Inspect do
    def inspect(output, _opts) do
      names = output.schema |> Map.get("properties", %{}) |> map_size()
      "#AshAgent.Output<#{names} fields>"
    end
  end
end
