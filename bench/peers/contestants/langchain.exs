Code.require_file("base.exs", __DIR__)

alias LangChain.Chains.LLMChain
alias LangChain.ChatModels.ChatOpenAI
alias LangChain.{Function, Message}
alias LangChain.Message.ContentPart

# It logs each call of a tool for debugging.
Logger.configure(level: :warning)
{:ok, _} = Application.ensure_all_started(:langchain)
[url] = System.argv()

search =
  Function.new!(%{
    name: "search",
    description: "Searches",
    function: fn %{"query" => query}, _context -> {:ok, "found " <> query} end,
    parameters_schema: %{
      type: "object",
      properties: %{query: %{type: "string"}},
      required: ["query"]
    }
  })

llm = fn model, stream? ->
  endpoint = url <> "/chat/completions"
  ChatOpenAI.new!(%{endpoint: endpoint, model: model, api_key: "key", stream: stream?})
end

turns = fn count ->
  chain =
    %{llm: llm.("turns-#{count - 1}", false)}
    |> LLMChain.new!()
    |> LLMChain.add_tools([search])
    |> LLMChain.add_message(Message.new_user!("Look around."))

  {:ok, chain} = LLMChain.run(chain, mode: :while_needs_response, max_runs: count + 1)
  "Done." = ContentPart.parts_to_string(chain.last_message.content)
end

# Somebody hears each piece, as with the others.
stream = fn model ->
  heard = %{on_llm_new_delta: fn _chain, _deltas -> :ok end}

  {:ok, _chain} =
    %{llm: llm.(model, true)}
    |> LLMChain.new!()
    |> LLMChain.add_callback(heard)
    |> LLMChain.add_message(Message.new_user!("Go on."))
    |> LLMChain.run()
end

Peers.serve(turns, stream)
