defmodule AshAgent.Context.LangChain do
  @moduledoc """
  Conversations of LangChain.
  """

  use AshAgent.Arguments

  # LangChain: one message for the results of an answer, maps as arguments, parts with options.

  @behaviour AshAgent.Context.Peer

  alias AshAgent.Context
  alias AshAgent.Context.{Import, Peer}

  # The fields of its structs with their defaults.
  @defaults ~w(role content processed_content index name tool_calls tool_results metadata)a
            |> Map.from_keys(nil)
            |> Map.put(:status, :complete)

  @part %{type: :text, content: nil, options: [], citations: []}
  @types [:text, :image_url, :image, :file, :file_url, :thinking, :unsupported]
  @call ~w(call_id name arguments index display_text metadata)a
        |> Map.from_keys(nil)
        |> Map.merge(%{status: :incomplete, type: :function})
  @result ~w(tool_call_id name content processed_content display_text interrupt_data options)a
          |> Map.from_keys(nil)
          |> Map.merge(%{type: :function, is_error: false, is_interrupt: false})

  # LangChain's names for media, beside a media type itself.
  @media %{
    png: "image/png",
    jpg: "image/jpeg",
    jpeg: "image/jpeg",
    gif: "image/gif",
    webp: "image/webp",
    pdf: "application/pdf"
  }

  @doc """
  Makes a context from messages of LangChain, as structs or as maps with the same fields. Returns what
  `AshAgent.Context.Import.from_messages/2` returns.

  Calls that did not come in whole (`status: :incomplete`) are not calls to answer. Fields that a context has no place for are kept in
  the message's metadata, so that `to_langchain/1` returns the same messages again.

  ## Examples

      iex> {:ok, context, _report} = AshAgent.Context.LangChain.from_langchain([%{role: :user, content: "Hello!", name: "ann"}])
      iex> [%{role: :user, content: "Hello!"}] = AshAgent.Context.to_messages(context)
      iex> [%{content: "Hello!", name: "ann"}] = AshAgent.Context.LangChain.to_langchain(context)
      iex> AshAgent.Context.count_messages(context)
      1
  """
  @doc since: "0.1.0"
  @spec from_langchain([map()], keyword()) :: Import.imported()
  def from_langchain(messages, opts \\ []) when is_list(messages),
    do: Peer.import(__MODULE__, messages, opts)

  @doc """
  Returns the messages as those of LangChain, or as maps with the same fields if LangChain is not loaded. Like
  `AshAgent.Context.to_messages/1`, it shows the view.

  ## Examples

      iex> [message] = AshAgent.Context.new("Hello!") |> AshAgent.Context.LangChain.to_langchain()
      iex> {message.role, Enum.map(message.content, & &1.content)}
      {:user, ["Hello!"]}
  """
  @doc since: "0.1.0"
  @spec to_langchain(Context.t()) :: [struct() | map()]
  def to_langchain(%Context{} = context),
    do: Peer.export(__MODULE__, context, Context.to_messages(context))

  @message LangChain.Message

  @impl true
  def form do
    %{
      key: "langchain",
      structs: [@message, @message.ContentPart, @message.ToolCall, @message.ToolResult],
      defaults: @defaults,
      roles: [:system, :user, :assistant, :tool],
      lists: [
        {:content, &plain_part/1, &build_part/1},
        {:tool_calls, &plain_call/1, &Peer.build(@message.ToolCall, Map.merge(@call, &1))},
        {:tool_results, &plain_result/1, &build_result/1}
      ]
    }
  end

  defp plain_part(part), do: Peer.part(part, @part, @types)

  # Calls from JSON have their status as text.
  defp plain_call(call) do
    call
    |> Peer.fields(@call)
    |> Map.update(:status, :incomplete, &(Peer.word(&1, [:complete, :incomplete]) || &1))
  end

  defp plain_result(result),
    do: result |> Peer.fields(@result) |> Peer.each(:content, &plain_part/1)

  ## Reading

  @impl true
  def read(%{role: :tool} = foreign) do
    results =
      for %{} = result <- Peer.list(foreign[:tool_results]) do
        content = result[:content] |> read_content() |> Peer.simple()
        Peer.result(result[:tool_call_id], content, result[:is_error] == true)
      end

    %{role: :user, content: results}
  end

  def read(%{role: role} = foreign) do
    calls =
      for %{status: :complete} = call <- Peer.list(foreign[:tool_calls]), do: read_call(call)

    Peer.said(role, read_content(foreign[:content]), calls, foreign[:metadata])
  end

  defp read_call(call) do
    Peer.sign(
      %{id: call[:call_id], name: call[:name], arguments: call[:arguments] || %{}},
      Peer.get(call[:metadata], :thought_signature)
    )
  end

  defp read_content(parts) when is_list(parts), do: Enum.flat_map(parts, &read_part/1)
  defp read_content(content), do: Peer.parts(content)

  defp read_part(%{content: content} = part) when is_binary(content) do
    options = if Keyword.keyword?(part[:options]), do: part[:options], else: []
    media = @media[options[:media]] || if(is_binary(options[:media]), do: options[:media])

    case part.type do
      :text -> [%{type: :text, text: content}]
      :thinking -> [Peer.thought(content, options[:signature])]
      :image_url -> [%{type: :image, url: content}]
      :file_url -> [Peer.compact(%{type: :file, url: content, media_type: media})]
      :image -> [%{type: :image, media_type: media || "image/png", data: content}]
      :file -> [file(content, media, options[:filename])]
      _unknown -> []
    end
  end

  defp read_part(_other), do: []

  defp file(data, media, filename) do
    media = media || "application/pdf"
    Peer.compact(%{type: :file, media_type: media, data: data, filename: filename})
  end

  ## Writing

  @impl true
  def write(%{content: [%{type: :tool_result} | _] = results}, names) do
    written =
      for %{tool_use_id: id} = result <- results do
        content = write_content(result.content)
        fields = Peer.compact(%{tool_call_id: id, name: names[id], content: content})
        if result.is_error, do: Map.put(fields, :is_error, true), else: fields
      end

    [%{role: :tool, tool_results: written, tool_calls: []}]
  end

  def write(%{role: role} = message, _names) do
    calls = for call <- message[:tool_calls] || [], do: write_call(call)

    content = write_content(message.content)
    fields = Peer.compact(%{role: role, content: content, tool_calls: calls})
    if metadata = message[:metadata], do: [Map.put(fields, :metadata, metadata)], else: [fields]
  end

  defp write_content(nil), do: nil
  defp write_content(content), do: content |> Peer.parts() |> Enum.flat_map(&write_part/1)

  defp write_part(%{type: :text, text: text}), do: [%{type: :text, content: text}]

  defp write_part(%{type: :thinking, text: text} = part) do
    case part[:provider_metadata][:signature] do
      nil -> [%{type: :thinking, content: text}]
      signature -> [%{type: :thinking, content: text, options: [signature: signature]}]
    end
  end

  defp write_part(%{type: type, url: url}) when type in [:image, :file],
    do: [%{type: if(type == :image, do: :image_url, else: :file_url), content: url}]

  defp write_part(%{type: type, data: data} = part) when type in [:image, :file] do
    options = Peer.compact(%{media: part[:media_type], filename: part[:filename]})
    [%{type: type, content: data, options: Keyword.new(options)}]
  end

  # LangChain has no part for this.
  defp write_part(_other), do: []

  defp write_call(call) do
    signature = Peer.signature(call)

    Peer.compact(%{
      status: :complete,
      call_id: call.id,
      name: Peer.name(call.name),
      arguments: call.arguments,
      metadata: if(signature, do: %{thought_signature: signature})
    })
  end

  ## Structs

  defp build_part(part), do: Peer.build(@message.ContentPart, Map.merge(@part, part))

  defp build_result(result) do
    result = Peer.each(result, :content, &build_part/1)
    Peer.build(@message.ToolResult, Map.merge(@result, result))
  end
end
