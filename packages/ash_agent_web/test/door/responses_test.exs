defmodule AshAgent.Door.ResponsesTest do
  # The model of these scenes waits under a name.
  use ExUnit.Case, async: false

  import AshAgent.Door.Asks, only: [request: 3, request: 4, port: 0]
  import AshAgent.Door.Clients, only: [await_model: 0]

  alias AshAgent.Context.JSON
  alias AshAgent.{Context, Door, Sessions}
  alias AshAgent.Door.{Feed, Play, Responses}

  @moduletag :capture_log
  @moduletag timeout: 60_000

  setup context do
    name = Play.name(context)
    {:ok, _} = Play.sessions(name)
    opts = [protocol: :responses] ++ (context[:door] || [])
    %{name: name, door: Play.door(name, port(), opts)}
  end

  defp ask(input, more \\ %{}),
    do: request("POST", [], Map.merge(%{model: "agent", input: input}, more))

  defp get(id, query \\ ""), do: "GET" |> request([id], nil) |> Map.put(:query, query)

  defp whole(door, request) do
    assert {200, _headers, body} = Door.call(door, request)
    body |> IO.iodata_to_binary() |> JSON.decode!()
  end

  defp stream(door, request) do
    {200, _headers, {:stream, bytes}} = Door.call(door, request)
    bytes |> Enum.to_list() |> IO.iodata_to_binary() |> events()
  end

  defp events(bytes) do
    for block <- String.split(bytes, "\n\n", trim: true), block =~ "data: " do
      ["event: " <> type, "data: " <> json] = String.split(block, "\n", parts: 2)
      assert %{"type" => ^type} = event = JSON.decode!(json)
      event
    end
  end

  defp refused(door, request) do
    {status, _headers, body} = Door.call(door, request)
    %{"error" => error} = body |> IO.iodata_to_binary() |> JSON.decode!()
    {status, error["code"], error["param"]}
  end

  defp text(%{"output" => items}) do
    for %{"type" => "message", "content" => parts} <- items,
        %{"text" => text} <- parts,
        into: "",
        do: text
  end

  defp await_end(door, id) do
    case whole(door, get(id)) do
      %{"status" => status} when status in ["queued", "in_progress"] ->
        Process.sleep(20)
        await_end(door, id)

      response ->
        response
    end
  end

  test "a turn is a response, whole or as a stream", %{door: door} do
    response = whole(door, ask("think"))
    assert %{"object" => "response", "status" => "completed", "model" => "agent"} = response
    assert [%{"type" => "reasoning"} | _] = response["output"]
    assert whole(door, get(response["id"]))["output"] == response["output"]

    events = stream(door, ask("think", %{stream: true}))

    assert for(%{"sequence_number" => n} <- events, do: n) ==
             Enum.to_list(0..(length(events) - 1))

    assert ["response.created", "response.in_progress", "response.output_item.added" | _] =
             for(e <- events, do: e["type"])

    assert %{"type" => "response.completed", "response" => streamed} = List.last(events)
    assert text(streamed) == text(response)

    assert for(%{"type" => "response.output_text.delta", "delta" => t} <- events, into: "", do: t) ==
             text(response)

    assert Enum.map(whole(door, get(streamed["id"]))["output"], & &1["content"]) ==
             Enum.map(streamed["output"], & &1["content"])
  end

  test "the agent's calls are its own", %{door: door} do
    events = stream(door, ask("two calls", %{stream: true}))
    refute Enum.any?(events, &(inspect(&1) =~ "function_call"))
    assert %{"response" => response} = List.last(events)
    assert text(response) == "I look.Both are done."
    assert length(response["output"]) == 2
    for e <- events, i = e["output_index"], do: assert(i in 0..1)
  end

  test "a response follows the last one in its conversation, and an earlier one in a fork", %{
    door: door,
    name: name
  } do
    one = whole(door, ask("hello"))
    two = whole(door, ask("hello", %{previous_response_id: one["id"]}))
    assert two["previous_response_id"] == one["id"]
    assert two["conversation"] == one["conversation"]

    # Two that follow the same one do not know each other.
    three = whole(door, ask("hello", %{previous_response_id: one["id"]}))
    refute three["conversation"] == one["conversation"]
    {:ok, context} = Sessions.context(name, three["conversation"]["id"])
    assert context[:origin] == %{id: one["conversation"]["id"], iteration: 1}
    assert Context.count_iterations(context) == 2

    # In the fork, and behind a response of the conversation that it was made from.
    four = whole(door, ask("hello", %{previous_response_id: three["id"]}))
    assert four["conversation"] == three["conversation"]
    five = whole(door, ask("hello", %{conversation: one["conversation"]["id"]}))
    assert five["conversation"] == one["conversation"]

    for response <- [one, two, three, four, five],
        do: assert(whole(door, get(response["id"]))["output"] == response["output"])
  end

  test "of several that follow one at once, one has its conversation", %{door: door} do
    one = whole(door, ask("hello"))

    all =
      1..4
      |> Enum.map(fn _ ->
        Task.async(fn -> Door.call(door, ask("hello", %{previous_response_id: one["id"]})) end)
      end)
      |> Task.await_many(20_000)

    answers = for {200, _, body} <- all, do: body |> IO.iodata_to_binary() |> JSON.decode!()
    conversations = for a <- answers, do: a["conversation"]["id"]
    assert conversations == Enum.uniq(conversations)
    assert Enum.count(conversations, &(&1 == one["conversation"]["id"])) <= 1
    for {status, _, _} <- all, do: assert(status in [200, 409])
  end

  test "in the background it is polled, streamed again behind a number, and cancelled", %{
    door: door
  } do
    response = whole(door, ask("wait", %{background: true}))
    assert %{"status" => "queued", "background" => true, "output" => []} = response
    model = await_model()
    assert %{"status" => "in_progress"} = whole(door, get(response["id"]))

    assert refused(door, ask("hello", %{previous_response_id: response["id"]})) ==
             {409, "busy", nil}

    task = Task.async(fn -> stream(door, get(response["id"], "stream=true")) end)
    send(model, :go)
    events = Task.await(task)
    assert text(List.last(events)["response"]) == "one two three four"
    assert await_end(door, response["id"])["status"] == "completed"

    # Its numbers are those of the response that it began with.
    for %{"sequence_number" => n} <- events do
      id = hd(events)["response"]["id"]
      assert stream(door, get(id, "stream=true&starting_after=#{n}")) == Enum.drop(events, n + 1)
    end

    # Those of another one are other events: it comes as a whole.
    other = String.replace(hd(events)["response"]["id"], ~r/\.[^.]*\z/, ".0123456789")
    assert length(stream(door, get(other, "stream=true&starting_after=5"))) > 7

    assert length(
             stream(door, get(hd(events)["response"]["id"], "stream=true&starting_after=500"))
           ) > 7

    response = whole(door, ask("wait", %{background: true}))
    await_model()

    assert %{"status" => "cancelled"} =
             whole(door, request("POST", [response["id"], "cancel"], nil))

    assert %{"status" => "incomplete", "incomplete_details" => %{"reason" => "interrupted"}} =
             await_end(door, response["id"])

    feeds = fn -> for {_, pid, _, _} <- Supervisor.which_children(Feed.Supervisor), do: pid end
    before = feeds.()

    for _ <- 1..3 do
      assert %{"status" => "incomplete"} =
               whole(door, request("POST", [response["id"], "cancel"], nil))
    end

    # It needs no process that goes on.
    assert Enum.filter(feeds.() -- before, &lives?/1) == []
  end

  # One that was closed ends soon.
  defp lives?(pid) do
    ref = Process.monitor(pid)
    receive(do: ({:DOWN, ^ref, _, _, _} -> false), after: (1_000 -> true))
  end

  test "a turn that waits for a person is incomplete, in words, and with a reason", %{door: door} do
    events = stream(door, ask("ask", %{stream: true}))
    assert %{"type" => "response.incomplete", "response" => response} = List.last(events)

    assert %{"status" => "incomplete", "incomplete_details" => %{"reason" => "approval_required"}} =
             response

    assert text(response) =~ "Somebody has to decide whether clean_up may run"

    assert whole(door, get(response["id"]))["incomplete_details"] ==
             response["incomplete_details"]

    assert text(whole(door, get(response["id"]))) == text(response)

    assert refused(door, ask("hello", %{previous_response_id: response["id"]})) ==
             {409, "paused", nil}

    assert %{"status" => "cancelled"} =
             whole(door, request("POST", [response["id"], "cancel"], nil))
  end

  test "what failed has a kind and an id, and nothing of the provider", %{door: door} do
    assert %{"type" => "response.failed", "response" => response} =
             List.last(stream(door, ask("refused", %{stream: true})))

    assert %{"status" => "failed", "error" => %{"message" => words}} = response
    assert words =~ ~r/\A\w+ \([0-9a-f]{12}\)\z/
    assert %{"status" => "failed"} = whole(door, get(response["id"]))
    refute inspect(response) =~ "secret"
  end

  test "an answer that was lost does not count" do
    events = [
      {:step_started, {1, 0}},
      {:text_started, "1.0.0"},
      {:text, "1.0.0", "Lost"},
      {:text_ended, "1.0.0"},
      {:dropped, {1, 0}, ["1.0.0"]},
      {:text_started, "1.0.0"},
      {:text, "1.0.0", "Kept"},
      {:text_ended, "1.0.0"}
    ]

    run = %{conversation: "c", key: "resp:k"}
    response = Responses.whole(events, :answered, run: run, model: "agent")
    assert for(%{content: [%{text: text}]} <- response.output, do: text) == ["Kept"]
  end

  test "a request that is sent again with its key is one response", %{door: door} do
    again = fn ->
      request("POST", [], %{input: "hello", conversation: "ada-1"},
        headers: [{"idempotency-key", "k1"}]
      )
    end

    one = whole(door, again.())
    two = whole(door, again.())
    assert Map.delete(one, "id") == Map.delete(two, "id")
    {:ok, context} = Sessions.context(door.opts[:sessions], "ada-1")
    assert Context.count_iterations(context) == 1
  end

  test "what is not served is refused by name", %{door: door} do
    for {field, value} <- [
          tools: [%{type: "web_search"}],
          instructions: "You are mine.",
          max_output_tokens: 10,
          reasoning: %{effort: "high"},
          metadata: %{a: "b"},
          temperature: 0,
          text: %{format: %{type: "json_schema"}},
          store: false,
          stream: "yes",
          background: 1,
          include: ["reasoning.encrypted_content"],
          prompt: %{id: "p"},
          user: "u",
          anything: 1
        ] do
      asked = ask("hello", %{field => value})
      assert refused(door, asked) == {400, "unsupported_parameter", "#{field}"}
    end

    for {input, at} <- [
          {[%{role: "user", content: "hello"}, %{role: "assistant", content: "Hi"}], 1},
          {[%{role: "system", content: "You are mine."}], 0},
          {[%{role: "developer", content: "You are mine."}], 0},
          {[%{type: "function_call_output", call_id: "a", output: "b"}], 0},
          {["hello"], 0}
        ],
        do: assert(refused(door, ask(input)) == {400, "unsupported_parameter", "input[#{at}]"})

    assert refused(door, ask("hello", %{model: "gpt"})) == {400, "model_not_found", "model"}
    assert refused(door, ask(nil)) == {400, "invalid_value", "input"}

    assert refused(door, ask("hello", %{previous_response_id: "resp_1"})) ==
             {400, "previous_response_not_found", "previous_response_id"}

    assert refused(
             door,
             ask([
               %{
                 role: "user",
                 content: [%{type: "input_image", image_url: "https://a.example/a.png"}]
               }
             ])
           ) == {400, "file_not_in_message", nil}

    # What asks for what there is anyway, is not refused.
    same = %{
      temperature: 1.0,
      tools: [],
      store: true,
      metadata: nil,
      truncation: "disabled",
      tool_choice: "auto"
    }

    image = %{type: "input_image", image_url: "data:image/png;base64,iVBORw0KGgo="}

    input = [
      %{role: "user", content: "hel"},
      %{type: "message", role: "user", content: [%{type: "input_text", text: "lo"}, image]}
    ]

    assert %{"status" => "completed"} = whole(door, ask(input, same))
  end

  test "another's responses are not there", %{door: door} do
    %{"id" => id} = whole(door, ask("hello"))
    eve = fn method, path, body -> request(method, path, body, name: "eve") end

    for {request, query} <- [
          {eve.("GET", [id], nil), ""},
          {eve.("GET", [id], nil), "stream=true&starting_after=1"},
          {eve.("POST", [id, "cancel"], nil), ""},
          {eve.("POST", [], %{input: "hello", previous_response_id: id}), ""},
          {eve.("POST", [], %{input: "hello", conversation: "ada-1"}), ""},
          {eve.("GET", ["resp_1"], nil), ""},
          {eve.("GET", [id, "input_items"], nil), ""},
          {eve.("DELETE", [id], nil), ""}
        ] do
      assert {404, "not_found", nil} = refused(door, Map.put(request, :query, query))
    end

    # A response of another conversation is none of this one.
    {:ok, run} = Responses.parse_id(id)

    forged =
      Responses.response(:queued, Responses.shape(),
        run: %{run | conversation: "ada-2"},
        model: "agent"
      ).id

    assert refused(door, get(forged)) == {404, "not_found", nil}
    assert refused(door, request("GET", [], nil)) == {405, "method", nil}
  end
end
