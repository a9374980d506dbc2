if Code.ensure_loaded?(Ecto.Schema) do
  defmodule AshAgent.Integration.EctoTest do
    use ExUnit.Case, async: true

    import Ecto.Query

    alias AshAgent.{ChatContext, Context}
    alias AshAgent.Integration.Record
    alias MyApp.Repo

    @moduletag :ecto
    @moduletag :postgres
    @moduletag integrations: ["Ecto", "Postgrex", "PostgreSQL"]

    @fields [:context, :text, :bytes, :chat, :chat_text]

    setup_all do
      Repo.query!("DROP TABLE IF EXISTS records")
      Repo.query!(Record.table())
      :ok
    end

    setup do
      Repo.query!("TRUNCATE records")

      context =
        Context.new("Clean up",
          metadata: %{file: %File.Stream{path: "/etc/hostname"}, nul: "a\0"}
        )
        |> Context.add_assistant_message(nil, [
          %{id: "a", name: "rm", arguments: %{"path" => "/"}}
        ])
        |> Context.Calls.approve_tool_call("a", by: "the boss")

      chat = ChatContext.new(context: context) |> ChatContext.branch("idea")
      %{context: context, chat: chat}
    end

    defp insert(fields), do: Repo.insert!(struct!(Record, fields))
    defp read(record), do: Repo.get!(Record, record.id)

    test "a column of JSON, text or bytes gives back all that was stored", %{
      context: context,
      chat: chat
    } do
      fields = [context: context, text: context, bytes: context, chat: chat, chat_text: chat]
      read = read(insert([{:profile, %Record.Profile{context: context, text: context}} | fields]))

      for field <- [:context, :text, :bytes],
          do: assert(Context.equal?(Map.fetch!(read, field), context))

      for field <- [:chat, :chat_text],
          do: assert(ChatContext.equal?(Map.fetch!(read, field), chat))

      assert Context.equal?(read.profile.context, context)
      assert Context.equal?(read.profile.text, context)
      assert Context.Calls.tool_call_status(read.context, "a") == :approved

      assert %{rows: [["jsonb", "text", "bytea"]]} =
               Repo.query!(
                 "SELECT pg_typeof(context)::text, pg_typeof(text)::text, pg_typeof(bytes)::text FROM records"
               )

      # Not a text inside JSON.
      assert %{rows: [["object", "object"]]} =
               Repo.query!("SELECT jsonb_typeof(context), jsonb_typeof(chat) FROM records")

      assert %Record{context: nil, text: nil, chat: nil} = read(insert([]))
    end

    test "queries compare contents", %{context: context, chat: chat} do
      %{id: id} = insert(context: context, text: context, chat: chat, chat_text: chat)
      insert(context: Context.new("hi"), text: Context.new("hi"), chat: ChatContext.new())
      copy = Context.load!(Context.dump(context))
      chat = ChatContext.load!(ChatContext.dump(chat))
      assert [^id] = Repo.all(from(r in Record, where: r.context == ^copy, select: r.id))
      assert [^id] = Repo.all(from(r in Record, where: r.text == ^copy, select: r.id))
      assert [^id] = Repo.all(from(r in Record, where: r.chat == ^chat, select: r.id))
      assert [^id] = Repo.all(from(r in Record, where: r.chat_text == ^chat, select: r.id))
    end

    test "an equal value is no change", %{context: context, chat: chat} do
      record = insert(context: context, text: context, chat: chat)
      copy = Context.load!(Context.dump(context))
      chat = ChatContext.load!(ChatContext.dump(chat))

      assert Ecto.Changeset.cast(record, %{context: copy, text: copy, chat: chat}, @fields).changes ==
               %{}

      later = Context.interrupt(context)
      assert %{context: ^later} = Ecto.Changeset.cast(record, %{context: later}, @fields).changes
      updated = record |> Ecto.Changeset.change(context: later) |> Repo.update!()
      assert Context.equal?(read(updated).context, later)
    end

    test "parameters approve nothing and bring no structs", %{context: context, chat: chat} do
      for input <- [Context.dump(context), Context.to_snapshot(context)] do
        changeset = Ecto.Changeset.cast(%Record{}, %{context: input}, @fields)
        given = changeset |> Repo.insert!() |> read() |> Map.fetch!(:context)
        assert Context.Calls.tool_call_status(given, "a") == :pending
        refute is_struct(Context.metadata(given).file)
      end

      for field <- [:chat, :chat_text],
          input <- [ChatContext.dump(chat), ChatContext.to_snapshot(chat)] do
        changeset = Ecto.Changeset.cast(%Record{}, %{field => input}, @fields)
        given = changeset |> Repo.insert!() |> read() |> Map.fetch!(field)
        assert Context.Calls.tool_call_status(ChatContext.active(given).context, "a") == :pending
      end
    end

    test "a type takes what it accepts, and its errors say so", %{context: context} do
      long =
        Enum.reduce(1..3, Context.new("hi"), fn _, context ->
          context |> Context.add_assistant_message("Hello!") |> Context.add_user_message("And?")
        end)

      for {input, text} <- [
            {Context.dump(context), "add :dump to the type's option :accept"},
            {Context.to_snapshot(context), "add :dump to the type's option :accept"},
            {%{}, "at least one iteration"},
            {long, "at most 2 iterations"},
            {Context.to_map(long), "at most 2 iterations"}
          ] do
        assert [text: {message, _}] =
                 Ecto.Changeset.cast(%Record{}, %{text: input}, @fields).errors

        assert message =~ text
      end

      for input <- [[%{"role" => "user", "content" => "hi"}], Context.to_map(Context.new("hi"))] do
        assert %{text: given} = Ecto.Changeset.cast(%Record{}, %{text: input}, @fields).changes
        assert [%{content: "hi"}] = Context.to_messages(given)
      end

      chat = ChatContext.dump(ChatContext.new(config: [allowed_tools: []]))
      assert [chat: {message, _}] = Ecto.Changeset.cast(%Record{}, %{chat: chat}, @fields).errors
      assert message =~ ~s(without "config")

      assert Ecto.Changeset.cast(%Record{}, %{chat_text: chat}, @fields).changes.chat_text.config.allowed_tools ==
               []

      assert [context: _] = Ecto.Changeset.cast(%Record{}, %{context: %{}}, @fields).errors
    end
  end
end
