defmodule AshAgent.Context.PreparedRequest do
  @moduledoc """
  What many requests share: the options of `AshAgent.Context.encode_request/3`, checked once, and the fields of `:body`, encoded once.

  With 100 tools, a request then costs a tenth. It is for the node that made it.
  """

  use AshAgent.Arguments

  alias AshAgent.{Caller, Context}
  alias AshAgent.Context.{Error, Native, Options, Reply, Requests}

  import AshAgent.Context.Requests, only: [is_provider: 1]

  @enforce_keys [:options, :fields]
  defstruct @enforce_keys

  @typedoc "A prepared request. Its fields are private."
  @type t :: %__MODULE__{options: map(), fields: reference()}

  @doc """
  Returns `{:ok, prepared}`, or `{:error, error}` for a field that is not JSON. Takes the options of
  `AshAgent.Context.encode_request/3`, and raises `ArgumentError` as that does.

  ## Examples

      iex> {:ok, prepared} = AshAgent.Context.PreparedRequest.new(:ollama, body: %{model: "llama3.2"})
      iex> {:ok, body} = AshAgent.Context.PreparedRequest.encode(prepared, AshAgent.Context.new("Hello!"))
      iex> IO.iodata_to_binary(body)
      ~s({"model":"llama3.2","messages":[{"role":"user","content":"Hello!"}]})
  """
  @doc since: "0.1.0"
  @spec new(Context.provider(), keyword()) :: {:ok, t()} | {:error, Error.t()}
  def new(provider, opts \\ []) when is_provider(provider) do
    opts = Options.validate!(opts, :encode_request)
    options = Requests.request_options(provider, opts)

    with {:ok, fields} <- opts[:body] |> Native.request_fields() |> Reply.to_result(),
         do: {:ok, %__MODULE__{options: options, fields: fields}}
  end

  @doc "Returns the body of a request for a context, as `AshAgent.Context.encode_request/3` does."
  @doc since: "0.1.0"
  @spec encode(t(), Context.t()) :: {:ok, iodata()} | {:error, Error.t()}
  def encode(%__MODULE__{options: options, fields: fields}, %Context{ref: ref}),
    do: encode_with(ref, options, fields)

  @doc false
  # `body` is a map or encoded fields.
  def encode_with(ref, options, body) do
    case Native.context_encode_request(ref, options, body) do
      {:error, {:reserved_field, key}} ->
        Caller.refuse!(
          "the field #{inspect(key)} of :body is made from the conversation; leave it out"
        )

      reply ->
        Reply.to_result(reply)
    end
  end

  defimpl Inspect do
    def inspect(prepared, _opts),
      do: AshAgent.OneLine.describe(prepared, to_string(prepared.options.provider))
  end
end
