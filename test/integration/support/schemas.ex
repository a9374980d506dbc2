if Code.ensure_loaded?(Ecto.Schema) do
  defmodule AshAgent.Integration.TextType do
    @moduledoc false
    use AshAgent.Context.EctoType, storage: :text, accept: [:messages], max_iterations: 2
  end

  defmodule AshAgent.Integration.ChatTextType do
    @moduledoc false
    use AshAgent.ChatContext.EctoType, storage: :text, accept: [:dump, :config]
  end

  defmodule AshAgent.Integration.Record do
    @moduledoc false
    use Ecto.Schema

    schema "records" do
      field(:context, AshAgent.Context.EctoType)
      field(:text, AshAgent.Integration.TextType)
      field(:bytes, AshAgent.Integration.TextType)
      field(:chat, AshAgent.ChatContext.EctoType)
      field(:chat_text, AshAgent.Integration.ChatTextType)

      embeds_one :profile, Profile, primary_key: false do
        field(:context, AshAgent.Context.EctoType)
        field(:text, AshAgent.Integration.TextType)
      end
    end

    @doc "The statement that makes the table."
    def table do
      """
      CREATE TABLE records (
        id bigserial PRIMARY KEY, context jsonb, text text, bytes bytea, chat jsonb, chat_text text, profile jsonb)
      """
    end
  end
end
