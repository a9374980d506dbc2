if Code.ensure_loaded?(MyApp.DataCase) do
  # Two files at once, each with connections of its own.
  for name <- [MyApp.SandboxTest, MyApp.SandboxToo] do
    defmodule name do
      use MyApp.DataCase, async: true
      use AshAgent.Test

      alias MyApp.Chat.Conversation

      for n <- 1..5 do
        test "a turn uses the test's connection, and nobody else sees it (#{n})" do
          opts = [actor: user("ann"), tenant: "acme"]
          chat = Conversation.start!(%{title: "#{unquote(n)}", input: "Hi"}, opts)
          assert chat.__metadata__.run.output == "You said: Hi"

          task = Task.async(fn -> Conversation.say!(chat, "Again", opts) end)
          assert Task.await(task, 60_000).__metadata__.run.output == "You said: Again"

          # Nobody waits for this one, and the test does before it gives the connection back.
          Conversation.say!(chat, "Later", %{wait: false}, opts)
          assert [%{title: _}] = Ash.read!(Conversation, authorize?: false, tenant: "acme")
        end
      end

      test "await_turns waits for all that the test has begun, and what it tells others" do
        opts = [actor: user("ann"), tenant: "acme"]
        chat = Conversation.start!(%{}, opts)
        MyApp.Heard.listen(chat.id)
        Conversation.say!(chat, "Hi", %{wait: false}, opts)
        AshAgent.Conversation.await_turns(self())
        assert_received {:heard, :delta, %{ended: :answered}}
      end

      test "assertions take the record of a conversation as it is" do
        call = %{id: "1", name: "note_write", arguments: %{"text" => "x"}}
        opts = [actor: user("ann"), tenant: "acme", context: answers([%{tool_calls: [call]}])]
        chat = Conversation.start!(%{input: "Write"}, opts)
        assert %{__metadata__: %{run: %AshAgent.Runtime.Paused{}}} = chat
        assert_calls(chat, [note_write(text: "x")])
      end
    end
  end
end
