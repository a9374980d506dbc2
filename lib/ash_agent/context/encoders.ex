# A context as JSON, for libraries that encode structs.

if Code.ensure_loaded?(Jason.Encoder) do
  defimpl Jason.Encoder, for: AshAgent.Context do
    def encode(context, opts), do: context |> AshAgent.Context.dump() |> Jason.Encode.map(opts)
  end

  defimpl Jason.Encoder, for: AshAgent.Context.JSON.Fragment do
    def encode(fragment, _opts), do: fragment.text
  end
end

if Code.ensure_loaded?(JSON.Encoder) do
  defimpl JSON.Encoder, for: AshAgent.Context do
    def encode(context, encoder), do: context |> AshAgent.Context.dump() |> encoder.(encoder)
  end

  defimpl JSON.Encoder, for: AshAgent.Context.JSON.Fragment do
    def encode(fragment, _encoder), do: fragment.text
  end
end
