# A chat as JSON, for libraries that encode structs.

if Code.ensure_loaded?(Jason.Encoder) do
  defimpl Jason.Encoder, for: AshAgent.ChatContext do
    def encode(chat, opts), do: chat |> AshAgent.ChatContext.dump() |> Jason.Encode.map(opts)
  end
end

if Code.ensure_loaded?(JSON.Encoder) do
  defimpl JSON.Encoder, for: AshAgent.ChatContext do
    def encode(chat, encoder), do: chat |> AshAgent.ChatContext.dump() |> encoder.(encoder)
  end
end
