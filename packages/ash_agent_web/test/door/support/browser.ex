defmodule AshAgent.Door.Asks do
  @moduledoc false

  # Requests to a door, and what its answers say.

  alias AshAgent.Context.JSON
  alias AshAgent.Door

  @host "127.0.0.1:4000"

  def port, do: 4000

  @doc "A request of `name`, from the door's own page."
  def request(method, path, body \\ nil, opts \\ []) do
    headers = [
      {"host", @host},
      {"origin", "http://#{@host}"},
      {"content-type", "application/json"},
      {"authorization", "Bearer #{opts[:name] || "ada"}"}
    ]

    headers = for {name, value} <- headers, name not in (opts[:without] || []), do: {name, value}
    body = if is_binary(body), do: body, else: if(body, do: JSON.encode(body), else: "")
    %{method: method, path: path, headers: headers ++ (opts[:headers] || []), body: body}
  end

  def message(id, text) when is_binary(text), do: message(id, [%{type: "text", text: text}])
  def message(id, parts), do: %{id: id, role: "user", parts: parts}

  @doc "A message or decisions, in the words of a protocol."
  def ask(:ai_sdk, id, text) when is_binary(text), do: say(id, text)
  def ask(:ai_sdk, id, answers), do: decide(id, answers)

  def ask(:ag_ui, id, text) when is_binary(text),
    do: request("POST", [], run(id, %{messages: [%{id: "m1", role: "user", content: text}]}))

  def ask(:ag_ui, id, answers) do
    resume =
      for {approval, approved?} <- answers,
          do: %{interruptId: approval, status: "resolved", payload: %{approved: approved?}}

    request("POST", [], run(id, %{messages: [], resume: resume}))
  end

  defp run(id, more), do: Map.merge(%{threadId: id, runId: "r", protocolVersion: "1.0"}, more)

  def say(id, text, message \\ "m1"),
    do: request("POST", [], %{id: id, messages: [message(message, text)]})

  def decide(id, answers) do
    parts =
      for {approval, approved?} <- answers,
          do: %{
            type: "dynamic-tool",
            state: "approval-responded",
            approval: %{id: approval, approved: approved?}
          }

    request("POST", [], %{id: id, messages: [%{id: "turn-1", role: "assistant", parts: parts}]})
  end

  @doc "Asks, and reads the stream: the chunks."
  def chunks(door, request) do
    {200, _headers, {:stream, bytes}} = Door.call(door, request)
    bytes |> Enum.to_list() |> IO.iodata_to_binary() |> read()
  end

  def read(sent) do
    lines = sent |> String.replace(~r/^id: .*\n/m, "") |> String.split("\n\n", trim: true)
    # What is last, in each protocol.
    true = List.last(lines) =~ ~r/\[DONE\]|"RUN_(FINISHED|ERROR)"/
    for "data: {" <> json <- lines, do: JSON.decode!("{" <> json)
  end

  @doc "The events with their ids: `{id, chunk}`."
  def events(sent) do
    for block <- String.split(sent, "\n\n", trim: true),
        [_, id, json] <- [Regex.run(~r/\A(?:id: (\S+)\n)?data: (\{.*)\z/s, block)],
        do: {if(id != "", do: id), JSON.decode!(json)}
  end

  @doc "A request to go on behind an event."
  def back(id, path \\ ["ada-1", "stream"], opts \\ []),
    do: request("GET", path, nil, [headers: [{"last-event-id", id}]] ++ opts)

  def text(chunks),
    do: for(%{"type" => "text-delta", "delta" => text} <- chunks, into: "", do: text)

  def last(chunks), do: List.last(chunks)

  @doc "Asks for something that is refused: the status and the kind."
  def refused(door, request) do
    {status, _headers, body} = Door.call(door, request)
    %{"error" => %{"kind" => kind, "id" => _}} = body |> IO.iodata_to_binary() |> JSON.decode!()
    {status, kind}
  end

  def approvals(chunks) do
    for(%{"type" => "tool-approval-request", "approvalId" => id} <- chunks, do: id) ++
      for(%{"outcome" => %{"interrupts" => all}} <- chunks, %{"id" => id} <- all, do: id)
  end
end
