defmodule AshAgent.Context.LangChain do
  @moduledoc """
  Conversations of LangChain.
  """

  use AshAgent.Arguments

  # LangChain: one message for the results of an answer, maps as arguments, parts with options.

  @behaviour AshAgent.Context.Peer

  alias AshAgent.Context
  alias AshAgent.Context.{Import, Peer}

  @roles [:system, :user, :assistant, :tool]
  @defaults %{
    role: nil,
    content: nil,
    processed_content: nil,
    index: nil,
    status: :complete,
    name: nil,
    tool_calls: nil,
    tool_results: nil,
    metadata: nil
  }

  @part %{type: :text, content: nil, options: [], citations: []}
  @types [:text, :image_url, :image, :file, :file_url, :thinking, :unsupported]
  @call %{
    status: :incomplete,
    type: :function,
    call_id: nil,
    name: nil,
    arguments: nil,
    index: nil,
    display_text: nil,
    metadata: nil
  }
  @result %{
    type: :function,
    tool_call_id: nil,
    name: nil,
    content: nil,
    processed_content: nil,
    display_text: nil,
    is_error: false,
    is_interrupt: false,
    interrupt_data: nil,
    options: nil
  }

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

  @impl true
  def key, do: "langchain"

  @impl true
  def structs,
    do: [
      LangChain.Message,
      LangChain.Message.ContentPart,
      LangChain.Message.ToolCall,
      LangChain.Message.ToolResult
    ]

  @impl true
  def defaults, do: @defaults

  @impl true
  def plain(%{} = message) do
    with {:ok, fields} <- Peer.message(message, @defaults, @roles) do
      {:ok,
       fields
       |> Peer.each(:content, &plain_part/1)
       |> Peer.each(:tool_calls, &plain_call/1)
       |> Peer.each(:tool_results, &plain_result/1)}
    end
  end

  def plain(_other), do: :error

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

  defp file(data, media, filename),
    do:
      Peer.compact(%{
        type: :file,
        media_type: media || "application/pdf",
        data: data,
        filename: filename
      })

  ## Writing

  @impl true
  def write(%{content: [%{type: :tool_result} | _] = results}, names) do
    written =
      for %{tool_use_id: id} = result <- results do
        fields =
          Peer.compact(%{
            tool_call_id: id,
            name: names[id],
            content: write_content(result.content)
          })

        if result.is_error, do: Map.put(fields, :is_error, true), else: fields
      end

    [%{role: :tool, tool_results: written, tool_calls: []}]
  end

  def write(%{role: role} = message, _names) do
    calls = for call <- message[:tool_calls] || [], do: write_call(call)

    fields =
      Peer.compact(%{role: role, content: write_content(message.content), tool_calls: calls})

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

  defp write_part(%{type: type, data: data} = part) when type in [:image, :file],
    do: [
      %{
        type: type,
        content: data,
        options: Keyword.new(Peer.compact(%{media: part[:media_type], filename: part[:filename]}))
      }
    ]

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

  @impl true
  def build(fields) do
    fields =
      fields
      |> Peer.each(:content, &build_struct(LangChain.Message.ContentPart, @part, &1))
      |> Peer.each(:tool_calls, &build_struct(LangChain.Message.ToolCall, @call, &1))
      |> Peer.each(:tool_results, &build_result/1)

    Peer.build(LangChain.Message, fields)
  end

  defp build_result(result) do
    result = Peer.each(result, :content, &build_struct(LangChain.Message.ContentPart, @part, &1))
    build_struct(LangChain.Message.ToolResult, @result, result)
  end

  defp build_struct(module, defaults, fields), do: Peer.build(module, Map.merge(defaults, fields))
end
