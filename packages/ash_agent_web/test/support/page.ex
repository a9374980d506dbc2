defmodule AshAgent.Web.Page do
  @moduledoc false

  # An application with the live page: two resources of people who see only their own, in tenants, and a model that the test plays.

  alias AshAgent.{Context, Response}
  alias AshAgent.Runtime.AskUser
  alias AshAgent.TestSupport.StreamModel

  @form %{
    "type" => "object",
    "properties" => %{
      "name" => %{"type" => "string", "title" => "Your name"},
      "seats" => %{"type" => "integer", "description" => "1 to 4"},
      "class" => %{"enum" => ["first", "second"]},
      "window" => %{"type" => "boolean"}
    },
    "required" => ["name", "seats"],
    "additionalProperties" => false
  }

  @app :ash_agent_web

  def llm, do: StreamModel.new(&play(&1, &2, Application.fetch_env!(@app, :player)))

  # The test is told of each request, and says what is answered.
  defp play(context, feed, test) do
    send(test, {:asked, self(), context |> Context.to_messages() |> List.last() |> text()})
    answer(feed)
  end

  defp text(%{content: [%{type: :tool_result} = result | _]}), do: inspect(result.content)
  defp text(message), do: Response.text(message) || inspect(message)

  defp answer(feed) do
    receive do
      {:text, text} ->
        feed.(StreamModel.text(text))
        answer(feed)

      {:call, id, name, json} ->
        feed.(StreamModel.call(id, name, json))
        answer(feed)

      {:finish, word} ->
        {:ok, feed.(StreamModel.finish(word))}

      {:fail, error} ->
        {:error, error}
    end
  end

  # A turn asks for its tools before it writes its message: a test can hold it there.
  def tools do
    Application.get_env(@app, :before_turn, fn -> :ok end).()

    %{
      delete: fn arguments -> {:ok, "deleted " <> arguments["path"]} end,
      ask_person: AskUser.tool(),
      seats: AskUser.tool(form: @form),
      look: fn _arguments -> {:ok, "seen"} end,
      whose: fn _arguments, %{actor: actor} -> {:ok, actor.id} end
    }
  end

  def approval(%{name: name}, _context) when name in ["delete", "whose"], do: :ask
  def approval(_call, _context), do: :approve

  def store, do: AshAgent.Web.Page.Store

  @doc "Starts what the pages need, below the test's supervisor."
  def children(server) do
    if server, do: {:ok, _started} = Application.ensure_all_started(:bandit)

    Application.put_env(@app, __MODULE__.Endpoint,
      adapter: if(Code.ensure_loaded?(Bandit), do: Bandit.PhoenixAdapter),
      http: [ip: {127, 0, 0, 1}, port: 0],
      server: server,
      secret_key_base: String.duplicate("s", 64),
      live_view: [signing_salt: "of a test"],
      pubsub_server: __MODULE__.PubSub,
      render_errors: [formats: [], layout: false]
    )

    [
      {AshAgent.Store.SQLite, name: store(), path: ":memory:"},
      {Phoenix.PubSub, name: __MODULE__.PubSub},
      __MODULE__.Endpoint
    ]
  end

  defmacro __using__(_opts) do
    quote do
      use Ash.Resource,
        domain: AshAgent.Web.Page.Domain,
        data_layer: Ash.DataLayer.Ets,
        authorizers: [Ash.Policy.Authorizer],
        notifiers: [Ash.Notifier.PubSub],
        extensions: [AshAgent.Conversation]

      multitenancy do
        strategy(:attribute)
        attribute(:org)
      end

      attributes do
        uuid_primary_key(:id)
        attribute(:title, :string, public?: true)
        attribute(:owner, :string)
        attribute(:org, :string, public?: true)
      end

      changes do
        change(set_attribute(:owner, expr(^actor(:name))), on: [:create])
      end

      conversation do
        store(fn _tenant -> AshAgent.Web.Page.store() end)
        llm(&AshAgent.Web.Page.llm/0)
        tools(&AshAgent.Web.Page.tools/0)
        system_prompt("You are the secret of this house.")
        approval(&AshAgent.Web.Page.approval/2)
      end

      pub_sub do
        module(AshAgent.Web.Page.Endpoint)
        prefix("conversation")
        publish(:delta, [:id], event: "delta", transform: & &1.metadata)
      end

      policies do
        policy action([:approve, :deny, :answer, :say]) do
          forbid_if(actor_attribute_equals(:role, :reader))
          authorize_if(always())
        end

        policy action_type([:read, :update, :destroy]) do
          authorize_if(expr(^ref(:owner) == ^actor(:name)))
        end

        policy action_type(:create) do
          authorize_if(actor_present())
        end
      end
    end
  end
end

defmodule AshAgent.Web.Page.Chat do
  @moduledoc false
  use AshAgent.Web.Page
end

defmodule AshAgent.Web.Page.EditedChat do
  @moduledoc false
  # The test is told what its actions were given.
  use AshAgent.Web.Page

  changes do
    change(&__MODULE__.tell/2, on: [:update])
  end

  def tell(changeset, _context) do
    test = Application.fetch_env!(:ash_agent_web, :player)
    send(test, {changeset.action.name, changeset.arguments})
    changeset
  end
end

defmodule AshAgent.Web.Page.PlainChat do
  @moduledoc false
  # Its own actions have no arguments that steer or change a call.
  use AshAgent.Web.Page

  actions do
    update :approve do
      accept([])
      require_atomic?(false)
      argument(:call_id, :string, allow_nil?: false)
      argument(:arguments, :map)
      change({AshAgent.Conversation.Change, does: :approve})
    end

    update :say do
      accept([])
      require_atomic?(false)
      for name <- [:input, :key], do: argument(name, :string)
      argument(:metadata, :map)
      argument(:wait, :boolean, default: true)
      change({AshAgent.Conversation.Change, does: :say})
    end
  end
end

defmodule AshAgent.Web.Page.HiddenChat do
  @moduledoc false
  # Whoever may read a conversation need not read its words.
  use AshAgent.Web.Page

  field_policies do
    field_policy :transcript do
      forbid_if(actor_attribute_equals(:role, :reader))
      authorize_if(always())
    end

    field_policy :* do
      authorize_if(always())
    end
  end
end

defmodule AshAgent.Web.Page.Domain do
  @moduledoc false
  use Ash.Domain, validate_config_inclusion?: false

  resources do
    resource(AshAgent.Web.Page.Chat)
    resource(AshAgent.Web.Page.EditedChat)
    resource(AshAgent.Web.Page.PlainChat)
    resource(AshAgent.Web.Page.HiddenChat)
  end
end

defmodule AshAgent.Web.Page.ChatLive do
  @moduledoc false
  use Phoenix.LiveView, log: false

  alias AshAgent.Web.{Live, Page}

  @impl true
  def mount(_params, %{"name" => name} = session, socket) do
    # Whoever crashes the page shows what a report says.
    role = if session["reader"], do: :reader, else: :agent
    action = socket.assigns.live_action
    edited? = action == :edited
    resources = %{chat: Page.Chat, edited: Page.EditedChat, plain: Page.PlainChat}

    {:ok,
     Live.mount(socket,
       resource: resources[action],
       actor: %{id: name, name: name, role: role, token: "sesame"},
       tenant: session["org"],
       endpoint: Page.Endpoint,
       path: "/#{action}",
       list: [load: [:total_tokens], authorize?: false],
       trace: edited?,
       accept: if(edited?, do: ~w(.png .txt), else: false)
     )}
  end

  @impl true
  def handle_params(params, _uri, socket),
    do: {:noreply, Live.open(socket, params["id"], params)}

  @impl true
  def handle_event(event, params, socket),
    do: {:noreply, Live.handle_event(event, params, socket)}

  @impl true
  def handle_info(message, socket), do: {:noreply, Live.handle_info(message, socket)}

  @impl true
  def render(assigns), do: Live.page(assigns)
end

defmodule AshAgent.Web.Page.Router do
  @moduledoc false
  use Phoenix.Router

  import Phoenix.LiveView.Router
  import Plug.Conn

  pipeline :browser do
    plug(:accepts, ["html"])
    plug(:fetch_query_params)
    plug(:fetch_session)
    plug(:log_in)
    plug(:protect_from_forgery)
    plug(:put_root_layout, html: {AshAgent.Web.Page.Layout, :root})
  end

  scope "/", AshAgent.Web.Page do
    pipe_through(:browser)

    for action <- [:chat, :edited, :plain] do
      live("/#{action}", ChatLive, action)
      live("/#{action}/:id", ChatLive, action)
    end
  end

  # A browser says who it is in the address.
  defp log_in(%{params: %{"as" => name}} = conn, _opts),
    do: conn |> put_session("name", name) |> put_session("org", "acme")

  defp log_in(conn, _opts), do: conn
end

defmodule AshAgent.Web.Page.Layout do
  @moduledoc false
  use Phoenix.Component

  def root(assigns) do
    ~H"""
    <!DOCTYPE html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width" />
        <link rel="icon" href="data:," />
        <meta name="csrf-token" content={Plug.CSRFProtection.get_csrf_token()} />
        <.live_title>{assigns[:page_title] || "Chat"}</.live_title>
        <script src="/assets/phoenix.min.js"></script>
        <script src="/assets/phoenix_live_view.min.js"></script>
        <script>
          const token = document.querySelector("meta[name='csrf-token']").content
          window.liveSocket = new LiveView.LiveSocket("/live", Phoenix.Socket, { params: { _csrf_token: token } })
          liveSocket.connect()
        </script>
      </head>
      <body style="margin: 0">{@inner_content}</body>
    </html>
    """
  end
end

defmodule AshAgent.Web.Page.Endpoint do
  @moduledoc false
  use Phoenix.Endpoint, otp_app: :ash_agent_web

  @session [store: :cookie, key: "_page", signing_salt: "of a test"]

  socket("/live", Phoenix.LiveView.Socket, websocket: [connect_info: [session: @session]])
  plug(Plug.Static, at: "/assets", from: {:phoenix, "priv/static"}, only: ["phoenix.min.js"])

  plug(Plug.Static,
    at: "/assets",
    from: {:phoenix_live_view, "priv/static"},
    only: ["phoenix_live_view.min.js"]
  )

  plug(Plug.Session, @session)
  plug(AshAgent.Web.Page.Router)
end
