if Code.ensure_loaded?(Phoenix.Component) do
  defmodule AshAgent.Web do
    @moduledoc """
    Function components for a page on which people talk to an agent.

        <AshAgent.Web.style />
        <AshAgent.Web.chat>
          <:list><AshAgent.Web.conversations conversations={@conversations} current={@id} path="/chat" /></:list>
          <AshAgent.Web.transcript items={AshAgent.Web.Transcript.items(@context)} answer={@answer} running?={@running?} />
          <AshAgent.Web.composer form={@form} running?={@running?} />
        </AshAgent.Web.chat>

    They need no JavaScript but that of LiveView, and no CSS but that of `style/1`. They show what they are given, and send these events to
    the LiveView:

    | event | parameters | when |
    |---|---|---|
    | `"new"` | | somebody starts a conversation |
    | `"say"` | `"say"` with the `"input"` and the `"key"` | somebody sends a message, also while the agent works |
    | `"validate"` | `"say"` | somebody has changed the message or its files, or is connected again |
    | `"stop"` | | somebody stops the turn, with the button or Escape |
    | `"decide"` | `"call"`, `"decision"`, `"shown"`, `"attempt"`, `"arguments"`, `"reason"` | somebody decides about a call |
    | `"answer"` | `"call"`, `"shown"`, `"attempt"`, `"answer"`, a text or a map | somebody answers a question |
    | `"retry"` | | somebody tries a failed turn again |
    | `"earlier"` | | somebody wants to see older messages |
    | `"cancel_upload"` | `"ref"` | somebody takes a file back |

    `"decision"` is `"approve"`, `"deny"` or `"edit"`; `"shown"` are the arguments that the page showed, `"attempt"` is the attempt, and `"arguments"` those that the
    person wrote, both as JSON. A browser can send anything: who may decide is for the policies of the action that the LiveView calls.

    The page follows the reader's color scheme, or `data-theme` of the document if it is `light` or `dark`, and fits a phone.
    """

    use Phoenix.Component

    alias AshAgent.Context
    alias AshAgent.Web.Markdown

    @external_resource css = Path.join(__DIR__, "web/chat.css")
    @css File.read!(css)

    attr :nonce, :string, default: nil, doc: "for a content security policy"

    @doc "The styles of all components, once on a page."
    @doc since: "0.1.0"
    def style(assigns) do
      assigns = assign(assigns, :css, @css)
      ~H"<style nonce={@nonce}><%= Phoenix.HTML.raw(@css) %></style>"
    end

    slot :list, doc: "the conversations, beside the open one"
    slot :inner_block, required: true

    attr :open?, :boolean,
      default: true,
      doc: "whether a conversation is open: a phone shows it instead of the list"

    @doc "The frame of the page."
    @doc since: "0.1.0"
    def chat(assigns) do
      ~H"""
      <main class="agent-chat" data-open={to_string(@open?)}>
        <nav :if={@list != []} class="agent-list" aria-label="Conversations">
          <h1>Conversations</h1>
          {render_slot(@list)}
        </nav>
        <div class="agent-main">{render_slot(@inner_block)}</div>
      </main>
      """
    end

    attr :conversations, :list,
      required: true,
      doc:
        "maps or records with `:id`, `:title`, `:status`, and `:cost` in US dollars with `:unpriced_answers`, or `:total_tokens`, if they are to be shown"

    attr :current, :any, default: nil, doc: "the id of the open one"

    attr :path, :string,
      required: true,
      doc: "the path of the page; that of a conversation is below it"

    @doc "The list of conversations, each with its status and what it cost, and a button that starts another one."
    @doc since: "0.1.0"
    def conversations(assigns) do
      ~H"""
      <button type="button" class="agent-new" phx-click="new">New conversation</button>
      <p :if={@conversations == []} class="agent-soft">Nothing here yet.</p>
      <ul>
        <li :for={one <- @conversations} id={"conversation-#{one.id}"}>
          <.link patch={"#{@path}/#{one.id}"} aria-current={to_string(one.id) == to_string(@current) && "page"}>
            <span class="agent-title" dir="auto">{title(one)}</span>
            <span class="agent-soft">{Enum.join(facts(one), " · ")}</span>
          </.link>
        </li>
      </ul>
      """
    end

    @doc "A conversation's title, or words in its place."
    @doc since: "0.1.0"
    def title(%{title: title}) when is_binary(title) and title != "", do: title
    def title(_conversation), do: "New conversation"

    @statuses %{running: "working", paused: "waits for you", parked: "stopped"}

    defp facts(one) do
      cost = one |> get(:cost) |> cost(get(one, :unpriced_answers))
      tokens = one |> get(:total_tokens) |> tokens()
      Enum.filter([@statuses[get(one, :status)], cost || tokens], & &1)
    end

    # Records have structs in the place of what was not loaded, or may not be seen.
    defp get(one, key) do
      case Map.get(one, key) do
        %{__struct__: struct} when struct in [Ash.NotLoaded, Ash.ForbiddenField] -> nil
        value -> value
      end
    end

    # Some answers have no known price.
    defp cost(cost, unpriced) when is_integer(unpriced) and unpriced > 0 and cost != nil,
      do: "#{cost(cost, nil)} and more"

    defp cost(nil, _unpriced), do: nil

    defp cost(cost, _unpriced) when is_number(cost) do
      if cost > 0 and cost < 0.00005,
        do: "under $0.0001",
        else: "$#{:erlang.float_to_binary(cost / 1, decimals: 4)}"
    end

    defp cost(%{__struct__: Decimal} = cost, unpriced),
      do: cost(apply(Decimal, :to_float, [cost]), unpriced)

    defp tokens(count) when is_integer(count) and count > 0, do: "#{count} tokens"
    defp tokens(_none), do: nil

    attr :items, :list, required: true, doc: "what `AshAgent.Web.Transcript.items/2` returns"
    attr :answer, :string, default: "", doc: "what has come of the answer that is being written"
    attr :running?, :boolean, default: false
    attr :earlier?, :boolean, default: false, doc: "whether there are older messages"

    attr :edit?, :boolean,
      default: false,
      doc: "whether the arguments of a call can be changed before it runs"

    @doc "What was said, with the answer that is being written. It stays at its end while that grows, unless somebody scrolls up."
    @doc since: "0.1.0"
    def transcript(assigns) do
      {closed, open} = assigns.answer |> Markdown.to_blocks() |> Enum.split(-1)
      assigns = assign(assigns, closed: closed, open: open)

      ~H"""
      <div class="agent-scroll" role="log" aria-label="Messages" tabindex="0">
        <div class="agent-messages">
          <button :if={@earlier?} type="button" phx-click="earlier">Show earlier messages</button>
          <.message :for={item <- @items} item={item} edit?={@edit?} />
          <article :if={@running?} id="agent-answer" class="agent-message" data-role="assistant" aria-label="Agent" aria-busy="true">
            <div :for={block <- @closed}>{Phoenix.HTML.raw(block)}</div>
            <div :for={block <- @open}>{Phoenix.HTML.raw(block)}</div>
            <p class="agent-working agent-soft"><span>Working</span></p>
          </article>
        </div>
      </div>
      """
    end

    attr :item, :map, required: true, doc: "one of `AshAgent.Web.Transcript.items/2`"
    attr :edit?, :boolean, default: false

    @doc "A message, with its files, its calls and what they returned."
    @doc since: "0.1.0"
    def message(assigns) do
      ~H"""
      <article id={"agent-message-#{@item.id}"} class="agent-message" data-role={@item.role} aria-label={if @item.role == :user, do: "You", else: "Agent"}>
        <.fold :if={@item.thinking != ""} id={"agent-thinking-#{@item.id}"} class="agent-thinking">
          <:label>Thoughts</:label>
          <p dir="auto">{@item.thinking}</p>
        </.fold>
        <%= if @item.role == :user do %>
          <p :if={@item.text != ""} class="agent-said" dir="auto">{@item.text}</p>
        <% else %>
          {Phoenix.HTML.raw(Markdown.to_html(@item.text))}
        <% end %>
        <p :for={file <- @item.files} class="agent-file">
          <img :if={file.url} src={file.url} alt={file.name} />
          <span :if={!file.url}>📎 {file.name}</span>
        </p>
        <%= for call <- @item.calls do %>
          <.question :if={call.question?} call={call} />
          <.call :if={not call.question?} call={call} edit?={@edit?} />
        <% end %>
        <p :if={@item.note} class="agent-note">{@item.note}</p>
      </article>
      """
    end

    @words %{
      asked: "waits for you",
      pending: "waits",
      approved: "approved",
      denied: "denied",
      waiting: "works on",
      unknown: "outcome unknown",
      ok: "done",
      error: "failed"
    }

    attr :call, :map, required: true, doc: "a call of `AshAgent.Web.Transcript.items/2`"
    attr :edit?, :boolean, default: false

    @doc "A tool call that opens to show its arguments and its result; one that waits for somebody is open, with the buttons that decide."
    @doc since: "0.1.0"
    def call(assigns) do
      assigns = assign(assigns, :words, @words[assigns.call.status])

      ~H"""
      <.fold id={"agent-call-#{@call.id}"} class="agent-call" data-status={@call.status} open?={@call.asked?}>
        <:label><code>{@call.name}</code> <span class="agent-soft">{@words}{@call.by && " by #{@call.by}"}</span></:label>
        <pre class="agent-arguments" tabindex="0" aria-label="Arguments">{@call.arguments}</pre>
        <pre :if={@call.result} class="agent-result" tabindex="0" aria-label="Result" dir="auto">{@call.result}</pre>
        <.approval :if={@call.asked?} call={@call} edit?={@edit?} />
      </.fold>
      """
    end

    attr :id, :string, required: true
    attr :class, :string, default: nil
    attr :open?, :boolean, default: false
    attr :rest, :global
    slot :label, required: true
    slot :inner_block, required: true

    # Not `details`: what somebody has opened stays open while an answer comes, since LiveView keeps what `Phoenix.LiveView.JS` has set.
    defp fold(assigns) do
      ~H"""
      <div id={@id} class={@class} {@rest}>
        <button
          type="button"
          id={"#{@id}-fold"}
          class="agent-fold"
          aria-expanded={to_string(@open?)}
          phx-click={Phoenix.LiveView.JS.toggle_attribute({"aria-expanded", "true", "false"})}
        >{render_slot(@label)}</button>
        <div>{render_slot(@inner_block)}</div>
      </div>
      """
    end

    attr :call, :map, required: true
    attr :edit?, :boolean, default: false

    @doc "The form that decides about a call: as it was shown, not at all, or with other arguments."
    @doc since: "0.1.0"
    def approval(assigns) do
      ~H"""
      <section id={"agent-approval-#{@call.id}"} class="agent-approval" aria-label={"Decide about #{@call.name}"}>
        <p><strong>May the agent do this?</strong></p>
        <.decision call={@call} decision="approve">
          <button class="agent-primary">Approve</button>
        </.decision>
        <.decision call={@call} decision="deny">
          <label>Why not <input name="reason" autocomplete="off" placeholder="optional, for the agent" /></label>
          <button>Deny</button>
        </.decision>
        <.fold :if={@edit?} id={"agent-change-#{@call.id}"}>
          <:label>Change the arguments</:label>
          <.decision call={@call} decision="edit">
            <label>Arguments, as JSON <textarea name="arguments" rows="4" spellcheck="false">{@call.arguments}</textarea></label>
            <button>Approve with these</button>
          </.decision>
        </.fold>
      </section>
      """
    end

    attr :call, :map, required: true
    attr :decision, :string, required: true
    slot :inner_block, required: true

    # Enter in a field presses the first button of its form, so each button has a form of its own.
    defp decision(assigns) do
      ~H"""
      <form id={"agent-#{@decision}-#{@call.id}"} class="agent-buttons" phx-submit="decide">
        <input type="hidden" name="call" value={@call.id} />
        <input type="hidden" name="shown" value={@call.arguments} />
        <input type="hidden" name="attempt" value={@call.attempt} />
        <input type="hidden" name="decision" value={@decision} />
        {render_slot(@inner_block)}
      </form>
      """
    end

    attr :call, :map,
      required: true,
      doc: "a call of `AshAgent.Runtime.AskUser`, with a `question`, and `choices` or a `form`"

    @doc "A question of the agent to the person, with its choices, the fields of its form, or one for a text."
    @doc since: "0.1.0"
    def question(assigns) do
      arguments =
        case Context.JSON.decode(assigns.call.arguments) do
          {:ok, %{} = arguments} -> arguments
          _other -> %{}
        end

      choices = for choice when is_binary(choice) <- List.wrap(arguments["choices"]), do: choice
      form = with %{"properties" => %{} = _fields} = form <- arguments["form"], do: form

      question =
        if is_binary(arguments["question"]),
          do: arguments["question"],
          else: assigns.call.arguments

      choices = if form, do: [nil], else: choices ++ if(choices == [], do: [nil], else: [])
      assigns = assign(assigns, question: question, choices: choices, form: form)

      ~H"""
      <section id={"agent-question-#{@call.id}"} class="agent-approval" aria-labelledby={"agent-asked-#{@call.id}"}>
        <p id={"agent-asked-#{@call.id}"} dir="auto"><strong>{@question}</strong></p>
        <form :for={choice <- @choices} class="agent-buttons" phx-submit="answer">
          <input type="hidden" name="call" value={@call.id} />
          <input type="hidden" name="shown" value={@call.arguments} />
          <input type="hidden" name="attempt" value={@call.attempt} />
          <input :if={choice} type="hidden" name="answer" value={choice} />
          <label :if={!choice and !@form}>Your answer <input name="answer" autocomplete="off" /></label>
          <%= if @form do %>
            <.field :for={{name, of} <- fields(@form)} name={name} of={of} required?={name in List.wrap(@form["required"])} />
          <% end %>
          <button class={!choice && "agent-primary"}>{choice || "Answer"}</button>
        </form>
        <.decision call={@call} decision="deny">
          <button>Do not answer</button>
        </.decision>
      </section>
      """
    end

    # Those that are asked for first are needed.
    defp fields(%{"properties" => fields} = form) do
      required = List.wrap(form["required"])

      fields
      |> Enum.filter(&match?({_name, %{}}, &1))
      |> Enum.sort_by(&{elem(&1, 0) not in required, elem(&1, 0)})
    end

    attr :name, :string, required: true
    attr :of, :map, required: true
    attr :required?, :boolean, required: true

    # The answer is checked by the schema, so that a browser need not understand all of it.
    defp field(%{of: of} = assigns) do
      choices = if of["type"] == "boolean", do: [true, false], else: of["enum"]
      type = if of["type"] in ["integer", "number"], do: "number", else: "text"
      assigns = assign(assigns, choices: is_list(choices) && choices, type: type)

      ~H"""
      <label>
        {text(@of["title"]) || @name}
        <span :if={text(@of["description"])} class="agent-soft">{@of["description"]}</span>
        <select :if={@choices} name={"answer[#{@name}]"} required={@required?}>
          <option value=""></option>
          <option :for={choice <- @choices} :if={is_binary(choice) or is_number(choice) or is_boolean(choice)} value={to_string(choice)}>
            {%{true => "Yes", false => "No"}[choice] || choice}
          </option>
        </select>
        <input :if={!@choices} type={@type} step="any" name={"answer[#{@name}]"} autocomplete="off" required={@required?} />
      </label>
      """
    end

    defp text(text), do: if(is_binary(text), do: text)

    attr :words, :string, default: nil, doc: "what happened, or `nil`"
    attr :retry?, :boolean, default: true, doc: "whether trying again makes sense"

    @doc "What went wrong, with a button that tries again."
    @doc since: "0.1.0"
    def failure(assigns) do
      ~H"""
      <div :if={@words} id="agent-failure" class="agent-failure" role="alert">
        <p dir="auto">{@words}</p>
        <button :if={@retry?} type="button" phx-click="retry">Try again</button>
      </div>
      """
    end

    attr :form, :any,
      required: true,
      doc: "a form with the field `input`, such as `to_form(%{\"input\" => \"\"}, as: \"say\")`"

    attr :key, :any,
      default: 0,
      doc:
        "another one after each message that was sent: the field is empty then, and the same message sent twice has the same key"

    attr :running?, :boolean, default: false

    attr :steer?, :boolean,
      default: true,
      doc: "whether a message that is sent while the agent works goes into its turn"

    attr :disabled?, :boolean, default: false, doc: "whether a decision has to be made first"
    attr :upload, :any, default: nil, doc: "an upload of `allow_upload/3`, for files"

    @doc "The field for a message. Enter sends it, Shift and Enter begin a line, and Escape stops the agent."
    @doc since: "0.1.0"
    def composer(assigns) do
      ~H"""
      <form id="agent-composer" class="agent-composer" phx-submit="say" phx-change="validate" phx-drop-target={@upload && @upload.ref}>
        <input type="hidden" name={@form[:key].name} value={@key} />
        <div :for={entry <- (@upload && @upload.entries) || []} class="agent-upload">
          <span>📎 {entry.client_name}</span>
          <progress value={entry.progress} max="100" aria-label={"Upload of #{entry.client_name}"}>{entry.progress}%</progress>
          <button type="button" phx-click="cancel_upload" phx-value-ref={entry.ref} aria-label={"Remove #{entry.client_name}"}>✕</button>
          <span :for={error <- Phoenix.Component.upload_errors(@upload, entry)} class="agent-note">{upload_words(error)}</span>
        </div>
        <textarea
          id={"agent-input-#{@key}"}
          name={@form[:input].name}
          rows="1"
          aria-label="Message"
          aria-describedby={@form.errors != [] && "agent-problem"}
          placeholder={placeholder(assigns)}
          disabled={@disabled?}
          phx-debounce="blur"
          phx-mounted={Phoenix.LiveView.JS.focus()}
          onkeydown="if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); this.form.requestSubmit(); }"
        >{@form[:input].value}</textarea>
        <p :for={{_field, problem} <- @form.errors} id="agent-problem" class="agent-note" role="alert">{words(problem)}</p>
        <div class="agent-buttons">
          <label :if={@upload} class="agent-attach">📎 <span>Attach</span> <.live_file_input upload={@upload} /></label>
          <button :if={@running?} type="button" id="agent-stop" phx-click="stop" phx-window-keydown="stop" phx-key="Escape">Stop</button>
          <button class="agent-primary" disabled={@disabled?}>{if @running? and @steer?, do: "Steer", else: "Send"}</button>
        </div>
      </form>
      """
    end

    defp placeholder(%{disabled?: true}), do: "First decide about the call above"
    defp placeholder(%{running?: true}), do: "Say something while the agent works"
    defp placeholder(_assigns), do: "Write something"

    # The words of forms have a place for each value.
    defp words({words, values}) do
      Enum.reduce(values, words, fn {key, value}, words ->
        if is_binary(value) or is_number(value),
          do: String.replace(words, "%{#{key}}", to_string(value)),
          else: words
      end)
    end

    defp words(words), do: words

    defp upload_words(:too_large), do: "This file is too large."
    defp upload_words(:not_accepted), do: "Files of this kind cannot be read."
    defp upload_words(_error), do: "This file could not be sent."

    attr :context, :any, required: true, doc: "an `AshAgent.Context`"

    attr :opts, :list,
      default: [],
      doc: "options of `AshAgent.Trace.to_html/2`, such as `:prices`"

    @doc "The page of a conversation's trace, for those who may see all of it, such as developers: it has the system prompt."
    @doc since: "0.1.0"
    def trace(assigns) do
      assigns =
        assign(
          assigns,
          :html,
          AshAgent.Trace.to_html(assigns.context, [fragment: true] ++ assigns.opts)
        )

      ~H|<div class="agent-trace">{Phoenix.HTML.raw(@html)}</div>|
    end
  end
end
