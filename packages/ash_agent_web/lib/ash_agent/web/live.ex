if Code.ensure_loaded?(Phoenix.Component) and Code.ensure_loaded?(AshAgent.Conversation) do
  defmodule AshAgent.Web.Live do
    @schema AshAgent.Options.schema([
              {:resource, :atom, [required: true], "The resource with `AshAgent.Conversation`."},
              {:endpoint, :atom, [required: true],
               "The module that the resource's `pub_sub` names, such as `MyAppWeb.Endpoint`."},
              {:path, :string, [required: true],
               "The path of the page. A conversation's is below it."},
              {:topic, :string, [default: "conversation"],
               "The prefix of the topics of `pub_sub`."},
              {:actor, :any, "Who is logged in. Without an actor, the policies see nobody."},
              {:tenant, :any, "Their tenant."},
              {:list, :keyword_list, [default: []],
               "Options of `Ash.read/2` for the list, such as `load: [:total_tokens]`."},
              {:trace, :boolean, [default: false],
               "Whether the page links to the trace, which shows everything, also the system prompt."},
              {:accept, :any, [default: false],
               "Kinds of files that can be sent, as `:accept` of `Phoenix.LiveView.allow_upload/3`."}
            ])

    @moduledoc """
    The state and the events of a page on which people talk to an agent, for a LiveView of yours:

        defmodule MyAppWeb.ChatLive do
          use MyAppWeb, :live_view

          alias AshAgent.Web.Live

          def mount(_params, _session, socket) do
            {:ok,
             Live.mount(socket,
               resource: MyApp.Chat.Conversation,
               actor: socket.assigns.current_user,
               endpoint: MyAppWeb.Endpoint,
               path: "/chat"
             )}
          end

          def handle_params(params, _uri, socket), do: {:noreply, Live.open(socket, params["id"], params)}
          def handle_event(event, params, socket), do: {:noreply, Live.handle_event(event, params, socket)}
          def handle_info(message, socket), do: {:noreply, Live.handle_info(message, socket)}
          def render(assigns), do: Live.page(assigns)
        end

    with `live "/chat", ChatLive` and `live "/chat/:id", ChatLive` in the router, and this in the resource:

        pub_sub do
          module MyAppWeb.Endpoint
          prefix "conversation"
          publish :delta, [:id], event: "delta", transform: & &1.metadata
        end

    Everything that the page does is an action of the resource, called with the actor and the tenant, so its policies decide who sees and does
    what. The list shows what a conversation cost, if its resource has `prices` and the database adds them up. What an action refuses is shown in words. A message on a topic only makes the page read again: it shows nothing of it.

    A page that is opened, or connects again, in the middle of an answer shows what has come of it and goes on from there. A message that is sent twice,
    by a second click or by the form after a reconnect, is said once. While the agent works, a message goes into the turn that runs if `:say` has
    the argument `steer`, and otherwise waits for its end. Arguments of a call can be changed if `:approve` has the argument `edited`. A question of `AshAgent.Runtime.AskUser` is
    answered with the action `:answer`.

    An event that fails is shown, and logged without what it contained. At the level `:debug`, Phoenix logs the parameters of events, which
    are what people write: `use Phoenix.LiveView, log: false` leaves that out.

    ## Options

    #{AshAgent.Options.docs(@schema)}
    """

    use Phoenix.Component

    require Logger

    alias AshAgent.{Context, Conversation, Response, Session}
    alias AshAgent.Runtime.Events
    alias AshAgent.Web
    alias AshAgent.Web.Transcript
    alias Phoenix.LiveView

    # A crash report shows the assigns.
    @derive {Inspect, only: [:resource, :path]}
    defstruct Keyword.keys(@schema) ++
                [
                  # What the actor may read, and the ids that the page hears of.
                  conversations: [],
                  heard: MapSet.new(),
                  # The topics that told of a turn since the list was read.
                  begun: MapSet.new(),
                  conversation: nil,
                  context: nil,
                  view: nil,
                  items: [],
                  asked?: false,
                  limit: 100,
                  running?: false,
                  # The id of a conversation whose turn was asked for and may not have begun.
                  expected: nil,
                  # The monitor of the session that tells of its turn, and the timer that looks for one.
                  watched: nil,
                  timer: nil,
                  answer: "",
                  pieces: [],
                  # `{key, text}` of messages that no iteration has yet.
                  said: [],
                  # `{:turn, words}`, which can be tried again, or `{:action, words}`.
                  failure: nil,
                  form: nil,
                  key: nil,
                  last_key: nil,
                  live?: false
                ]

    @shown [:context, :status, :last_outcome, :last_error]

    # So many milliseconds pieces of an answer are gathered for, and a session is looked for after that many.
    @gather 40
    @look 1_000

    @page 100
    @broken "This did not work."
    @missing "There is no such conversation."

    @doc "Puts the state of the page into a socket, as its assign `chat`."
    @doc since: "0.1.0"
    @spec mount(LiveView.Socket.t(), keyword()) :: LiveView.Socket.t()
    def mount(socket, opts) do
      opts = AshAgent.Options.validate!(opts, @schema)
      chat = struct!(%__MODULE__{live?: LiveView.connected?(socket)}, opts)
      accept = opts[:accept]
      uploads = if accept, do: &LiveView.allow_upload(&1, :files, accept: accept, max_entries: 5)

      socket
      |> then(uploads || (& &1))
      |> assign(:chat, put_form(chat))
    end

    @doc "Opens the conversation with an id, or none. The parameters are those of `handle_params/3`."
    @doc since: "0.1.0"
    @spec open(LiveView.Socket.t(), String.t() | nil, map()) :: LiveView.Socket.t()
    def open(socket, id, params \\ %{}) do
      attempt(socket, fn ->
        socket |> update(:chat, &open_chat(%{&1 | view: params["view"]}, id)) |> put_title()
      end)
    end

    defp put_title(socket),
      do: assign(socket, :page_title, Web.title(socket.assigns.chat.conversation))

    defp open_chat(chat, nil), do: chat |> close() |> list()

    defp open_chat(%{conversation: open} = chat, id) do
      if open && to_string(open.id) == id, do: chat, else: chat |> close() |> list() |> fetch(id)
    end

    defp close(chat) do
      chat = %{unwatch(chat) | conversation: nil, running?: false, said: [], failure: nil}
      chat = %{chat | limit: @page, asked?: false}
      chat |> put_context(nil) |> put_form()
    end

    defp unwatch(%{watched: nil} = chat), do: chat

    defp unwatch(chat) do
      Process.demonitor(chat.watched, [:flush])
      %{chat | watched: nil}
    end

    ## What the actor may see

    defp rights(chat), do: [actor: chat.actor, tenant: chat.tenant, authorize?: true]

    defp list(%{resource: resource} = chat) do
      at =
        if Ash.Resource.Info.sortable?(resource, :last_activity_at),
          do: :last_activity_at,
          else: :updated_at

      # Where the database adds it up.
      money = Enum.filter([:cost, :unpriced_answers], &Ash.Resource.Info.sortable?(resource, &1))
      query = resource |> Ash.Query.load([:status | money]) |> Ash.Query.sort([{at, :desc}])
      query = if chat.list[:page], do: query, else: Ash.Query.limit(query, 50)

      case Ash.read(query, Keyword.merge(chat.list, rights(chat))) do
        {:ok, %{results: found}} -> listen(%{chat | conversations: found}, found)
        {:ok, found} -> listen(%{chat | conversations: found}, found)
        {:error, error} -> %{chat | conversations: [], failure: {:action, words(error)}}
      end
    end

    # The topics of what was read, so that the list shows what becomes of it.
    defp listen(%{live?: false} = chat, _found), do: chat

    defp listen(chat, found) do
      ids = found |> MapSet.new(&to_string(&1.id)) |> MapSet.difference(chat.heard)
      for id <- ids, do: :ok = chat.endpoint.subscribe("#{chat.topic}:#{id}")
      %{chat | heard: MapSet.union(chat.heard, ids)}
    end

    defp fetch(chat, id) do
      case Ash.get(chat.resource, id, [load: @shown] ++ rights(chat)) do
        {:ok, conversation} ->
          chat |> listen([conversation]) |> show(conversation) |> watch()

        {:error, %kind{}} when kind in [Ash.Error.Unknown, Ash.Error.Framework] ->
          fail(chat, @broken)

        {:error, _hidden} ->
          chat |> close() |> fail(@missing)
      end
    end

    defp load(%{conversation: nil} = chat), do: list(chat)
    defp load(%{conversation: %{id: id}} = chat), do: chat |> list() |> fetch(id)

    defp show(chat, %{id: id, status: status} = conversation) do
      # A session is there a moment before its turn is stored.
      running? = status == :running or chat.expected == id or chat.watched != nil
      said = if running?, do: chat.said, else: []
      failure = if not running?, do: failure(conversation)

      chat = %{
        chat
        | conversation: conversation,
          running?: running?,
          said: said,
          failure: failure
      }

      # What a session tells is newer than what is stored.
      if chat.watched, do: put_items(chat), else: put_context(chat, conversation.context)
    end

    defp put_context(chat, context),
      do: put_items(%{chat | context: context, answer: "", pieces: []})

    # Not in the template, which would make them anew with each piece of an answer.
    defp put_items(%{context: context} = chat) do
      items = if context, do: Transcript.items(context, chat.limit), else: []
      said = Enum.reject(chat.said, fn {key, _text} -> said?(context, key) end)
      asked? = Enum.any?(items, fn item -> Enum.any?(item.calls, & &1.asked?) end)
      %{chat | items: items ++ Enum.map(said, &waiting/1), said: said, asked?: asked?}
    end

    defp waiting({key, text}),
      do: %{id: key, role: :user, text: text, thinking: "", files: [], calls: [], note: nil}

    defp said?(nil, _key), do: false
    defp said?(context, key), do: Context.find_turn(context, :said, key) != nil

    ## The turn that runs

    defp watch(%{running?: true, watched: nil} = chat), do: look(chat)
    defp watch(chat), do: chat

    # Its session tells everything from what has come so far on. One that has not begun, or is out of reach, is looked for again.
    defp look(%{live?: true, watched: nil, conversation: %{}} = chat) do
      case Conversation.subscribe(chat.conversation, tenant: chat.tenant) do
        {:ok, ref, %{message: message, context: context}} ->
          chat = %{chat | watched: ref, running?: true, expected: nil, failure: nil}
          %{put_context(chat, context) | answer: (message && Response.text(message)) || ""}

        _none ->
          %{chat | timer: chat.timer || Process.send_after(self(), {__MODULE__, :look}, @look)}
      end
    end

    defp look(chat), do: chat

    @doc "Handles the messages of the endpoint and of the session. Others change nothing."
    @doc since: "0.1.0"
    @spec handle_info(term(), LiveView.Socket.t()) :: LiveView.Socket.t()
    def handle_info(message, socket),
      do: attempt(socket, fn -> socket |> update(:chat, &hear(message, &1)) |> put_title() end)

    defp hear({Session, ref, _number, change}, %{watched: ref} = chat) do
      case change do
        {:delta, events} -> gather(chat, for({:text, _part, text} <- events, do: text))
        {:context, context} -> put_context(chat, context)
        {:snapshot, binary} -> put_context(chat, Context.load!(binary))
        :behind -> look(%{chat | watched: nil})
        _event -> chat
      end
    end

    defp hear({:DOWN, ref, :process, _pid, _reason}, %{watched: ref} = chat),
      do: load(%{chat | watched: nil})

    defp hear({__MODULE__, :gathered}, %{pieces: pieces, answer: answer} = chat),
      do: %{chat | answer: IO.iodata_to_binary([answer | Enum.reverse(pieces)]), pieces: []}

    defp hear({__MODULE__, :look}, %{watched: nil} = chat),
      do: load(%{chat | timer: nil, expected: nil})

    defp hear({__MODULE__, :look}, chat), do: %{chat | timer: nil}

    defp hear(%{topic: topic, payload: payload}, chat) do
      current? = chat.conversation && topic == "#{chat.topic}:#{chat.conversation.id}"

      begun = chat.begun
      ended = %{chat | begun: MapSet.delete(begun, topic)}

      case payload do
        %{events: _pieces} ->
          chat =
            if topic in begun, do: chat, else: list(%{chat | begun: MapSet.put(begun, topic)})

          if current?, do: look(chat), else: chat

        %{said: _id} when current? ->
          ended |> load() |> look()

        %{ended: _how} when current? ->
          load(unwatch(%{ended | expected: nil}))

        _other ->
          load(ended)
      end
    end

    defp hear(_message, chat), do: chat

    defp gather(chat, []), do: chat

    defp gather(%{pieces: pieces} = chat, texts) do
      if pieces == [], do: Process.send_after(self(), {__MODULE__, :gathered}, @gather)
      %{chat | pieces: [texts | pieces]}
    end

    ## Events

    @doc "Handles the events of `AshAgent.Web`. Others change nothing."
    @doc since: "0.1.0"
    @spec handle_event(String.t(), map(), LiveView.Socket.t()) :: LiveView.Socket.t()
    def handle_event(event, params, socket),
      do: attempt(socket, fn -> event(event, params, socket) end)

    # What was waited for or written is in no log, so the page goes on.
    defp attempt(socket, fun) do
      fun.()
    catch
      kind, reason ->
        place = Exception.format_stacktrace(Events.prune(__STACKTRACE__))
        label = inspect(Events.label(kind, reason))
        Logger.error("the page of a conversation failed: #{label}\n#{place}")
        update(socket, :chat, &fail(&1, @broken))
    end

    defp event("new", _params, %{assigns: %{chat: chat}} = socket),
      do: LiveView.push_patch(socket, to: "#{chat.path}?view=new")

    defp event("validate", %{"say" => %{"input" => input} = say}, socket) when is_binary(input),
      do: update(socket, :chat, &put_form(recover_key(&1, say["key"]), input))

    defp event("cancel_upload", %{"ref" => ref}, socket),
      do: LiveView.cancel_upload(socket, :files, ref)

    defp event("earlier", _params, socket),
      do: update(socket, :chat, &put_items(%{&1 | limit: &1.limit + @page}))

    defp event("say", %{"say" => %{"input" => input} = say}, socket) when is_binary(input) do
      %{assigns: %{chat: chat}} = socket

      case {say["key"] || chat.key, String.trim(input), files(socket)} do
        {key, _text, _files} when key != chat.key -> socket
        {_key, _text, :error} -> refuse(socket, input, "Remove the files that cannot be sent.")
        {_key, "", []} -> refuse(socket, input, "Write something first.")
        {_key, _text, []} -> say(socket, %{input: input}, input)
        {_key, "", files} -> say(socket, %{parts: files}, input)
        {_key, _, files} -> say(socket, %{parts: files ++ [%{type: :text, text: input}]}, input)
      end
    end

    defp event("stop", _params, socket), do: update(socket, :chat, &act(&1, :cancel))
    defp event("retry", _params, socket), do: update(socket, :chat, &act(&1, :resume))

    defp event("decide", %{"decision" => how, "call" => id, "shown" => _} = params, socket) do
      case {how, Context.JSON.decode(params["arguments"] || "")} do
        {"approve", _none} ->
          update(socket, :chat, &decide(&1, :approve, %{call_id: id}, params))

        {"deny", _none} ->
          input = %{call_id: id, reason: blank(params["reason"])}
          update(socket, :chat, &decide(&1, :deny, input, params))

        {"edit", {:ok, %{} = edited}} ->
          update(socket, :chat, &decide(&1, :approve, %{call_id: id, edited: edited}, params))

        _other ->
          update(socket, :chat, &fail(&1, "The arguments are not a JSON object."))
      end
    end

    # Of a form, fields that are empty are not there.
    defp event("answer", %{"call" => id, "shown" => _, "answer" => %{} = form} = params, socket) do
      form = Map.filter(form, fn {_name, text} -> blank(text) end)
      update(socket, :chat, &decide(&1, :answer, %{call_id: id, form: form}, params))
    end

    defp event("answer", %{"call" => id, "shown" => _, "answer" => answer} = params, socket) do
      if blank(answer),
        do: update(socket, :chat, &decide(&1, :answer, %{call_id: id, answer: answer}, params)),
        else: update(socket, :chat, &fail(&1, "Write an answer first."))
    end

    # A browser can send anything.
    defp event(_event, _params, socket), do: socket

    defp blank(text), do: if(is_binary(text) and String.trim(text) != "", do: text)

    # After a reconnect, the browser sends the form as it was: with the same key, its message is said once.
    defp recover_key(%{last_key: key} = chat, key), do: chat

    defp recover_key(chat, key) do
      if is_binary(key) and key =~ ~r/\A[0-9a-f-]{36}\z/, do: %{chat | key: key}, else: chat
    end

    defp say(%{assigns: %{chat: %{conversation: nil} = chat}} = socket, message, text) do
      input = take(chat, :start, Map.merge(message, %{wait: false, key: chat.key}))

      case Ash.create(chat.resource, input, [action: :start] ++ rights(chat)) do
        {:ok, %{id: id}} ->
          socket
          |> clear(&list(%{&1 | expected: id}))
          |> LiveView.push_patch(to: "#{chat.path}/#{id}")

        {:error, error} ->
          refuse(socket, text, words(error))
      end
    end

    defp say(
           %{assigns: %{chat: %{conversation: %{id: id}, key: key} = chat}} = socket,
           message,
           text
         ) do
      input =
        Map.merge(message, %{wait: false, steer: true, key: key, metadata: %{"said" => key}})

      said = if takes?(chat, :say, :metadata), do: [{key, text}], else: []

      case run(chat, :say, input) do
        {:ok, _conversation} -> clear(socket, &load(%{&1 | expected: id, said: &1.said ++ said}))
        {:error, error} -> refuse(socket, text, words(error))
      end
    end

    defp refuse(socket, text, words),
      do: update(socket, :chat, &put_form(&1, text, input: {words, []}))

    defp clear(%{assigns: %{chat: chat}} = socket, fun) do
      if chat.accept,
        do: LiveView.consume_uploaded_entries(socket, :files, fn _, _ -> {:ok, nil} end)

      assign(socket, :chat, %{chat | key: nil, last_key: chat.key} |> put_form() |> fun.())
    end

    # The arguments and the attempt that were shown are those that are decided about.
    defp decide(%{conversation: nil} = chat, _action, _input, _params), do: chat

    defp decide(chat, action, input, %{"shown" => shown} = params) do
      with true <- not is_map_key(input, :edited) or edit?(chat),
           {:ok, %{} = shown} <- Context.JSON.decode(shown),
           shown = %{arguments: shown, attempt: params["attempt"]},
           {:ok, _conversation} <- run(chat, action, Map.merge(input, shown)) do
        chat = load(chat)
        if chat.asked? or chat.conversation == nil, do: chat, else: act(chat, :resume)
      else
        {:error, error} -> chat |> load() |> fail(words(error))
        _not_so -> fail(chat, @broken)
      end
    end

    defp act(%{conversation: nil} = chat, _action), do: chat

    defp act(%{conversation: %{id: id}} = chat, action) do
      case run(chat, action, %{wait: false}) do
        {:ok, _conversation} -> load(%{chat | expected: if(action == :resume, do: id)})
        {:error, error} -> chat |> load() |> fail(words(error))
      end
    end

    defp run(%{conversation: conversation} = chat, action, input),
      do: Ash.update(conversation, take(chat, action, input), [action: action] ++ rights(chat))

    defp take(chat, action, input),
      do: Map.filter(input, fn {name, _value} -> takes?(chat, action, name) end)

    defp takes?(chat, action, name) do
      %{arguments: arguments} = Ash.Resource.Info.action(chat.resource, action)
      Enum.any?(arguments, &(&1.name == name and &1.public?))
    end

    defp edit?(chat), do: takes?(chat, :approve, :edited)

    # They stay until the message is said.
    defp files(%{assigns: %{chat: %{accept: false}}}), do: []

    defp files(socket) do
      case LiveView.uploaded_entries(socket, :files) do
        {_done, []} -> LiveView.consume_uploaded_entries(socket, :files, &file/2)
        _not_done -> :error
      end
    end

    defp file(%{path: path}, %{client_type: type, client_name: name}) do
      kind = %{"image" => :image, "audio" => :audio}[type |> String.split("/") |> hd()] || :file
      part = %{type: kind, media_type: type, data: path |> File.read!() |> Base.encode64()}
      {:postpone, if(kind == :file, do: Map.put(part, :filename, name), else: part)}
    end

    defp put_form(chat, text \\ "", errors \\ []) do
      form = to_form(%{"input" => text}, as: "say", errors: errors)
      %{chat | form: form, key: chat.key || Ash.UUID.generate()}
    end

    ## Words

    @failures %{
      "rate_limited" => "The model has had too many requests for now.",
      "quota" => "The account for the model is used up: tell who runs this page.",
      "overloaded" => "The model is overloaded.",
      "context_overflow" => "The conversation has become too long for the model.",
      "unauthorized" => "The key for the model is missing or wrong: tell who runs this page.",
      "refused" => "The model's provider refused the message.",
      "timeout" => "The model did not answer in time.",
      "llm_timeout" => "The model did not answer in time.",
      "unreachable" => "The model could not be reached.",
      "max_iterations_exceeded" => "The agent has taken as many steps as it may.",
      "budget" => "The agent has used as much as it may.",
      "failed" => "The model did not answer."
    }

    defp failure(%{status: :parked}),
      do: {:turn, "The agent was interrupted again and again, and stopped."}

    defp failure(%{status: :idle, last_outcome: outcome, last_error: %{"kind" => kind}})
         when outcome != :cancelled,
         do: {:turn, @failures[kind] || @failures[to_string(outcome)] || @failures["failed"]}

    defp failure(_conversation), do: nil

    defp fail(chat, words), do: %{chat | failure: {:action, words}}

    # Errors of strangers may have values in them.
    defp words(%{errors: [_ | _] = errors}),
      do: errors |> Enum.map(&words/1) |> Enum.uniq() |> Enum.join(" ")

    defp words(%Conversation.Error{} = error), do: Conversation.Error.describe(error)
    defp words(%Ash.Error.Query.NotFound{}), do: @missing
    defp words(%Ash.Error.Changes.StaleRecord{}), do: @missing
    defp words(%{class: :forbidden}), do: "You may not do this."
    defp words(_other), do: @broken

    ## The page

    attr :chat, __MODULE__, required: true
    attr :uploads, :map, default: nil

    @doc "The page, from the assigns of the LiveView."
    @doc since: "0.1.0"
    def page(assigns) do
      ~H"""
      <Web.style />
      <Web.chat open?={@chat.conversation != nil or @chat.view == "new"}>
        <:list>
          <Web.conversations conversations={@chat.conversations} current={@chat.conversation && @chat.conversation.id} path={@chat.path} />
        </:list>
        <header class="agent-head">
          <.link patch={@chat.path} class="agent-back" aria-label="All conversations">←</.link>
          <h1 dir="auto">{Web.title(@chat.conversation)}</h1>
          <.link :if={@chat.trace and @chat.conversation != nil} patch={"#{@chat.path}/#{@chat.conversation.id}#{if @chat.view != "trace", do: "?view=trace"}"}>
            {if @chat.view == "trace", do: "Chat", else: "Trace"}
          </.link>
        </header>
        <%= if @chat.trace and @chat.view == "trace" and @chat.context != nil do %>
          <Web.trace context={@chat.context} />
        <% else %>
          <Web.transcript
            items={@chat.items}
            answer={@chat.answer}
            running?={@chat.running?}
            earlier?={@chat.context != nil and Context.count_iterations(@chat.context) > @chat.limit}
            edit?={edit?(@chat)}
          />
          <Web.failure words={@chat.failure && elem(@chat.failure, 1)} retry?={match?({:turn, _}, @chat.failure)} />
          <Web.composer
            form={@chat.form}
            key={@chat.key}
            running?={@chat.running?}
            steer?={takes?(@chat, :say, :steer)}
            disabled?={@chat.asked?}
            upload={@chat.accept && @uploads.files}
          />
        <% end %>
      </Web.chat>
      """
    end
  end
end
