defmodule AshAgent.Context.JSON do
  @moduledoc """
  JSON text, read and written by the Rust core.

  The package does not depend on a JSON library; it uses this module itself. Objects become maps with string keys, integers of
  up to 4,300 digits stay exact, and reading never creates atoms.
  """

  use AshAgent.Arguments

  alias AshAgent.Context.{Error, Native, Reply}

  defmodule Fragment do
    @moduledoc """
    JSON text that this package, Jason and Elixir's JSON write into a larger document as it is.

    `AshAgent.Context.JSON.fragment/1` makes one.

    `AshAgent.Context.EctoType` and `AshAgent.Context.AshType` dump it into JSON columns, so that a conversation is written from
    the text that the Rust core makes. Unlike `Jason.Fragment`, it contains no function, so data layers can store it. If yours
    encodes with another library, use the types' option `storage: :text`.
    """

    @enforce_keys [:text]
    defstruct [:text]

    @type t :: %__MODULE__{text: binary()}

    # Conversations don't belong in logs.
    defimpl Inspect do
      def inspect(%{text: text}, _opts),
        do: "#AshAgent.Context.JSON.Fragment<#{byte_size(text)} bytes>"
    end
  end

  @doc """
  Reads a JSON document, and returns `{:ok, term}` or `{:error, error}`.

  The last of duplicate keys wins. Documents may be nested up to 807 levels deep.

  ## Examples

      iex> AshAgent.Context.JSON.decode(~s({"a": [1, 2.5, null]}))
      {:ok, %{"a" => [1, 2.5, nil]}}

      iex> {:error, error} = AshAgent.Context.JSON.decode("[1,")
      iex> Exception.message(error)
      "expected JSON (EOF while parsing a value), at line 1 column 3"
  """
  @doc since: "0.1.0"
  @spec decode(binary()) :: {:ok, term()} | {:error, Error.t()}
  def decode(text) when is_binary(text), do: text |> Native.json_decode() |> Reply.to_result()

  @doc """
  Like `decode/1`, but returns the term or raises `AshAgent.Context.Error`.

  ## Examples

      iex> AshAgent.Context.JSON.decode!("[1]")
      [1]
  """
  @doc since: "0.1.0"
  @spec decode!(binary()) :: term()
  def decode!(text), do: text |> decode() |> Reply.bang!()

  @doc """
  Writes a term as JSON text, with the rules for tool results, and returns the text.

  Atoms become strings, tuples arrays, keyword lists and structs objects, dates and times ISO 8601 strings. Invalid UTF-8 is
  replaced, and keys have a fixed order. Raises `AshAgent.Context.Error` for improper lists, bitstrings and terms nested too deeply.

  ## Examples

      iex> AshAgent.Context.JSON.encode(%{city: "Zürich", at: ~D[2026-01-01]})
      ~s({"at":"2026-01-01","city":"Zürich"})
  """
  @doc since: "0.1.0"
  @spec encode(term()) :: binary()
  def encode(term), do: term |> Native.json_encode() |> Reply.ok!()

  @doc """
  Writes a term as `encode/1` does, and returns a fragment: JSON text that goes into larger documents as it is.

  Fields of a request that stay the same, such as the tools, are encoded once instead of in every turn:

      iex> tools = AshAgent.Context.JSON.fragment([%{name: "add", description: "Adds two numbers"}])
      iex> context = AshAgent.Context.new("What is 1 + 2?")
      iex> {:ok, body} = AshAgent.Context.encode_request(context, :anthropic, body: %{tools: tools})
      iex> IO.iodata_to_binary(body)
      ~s({"tools":[{"description":"Adds two numbers","name":"add"}],"messages":[{"role":"user","content":"What is 1 + 2?"}]})

  Raises like `encode/1`. A fragment of another source is checked: as a field of a request, text that is not one JSON value is
  an error.
  """
  @doc since: "0.1.0"
  @spec fragment(term()) :: Fragment.t()
  def fragment(term), do: term |> encode() |> raw()

  @doc false
  # Text that is JSON already.
  def raw(text), do: %Fragment{text: text}
end
