defmodule AshAgent.Conversation.Answers do
  alias AshAgent.Options

  @schema Options.schema([
            {:endpoint, :atom, [required: true, type_doc: "a module"],
             "what `Absinthe.Subscription` was started with."},
            {:field, :atom, [default: :answer], "the field of the schema's `subscription`."}
          ])

  @moduledoc """
  Sends the text of answers to GraphQL subscriptions while the model writes it.

      defmodule MyAppWeb.Answers do
        use AshAgent.Conversation.Answers, endpoint: MyAppWeb.Endpoint
      end

  Such a module is a notifier of the resource: `use Ash.Resource, notifiers: [MyAppWeb.Answers]`. The schema has the field, and
  `authorize/3` decides who may subscribe to it:

      object :answer do
        field :text, :string
        field :iteration, :integer
        field :number, :integer
        field :said, :string
        field :ended, :string
        field :titled, :string
      end

      subscription do
        field :answer, :answer do
          arg :id, non_null(:id)

          config fn %{id: id}, %{context: context} ->
            AshAgent.Conversation.Answers.authorize(MyApp.Chat.Conversation, id, context)
          end
        end
      end

  A subscriber gets one of these at a time, and the other fields are `nil`:

    * `text` - the next piece of the answer. All pieces of an `iteration` are one message. Absinthe may deliver them in another order on other
      nodes than the turn's: their `number` grows within a turn, with gaps
    * `said` - the id of a message of `:say`, when it is stored
    * `ended` - `"answered"`, `"paused"` or `"failed"`, when a turn is over: read the conversation again
    * `titled` - the title that the model has written

  While `Absinthe.Subscription` does not run, as in a script, nothing is sent.

  ## Options of `use`

  #{Options.docs(@schema)}
  """

  use AshAgent.Arguments

  alias AshAgent.Conversation.Info

  defmacro __using__(opts) do
    quote do
      use Ash.Notifier

      @ash_agent_answers unquote(__MODULE__).check!(unquote(opts))

      @impl Ash.Notifier
      def notify(notification), do: unquote(__MODULE__).publish(notification, @ash_agent_answers)
    end
  end

  @doc false
  def check!(opts) do
    unless Code.ensure_loaded?(Absinthe.Subscription),
      do:
        raise(
          ArgumentError,
          "subscriptions need Absinthe: add ash_graphql and absinthe_phoenix to the dependencies"
        )

    Options.validate!(opts, @schema)
  end

  @doc """
  Returns the configuration of a subscription to a conversation's answers, or `{:error, "not found"}`.

  The record is read with the `:actor` and the `:tenant` of Absinthe's context, where AshGraphql puts them. If a field policy hides `transcript` from
  the actor, there is nothing to subscribe to either. Rights are checked when a client subscribes, and not again before it disconnects.
  """
  @doc since: "0.1.0"
  @spec authorize(module(), term(), map()) :: {:ok, keyword()} | {:error, String.t()}
  def authorize(resource, id, context) when is_atom(resource) and is_map(context) do
    resource = Info.check!(resource)
    tenant = context[:tenant]
    load = if Info.hides_transcript?(resource), do: [:transcript], else: []
    opts = [actor: context[:actor], tenant: tenant, authorize?: true, load: load]

    case Ash.get(resource, id, opts) do
      {:ok, %{transcript: %Ash.ForbiddenField{}}} ->
        {:error, "not found"}

      {:ok, record} ->
        {:ok, topic: topic(record, Ash.ToTenant.to_tenant(tenant, resource))}

      # Nobody learns what exists.
      {:error, _error} ->
        {:error, "not found"}
    end
  end

  @doc false
  def publish(%{action: %{name: :delta}} = notification, opts) do
    sent = shown(notification.metadata)

    # Called by name: Absinthe may be missing when this is compiled.
    with true <- sent != nil,
         {:ok, endpoint} <- call(:extract_pubsub, [%{pubsub: opts[:endpoint]}]) do
      topic = topic(notification.data, notification.changeset.to_tenant)
      call(:publish, [endpoint, sent, [{opts[:field], topic}]])
    end

    :ok
  end

  def publish(_notification, _opts), do: :ok

  defp call(name, arguments), do: apply(Absinthe.Subscription, name, arguments)

  defp shown(%{events: events} = metadata) do
    text = for {:text, _part, text} <- events, into: "", do: text
    if text != "", do: metadata |> Map.take([:iteration, :number]) |> Map.put(:text, text)
  end

  defp shown(%{ended: how}), do: %{ended: to_string(how)}
  defp shown(metadata), do: metadata

  # Tenants with schemas of their own have records of one id.
  defp topic(%resource{} = record, tenant),
    do: inspect({if(Info.schemas?(resource), do: tenant), Info.key(record)})
end
