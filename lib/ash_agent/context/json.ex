defmodule AshAgent.Context.JSON do
  @moduledoc """
  JSON text, read and written by the Rust core.

  The package depends on no JSON library. This is what it uses itself: objects become maps with string keys, integers
  of any size (up to 4,300 digits) stay exact, atoms are never made.
  """

  alias AshAgent.Context.{Error, Native}

  defmodule Fragment do
    @moduledoc """
    JSON text that stands in a larger document as it is, for Jason and for Elixir's JSON.

    What `AshAgent.Context.EctoType` and `AshAgent.Context.AshType` give a JSON column, so that a conversation is written
    from the text that the Rust core makes. Unlike `Jason.Fragment` it holds no function, so data layers may keep it. One
    that encodes with a third library needs the types' option `storage: :text`.
    """

    @enforce_keys [:text]
    defstruct [:text]

    @type t :: %__MODULE__{text: binary()}

    # Conversations have no place in logs.
    defimpl Inspect do
      def inspect(%{text: text}, _opts),
        do: "#AshAgent.Context.JSON.Fragment<#{byte_size(text)} bytes>"
    end
  end

  @doc """
  Reads one JSON document. Of duplicate keys the last counts. Nesting is limited to 807 levels.

  ## Examples

      iex> AshAgent.Context.JSON.decode(~s({"a": [1, 2.5, null]}))
      {:ok, %{"a" => [1, 2.5, nil]}}

      iex> {:error, error} = AshAgent.Context.JSON.decode("[1,")
      iex> Exception.message(error)
      "expected JSON (EOF while parsing a value), at line 1 column 3"
  """
  @doc since: "0.1.0"
  @spec decode(binary()) :: {:ok, term()} | {:error, Error.t()}
  def decode(text) when is_binary(text) do
    with {:error, reason} <- Native.json_decode(text), do: {:error, %Error{reason: reason}}
  end

  @doc """
  Like `decode/1`, but returns the term or raises `AshAgent.Context.Error`.

  ## Examples

      iex> AshAgent.Context.JSON.decode!("[1]")
      [1]
  """
  @doc since: "0.1.0"
  @spec decode!(binary()) :: term()
  def decode!(text) do
    case decode(text) do
      {:ok, term} -> term
      {:error, error} -> raise error
    end
  end

  @doc """
  Writes a term as JSON text, by the rules that tool results follow: atoms are strings, tuples arrays, keyword lists
  objects, dates ISO 8601 text, other structs objects; bytes that are no UTF-8 are replaced; keys are in a fixed order.

  Raises `AshAgent.Context.Error` for improper lists, bitstrings and terms nested too deep.

  ## Examples

      iex> AshAgent.Context.JSON.encode(%{city: "Zürich", at: ~D[2026-01-01]})
      ~s({"at":"2026-01-01","city":"Zürich"})
  """
  @doc since: "0.1.0"
  @spec encode(term()) :: binary()
  def encode(term) do
    case Native.json_encode(term) do
      {:ok, text} -> text
      {:error, reason} -> raise Error, reason: reason
    end
  end
end
