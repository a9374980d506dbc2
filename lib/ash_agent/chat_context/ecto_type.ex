defmodule AshAgent.ChatContext.EctoType do
  @moduledoc """
  Stores chats with Ecto, in a column of type `:map` (JSONB in PostgreSQL).

      schema "chats" do
        field :chat, AshAgent.ChatContext.EctoType
      end

  A changeset's `cast/4` takes a chat, or a dump of `AshAgent.ChatContext.dump/1` without settings, as a map or as JSON text. It is
  an `Ecto.Type`, though this package does not depend on Ecto.

  `use AshAgent.ChatContext.EctoType, storage: :text` defines a type of your own, as `AshAgent.Context.EctoType` shows, with these
  options:

  #{AshAgent.Options.docs(AshAgent.Context.Stored.schema(AshAgent.ChatContext))}

  Settings say which tools may run and which commands start servers, so a dump with settings is refused unless `:accept` contains
  `:config` as well as `:dump`. `:max_iterations` limits the longest branch.
  """

  use AshAgent.Context.Stored.EctoType, of: AshAgent.ChatContext, accept: [:dump]

  defmacro __using__(opts) do
    quote do
      use AshAgent.Context.Stored.EctoType, [{:of, AshAgent.ChatContext} | unquote(opts)]
    end
  end
end
