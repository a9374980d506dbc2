# How a chat is inspected.

defimpl Inspect, for: AshAgent.ChatContext do
  # Counts only: this ends up in logs.
  def inspect(chat, _opts) do
    active = Map.fetch!(chat.branches, chat.active_branch_name)
    branches = if map_size(chat.branches) == 1, do: "branch", else: "branches"

    "#AshAgent.ChatContext<#{map_size(chat.branches)} #{branches}, active: #{Kernel.inspect(active.context)}>"
  end
end
