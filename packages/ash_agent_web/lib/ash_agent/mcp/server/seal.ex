defmodule AshAgent.MCP.Server.Seal do
  @moduledoc false

  # What a client holds of ours, and gives back: nobody can read it, change it or make one up. It is encrypted and authenticated
  # (AES-256-GCM) with a key made of one of the application's secrets, whose id stands in front.

  alias AshAgent.Context.JSON

  @nonce 12
  @tag 16
  # None that we have made is longer.
  @longest 4_000

  @doc "Returns a token of a kind with a list that JSON can hold."
  def seal([{id, secret} | _], kind, list) do
    text = JSON.encode(list)
    # The same list has the same token, and no other list has its nonce.
    nonce = :crypto.macN(:hmac, :sha256, derive(secret, "nonce"), [kind, 0, text], @nonce)
    key = derive(secret, kind)
    {sealed, tag} = :crypto.crypto_one_time_aead(:aes_256_gcm, key, nonce, text, kind, true)
    id <> "." <> Base.url_encode64(nonce <> tag <> sealed, padding: false)
  end

  @doc "Returns `{:ok, list}` for a token of this kind that was made with one of the secrets, or `:error`."
  def open(secrets, kind, token) when is_binary(token) and byte_size(token) <= @longest do
    with [id, sealed] <- String.split(token, "."),
         {_id, secret} <- List.keyfind(secrets, id, 0),
         {:ok, <<nonce::binary-size(@nonce), tag::binary-size(@tag), sealed::binary>>} <-
           Base.url_decode64(sealed, padding: false),
         text when is_binary(text) <- decrypt(derive(secret, kind), nonce, sealed, kind, tag),
         {:ok, list} when is_list(list) <- JSON.decode(text) do
      {:ok, list}
    else
      _other -> :error
    end
  end

  def open(_secrets, _kind, _other), do: :error

  @doc "The keys with which `ex_mcp` seals the state of a question."
  def ring([{first, _} | _] = secrets),
    do: [
      active_key_id: first,
      keys: for({id, secret} <- secrets, do: {id, derive(secret, "state")})
    ]

  defp decrypt(key, nonce, sealed, kind, tag),
    do: :crypto.crypto_one_time_aead(:aes_256_gcm, key, nonce, sealed, kind, tag, false)

  defp derive(secret, use),
    do: :crypto.mac(:hmac, :sha256, secret, "AshAgent.MCP.Server " <> use)
end
