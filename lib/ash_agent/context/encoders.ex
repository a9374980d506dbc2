# A context and a chat as JSON, for libraries that encode structs.

if Code.ensure_loaded?(Jason.Encoder) do
  defimpl Jason.Encoder, for: [AshAgent.Context, AshAgent.ChatContext] do
    def encode(%kind{} = value, opts), do: value |> kind.dump() |> Jason.Encode.map(opts)
  end

  defimpl Jason.Encoder, for: AshAgent.Context.JSON.Fragment do
    def encode(fragment, _opts), do: fragment.text
  end
end

if Code.ensure_loaded?(JSON.Encoder) do
  defimpl JSON.Encoder, for: [AshAgent.Context, AshAgent.ChatContext] do
    def encode(%kind{} = value, encoder), do: value |> kind.dump() |> encoder.(encoder)
  end

  defimpl JSON.Encoder, for: AshAgent.Context.JSON.Fragment do
    def encode(fragment, _encoder), do: fragment.text
  end
end
