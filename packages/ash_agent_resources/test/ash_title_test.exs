defmodule AshAgent.Integration.TitleTest do
  use ExUnit.Case, async: false

  alias AshAgent.{Context, Conversation, LLM, Store}
  alias AshAgent.Integration.{Compiled, TitledChat}

  @moduletag :ash
  @moduletag :capture_log
  @moduletag integrations: ["Ash"]

  @ann %{id: "a1", name: "ann"}

  setup_all do
    start_supervised!(
      {Store.SQLite, name: AshAgent.Integration.TitledChatStore, path: ":memory:"}
    )

    :ok
  end

  setup do
    Application.put_env(:ash_agent_resources, :listener, self())

    on_exit(fn ->
      for key <- [:llm, :title_llm, :listener],
          do: Application.delete_env(:ash_agent_resources, key)
    end)
  end

  # The titles of the script, or what the function answers.
  defp models(answers, titles) do
    llm = if is_function(titles), do: titles, else: LLM.Scripted.new(titles)
    Application.put_env(:ash_agent_resources, :llm, LLM.Scripted.new(answers))
    Application.put_env(:ash_agent_resources, :title_llm, llm)
    llm
  end

  defp start(input \\ %{}, opts \\ []),
    do: TitledChat.start!(Map.merge(%{input: "The printer is off"}, input), [actor: @ann] ++ opts)

  # After all that follows an answer.
  defp title(chat) do
    Conversation.await_turns(self())
    Ash.get!(TitledChat, chat.id, actor: @ann).title
  end

  test "the model writes a title after the first answer, and is asked once" do
    titles =
      models(["Switch it on.", "It is."], ["\nA printer that is off\n\nMore", "Another one"])

    chat = start()
    assert title(chat) == "A printer that is off"
    assert_receive {:heard, :delta, _id, %{titled: "A printer that is off"}}

    TitledChat.say!(chat, "Really?", actor: @ann)
    assert title(chat) == "A printer that is off"

    assert [%{context: context}] = LLM.Scripted.requests(titles)
    assert [%{role: :system}, %{role: :user, content: text}] = Context.to_messages(context)
    assert text =~ "The printer is off" and text =~ "Switch it on."
  end

  test "also when nobody waits for the answer" do
    models(["Switch it on."], ["A printer"])
    chat = start(%{wait: false})
    assert title(chat) == "A printer"
  end

  test "the request is small, whatever was said" do
    long = String.duplicate("ä", 50_000)
    titles = models([long], ["A printer"])
    chat = start(%{input: long})
    assert title(chat) == "A printer"
    assert [%{context: context}] = LLM.Scripted.requests(titles)
    assert context |> inspect_text() |> String.length() < 3_000
  end

  defp inspect_text(context),
    do: for(%{content: text} <- Context.to_messages(context), into: "", do: text)

  test "a conversation that has a name keeps it, also if it gets it while the model writes" do
    titles = models(["Switch it on."], ["A printer"])
    assert title(start(%{title: "Mine"})) == "Mine"
    assert LLM.Scripted.requests(titles) == []

    test = self()

    models(["Switch it on."], fn _context ->
      send(test, {:asked, self()})
      receive do: (:go -> {:ok, %{content: "A printer"}})
    end)

    chat = start()
    assert_receive {:asked, model}
    Ash.update!(chat, %{title: "Mine"}, action: :name, authorize?: false)
    send(model, :go)
    assert title(chat) == "Mine"
  end

  test "what goes wrong leaves no title, and the answer is as it was" do
    for failing <- [
          fn _context -> {:error, :down} end,
          fn _context -> raise "a secret" end,
          fn _context -> exit(:secret) end,
          fn _context -> {:ok, %{content: nil}} end,
          fn _context -> {:ok, %{content: " \"\"\n"}} end,
          fn _context -> {:ok, %{content: String.duplicate("too long ", 9)}} end,
          fn _context -> :nothing end
        ] do
      models(["Switch it on."], failing)
      chat = start()
      assert chat.__metadata__.run.output == "Switch it on."
      assert title(chat) == nil
    end
  end

  test "none is written for a turn without an answer, nor with a model of the caller's" do
    titles = models([{:error, :down}], ["A printer"])
    assert {:error, _error} = TitledChat.start(%{input: "Hi"}, actor: @ann)
    Conversation.await_turns(self())
    assert LLM.Scripted.requests(titles) == []

    own = [context: %{ash_agent: %{options: [llm: LLM.Scripted.new(["Hello."])]}}]
    assert title(start(%{}, own)) == nil
    assert LLM.Scripted.requests(titles) == []
  end

  test "a title is one line of plain words" do
    for {written, shown} <- [
          {"\"A printer\"", "A printer"},
          {"# **A printer.**\n\nMore", "A printer"},
          {"„Ein Drucker“", "Ein Drucker"},
          {"A\u202Eprinter\u200B", "A printer"}
        ] do
      models(["Switch it on."], [written])
      assert title(start()) == shown
    end
  end

  test "the attribute has to be a text" do
    for {name, words} <- [
          {"nothing", ~r/put_title|name of an attribute of the type :string, got: :nothing/},
          {"inserted_at", ~r/name of an attribute of the type :string, got: :inserted_at/}
        ] do
      section = "conversation do\nllm AshAgent.LLM.Ollama\nstore :s\ntitle :#{name}\nend"
      assert Compiled.said(AshAgent.Conversation, section, []) =~ words
    end
  end
end
