defmodule AshAgent.TestSupport.Viewer do
  @moduledoc false

  # A subscriber that keeps nothing but what it was sent, and what it shows of that after each change.

  alias AshAgent.{Context, Response, Session}

  defstruct [:session, :ref, :number, :messages, :text, log: %{}, behind: 0]

  @doc "Subscribes."
  def new(session, opts \\ []) do
    {:ok, ref, snapshot} = Session.subscribe(session, opts)
    show(%__MODULE__{session: session, ref: ref}, snapshot)
  end

  @doc "Takes one message, or what `wait` milliseconds without one bring: `{:ok, viewer}` or `:quiet`."
  def next(%{session: session, ref: ref, number: number} = viewer, wait \\ 10_000) do
    receive do
      {Session, ^ref, got, change} when got == number + 1 or change == :behind ->
        case change do
          {:delta, events} ->
            {:ok, shown(%{viewer | number: got, text: viewer.text <> text(events)})}

          {:context, context} ->
            {:ok,
             shown(%{viewer | number: got, messages: Context.to_messages(context), text: ""})}

          {:event, _name, _measurements, _metadata} ->
            {:ok, shown(%{viewer | number: got})}

          {:snapshot, binary} ->
            messages = binary |> Context.load!() |> Context.to_messages()
            {:ok, shown(%{viewer | number: got, messages: messages, text: ""})}

          :behind ->
            {:ok, show(%{viewer | behind: viewer.behind + 1}, Session.snapshot(session))}
        end

      {Session, ^ref, got, _change} ->
        raise "a gap: #{got} after #{number}"
    after
      wait -> :quiet
    end
  end

  @doc "Goes on until it has seen change `number`."
  def until(%{number: number} = viewer, last) when number >= last, do: viewer

  def until(viewer, last) do
    {:ok, viewer} = next(viewer)
    until(viewer, last)
  end

  defp show(viewer, snapshot) do
    text = if snapshot.message, do: Response.text(snapshot.message) || "", else: ""
    messages = Context.to_messages(snapshot.context)
    shown(%{viewer | number: snapshot.number, messages: messages, text: text})
  end

  defp shown(viewer),
    do: %{viewer | log: Map.put(viewer.log, viewer.number, {viewer.messages, viewer.text})}

  defp text(events), do: for({:text, _part, text} <- events, into: "", do: text)
end
