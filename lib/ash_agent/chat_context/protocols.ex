# How a chat is inspected, and how libraries that encode structs write it as JSON.

defimpl Inspect, for: AshAgent.ChatContext do
  # Counts only: this ends up in logs.
  def inspect(chat, _opts) do
    active = Map.fetch!(chat.branches, chat.active_branch_name)
    branches = if map_size(chat.branches) == 1, do: "branch", else: "branches"

    "#AshAgent.ChatContext<#{map_size(chat.branches)} #{branches}, active: #{Kernel.inspect(active.context)}>"
  end
end

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
