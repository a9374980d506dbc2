defmodule AshAgent.Trace do
  @moduledoc """
  Shows a conversation, live or stored, as an HTML page, and exports it as spans for other programs.

      iex> context = AshAgent.Context.new("What is 2 + 2?") |> AshAgent.Context.add_assistant_message("4")
      iex> page = AshAgent.Trace.to_html(context, title: "Sums")
      iex> page =~ "<title>Sums</title>" and page =~ "What is 2 + 2?"
      true

  `AshAgent.Context.print/2` shows a conversation at a terminal, and `mix ash_agent.trace FILE` of ash_agent_runtime does both for a stored one.

  ## What is shown

  A page shows everything that was said, and how the model sees it through the conversation's view: hidden, summarized, cleared,
  shortened. Masked texts are masked everywhere, unless you pass `masked: false`. If a page has several conversations, the
  masks of each apply to all.

  The application's metadata, providers' signatures, reasoning that only a provider can read, and the bytes of files other than images
  are left out. A runtime context is never part of a conversation, so it is never part of a page.

  With `:prices`, the costs of models that have a price are shown.

  Times are those in the conversation: when iterations begin and end, when somebody decided about a call, and, as runs keep them, when
  the model was asked and answered and when tools started and ended. A run also keeps the view that each request was made from, so that
  a page can show what the model saw in it, for the newest 20 views. Masks are not kept with it: those in force apply to all. Each answer
  of a run has what was asked, whole: the model, the server, the fields and the tools of its request, its messages, and the difference
  to the request before.

  Times are shown in the reader's time zone. All text is in the document, even where only its beginning is shown, so you can find and
  print all of it in the browser. Messages are rendered as Markdown and JSON, but nothing in them is ever treated as HTML.
  """

  use AshAgent.Arguments

  alias AshAgent.{ChatContext, Context, Prices}
  alias AshAgent.Context.{Native, Printed, Reply, Requests}
  alias AshAgent.Trace.{Csv, Otlp}

  @children AshAgent.Options.schema([
              {:children, {:list, {:or, [{:struct, Context}, {:struct, ChatContext}]}},
               [type_doc: "a list of contexts and chats", default: []],
               "the conversations of sub-agents, see `:on_child` of `AshAgent.Runtime.SubAgent`, and the children of a chat. Each is shown " <>
                 "with the call that it was made for."}
            ])

  @prices Prices.schema()

  @otlp_options Otlp.options() ++ @children ++ Printed.mask_options()

  @html_options AshAgent.Options.schema([
                  {:title, {:or, [:string, nil]}, [default: nil],
                   "the page's title. With `nil`, it is the name of the conversation or branch."},
                  {:request, {:custom, &__MODULE__.request?/1},
                   [type_doc: "a provider, or `{provider, options}`"],
                   "shows the request that would be sent to this provider now, and its changes; takes the options of " <>
                     "`AshAgent.Context.request/3`. Defaults to no request."},
                  {:fragment, :boolean, [default: false],
                   "whether to return an `iframe` that contains the page, for another page, such as a LiveView's with " <>
                     "`Phoenix.HTML.raw/1`. If that page has a content security policy, it has to allow the script in the " <>
                     "`iframe`; without the script, only the newest messages can be read."}
                ]) ++ @children ++ @prices ++ Printed.mask_options()

  @csv_options AshAgent.Options.schema([
                 {:id, :string, "the first column. Defaults to the conversation's id."},
                 {:header, :boolean, [default: true],
                  "whether the header comes first. Leave it out after other conversations."}
               ]) ++ @prices

  @doc """
  Returns one HTML page with a conversation, or with all branches of a chat.

  The page is self-contained: its content security policy allows its own script, style and images, and no network access. The newest 50
  messages can be read without the script. The page is at most 1.2 times as long as the snapshots of its conversations, plus 300 KB.

  Costs O(n). Raises `ArgumentError` for wrong options, and `AshAgent.Context.Error` with `{:invalid_pattern, _, _}` if the
  conversations together have more than 100 masks.

  ## Options

  #{AshAgent.Options.docs(@html_options)}

  ## Examples

      iex> chat = AshAgent.ChatContext.new(input: "Hello!") |> AshAgent.ChatContext.branch("idea")
      iex> AshAgent.Trace.to_html(chat) =~ ~s("name":"idea")
      true
      iex> AshAgent.Trace.to_html(chat, fragment: true) |> String.slice(0, 7)
      "<iframe"
  """
  @doc since: "0.1.0"
  @spec to_html(Context.t() | ChatContext.t(), keyword()) :: String.t()
  def to_html(shown, opts \\ [])

  def to_html(%module{} = shown, opts) when module in [Context, ChatContext] do
    opts = AshAgent.Options.validate!(opts, @html_options)

    given = %{
      title: opts[:title],
      request: if(opts[:request], do: request(opts[:request])),
      prices: Prices.terms(opts[:prices]),
      fragment: opts[:fragment]
    }

    shown |> all_told(opts[:children]) |> Native.trace_html(opts[:masked], given) |> Reply.ok!()
  end

  @doc """
  Returns a conversation as OTLP, the protocol of OpenTelemetry, with spans by its semantic conventions for generative AI.

  Each turn is a trace: a span `invoke_agent`, and in it, beside each other, `chat` for each answer of the model and `execute_tool`
  for each call that has a result. The turns of a sub-agent are within the call that it was made for. For a chat, the active branch
  is written. `gen_ai.conversation.id` tells viewers which traces belong together; `ash_agent.turn`, `ash_agent.iteration` and
  `ash_agent.context.id` tell where in the conversation a span is.

  The ids of traces and spans follow from the conversation, so writing a turn again, alone or with others, gives the same trace.

  With `messages: true`, spans have what was said, valid against the conventions' JSON schemas: the `chat` spans the messages since
  the last answer, the answer, the system prompt and the tools, and the `execute_tool` spans arguments and results. Numbers of tokens
  are those of the `chat` spans alone, as viewers add them up. A summary that the model reads in place of iterations comes before the
  messages after them. Requests of runs have their parameters, their server and the model that was asked for; elsewhere
  `gen_ai.request.model` is the model that answered.

  Times are those that runs store with answers and results. Where only an iteration's are known, its answer and its calls have these,
  and an answer after which the user spoke again has the time at which its iteration began. Summaries are those of the view that a
  request was made from, or of the present one where that is not known.

  The result is a message of the type `TracesData`, which is also the body of a request to a receiver: see `AshAgent.Trace.Exporter`
  for sending it. It needs the feature `:otlp`:

      config :ash_agent_context, features: [:otlp]

  Costs O(n). Raises the errors of `to_html/2`, and `AshAgent.Context.Error` with `{:unknown_iteration, number, range}`, with
  `{:trace_too_large, bytes}` if the result would be longer than that, and with `{:feature_missing, "otlp"}`.

  ## Options

  #{AshAgent.Options.docs(@otlp_options)}

  ## Examples

      iex> context = AshAgent.Context.new("What is 2 + 2?") |> AshAgent.Context.add_assistant_message("4")
      iex> json = AshAgent.Trace.to_otlp(context, format: :json, agent: "sums")
      iex> {:ok, %{"resourceSpans" => [%{"scopeSpans" => [%{"spans" => spans}]}]}} = AshAgent.Context.JSON.decode(json)
      iex> for span <- spans, do: span["name"]
      ["invoke_agent sums", "chat"]
      iex> AshAgent.Trace.to_otlp(context, turn: 1) == AshAgent.Trace.to_otlp(context, turn: :last)
      true
  """
  @doc since: "0.1.0"
  @spec to_otlp(Context.t() | ChatContext.t(), keyword()) :: binary()
  def to_otlp(%module{} = shown, opts \\ []) when module in [Context, ChatContext],
    do: Otlp.encode(shown, AshAgent.Options.validate!(opts, @otlp_options))

  @doc """
  Returns the account of a conversation, or of a chat's active branch, as CSV, as iodata: a header, and a line for each request.

  The columns are `#{Enum.join(Csv.columns(), "`, `")}`, see `AshAgent.Context.Audit.account/2`. Times are ISO 8601, money is in US dollars
  with all of its digits, and what is unknown is empty. Texts are quoted. One that a spreadsheet would take for a formula, such as the name of a
  model that begins with `=`, has an apostrophe before it. Costs O(n).

  ## Options

  #{AshAgent.Options.docs(@csv_options)}

  ## Examples

      iex> context = AshAgent.Context.new("Hello!", id: "c1") |> AshAgent.Context.add_assistant_message("Hi!")
      iex> context = AshAgent.Context.Tokens.add_token_usage(context, %{input_tokens: 9, output_tokens: 2})
      iex> prices = [%{model: :any, input: 3_000_000, output: 15_000_000}]
      iex> context |> AshAgent.Trace.to_csv(prices: prices, header: false) |> IO.iodata_to_binary()
      ~s("c1",1,,,,9,0,0,2,0,0,first,,0.000057000000,0.000000000000\\r\\n)
  """
  @doc since: "0.1.0"
  @spec to_csv(Context.t() | ChatContext.t(), keyword()) :: iodata()
  def to_csv(shown, opts \\ [])

  def to_csv(%ChatContext{} = chat, opts),
    do: chat |> ChatContext.active() |> Map.fetch!(:context) |> to_csv(opts)

  def to_csv(%Context{} = context, opts) do
    opts = AshAgent.Options.validate!(opts, @csv_options)
    %{requests: requests} = Context.Audit.account(context, prices: opts[:prices])
    Csv.encode(requests, opts[:id] || context[:id], opts[:header])
  end

  ## For the core: {name, id, parent | nil, position of the branch it was made of | nil, active?, handle}

  defp all_told(shown, children) do
    shown = list_conversations(shown, 0, true)
    Enum.reduce(children, shown, &(&2 ++ list_conversations(&1, length(&2), false)))
  end

  defp list_conversations(%Context{} = context, _first, active?),
    do: [Printed.describe(context, active?)]

  defp list_conversations(%ChatContext{} = chat, first, main?) do
    branches = ChatContext.branches(chat)
    positions = branches |> Enum.with_index(first) |> Map.new(fn {of, at} -> {of.number, at} end)

    for branch <- branches do
      active? = main? and branch.name == chat.active_branch_name
      name = if main?, do: branch.name, else: "#{chat.id}: #{branch.name}"
      {name, chat.id, chat.parent_id, before(positions, branch), active?, branch.context.ref}
    end
  end

  # A branch whose origin is gone, or comes after it, is shown on its own.
  defp before(positions, %{origin: origin, number: number}) do
    if is_integer(origin) and origin < number, do: positions[origin]
  end

  defp request({provider, opts}), do: Requests.checked_options(provider, opts)
  defp request(provider), do: request({provider, []})

  @doc false
  def request?(nil), do: true
  def request?({provider, opts}), do: provider in Requests.providers() and Keyword.keyword?(opts)
  def request?(provider), do: provider in Requests.providers()
end
