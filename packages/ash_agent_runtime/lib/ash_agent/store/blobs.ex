defmodule AshAgent.Store.Blobs do
  @moduledoc """
  Keeps the media of stored conversations somewhere else, such as in S3: a behaviour.

  Stores move images and files out of a conversation's documents and keep each once per conversation, under the digest of its
  bytes (`sha256:` and 64 hexadecimal digits). By default they are in the table `ash_agent_blobs`. With the option `:blobs`, a
  module with these callbacks keeps the bytes, and the table only says where:

      AshAgent.Store.Postgres.new(MyApp.Repo, blobs: {MyApp.Media, bucket: "agents"})

      defmodule MyApp.Media do
        @behaviour AshAgent.Store.Blobs

        @impl true
        def put(config, "sha256:" <> digest, bytes) do
          key = digest <> "/" <> Base.encode16(:crypto.strong_rand_bytes(8))
          with :ok <- MyApp.S3.put(config[:bucket], key, bytes), do: {:ok, key}
        end

        @impl true
        def get(config, key), do: MyApp.S3.get(config[:bucket], key)

        @impl true
        def delete(config, keys), do: MyApp.S3.delete_all(config[:bucket], keys)
      end

  `c:put/3` is called before a conversation is written, and `c:delete/2` after it was deleted, or rewound to before those media. If
  the node dies in between, or if `delete/2` fails, orphaned objects remain. Return a different place each time, as above, or deleting one conversation may delete
  an object that another one still uses.

  Blobs that were stored before you set the option, or by another module, are still read from where they are, as long as your module knows those places.
  """

  use AshAgent.Arguments

  @typedoc "The term beside the module in the option `:blobs`."
  @type config :: term()

  @typedoc "The digest of the bytes: `sha256:` and 64 hexadecimal digits."
  @type id :: String.t()

  @typedoc "The place of a blob, for `c:get/2` and `c:delete/2`."
  @type place :: String.t()

  @callback put(config(), id(), bytes :: binary()) :: {:ok, place()} | {:error, term()}
  @callback get(config(), place()) :: {:ok, binary()} | {:error, term()}
  @callback delete(config(), [place()]) :: :ok | {:error, term()}

  alias AshAgent.Context.Changes
  alias AshAgent.Store.Error

  @typedoc false
  # The ids of texts that were seen before, by digests of those: decoding base64 takes most of the time.
  @type known :: %{binary() => id()}

  @doc false
  # Returns JSON text without its media, the unknown ones in base64 by ids, and the known ones from then on.
  def take(json, known) do
    {text, media} = Changes.take_media(json, known)
    blobs = Map.new(media, fn {_digest, id, data} -> {id, data} end)
    {text, blobs, Map.merge(known, Map.new(media, fn {digest, id, _data} -> {digest, id} end))}
  end

  @doc false
  # Returns the blobs stored under these ids.
  def index(blobs), do: Map.new(blobs, fn {id, data} -> {:crypto.hash(:sha256, data), id} end)

  @doc false
  def referred?(json), do: is_binary(json) and :binary.match(json, ~s("$blob")) != :nomatch

  @doc false
  # Returns the ids that a text without its media refers to.
  def ids(text) do
    ~r/"data":\{"\$blob":"(sha256:[0-9a-f]{64})"\}/
    |> Regex.scan(text, capture: :all_but_first)
    |> Enum.concat()
  end

  @doc false
  # The place for blobs: `{place, nil}`, or the data for the table.
  def store(nil, blobs), do: {:ok, for({id, data} <- blobs, do: {id, nil, data})}

  def store({module, config}, blobs) do
    Enum.reduce_while(blobs, {:ok, []}, fn {id, data}, {:ok, stored} ->
      case guard_call(fn -> module.put(config, id, Base.decode64!(data)) end) do
        {:ok, place} when is_binary(place) -> {:cont, {:ok, [{id, place, nil} | stored]}}
        _error -> {:halt, unavailable(module)}
      end
    end)
  end

  @doc false
  def read(_where, nil, data), do: {:ok, data}
  def read(nil, _place, _data), do: {:error, %Error{reason: {:unavailable, "no option :blobs"}}}

  def read({module, config}, place, _data) do
    case guard_call(fn -> module.get(config, place) end) do
      {:ok, bytes} when is_binary(bytes) -> {:ok, Base.encode64(bytes)}
      _error -> unavailable(module)
    end
  end

  @doc false
  def delete(_where, []), do: :ok
  def delete(nil, _places), do: :ok

  def delete({module, config}, places) do
    case guard_call(fn -> module.delete(config, places) end) do
      :ok -> :ok
      _error -> unavailable(module)
    end
  end

  # Errors of foreign code may contain anything.
  defp guard_call(function) do
    function.()
  rescue
    _exception -> :error
  catch
    _kind, _reason -> :error
  end

  defp unavailable(module), do: {:error, %Error{reason: {:unavailable, inspect(module)}}}

  @doc false
  def option?(nil), do: true
  def option?({module, _config}), do: is_atom(module)
  def option?(_other), do: false

  @doc false
  def option do
    AshAgent.Options.schema([
      {:blobs, {:custom, &__MODULE__.option?/1}, [type_doc: "a tuple `{module, config}`"],
       "keeps images and files, see `AshAgent.Store.Blobs`. By default, they are in a table of the store."}
    ])
  end
end
