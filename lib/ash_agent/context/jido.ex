defmodule AshAgent.Context.Jido do
  @moduledoc """
  Conversations of Jido AI.
  """

  use AshAgent.Arguments

  # Jido AI: entries with text or ReqLLM's parts, thinking beside them, and calls as maps.

  @behaviour AshAgent.Context.Peer

  alias AshAgent.Context
  alias AshAgent.Context.{Import, Peer}
  alias AshAgent.Context.ReqLLM, as: Parts

  @defaults ~w(role content thinking reasoning_details tool_calls tool_call_id name timestamp refs)a
            |> Map.from_keys(nil)

  @doc """
  Makes a context from a `Jido.AI.Context`, or from a map with the same fields. Returns what `AshAgent.Context.Import.from_messages/2` returns.

  The context has the id of Jido's, unless the option `:id` is given. Timestamps, `refs` and other fields that a context has no place
  for are kept in the message's metadata, so that `to_jido/1` returns the same entries again.

  ## Examples

      iex> jido = %{id: "j1", system_prompt: "Be brief.", entries: [%{role: :user, content: "Hello!"}]}
      iex> {:ok, context, _report} = AshAgent.Context.Jido.from_jido(jido)
      iex> {context[:id], AshAgent.Context.count_messages(context)}
      {"j1", 2}
  """
  @doc since: "0.1.0"
  @spec from_jido(map(), keyword()) :: Import.imported()
  def from_jido(%{entries: entries} = jido, opts \\ []) when is_list(entries) do
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

    Peer.import(__MODULE__, prompt ++ Enum.reverse(entries), opts)
  end

  @doc """
  Returns the conversation as a `Jido.AI.Context`, or as a map with the same fields if Jido AI is not loaded. Like
  `AshAgent.Context.to_messages/1`, it shows the view.

  ## Examples

      iex> jido = AshAgent.Context.new("Hello!", id: "c1", system_prompt: "Be brief.") |> AshAgent.Context.Jido.to_jido()
      iex> {jido.id, jido.system_prompt, Enum.map(jido.entries, & &1.content)}
      {"c1", "Be brief.", ["Hello!"]}
  """
  @doc since: "0.1.0"
  @spec to_jido(Context.t()) :: struct() | map()
  def to_jido(%Context{} = context) do
    messages = Context.to_messages(context)

    # A system message with a timestamp was an entry.
    {prompt, messages} =
      case {messages, Context.metadata(context)} do
        {[%{role: :system, content: text} | rest], noted}
        when is_binary(text) and not is_map_key(noted, "jido") ->
          {text, rest}

        _none ->
          {nil, messages}
      end

    {:ok, id} = Context.fetch(context, :id)
    entries = __MODULE__ |> Peer.export(context, messages) |> Enum.reverse()
    Peer.build(Jido.AI.Context, %{id: id, entries: entries, system_prompt: prompt})
  end

  @impl true
  def form do
    %{
      key: "jido",
      structs: [Jido.AI.Context.Entry, Jido.AI.Context],
      defaults: @defaults,
      roles: [:user, :assistant, :tool, :system],
      lists: [
        {:content, &Parts.plain_part/1, &Parts.build_part/1},
        {:tool_calls, &Parts.plain_call/1, &Parts.build_call/1}
      ]
    }
  end

  @impl true
  def read(%{role: :tool} = foreign) do
    content = foreign[:content] |> Parts.read_content() |> Peer.simple()

    %{role: :user, content: [Peer.result(foreign[:tool_call_id], content, false)]}
  end

  def read(%{role: role} = foreign) do
    thoughts =
      case {Parts.thoughts(foreign), foreign[:thinking]} do
        {[], text} when is_binary(text) and text != "" -> [%{type: :thinking, text: text}]
        {thoughts, _text} -> thoughts
      end

    parts = thoughts ++ Parts.read_content(foreign[:content])
    Peer.said(role, parts, Parts.read_calls(foreign[:tool_calls]))
  end

  @impl true
  def write(%{content: [%{type: :tool_result} | _] = results}, names) do
    for %{tool_use_id: id, content: content} <- results do
      Peer.compact(%{role: :tool, tool_call_id: id, name: names[id], content: content(content)})
    end
  end

  def write(%{role: role} = message, _names) do
    {thoughts, content} =
      message.content |> Peer.parts() |> Enum.split_while(&(&1.type == :thinking))

    thinking = if thoughts != [], do: Enum.map_join(thoughts, "\n\n", & &1.text)
    signed = Enum.filter(thoughts, &Parts.signed?/1)

    calls =
      for %{id: id, name: name, arguments: arguments} <- message[:tool_calls] || [],
          do: %{id: id, name: Peer.name(name), arguments: arguments}

    [
      Peer.compact(%{
        role: role,
        thinking: thinking,
        reasoning_details: if(signed != [], do: details(signed)),
        content: content |> Peer.simple() |> content(),
        tool_calls: if(calls != [], do: calls)
      })
    ]
  end

  # Jido keeps ReqLLM's structs, and maps as they are.
  defp details(signed), do: signed |> Parts.write_details() |> Enum.map(&Parts.build_detail/1)

  defp content(parts) when is_list(parts), do: Parts.write_content(parts)
  defp content(text), do: text
end
