defmodule AshAgent.Context.Libraries do
  @moduledoc """
  Conversations of other libraries: ReqLLM, LangChain and Jido AI.

  Call these as functions of `AshAgent.Context`, which checks their arguments and makes contexts of the results. Here they take
  anything with the context's `:ref`, and those that make a context return its fields in a map.
  """

  alias AshAgent.Context.{Import, Log, Native, Peer, Reply}

  @doc """
  Makes a context from a conversation of ReqLLM: a `ReqLLM.Context`, or a list of its messages, as structs or as maps with the same
  fields. Returns what `AshAgent.Context.from_messages/2` returns, with the same repairs and options.

  Reasoning of Anthropic, OpenAI and Google becomes thinking, which is sent back to its provider. Calls that the provider has run
  itself (`builtin?`) are not calls to answer. Fields that a context has no place for, such as `reasoning_details` of other providers,
  are kept in the message's metadata, so that `to_req_llm/1` returns the same messages again. Tools are not part of the conversation.

  ## Examples

      iex> messages = [
      ...>   %{role: :user, content: [%{type: :text, text: "Weather?"}]},
      ...>   %{role: :assistant, content: [], tool_calls: [%{id: "a", type: "function", function: %{name: "get", arguments: "{}"}}]},
      ...>   %{role: :tool, tool_call_id: "a", name: "get", content: [%{type: :text, text: "sunny"}]}
      ...> ]
      iex> {:ok, context, %{repairs: []}} = AshAgent.Context.from_req_llm(messages)
      iex> AshAgent.Context.get_iteration(context, 1).tool_calls
      [%{id: "a", name: "get", arguments: %{}, result: {:ok, "sunny"}}]
  """
  @doc since: "0.1.0"
  @spec from_req_llm(map() | [map()], keyword()) :: Import.imported()
  def from_req_llm(context_or_messages, opts \\ [])

  def from_req_llm(%{messages: messages}, opts), do: from_req_llm(messages, opts)
  def from_req_llm(%{"messages" => messages}, opts), do: from_req_llm(messages, opts)

  def from_req_llm(messages, opts) when is_list(messages),
    do: Peer.import(Peer.ReqLLM, messages, opts)

  @doc """
  Returns the messages as a `ReqLLM.Context`, or as maps with the same fields if ReqLLM is not loaded.

  Like `AshAgent.Context.to_messages/1`, it shows the view. Parts that ReqLLM has no form for are left out, such as audio.

  ## Examples

      iex> %{messages: [message]} = AshAgent.Context.new("Hello!") |> AshAgent.Context.to_req_llm()
      iex> {message.role, Enum.map(message.content, & &1.text)}
      {:user, ["Hello!"]}
  """
  @doc since: "0.1.0"
  @spec to_req_llm(Reply.handle()) :: struct() | %{messages: [map()], tools: []}
  def to_req_llm(context) do
    messages = Peer.export(Peer.ReqLLM, context, messages(context))
    Peer.build(ReqLLM.Context, %{messages: messages, tools: []})
  end

  @doc """
  Makes a context from messages of LangChain, as structs or as maps with the same fields. Returns what
  `AshAgent.Context.from_messages/2` returns.

  Calls that did not come in whole (`status: :incomplete`) are not calls to answer. Fields that a context has no place for are kept in
  the message's metadata, so that `to_langchain/1` returns the same messages again.

  ## Examples

      iex> {:ok, context, _report} = AshAgent.Context.from_langchain([%{role: :user, content: "Hello!", name: "ann"}])
      iex> [%{role: :user, content: "Hello!"}] = AshAgent.Context.to_messages(context)
      iex> [%{content: "Hello!", name: "ann"}] = AshAgent.Context.to_langchain(context)
      iex> AshAgent.Context.count_messages(context)
      1
  """
  @doc since: "0.1.0"
  @spec from_langchain([map()], keyword()) :: Import.imported()
  def from_langchain(messages, opts \\ []), do: Peer.import(Peer.LangChain, messages, opts)

  @doc """
  Returns the messages as those of LangChain, or as maps with the same fields if LangChain is not loaded. Like
  `AshAgent.Context.to_messages/1`, it shows the view.

  ## Examples

      iex> [message] = AshAgent.Context.new("Hello!") |> AshAgent.Context.to_langchain()
      iex> {message.role, Enum.map(message.content, & &1.content)}
      {:user, ["Hello!"]}
  """
  @doc since: "0.1.0"
  @spec to_langchain(Reply.handle()) :: [struct() | map()]
  def to_langchain(context), do: Peer.export(Peer.LangChain, context, messages(context))

  @doc """
  Makes a context from a `Jido.AI.Context`, or from a map with the same fields. Returns what `AshAgent.Context.from_messages/2` returns.

  The context has the id of Jido's, unless the option `:id` is given. Timestamps, `refs` and other fields that a context has no place
  for are kept in the message's metadata, so that `to_jido/1` returns the same entries again.

  ## Examples

      iex> jido = %{id: "j1", system_prompt: "Be brief.", entries: [%{role: :user, content: "Hello!"}]}
      iex> {:ok, context, _report} = AshAgent.Context.from_jido(jido)
      iex> {context[:id], AshAgent.Context.count_messages(context)}
      {"j1", 2}
  """
  @doc since: "0.1.0"
  @spec from_jido(map(), keyword()) :: Import.imported()
  # Jido keeps the newest entry first.
  def from_jido(%{entries: entries} = jido, opts \\ []) do
    prompt =
      case jido do
        %{system_prompt: text} when is_binary(text) -> [%{role: :system, content: text}]
        _none -> []
      end

    opts =
      case jido do
        %{id: id} when is_binary(id) -> Keyword.put_new(opts, :id, id)
        _none -> opts
      end

    Peer.import(Peer.Jido, prompt ++ Enum.reverse(entries), opts)
  end

  @doc """
  Returns the conversation as a `Jido.AI.Context`, or as a map with the same fields if Jido AI is not loaded. Like
  `AshAgent.Context.to_messages/1`, it shows the view.

  ## Examples

      iex> jido = AshAgent.Context.new("Hello!", id: "c1", system_prompt: "Be brief.") |> AshAgent.Context.to_jido()
      iex> {jido.id, jido.system_prompt, Enum.map(jido.entries, & &1.content)}
      {"c1", "Be brief.", ["Hello!"]}
  """
  @doc since: "0.1.0"
  @spec to_jido(Reply.handle()) :: struct() | map()
  def to_jido(context) do
    messages = messages(context)

    # One with a timestamp was an entry.
    {prompt, messages} =
      case {messages, Log.metadata(context)} do
        {[%{role: :system, content: text} | rest], noted}
        when is_binary(text) and not is_map_key(noted, "jido") ->
          {text, rest}

        _none ->
          {nil, messages}
      end

    {:ok, id} = Log.fetch(context, :id)
    entries = Peer.Jido |> Peer.export(context, messages) |> Enum.reverse()
    Peer.build(Jido.AI.Context, %{id: id, entries: entries, system_prompt: prompt})
  end

  defp messages(%{ref: ref}), do: ref |> Native.context_to_messages(false) |> Reply.ok!()
end
