defmodule AshAgent.Context.Peer.Jido do
  @moduledoc false

  # Jido AI: entries with text or ReqLLM's parts, thinking beside them, and calls as maps.

  @behaviour AshAgent.Context.Peer

  alias AshAgent.Context.Peer
  alias AshAgent.Context.Peer.ReqLLM, as: Parts

  @roles [:user, :assistant, :tool, :system]
  @defaults %{
    role: nil,
    content: nil,
    thinking: nil,
    reasoning_details: nil,
    tool_calls: nil,
    tool_call_id: nil,
    name: nil,
    timestamp: nil,
    refs: nil
  }

  @impl true
  def key, do: "jido"

  @impl true
  def structs,
    do: [Jido.AI.Context, Jido.AI.Context.Entry]

  @impl true
  def defaults, do: @defaults

  @impl true
  def plain(%{} = entry) do
    with {:ok, fields} <- Peer.message(entry, @defaults, @roles) do
      plain = %{
        content: Parts.plain_content(fields[:content]),
        tool_calls: Parts.plain_calls(fields[:tool_calls])
      }

      {:ok, fields |> Map.merge(plain) |> Peer.compact()}
    end
  end

  def plain(_other), do: :error

  @impl true
  def read(%{role: :tool} = foreign) do
    content = foreign[:content] |> Parts.read_content() |> Peer.simple()

    result = %{
      type: :tool_result,
      tool_use_id: foreign[:tool_call_id],
      content: content,
      is_error: false
    }

    %{role: :user, content: [result]}
  end

  def read(%{role: role} = foreign) do
    thoughts =
      case {Parts.thoughts(foreign), foreign[:thinking]} do
        {[], text} when is_binary(text) and text != "" -> [%{type: :thinking, text: text}]
        {thoughts, _text} -> thoughts
      end

    message = %{
      role: role,
      content: Peer.simple(thoughts ++ Parts.read_content(foreign[:content]))
    }

    calls = Parts.read_calls(foreign[:tool_calls])
    if calls == [], do: message, else: Map.put(message, :tool_calls, calls)
  end

  @impl true
  def write(%{content: [%{type: :tool_result} | _] = results}, names) do
    for %{tool_use_id: id} = result <- results do
      Peer.compact(%{
        role: :tool,
        tool_call_id: id,
        name: names[id],
        content: content(result.content)
      })
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

  # Jido keeps what ReqLLM made, and maps as they are.
  defp details(signed), do: signed |> Parts.write_details() |> Parts.build_details()

  defp content(parts) when is_list(parts), do: Parts.write_content(parts)
  defp content(text), do: text

  @impl true
  def build(fields) do
    fields =
      fields
      |> Map.update!(:content, &Parts.build_content/1)
      |> Map.update!(:tool_calls, &Parts.build_calls/1)

    Peer.build(Jido.AI.Context.Entry, fields)
  end
end
