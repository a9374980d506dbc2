defmodule AshAgent.Conversation.Sweeper do
  @moduledoc """
  Continues turns that were cut short by a crash, a kill or a deploy, without Oban.

      children = [
        MyApp.Repo,
        {AshAgent.Conversation.Sweeper, resources: [MyApp.Chat.Conversation]}
      ]

  On every node, it calls `AshAgent.Conversation.Upkeep.resume_due/2` from time to time. A turn continues as the user who asked for it; see "The
  actor and the tenant" of `AshAgent.Conversation`. With AshOban, a trigger does the same, see the guide "Oban".

  Tests have their own connections, which it cannot see. In `config/test.exs`, this keeps it from starting:

      config :ash_agent_resources, sweep: false
  """

  use AshAgent.Arguments
  use GenServer

  require Logger

  alias AshAgent.Conversation.{Info, Upkeep}
  alias AshAgent.Options

  @schema Options.schema([
            {:resources, {:list, :atom}, [required: true, type_doc: "a list of modules"],
             "the resources with `AshAgent.Conversation`."},
            {:tenants, {:or, [{:list, :any}, {:fun, 0}]},
             [type_doc: "a list or a function of arity 0"],
             "the tenants, or a function that returns them. Defaults to those of `AshAgent.Conversation.Upkeep.due_tenants/1`."},
            {:every, :pos_integer, [default: 30_000],
             "milliseconds between two looks, on average."},
            {:name, :any, [type_doc: "a name as in `GenServer`"], "Defaults to no name."}
          ])

  @doc """
  Starts it, usually as a child of a supervisor.

  ## Options

  #{Options.docs(@schema)}
  """
  @doc since: "0.1.0"
  @spec start_link(keyword()) :: GenServer.on_start()
  def start_link(opts) do
    opts = Options.validate!(opts, @schema)
    Enum.each(opts[:resources], &Info.check!/1)
    unless opts[:tenants], do: Enum.each(opts[:resources], &Upkeep.check_tenants!/1)

    if Application.get_env(:ash_agent_resources, :sweep, true),
      do: GenServer.start_link(__MODULE__, opts, Keyword.take(opts, [:name])),
      else: :ignore
  end

  @impl true
  def init(opts), do: {:ok, look_later(opts)}

  @impl true
  def handle_info(:look, opts) do
    for resource <- opts[:resources], do: look(resource, opts[:tenants])
    {:noreply, look_later(opts)}
  end

  def handle_info(_message, opts), do: {:noreply, opts}

  # The nodes do not look all at the same time.
  defp look_later(opts) do
    Process.send_after(self(), :look, div(opts[:every], 2) + :rand.uniform(opts[:every]))
    opts
  end

  # What one resource or tenant fails with keeps no other from going on.
  defp look(resource, given) do
    guard(resource, fn ->
      for tenant <- tenants(resource, given),
          do: guard(resource, fn -> resume(resource, tenant) end)
    end)
  end

  defp tenants(resource, nil), do: Upkeep.due_tenants(resource)
  defp tenants(_resource, function) when is_function(function), do: function.()
  defp tenants(_resource, list), do: list

  defp resume(resource, tenant) do
    with {:error, error} <- Upkeep.resume_due(resource, tenant: tenant),
         do: report(resource, error)
  end

  defp guard(resource, fun) do
    fun.()
  rescue
    error -> report(resource, error)
  end

  # The words of an error may be a person's.
  defp report(resource, %module{}),
    do: Logger.error("conversations of #{inspect(resource)} could not go on: #{inspect(module)}")
end
