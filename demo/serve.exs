# A door on loopback, with an agent whose model is scripted, and a page that talks to it:
#
#     bin/demo --serve [PORT]

defmodule AshAgent.Demo.Serve do
  @moduledoc false

  alias AshAgent.{Context, Door, LLM, Sessions, Store}
  alias AshAgent.Runtime.AskUser

  @prompt "You book trains."

  def main(args) do
    port = with [port] <- args, {port, ""} <- Integer.parse(port), do: port
    port = if is_integer(port), do: port, else: 4010
    {:ok, store} = Store.SQLite.open(":memory:")
    llm = LLM.Scripted.new(&script/1, delay: 60)
    opts = [name: __MODULE__, store: store, llm: llm, tools: tools(), approval: &approval/2]
    {:ok, _} = Sessions.start_link(opts ++ [system_prompt: @prompt])

    # Everybody on this machine is the same person here.
    identify = fn %{asks: id} -> {:ok, %{conversation: id, by: "you"}} end
    hosts = for host <- ["127.0.0.1", "localhost"], do: "http://#{host}:#{port}"
    door = Door.new(sessions: __MODULE__, identify: identify, origins: hosts, ai: 7)
    read = &File.read!(Path.join([__DIR__, "page", &1]))

    files = %{
      "/" => {"text/html; charset=utf-8", read.("index.html")},
      "/chat.js" => {"text/javascript; charset=utf-8", read.("chat.js")}
    }

    {:ok, _} = Door.Server.start_link(door: door, port: port, files: files)

    IO.puts(
      "http://127.0.0.1:#{port} has a page, and /api/chat is for useChat. Ctrl-C twice ends it."
    )

    Process.sleep(:infinity)
  end

  defp script(context) do
    case context.current_iteration - Context.turn_start(context) do
      0 ->
        calls = [call("find_train", %{"to" => "Prague"})]
        {:ok, %{content: "I'll look for a train.", tool_calls: calls}}

      1 ->
        question = %{"question" => "Which seat?", "choices" => ["window", "aisle"]}
        {:ok, %{content: "The EC 173 leaves at 12:58.", tool_calls: [call("ask_user", question)]}}

      2 ->
        calls = [call("book_train", %{"train" => "EC 173", "seat" => seat(context)})]
        {:ok, %{content: "Shall I book it?", tool_calls: calls}}

      _booked_or_not ->
        results = Context.get_iteration(context, context.current_iteration - 1).tool_calls

        {:ok,
         %{
           content:
             if(match?([%{result: {:ok, _}}], results),
               do: "It is booked. Have a good trip!",
               else: "Then not."
             )
         }}
    end
  end

  defp seat(context) do
    case Context.get_iteration(context, context.current_iteration - 1).tool_calls do
      [%{result: {:ok, seat}}] -> seat
      _not_answered -> "any"
    end
  end

  defp call(name, arguments),
    do: %{id: "#{name}_#{System.unique_integer([:positive])}", name: name, arguments: arguments}

  defp tools do
    %{
      "find_train" => fn _ -> {:ok, %{"train" => "EC 173", "leaves" => "12:58"}} end,
      "ask_user" => AskUser.tool(),
      "book_train" => fn %{"train" => train, "seat" => seat} -> {:ok, "#{train}, #{seat}"} end
    }
  end

  defp approval(%{name: "book_train"}, _), do: :ask
  defp approval(_call, _), do: :approve
end

AshAgent.Demo.Serve.main(System.argv())
