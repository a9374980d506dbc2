defmodule AshAgent.Context.Peer do
  @moduledoc false

  # Conversations of other libraries. Their messages are read into the form of `AshAgent.Context.Import.from_messages/2`,
  # which groups and repairs them, and written from those of `AshAgent.Context.to_messages/1`.
  #
  # Everything in a message that is not written back by itself, such as a timestamp, is kept as its **difference** in the
  # message's metadata. It is used again only while it agrees with the message: masked, cleared or repaired texts never come
  # back by it.

  alias AshAgent.Context
  alias AshAgent.Context.{Error, Import, JSON}

  @doc """
  What is known of the library's messages, as a map.

    * `key` - the key of differences in metadata
    * `structs` - those that are made where the library is loaded, first that of a message
    * `defaults` - a message's fields with their defaults, and `roles` - the roles that it may have
    * `lists` - the fields that are lists of maps: `{field, plain, build}`, with a function that takes the known fields out of such a map,
      and one that makes the library's struct of them
  """
  @callback form() :: map()

  @doc "Reads a message, of which it has the fields that differ from their defaults."
  @callback read(map()) :: map()

  @doc "Writes a message as such maps. Results of tools may become several, and have the names of their calls."
  @callback write(map(), names :: map()) :: [map()]

  @doc "The context of a list of messages, as `AshAgent.Context.Import.from_messages/2` returns it."
  def import(peer, messages, opts) do
    {messages, {_names, _after_results?}} =
      messages
      |> Enum.with_index()
      |> Enum.map_reduce({%{}, false}, &read(peer, &1, &2))

    {messages, prompt} = prompt(messages)

    with {:ok, context, report} <- Import.from_messages(messages, opts) do
      {:ok,
       Enum.reduce(prompt, context, fn {key, note}, c -> Context.put_metadata(c, key, note) end),
       report}
    end
  rescue
    error in Error -> {:error, error}
  catch
    {__MODULE__, error} -> {:error, error}
  end

  defp read(peer, {message, index}, {names, after_results?}) do
    foreign = plain!(peer, message, index)
    read = peer.read(foreign)
    # A system message with metadata would not be the system prompt.
    read = if index == 0 and read.role == :system, do: Map.delete(read, :metadata), else: read
    names = Map.merge(names, names(read))
    difference = difference(peer, foreign, decode_arguments(read), names)

    # Two messages with results of one answer become one here.
    apart? = results?(read) and after_results? and difference == %{}
    difference = if apart?, do: Map.take(full(peer, foreign), [:role]), else: difference
    {put_note(read, peer, difference), {names, results?(read)}}
  end

  # The difference of the system prompt is kept with the conversation.
  defp prompt([%{role: :system, metadata: note} = prompt | rest]),
    do: {[Map.delete(prompt, :metadata) | rest], note}

  defp prompt(messages), do: {messages, %{}}

  @doc "The messages of a context for a library. `messages` are those of `AshAgent.Context.to_messages/1`, or some of them."
  def export(peer, context, messages) do
    # Once: if there is no such module, all folders of the code path are searched for it, which takes a millisecond.
    %{structs: [struct | _] = structs, lists: lists, defaults: defaults} = peer.form()
    Enum.each(structs, &Code.ensure_loaded/1)

    {messages, _names} =
      messages
      |> with_prompt(Map.take(Context.metadata(context), [peer.form().key]))
      |> Enum.map_reduce(%{}, fn message, names ->
        names = Map.merge(names, names(message))
        {write_message(peer, message, names), names}
      end)

    for message <- Enum.concat(messages) do
      fields = Map.merge(defaults, message)

      build(
        struct,
        Enum.reduce(lists, fields, fn {key, _, build}, all -> each(all, key, build) end)
      )
    end
  end

  defp with_prompt([%{role: :system} = prompt | rest], note)
       when note != %{} and not is_map_key(prompt, :metadata),
       do: [Map.put(prompt, :metadata, note) | rest]

  defp with_prompt(messages, _note), do: messages

  defp plain!(peer, message, index) do
    with :error <- plain(peer.form(), message) do
      reason = {:invalid, [index], "a message of #{peer.form().key} with a known role"}
      throw({__MODULE__, %Error{reason: reason}})
    end
  end

  defp plain(%{defaults: defaults, roles: roles, lists: lists}, %{} = message) do
    fields = fields(message, defaults)

    case word(fields[:role], roles) do
      nil ->
        :error

      role ->
        fields = Map.put(fields, :role, role)
        Enum.reduce(lists, fields, fn {key, plain, _build}, all -> each(all, key, plain) end)
    end
  end

  defp plain(_form, _other), do: :error

  # Arguments as a context shows them: they are written anew, perhaps with other spaces.
  defp decode_arguments(%{tool_calls: calls} = message),
    do: %{
      message
      | tool_calls: Enum.map(calls, &Map.update!(&1, :arguments, fn a -> arguments(a) end))
    }

  defp decode_arguments(message), do: message

  ## Parts of a message that are not written by themselves

  defp difference(peer, foreign, read, names) do
    case peer.write(read, names) do
      [written] -> compare(full(peer, foreign), full(peer, written))
      _several -> full(peer, foreign)
    end
  end

  defp compare(foreign, written) do
    for {key, value} <- foreign,
        value != written[key],
        into: %{},
        do: {key, change(value, written[key])}
  end

  # Only the differing entries in each map of a list, and whether a list was a text, so that texts are kept once, where masks
  # find them.
  defp change([_ | _] = foreign, [_ | _] = written) when length(foreign) == length(written) do
    if Enum.all?(foreign ++ written, &(is_map(&1) and not is_struct(&1))),
      do: %{"each" => Enum.zip_with(foreign, written, &element/2)},
      else: foreign
  end

  defp change(text, [part]) when is_binary(text) do
    if is_map(part) and text == text_of(part), do: %{"text" => true}, else: text
  end

  defp change(foreign, _written), do: foreign

  defp element(foreign, written) do
    for key <- Map.keys(Map.merge(foreign, written)),
        foreign[key] != written[key],
        into: %{},
        do: {key, change(foreign[key], written[key])}
  end

  # ReqLLM and LangChain call it differently.
  defp text_of(%{type: :text} = part), do: part[:text] || part[:content]
  defp text_of(_other), do: nil

  defp full(peer, foreign), do: Map.merge(peer.form().defaults, foreign)

  defp put_note(message, _peer, difference) when difference == %{}, do: message

  defp put_note(message, peer, difference) do
    note = %{place(peer, message) => %{"fields" => difference, "results" => count(message)}}
    Map.update(message, :metadata, note, &Map.merge(&1, note))
  end

  # Results of several messages share the metadata of one.
  defp place(peer, %{content: [%{type: :tool_result, tool_use_id: id} | _]}) when is_binary(id),
    do: "#{peer.form().key}:#{id}"

  defp place(peer, _message), do: peer.form().key

  defp count(message), do: if(results?(message), do: length(message.content), else: 0)

  defp results?(%{content: [%{type: :tool_result} | _]}), do: true
  defp results?(_message), do: false

  ## Writing

  defp write_message(peer, message, names) do
    {notes, message} = notes(peer, message)

    if results?(message),
      do: message.content |> chunks(peer, notes) |> Enum.flat_map(&chunk(peer, &1, names)),
      else: restore_message(peer, message, notes[peer.form().key], names)
  end

  # The differences, and the message that was read.
  defp notes(peer, message) do
    key = peer.form().key

    {notes, metadata} =
      message
      |> Map.get(:metadata, %{})
      |> Enum.split_with(fn {name, _} ->
        name == key or (is_binary(name) and String.starts_with?(name, key <> ":"))
      end)

    message = Map.delete(message, :metadata)

    {Map.new(notes),
     if(metadata == [], do: message, else: Map.put(message, :metadata, Map.new(metadata)))}
  end

  # As many results as the message had, and those between in one.
  defp chunks([], _peer, _notes), do: []

  defp chunks([result | rest] = results, peer, notes) do
    key = peer.form().key

    case notes["#{key}:#{result.tool_use_id}"] do
      %{"results" => count} = note when is_integer(count) and count > 0 ->
        {these, rest} = Enum.split(results, count)
        [{these, note} | chunks(rest, peer, notes)]

      _none ->
        {more, rest} =
          Enum.split_while(rest, &(not is_map_key(notes, "#{key}:#{&1.tool_use_id}")))

        [{[result | more], nil} | chunks(rest, peer, notes)]
    end
  end

  defp chunk(peer, {results, note}, names),
    do: restore_message(peer, %{role: :user, content: results}, note, names)

  defp restore_message(peer, message, %{"fields" => %{} = fields}, names) do
    base =
      case peer.write(message, names) do
        [written] -> written
        _several -> %{}
      end

    fields = Map.take(fields, Map.keys(peer.form().defaults))
    restored = Map.merge(base, fields, fn _key, written, change -> restore(written, change) end)
    if same?(peer, restored, message), do: [restored], else: peer.write(message, names)
  end

  defp restore_message(peer, message, _no_note, names), do: peer.write(message, names)

  defp restore([_ | _] = written, %{"each" => changes}) when length(written) == length(changes),
    do: Enum.zip_with(written, changes, &restore_element/2)

  # With another length, the message has changed since.
  defp restore(written, %{"each" => _changes}), do: written
  defp restore([part], %{"text" => true}), do: text_of(part)
  defp restore(written, %{"text" => true}), do: written
  defp restore(_written, value), do: value

  defp restore_element(written, %{} = changes) do
    changes = for {key, change} <- changes, into: %{}, do: {key, restore(written[key], change)}
    compact(Map.merge(written, changes))
  end

  defp restore_element(written, _other), do: written

  defp same?(peer, foreign, message) do
    with %{} = plain <- plain(peer.form(), foreign),
         do: comparable(peer.read(plain)) == comparable(message),
         else: (:error -> false)
  end

  ## Messages in one form, to be compared

  defp comparable(message) do
    message
    |> Map.take([:role, :content, :tool_calls, :metadata])
    |> Map.update(:content, nil, &content/1)
    |> Map.update(:tool_calls, [], fn calls -> Enum.map(calls || [], &call/1) end)
    |> Map.update(:metadata, %{}, &(&1 || %{}))
    |> then(&if(&1.role == :system, do: Map.delete(&1, :metadata), else: &1))
  end

  defp content([]), do: nil
  defp content(""), do: nil
  defp content([%{type: :text, text: text} = part]) when map_size(part) == 2, do: content(text)
  defp content(parts) when is_list(parts), do: Enum.map(parts, &part/1)
  defp content(content), do: content

  defp part(%{type: :tool_result} = result),
    do: {result.tool_use_id, content(result.content), result[:is_error] == true}

  defp part(part), do: part

  defp call(call), do: {call[:id], name(call[:name]), arguments(call[:arguments])}

  defp arguments(text) when is_binary(text) do
    case JSON.decode(text) do
      {:ok, %{} = arguments} -> arguments
      _other -> text
    end
  end

  defp arguments(arguments), do: arguments || %{}

  ## Shared by the libraries

  @doc "The names of a message's calls by their ids."
  def names(message) do
    for %{id: id, name: name} <- message[:tool_calls] || [], into: %{}, do: {id, name(name)}
  end

  def name(nil), do: nil
  def name(name), do: AshAgent.ToolDefinition.name(name)

  @doc "The fields of a struct or map that are not the defaults. Keys of maps may be strings."
  def fields(%{} = map, defaults) do
    for {key, default} <- defaults,
        value = Map.get(map, key, Map.get(map, Atom.to_string(key), default)),
        value != default,
        into: %{},
        do: {key, value}
  end

  @doc "The fields of a part with its type, which need not be one of `types`."
  def part(part, defaults, types) do
    fields = fields(part, defaults)
    type = Map.get(fields, :type, :text)
    Map.put(fields, :type, word(type, types) || type)
  end

  @doc "One of these atoms, given as itself or as text."
  def word(word, words), do: Enum.find(words, &(&1 == word or Atom.to_string(&1) == word))

  @doc "A library's struct with these fields, or a map where `export/3` did not find it."
  def build(module, fields),
    do: if(:erlang.module_loaded(module), do: struct(module, fields), else: fields)

  @doc "A field that is a list, with `fun` applied to the maps in it."
  def each(fields, key, fun) do
    case fields do
      %{^key => list} when is_list(list) ->
        %{fields | key => Enum.map(list, &if(is_map(&1), do: fun.(&1), else: &1))}

      _other ->
        fields
    end
  end

  @doc "A message that was read, with its calls and metadata where it has some."
  def said(role, parts, calls, metadata \\ nil) do
    message = %{role: role, content: simple(parts)}
    message = if calls == [], do: message, else: Map.put(message, :tool_calls, calls)

    if is_map(metadata) and metadata != %{},
      do: Map.put(message, :metadata, metadata),
      else: message
  end

  @doc "A result of a tool that was read."
  def result(id, content, error?),
    do: %{type: :tool_result, tool_use_id: id, content: content, is_error: error?}

  @doc "Content with as little as says it."
  def simple([]), do: nil
  def simple([%{type: :text, text: text} = part]) when map_size(part) == 2, do: text
  def simple(parts), do: parts

  @doc "Content as parts."
  def parts(nil), do: []
  def parts(""), do: []
  def parts(text) when is_binary(text), do: [%{type: :text, text: text}]
  def parts(parts) when is_list(parts), do: parts
  def parts(_other), do: []

  @doc "A thought, which Anthropic may have signed."
  def thought(text, signature) when is_binary(signature) do
    signed = %{provider: :anthropic, signature: signature}
    %{type: :thinking, text: text, provider_metadata: signed}
  end

  def thought(text, _none), do: %{type: :thinking, text: text}

  @doc "A call that Gemini may have signed."
  def sign(call, signature) when is_binary(signature),
    do: Map.put(call, :provider_metadata, %{provider: :gemini, signature: signature})

  def sign(call, _none), do: call

  @doc "Gemini's signature of a call, or `nil`."
  def signature(%{provider_metadata: %{provider: :gemini, signature: signature}}), do: signature
  def signature(_call), do: nil

  @doc "Base64 as bytes, and as it is if it is something else."
  def bytes(data) do
    case Base.decode64(data) do
      {:ok, bytes} -> bytes
      :error -> data
    end
  end

  @doc "A field of a map, and `nil` of anything else."
  def get(%{} = map, key), do: Map.get(map, key)
  def get(_other, _key), do: nil

  @doc "A list, and an empty one for anything else."
  def list(list) when is_list(list), do: list
  def list(_other), do: []

  @doc "A map without the fields that are `nil`."
  def compact(map), do: for({key, value} <- map, value != nil, into: %{}, do: {key, value})
end
