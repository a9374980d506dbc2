defmodule AshAgent.Context.ReqLLM do
  @moduledoc """
  Conversations of ReqLLM.
  """

  use AshAgent.Arguments

  # ReqLLM: a message for each result, JSON text as arguments, bytes as data.

  @behaviour AshAgent.Context.Peer

  alias AshAgent.Context
  alias AshAgent.Context.{Import, JSON, Peer, Requests}

  # The fields of its structs with their defaults.
  @defaults ~w(role name tool_call_id tool_calls reasoning_details)a
            |> Map.from_keys(nil)
            |> Map.merge(%{content: [], metadata: %{}})

  @part ~w(text url data file_id media_type filename)a
        |> Map.from_keys(nil)
        |> Map.merge(%{type: :text, metadata: %{}})
  @types [:text, :image_url, :video_url, :image, :file, :thinking, :provider_block]
  @call %{id: nil, type: "function", function: %{}}
  @details ~w(text signature provider format)a
           |> Map.from_keys(nil)
           |> Map.merge(%{encrypted?: false, index: 0, provider_data: %{}})

  @doc """
  Makes a context from a conversation of ReqLLM: a `ReqLLM.Context`, or a list of its messages, as structs or as maps with the same
  fields. Returns what `AshAgent.Context.Import.from_messages/2` returns, with the same repairs and options.

  Reasoning of Anthropic, OpenAI and Google becomes thinking, which is sent back to its provider. Calls that the provider has run
  itself (`builtin?`) are not calls to answer. Fields that a context has no place for, such as `reasoning_details` of other providers,
  are kept in the message's metadata, so that `to_req_llm/1` returns the same messages again. Tools are not part of the conversation.

  ## Examples

      iex> messages = [
      ...>   %{role: :user, content: [%{type: :text, text: "Weather?"}]},
      ...>   %{role: :assistant, content: [], tool_calls: [%{id: "a", type: "function", function: %{name: "get", arguments: "{}"}}]},
      ...>   %{role: :tool, tool_call_id: "a", name: "get", content: [%{type: :text, text: "sunny"}]}
      ...> ]
      iex> {:ok, context, %{repairs: []}} = AshAgent.Context.ReqLLM.from_req_llm(messages)
      iex> AshAgent.Context.get_iteration(context, 1).tool_calls
      [%{id: "a", name: "get", arguments: %{}, result: {:ok, "sunny"}}]
  """
  @doc since: "0.1.0"
  @spec from_req_llm(map() | [map()], keyword()) :: Import.imported()
  def from_req_llm(messages, opts \\ [])

  def from_req_llm(%{messages: messages}, opts), do: from_req_llm(messages, opts)
  def from_req_llm(%{"messages" => messages}, opts), do: from_req_llm(messages, opts)

  def from_req_llm(messages, opts) when is_list(messages),
    do: Peer.import(__MODULE__, messages, opts)

  @doc """
  Returns the messages as a `ReqLLM.Context`, or as maps with the same fields if ReqLLM is not loaded.

  Like `AshAgent.Context.to_messages/1`, it shows the view. Parts that ReqLLM has no form for are left out, such as audio.

  ## Examples

      iex> %{messages: [message]} = AshAgent.Context.new("Hello!") |> AshAgent.Context.ReqLLM.to_req_llm()
      iex> {message.role, Enum.map(message.content, & &1.text)}
      {:user, ["Hello!"]}
  """
  @doc since: "0.1.0"
  @spec to_req_llm(Context.t()) :: struct() | %{messages: [map()], tools: []}
  def to_req_llm(%Context{} = context) do
    messages = Peer.export(__MODULE__, context, Context.to_messages(context))
    Peer.build(ReqLLM.Context, %{messages: messages, tools: []})
  end

  @message ReqLLM.Message

  @impl true
  def form do
    %{
      key: "req_llm",
      structs:
        [@message, @message.ContentPart, @message.ReasoningDetails] ++
          [ReqLLM.ToolCall, ReqLLM.Context],
      defaults: @defaults,
      roles: [:user, :assistant, :system, :tool],
      lists: [
        {:content, &plain_part/1, &build_part/1},
        {:tool_calls, &plain_call/1, &build_call/1},
        {:reasoning_details, &Peer.fields(&1, @details), &build_detail/1}
      ]
    }
  end

  @doc false
  # Parts and calls of a message of ReqLLM, or of a library that uses its parts.
  def plain_part(part), do: Peer.part(part, @part, @types)

  @doc false
  # Also the flat form, in which others keep calls.
  def plain_call(call) do
    case Peer.fields(call, @call) do
      %{function: %{} = function} = fields -> %{fields | function: plain_function(function)}
      _flat -> Peer.fields(call, %{id: nil, name: nil, arguments: nil})
    end
  end

  defp plain_function(function),
    do: Peer.fields(function, %{name: nil, arguments: nil, builtin?: nil, metadata: nil})

  ## Reading

  @impl true
  def read(%{role: :tool} = foreign) do
    metadata = foreign[:metadata]
    # A result that is not text is in the metadata.
    output = Peer.get(metadata, :tool_output)

    content =
      if foreign[:content] in [nil, []] and output != nil,
        do: JSON.encode(output),
        else: foreign[:content] |> read_content() |> Peer.simple()

    result = Peer.result(foreign[:tool_call_id], content, Peer.get(metadata, :is_error) == true)
    %{role: :user, content: [result]}
  end

  def read(%{role: role} = foreign) do
    thoughts = if role == :assistant, do: thoughts(foreign), else: []
    parts = thoughts ++ read_said(foreign, thoughts)
    Peer.said(role, parts, read_calls(foreign[:tool_calls]), foreign[:metadata])
  end

  # An answer that ReqLLM read has its thoughts twice: in the details, and without signatures in the content.
  defp read_said(foreign, []), do: read_content(foreign[:content])

  defp read_said(foreign, _thoughts),
    do: foreign[:content] |> read_content() |> Enum.reject(&(&1.type == :thinking))

  # Providers whose reasoning goes back to them: the name here, the form, and the key of the signature.
  @reasoning %{
    anthropic: {:anthropic, "anthropic-thinking-v1", :signature},
    google: {:gemini, "google-gemini-v1", :signature},
    openai: {:openai_responses, "openai-responses-v1", :encrypted_content}
  }

  @doc false
  # The thoughts of a message, where its provider wants them back.
  def thoughts(%{reasoning_details: [_ | _] = details}) do
    for %{provider: provider} = detail <- Peer.list(details),
        word = Peer.word(provider, Map.keys(@reasoning)),
        do: read_thought(detail, Map.fetch!(@reasoning, word))
  end

  def thoughts(_foreign), do: []

  defp read_thought(detail, {provider, _format, key}) do
    signed = %{
      :provider => provider,
      :id => detail |> Map.get(:provider_data) |> Peer.get("id"),
      key => Map.get(detail, :signature)
    }

    text = if is_binary(Map.get(detail, :text)), do: detail.text, else: ""
    %{type: :thinking, text: text, provider_metadata: Peer.compact(signed)}
  end

  @doc false
  # Parts, or text, as parts of a message; parts of unknown kinds are left out.
  def read_content(parts) when is_list(parts), do: Enum.flat_map(parts, &read_part/1)
  def read_content(content), do: Peer.parts(content)

  defp read_part(text) when is_binary(text), do: [%{type: :text, text: text}]

  defp read_part(%{type: :text, text: text}) when is_binary(text),
    do: [%{type: :text, text: text}]

  defp read_part(%{type: :thinking, text: text} = part) when is_binary(text),
    do: [Peer.thought(text, part |> Peer.get(:metadata) |> Peer.get(:signature))]

  defp read_part(%{type: :image_url, url: url}) when is_binary(url),
    do: [%{type: :image, url: url}]

  defp read_part(%{type: :video_url, url: url}) when is_binary(url),
    do: [%{type: :video, url: url}]

  defp read_part(%{type: :image, data: data} = part) when is_binary(data),
    do: [%{type: :image, media_type: part[:media_type] || "image/png", data: Base.encode64(data)}]

  defp read_part(%{type: :file, data: data} = part) when is_binary(data) do
    media = part[:media_type] || "application/octet-stream"
    file(part, %{data: Base.encode64(data), media_type: media})
  end

  defp read_part(%{type: :file, url: url} = part) when is_binary(url),
    do: file(part, %{url: url, media_type: part[:media_type]})

  # A file in a provider's own store, if the provider is named.
  defp read_part(%{type: :file, file_id: id} = part) when is_binary(id),
    do: of_provider(part, %{type: :file, file_id: id})

  defp read_part(%{type: :provider_block, data: %{} = data} = part),
    do: of_provider(part, %{type: :provider_block, data: data})

  defp read_part(_other), do: []

  defp file(part, fields),
    do: [Peer.compact(Map.merge(fields, %{type: :file, filename: part[:filename]}))]

  defp of_provider(part, fields) do
    case part |> Peer.get(:metadata) |> Peer.get(:provider) |> provider() do
      nil -> []
      provider -> [Map.put(fields, :provider, provider)]
    end
  end

  @providers %{openai: :openai_responses, google: :gemini, amazon_bedrock: :bedrock}

  defp provider(name) do
    case Peer.word(name, Requests.providers() ++ Map.keys(@providers)) do
      nil -> nil
      word -> Map.get(@providers, word, word)
    end
  end

  @doc false
  # The calls that the application has to run: not those that the provider ran itself.
  def read_calls(calls) when is_list(calls) do
    for %{} = call <- calls,
        call |> Peer.get(:function) |> Peer.get(:builtin?) != true,
        do: read_call(call)
  end

  def read_calls(_none), do: []

  # Gemini signs calls.
  defp read_call(%{function: %{} = function} = call) do
    read = %{id: call[:id], name: function[:name], arguments: function[:arguments] || %{}}
    Peer.sign(read, function |> Peer.get(:metadata) |> Peer.get(:thought_signature))
  end

  defp read_call(call),
    do: %{id: call[:id], name: call[:name], arguments: call[:arguments] || %{}}

  ## Writing

  @impl true
  def write(%{content: [%{type: :tool_result} | _] = results}, names) do
    for %{tool_use_id: id} = result <- results do
      %{role: :tool, tool_call_id: id, content: write_content(result.content)}
      |> Map.merge(Peer.compact(%{name: names[id]}))
      |> Map.merge(if result.is_error, do: %{metadata: %{is_error: true}}, else: %{})
    end
  end

  def write(%{role: role} = message, _names) do
    {signed, parts} = message.content |> Peer.parts() |> Enum.split_with(&signed?/1)
    calls = for call <- message[:tool_calls] || [], do: write_call(call)

    [
      Peer.compact(%{
        role: role,
        content: write_content(parts),
        tool_calls: if(calls != [], do: calls),
        metadata: message[:metadata],
        reasoning_details: if(signed != [], do: write_details(signed))
      })
    ]
  end

  @doc false
  # Returns true for a part in the details: ReqLLM sends these to providers, and not its parts.
  def signed?(%{type: :thinking, provider_metadata: %{provider: provider} = metadata}) do
    case reasoning_of(provider) do
      {_name, {_provider, _format, key}} -> is_map_key(metadata, key)
      nil -> false
    end
  end

  def signed?(_part), do: false

  defp reasoning_of(provider),
    do: Enum.find(@reasoning, fn {_name, {ours, _format, _key}} -> ours == provider end)

  @doc false
  # Details of signed parts, as ReqLLM's own providers make them.
  def write_details(parts) do
    for {%{text: text, provider_metadata: metadata}, index} <- Enum.with_index(parts) do
      {name, {_provider, format, key}} = reasoning_of(metadata.provider)

      Map.merge(@details, %{
        text: text,
        signature: metadata[key],
        encrypted?: true,
        provider: name,
        format: format,
        index: index,
        provider_data: provider_data(name, metadata)
      })
    end
  end

  defp provider_data(:anthropic, _metadata), do: %{"type" => "thinking"}
  defp provider_data(:google, _metadata), do: %{"thought" => true}

  defp provider_data(:openai, metadata),
    do: Peer.compact(%{"id" => metadata[:id], "type" => "reasoning"})

  @doc false
  # Content as parts.
  def write_content(content), do: content |> Peer.parts() |> Enum.flat_map(&write_part/1)

  defp write_part(%{type: :text, text: text}), do: [%{type: :text, text: text}]

  defp write_part(%{type: :thinking, text: text}), do: [%{type: :thinking, text: text}]

  defp write_part(%{type: type, url: url}) when type in [:image, :video],
    do: [%{type: if(type == :image, do: :image_url, else: :video_url), url: url}]

  defp write_part(%{type: type, data: data} = part) when type in [:image, :file] do
    part = Map.take(part, [:type, :media_type, :filename])
    [Map.put(part, :data, Peer.bytes(data))]
  end

  defp write_part(%{type: :file, url: _url} = part),
    do: [Map.take(part, [:type, :url, :media_type, :filename])]

  defp write_part(%{type: :file, file_id: id, provider: provider}),
    do: [%{type: :file, file_id: id, metadata: %{provider: provider}}]

  defp write_part(%{type: :provider_block, provider: provider, data: data}),
    do: [%{type: :provider_block, data: data, metadata: %{provider: provider}}]

  # ReqLLM has no part for this.
  defp write_part(_other), do: []

  defp write_call(call) do
    arguments = call.arguments
    json = if is_binary(arguments), do: arguments, else: JSON.encode(arguments)
    function = %{name: Peer.name(call.name), arguments: json}
    signed = if signature = Peer.signature(call), do: %{metadata: %{thought_signature: signature}}
    %{id: call.id, function: Map.merge(function, signed || %{})}
  end

  ## Structs

  @doc false
  # Parts, calls and details as ReqLLM has them.
  def build_part(part), do: Peer.build(@message.ContentPart, Map.merge(@part, part))

  @doc false
  def build_call(%{function: _function} = call),
    do: Peer.build(ReqLLM.ToolCall, Map.merge(@call, call))

  def build_call(call), do: call

  @doc false
  def build_detail(detail),
    do: Peer.build(@message.ReasoningDetails, Map.merge(@details, detail))
end
