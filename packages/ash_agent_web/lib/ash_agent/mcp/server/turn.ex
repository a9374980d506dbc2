defmodule AshAgent.MCP.Server.Turn do
  @moduledoc false

  # A client's call: a turn of a conversation, which its prompt's key names. What became of it is in the conversation, so any node can say it,
  # and nothing else is kept.

  alias AshAgent.{Context, Door, Session, Sessions, Store}
  alias AshAgent.Context.{Calls, JSON}
  alias AshAgent.Door.{Reader, Source}
  alias AshAgent.MCP.Server
  alias AshAgent.MCP.Server.Seal
  alias AshAgent.Runtime.Ended

  @compile {:no_warn_undefined, AshAgent.Conversation.Info}

  # `asks` is what the client calls the conversation, if the application has a name for it, and `created` is in milliseconds.
  @enforce_keys [:server, :identity, :key, :asks, :created]
  defstruct @enforce_keys

  # So many changes may wait.
  @limit 1_000
  @acknowledge 100
  @again 50
  # A session that says nothing is looked at again.
  @look 1_000
  # What was said or begun just now may be on its way into the session for so many looks.
  @looks 40
  # Its end is nearly always one of so many writes.
  @writes 20
  # Why a late result is not waited for any more.
  @called_off "cancelled by the client"
  # A question that shows more is not asked.
  @longest 20_000

  @doc "Says something in a conversation, and returns `{:ok, turn}` when that is stored."
  def begin(%Server{} = server, identity, asks, text) do
    key = "mcp:" <> Base.encode16(:crypto.strong_rand_bytes(16), case: :lower)
    say = [identity, [%{type: :text, text: text}], key, nil]

    with {:ok, identity} <- Door.Stream.again(fn -> Door.ask(server.door, :say, say) end),
         do: {:ok, new(server, identity, [System.system_time(:millisecond), key, asks])}
  end

  defp new(server, identity, [created, key, asks]),
    do: %__MODULE__{server: server, identity: identity, key: key, asks: asks, created: created}

  ## Ids

  @doc "The id of a turn, for whom it was made and nobody else."
  def id(%{server: server, identity: %{conversation: id} = identity} = turn) do
    list = [id, whose(server, identity), turn.created, turn.key, turn.asks]
    Seal.seal(Server.secrets(server), "task", list)
  end

  defp whose(server, identity), do: [identity.principal, Server.tenant(server, identity)]

  @doc "What the application calls the conversation of an id, if the id is one."
  def asks(server, id) do
    with {:ok, list} <- Seal.open(Server.secrets(server), "task", id),
         do: List.last(list),
         else: (:error -> nil)
  end

  @doc "Returns `{:ok, turn}` for an id that was made for these, and `:error` for any other text."
  def find(server, identity, id) do
    with {:ok, [conversation, whose, created, _key, asks | _] = list} <-
           Seal.open(Server.secrets(server), "task", id),
         true <- whose == whose(server, identity),
         true <- created + server.ttl > System.system_time(:millisecond),
         true <- asks == nil or identity[:conversation] == conversation do
      {:ok, new(server, Map.put(identity, :conversation, conversation), Enum.drop(list, 2))}
    else
      _other -> :error
    end
  end

  ## What became of it

  @doc """
  Waits for the end of a turn until a time, and returns its state: `{:done, result}`, `{:failed, words}`, `{:asks, calls}` with the calls by the ids under which they
  are asked about, `:working`, `{:cancelled, words}`, `:gone` or `:unavailable`. `tell` gets the session's changes.
  """
  def follow(turn, until, tell \\ fn _change -> :ok end, looks \\ @looks) do
    case open(turn) do
      {:ok, heard, context, status} ->
        state = state(turn, context, status)

        if state == :working and heard != nil and now() < until,
          do: listen(turn, heard, status, until, tell),
          else: leave(turn, heard, state, until, tell, looks)

      {:error, :not_found} ->
        :gone

      {:error, _unavailable} ->
        unsure(:unavailable, turn, until, tell, looks)
    end
  end

  defp leave(turn, heard, state, until, tell, looks) do
    close(heard)
    if state == :resume, do: resume(turn)

    case state do
      waits when waits in [:working, :resume] ->
        if now() < until, do: again(turn, until, tell, looks), else: :working

      {:unsure, state} ->
        unsure(state, turn, until, tell, looks)

      state ->
        state
    end
  end

  defp unsure(state, turn, until, tell, looks) do
    if looks > 0 or (state == :unavailable and now() < until),
      do: again(turn, until, tell, max(looks - 1, 0)),
      else: state
  end

  defp again(turn, until, tell, looks) do
    Process.sleep(@again)
    follow(turn, until, tell, looks)
  end

  defp listen(turn, {session, ref} = heard, status, until, tell) do
    receive do
      {Session, ^ref, number, change} ->
        if node(session) != node() and rem(number, @acknowledge) == 0,
          do: Session.acknowledge(session, ref, number)

        if over?(change, status) do
          close(heard)
          follow(turn, until, tell)
        else
          tell.(change)
          listen(turn, heard, status, until, tell)
        end

      {:DOWN, ^ref, :process, _pid, _reason} ->
        follow(turn, until, tell)
    after
      (until - now()) |> min(@look) |> max(0) ->
        close(heard)
        follow(turn, until, tell)
    end
  end

  defp over?(:behind, _status), do: true
  defp over?({:event, [:run, :stop], _measured, _metadata}, _status), do: true
  # Where nothing runs, a late result has come.
  defp over?({kind, _context}, status), do: kind in [:context, :snapshot] and status != :running
  defp over?(_change, _status), do: false

  @doc "Returns the state of a turn at once."
  def look(turn), do: follow(turn, now())

  defp peek(turn) do
    with {:ok, heard, context, status} <- open(turn) do
      close(heard)
      {:ok, context, status}
    end
  end

  # Where its session is not within reach, what is stored says it.
  defp open(%{server: %{door: %{source: source, place: place}}, identity: identity} = turn) do
    case source.open(place, identity, @limit) do
      {:ok, nil, nil, %{context: context}, status} ->
        {:ok, nil, context, status}

      {:ok, session, ref, %{context: context}, :running} ->
        {:ok, {session, ref}, context, begun(Session.status(session))}

      {:ok, session, ref, %{context: context}, status} ->
        {:ok, {session, ref}, context, status}

      {:error, :unavailable} when source == Source.Sessions ->
        stored(turn)

      error ->
        error
    end
  catch
    # It ended meanwhile, or the sessions are just started again.
    _kind, _reason -> {:error, :unavailable}
  end

  # A turn of a resource is told as one that runs from when it has begun, so it may not have come to its session yet, and may have ended.
  defp begun(:idle), do: :begun
  defp begun({:paused, []}), do: :running
  defp begun(status), do: status

  defp close(nil), do: :ok

  defp close({session, ref}) do
    Session.unsubscribe(session, ref)
    :ok
  catch
    :exit, _gone -> :ok
  end

  # Until another node has taken it over.
  defp stored(%{server: server, identity: identity} = turn) do
    case Store.fetch(Server.store(server, identity), Server.store_id(server, identity)) do
      {:ok, %{value: context, status: :paused}} ->
        {:ok, nil, context, {:paused, Calls.undecided_tool_calls(context)}}

      {:ok, %{value: context, status: status}} ->
        found? = Context.find_turn(context, :idempotency_key, turn.key) != nil
        {:ok, nil, context, if(found?, do: status, else: :running)}

      {:error, reason} ->
        {:error, if(reason == :not_found, do: :not_found, else: :unavailable)}
    end
  end

  defp state(%{server: %{mode: mode}} = turn, context, status) do
    case Context.find_turn(context, :idempotency_key, turn.key) do
      nil -> if status == :running or waits?(turn), do: :working, else: {:unsure, :gone}
      {first, _last} when mode == :tools -> called(turn, first, context, status)
      range -> said(turn, range, context, status)
    end
  end

  defp waits?(%{server: %{door: %{source: source, place: place}}} = turn) do
    source.waits?(place, turn.identity, turn.key)
  catch
    _kind, _reason -> true
  end

  # Another turn came after it.
  defp said(turn, {_first, last} = range, %{current_iteration: current} = context, _status)
       when last < current,
       do: ended(turn, range, Context.rewind(context, to: last), false)

  defp said(_turn, _range, _context, status) when status in [:running, :waiting, :parked],
    do: :working

  defp said(_turn, _range, context, {:paused, calls}), do: asked(context, calls)

  defp said(turn, range, context, status) do
    if status == :begun and Reader.outcome(context, :idle) == {:failed, :interrupted},
      do: :working,
      else: ended(turn, range, context, true)
  end

  defp ended(turn, {first, _last}, context, last?) do
    case {Reader.outcome(context, :idle), last? && note(turn, context, first)} do
      {:answered, _note} -> {:done, answer(turn, context)}
      {_failed, %{outcome: :cancelled}} -> {:cancelled, "the turn was cancelled"}
      # Its words are ours: neither a provider nor the application's code has said them.
      {_failed, %{error: %{"words" => words}}} -> {:failed, "the turn failed: " <> words}
      {{:failed, :interrupted}, _none} when last? -> {:unsure, failed(:interrupted)}
      {{:failed, kind}, _none} -> failed(kind)
    end
  end

  defp failed(kind), do: {:failed, "the turn failed: #{Door.Stream.kind(kind)}"}

  # The status is newer than the context, which may not have the calls yet.
  defp asked(context, calls) do
    case Reader.asked(context) do
      asked when asked != %{} -> {:asks, asked}
      _none when calls == [] -> :resume
      _not_yet -> :working
    end
  end

  # The one call of a conversation of tools, or what came of it later.
  defp called(turn, first, %{current_iteration: current} = context, status) do
    %{tool_calls: calls} = Context.get_iteration(context, first)
    late = for %{iteration: ^first, result: _late} = call <- Calls.late_calls(context), do: call

    case {status, List.first(late ++ Enum.filter(calls, &settled?/1))} do
      {{:paused, calls}, _settled} ->
        asked(context, calls)

      {:running, _settled} ->
        :working

      {_status, %{result: {:ok, value}}} ->
        {:done, result(value)}

      {_status, %{id: id, result: {_error, reason}}} ->
        refused(turn, context, first, {id, reason})

      # It waits for a late result.
      {:idle, nil} ->
        if Enum.any?(calls, & &1.result),
          do: :working,
          else: ended(turn, {first, current}, context, true)

      {_status, nil} ->
        :working
    end
  end

  defp settled?(%{result: result}), do: result != nil and not match?({:waiting, _}, result)

  # One that was started may have done its work.
  defp refused(turn, context, first, {id, reason}) do
    words = if is_binary(reason), do: reason, else: "the tool failed"
    status = Calls.tool_call_status(context, id)

    if status == :cancelled or words == @called_off or
         (status == :unknown and match?(%{outcome: :cancelled}, note(turn, context, first))),
       do: {:cancelled, words},
       else: {:done, error(words)}
  end

  # How the turn has ended, if a write of it says that.
  defp note(%{server: server, identity: identity}, context, first) do
    {store, id} = {Server.store(server, identity), Server.store_id(server, identity)}
    %{started_at: started} = Context.get_iteration(context, first)

    with {:ok, %{revision: revision}} <- Store.fetch(store, id),
         {:ok, writes} <- Store.history(store, id, after: max(revision - @writes, 0)) do
      writes |> Enum.filter(&(DateTime.compare(&1.at, started) == :gt)) |> Ended.find()
    else
      _unknown -> nil
    end
  end

  ## Results

  defp answer(turn, context) do
    messages = Enum.reject(Context.to_messages(context), &is_map_key(&1, :arrival))
    %{content: content} = List.last(messages)
    name = name(turn)

    %{
      "content" => content(content) ++ [%{"type" => "text", "text" => "conversation: " <> name}],
      "structuredContent" => %{"answer" => Reader.text(content), "conversation" => name}
    }
  end

  @doc "What the client calls the conversation."
  def name(%{asks: asks}) when asks != nil, do: asks

  def name(%{server: server, identity: %{conversation: id} = identity}),
    do: Seal.seal(Server.secrets(server), "conversation", [id, whose(server, identity)])

  @doc "Returns `{:ok, id}` for a name that was made for these."
  def conversation(server, identity, name) do
    whose = whose(server, identity)

    case Seal.open(Server.secrets(server), "conversation", name) do
      {:ok, [id, ^whose]} -> {:ok, id}
      _other -> :error
    end
  end

  defp result(%{} = value) when not is_struct(value),
    do: Map.put(text(JSON.encode(value)), "structuredContent", value)

  defp result(value), do: %{"content" => content(value)}

  defp content(nil), do: []
  defp content(text) when is_binary(text), do: [%{"type" => "text", "text" => text}]

  defp content([%{type: _} | _] = parts) do
    Enum.flat_map(parts, fn
      %{type: :text, text: text} when is_binary(text) ->
        [%{"type" => "text", "text" => text}]

      %{type: type, media_type: media, data: data}
      when type in [:image, :audio] and is_binary(data) ->
        [%{"type" => Atom.to_string(type), "data" => data, "mimeType" => media}]

      %{type: type, media_type: media, data: data} = part
      when type in [:video, :file] and is_binary(data) ->
        [
          %{
            "type" => "resource",
            "resource" => %{
              "uri" => "file:///" <> URI.encode(part[:filename] || "file"),
              "mimeType" => media,
              "blob" => data
            }
          }
        ]

      _for_providers ->
        []
    end)
  end

  defp content(other), do: [%{"type" => "text", "text" => JSON.encode(other)}]

  defp text(text), do: %{"content" => [%{"type" => "text", "text" => text}]}

  @doc "The result of a call that went wrong, in words for everybody."
  def error(words), do: Map.put(text(words), "isError", true)

  ## Decisions

  @doc """
  Returns the requests of MCP for what a client may answer, by the ids of calls, or `:elsewhere` if it may not, or cannot be shown what they are.
  """
  def questions(turn, asked) do
    requests = for {id, call} <- asked, into: %{}, do: {id, question(call, Reader.warning(id))}
    if may?(turn) and Enum.all?(requests, &elem(&1, 1)), do: requests, else: :elsewhere
  end

  defp may?(%{identity: identity, server: %{door: %{source: source}}}),
    do: identity[:by] != nil or source == Source.Ash

  defp question(%{question: true, arguments: arguments}, _warning) do
    schema =
      case arguments do
        %{"form" => form} ->
          if flat?(form), do: form

        %{"choices" => [_ | _] = choices} ->
          fields("answer", %{"type" => "string", "enum" => choices})

        _text ->
          fields("answer", %{"type" => "string", "minLength" => 1})
      end

    words = arguments["question"] || shown(arguments)
    if schema && is_binary(words), do: elicit(words, schema)
  end

  defp question(%{name: name, arguments: arguments}, warning) do
    approve = %{"type" => "boolean", "title" => "Allow this call"}
    reason = %{"type" => "string", "title" => "Why not"}
    schema = put_in(fields("approve", approve), ["properties", "reason"], reason)
    words = shown(arguments)
    if words, do: elicit("#{warning}Allow the call of #{name} with #{words}?", schema)
  end

  defp shown(arguments) do
    words = JSON.encode(arguments)
    if byte_size(words) <= @longest, do: words
  end

  defp fields(name, schema),
    do: %{"type" => "object", "properties" => %{name => schema}, "required" => [name]}

  # A form of MCP has no lists and objects in it.
  defp flat?(%{"properties" => %{} = properties}),
    do:
      Enum.all?(properties, fn {_name, schema} ->
        schema["type"] in ~w(string number integer boolean)
      end)

  defp flat?(_other), do: false

  defp elicit(words, schema) do
    params = %{"mode" => "form", "message" => words, "requestedSchema" => schema}
    %{"method" => "elicitation/create", "params" => params}
  end

  @doc "Decides what a client has answered, by the ids of the questions. What it does not answer waits. Returns `:ok` or `{:error, kind}`."
  def decide(%{server: server, identity: identity} = turn, responses) do
    with {:ok, context, _status} <- peek(turn),
         true <- may?(turn) || {:error, :not_waiting},
         {:ok, decisions} <- decisions(Reader.asked(context), responses) do
      decided =
        Enum.find_value(decisions, :ok, fn {call, verdict, reason} ->
          answer = Door.ask(server.door, :decide, [identity, call, verdict, reason])
          if answer != :ok, do: answer
        end)

      # Goes on when all is decided.
      with :ok <- decided do
        look(turn)
        :ok
      end
    end
  end

  defp decisions(asked, responses) do
    Enum.reduce_while(responses, {:ok, []}, fn {id, response}, {:ok, all} ->
      case {asked[id], response} do
        {_call, %{"action" => "cancel"}} -> {:cont, {:ok, all}}
        # It is not asked about any more, or never was.
        {nil, _response} -> {:cont, {:ok, all}}
        {call, response} -> put_verdict(verdict(call, response), call, all)
      end
    end)
  end

  defp put_verdict({verdict, reason}, call, all),
    do: {:cont, {:ok, [{call, verdict, reason} | all]}}

  defp put_verdict(:error, _call, _all), do: {:halt, {:error, :invalid_answer}}

  defp verdict(_call, %{"action" => "decline"}), do: {:deny, nil}

  defp verdict(%{question: true, arguments: arguments}, %{
         "action" => "accept",
         "content" => %{} = content
       }) do
    case {arguments, content} do
      {%{"form" => _}, form} ->
        {{:answer, form}, nil}

      {_text, %{"answer" => answer}} when is_binary(answer) and answer != "" ->
        {{:answer, answer}, nil}

      _other ->
        :error
    end
  end

  defp verdict(%{question: true}, _response), do: :error

  defp verdict(_call, %{"action" => "accept", "content" => %{"approve" => approve} = content}) do
    case {approve, content["reason"]} do
      {true, _reason} ->
        {:approve, nil}

      {false, reason} when reason == nil or (is_binary(reason) and byte_size(reason) <= 2_000) ->
        {:deny, reason}

      _other ->
        :error
    end
  end

  defp verdict(_call, _response), do: :error

  defp resume(%{server: server, identity: identity}),
    do: Door.ask(server.door, :resume, [identity])

  @doc "Ends a turn that runs, waits for a person or for a late result. One that has ended, or has not begun, stays as it is."
  def cancel(%{server: server, identity: identity} = turn) do
    with {:ok, context, status} <- peek(turn),
         {_first, last} <- Context.find_turn(context, :idempotency_key, turn.key),
         true <- server.mode == :tools or last == context.current_iteration,
         false <- match?({:done, _result}, state(turn, context, status)) do
      for %{handle: key} <- Calls.late_calls(context, :open), server.mode == :tools do
        Sessions.cancel_call(server.door.place, identity.conversation, key, reason: @called_off)
      end

      if status == :idle, do: :ok, else: Door.ask(server.door, :stop, [identity])
    else
      {:error, kind} -> {:error, kind}
      _ended_or_waiting -> :ok
    end
  end

  defp now, do: System.monotonic_time(:millisecond)
end
