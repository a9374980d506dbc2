defmodule AshAgent.Door.ClientsTest do
  # Programs, ports and seconds.
  use ExUnit.Case, async: false

  @moduletag :capture_log

  alias AshAgent.{Context, Door}
  alias AshAgent.Context.JSON
  alias AshAgent.Door.{AGUI, AISDK, Asks, Play, Rows, Server, Table}
  alias AshAgent.TestSupport.Nodes

  # What the real clients have read is kept in test/fixtures/door. With npm, they read it again:
  #
  #     for client in ai6:ai@6 ai6:@ai-sdk/react@3 ai6:react@19 ai7:ai@7 ai7:@ai-sdk/react@4 ai7:react@19 ai7:node@22 ag_ui:@ag-ui/client@1; do npm install --prefix _build/door/${client%%:*} ${client#*:}; done
  #     ASH_AGENT_WRITE_FIXTURES=1 mix test test/door/clients_test.exs
  @clients [
    {"ai6", "ai.mjs", "@ai-sdk/react", [protocol: :ai_sdk, ai: 6]},
    {"ai7", "ai.mjs", "@ai-sdk/react", [protocol: :ai_sdk, ai: 7]},
    {"ag_ui", "ag_ui.mjs", "@ag-ui/client", [protocol: :ag_ui]}
  ]
  @protocols %{ai_sdk: AISDK, ag_ui: AGUI}
  @fixtures Path.expand("../fixtures/door", __DIR__)
  @installed Path.expand("../../../../_build/door", __DIR__)

  # `ai` 7 needs a newer node than some systems have.
  defp node_of(folder) do
    own = Path.join(folder, "node_modules/node/bin/node")
    if File.exists?(own), do: own, else: System.find_executable("node")
  end

  defp recorded(client) do
    file = Path.join(@fixtures, "#{client}.json")
    file |> File.read!() |> JSON.decode!() |> Map.fetch!("scenarios")
  end

  # What it showed when a node died.
  defp recorded_node(client),
    do: Path.join(@fixtures, "#{client}.node.json") |> File.read!() |> JSON.decode!()

  defp start(opts, context, sessions \\ []) do
    name = Play.name(context)
    restore = fn %{name: name} -> {:ok, %{name: name}} end
    {:ok, _sessions} = Play.sessions(name, [restore_context: restore] ++ sessions)
    rows = {"text/event-stream", rows(opts)}
    files = %{"/rows/rows/stream" => rows, "/rows" => rows}
    server = {Server, door: &Play.door(name, &1, opts), files: files}
    {name, Server.port(start_supervised!(Supervisor.child_spec(server, id: name)))}
  end

  # A server for each kind of door.
  defp urls(opts, context) do
    url = fn {_name, port} -> "http://127.0.0.1:#{port}" end
    typed = [output: [city: :string, days: :integer], output_mode: :text]

    JSON.encode(%{
      main: url.(start(opts, context)),
      typed: url.(start(opts, context, typed)),
      steered: url.(start([when_running: :steer] ++ opts, context)),
      rewound: url.(start([rewind: true] ++ opts, context))
    })
  end

  defp rows(opts) do
    run = %{thread: "rows", run: "r1", version: "1.0"}

    Rows.bytes(
      @protocols[opts[:protocol]],
      opts ++ [run: run, context: Context.new("Hi"), max_turns: 100, page_tools: []]
    )
  end

  # Ids of errors and of runs are drawn, and how pieces are put together depends on who was quicker.
  defp normal(sent) do
    sent
    |> String.replace(~r/\([0-9a-f]{12}\)|"[0-9a-f]{12}"/, "(id)")
    |> String.replace(~r/^id: .*\n/m, "")
    |> String.replace(~r/"runId":"[^"]*"/, ~s("runId":"r"))
    |> String.replace(~r/"id":"m[0-9]+"/, ~s("id":"m"))
    |> String.split("\n\n", trim: true)
    |> Enum.reject(&String.starts_with?(&1, ":"))
    |> Enum.map(fn
      "data: [DONE]" -> :done
      "data: " <> json -> JSON.decode!(json)
      refusal -> refusal
    end)
    |> Enum.reduce([], &join/2)
    |> Enum.reverse()
  end

  # Of a call that had begun before the client was there, only the whole is told.
  defp settled(sent) do
    begun = ~w(tool-input-start tool-input-delta TOOL_CALL_START TOOL_CALL_ARGS TOOL_CALL_END)
    Enum.reject(normal(sent), &(is_map(&1) and &1["type"] in begun))
  end

  defp join(%{"type" => type} = chunk, [%{"type" => type} = last | before] = all) do
    field = if type == "tool-input-delta", do: "inputTextDelta", else: "delta"
    rest = &Map.delete(&1, field)

    if chunk[field] && rest.(chunk) == rest.(last),
      do: [Map.update!(last, field, &(&1 <> chunk[field])) | before],
      else: [chunk | all]
  end

  defp join(chunk, all), do: [chunk | all]

  for {client, script, package, opts} <- @clients do
    describe client do
      @client client
      @script Path.expand("clients/#{script}", __DIR__)
      @opts opts
      @folder Path.join(@installed, client)

      unless File.dir?(Path.join([@folder, "node_modules", package])),
        do: @tag(skip: "#{package} is not in #{@folder}")

      @tag :clients
      test "shows what is recorded", context do
        urls = urls(@opts, context)
        {json, 0} = System.cmd(node_of(@folder), [@script, @folder, urls])

        if System.get_env("ASH_AGENT_WRITE_FIXTURES"),
          do: File.write!(Path.join(@fixtures, "#{@client}.json"), json)

        now = JSON.decode!(json)["scenarios"]

        for {scene, was} <- recorded(@client) do
          for key <- Map.keys(was) -- ~w(sent errors data),
              do: assert(now[scene][key] == was[key], scene)

          assert Enum.map(now[scene]["sent"], &settled/1) == Enum.map(was["sent"], &settled/1),
                 scene
        end
      end

      # Its session's node dies in the middle of an answer, and the door is on another.
      @tag :clients
      @tag :tmp_dir
      unless File.dir?(Path.join([@folder, "node_modules", package])),
        do: @tag(skip: "#{package} is not in #{@folder}")

      test "shows an answer whose node died", %{tmp_dir: folder} do
        shown =
          Nodes.pair(fn call, _nodes ->
            at = &call.(&1, {Play, &2, &3})

            for node <- [:here, :there],
                do: at.(node, :start_node, [Path.join(folder, "store.db")])

            begun = Asks.say("ada-wait-anew", "hello", "m0")
            assert Asks.text(at.(:here, :ask_here, [begun])) == "Hello, Ada!"
            port = at.(:there, :serve, [@opts])
            urls = JSON.encode(%{main: "http://127.0.0.1:#{port}"})

            client =
              Task.async(fn ->
                System.cmd(node_of(@folder), [@script, @folder, urls, "killed node"])
              end)

            pid = at.(:here, :await_model, [])
            Process.sleep(200)
            Nodes.kill(pid)
            at.(:there, :go, [])
            {json, 0} = Task.await(client, 60_000)
            JSON.decode!(json)["scenarios"]["killed node"]
          end)

        assert words(shown) =~ ~r/ done\z/
        unless @client == "ai6", do: assert(words(shown) =~ ~r/\A(Hello, Ada!)?\S+ done\z/)
        if System.get_env("ASH_AGENT_WRITE_FIXTURES"), do: keep(@client, shown)
      end

      test "has read what is still sent", context do
        {name, port} = start(@opts, context)
        door = Play.door(name, Asks.port(), @opts)
        scenes = recorded(@client)
        ask = &(Door.call(door, Asks.ask(@opts[:protocol], &1, &2)) |> bytes() |> settled())

        for scene <- ["hello", "think", "two calls", "cut", "refused", "retry"] do
          sent = ask.("ada-#{String.replace(scene, " ", "-")}", scene)
          assert sent == settled(hd(scenes[scene]["sent"])), scene
        end

        asked = ask.("ada-ask", "ask")
        assert asked == settled(hd(scenes["approve"]["sent"]))
        decided = ask.("ada-ask", for(id <- Asks.approvals(asked), do: {id, true}))
        assert decided == settled(List.last(scenes["approve"]["sent"]))
        assert normal(rows(@opts)) == normal(hd(scenes["rows"]["sent"]))
        assert is_integer(port)
      end

      test "has seen each row of the table", _context do
        seen =
          for {_, %{"sent" => sent}} <- recorded(@client),
              text <- sent,
              text =~ "data: ",
              do: normal(text)

        types = for chunks <- seen, %{"type" => type} <- chunks, uniq: true, do: type
        unseen = Table.sent(@opts[:protocol]) -- types
        # Its scene ends when it is stopped, at another place each time.
        assert unseen == [] or unseen == ["abort"]
      end

      test "is told no more than a kind and an id of what went wrong" do
        scenes = recorded(@client)
        failed = for {scene, %{"errors" => [_ | _]}} <- scenes, do: scene
        refused = if @opts[:protocol] == :ai_sdk, do: ["edit", "regenerate"], else: []
        assert Enum.sort(failed) == Enum.sort(["cut", "refused"] ++ refused)
        for {_, %{"errors" => errors}} <- scenes, do: refute(inspect(errors) =~ "secret")
      end
    end
  end

  for version <- [6, 7] do
    test "ai #{version} shows everything once, whoever comes when" do
      scenes = recorded("ai#{unquote(version)}")
      words = Enum.map_join(1..40, &"word#{&1} ")

      for scene <- ["a late joiner", "a closed tab"] do
        assert [_person, %{"parts" => parts}] = scenes[scene]["messages"]
        assert Enum.map_join(parts, &(&1["text"] || "")) == words, scene
      end

      assert scenes["a late joiner"]["same"]
      assert scenes["big"]["length"] == 1_000_000
      assert scenes["long"]["words"] == 10_000
      assert scenes["stop"]["stopped"] == 200
      assert scenes["stop"]["aborted"]
      assert scenes["nothing to resume"]["sent"] == ["204"]
    end
  end

  @slow Enum.map_join(1..40, &"word#{&1} ")

  for client <- ["ai6", "ai7", "ag_ui"] do
    test "#{client} goes on in each scene in which it was cut off, or was not alone" do
      scenes = recorded(unquote(client))
      assert %{"resumed" => 40, "whole" => 40} = scenes["resume at every event"]
      assert %{"same" => true, "words" => @slow} = scenes["two tabs"]
      assert %{"first" => true, "second" => "Hello, Ada!"} = scenes["steering"]
      assert words(scenes["killed"]) =~ ~r/one two three\z/
      assert words(recorded_node(unquote(client))["killed node"]) =~ ~r/ done\z/
      # What was lost with the session is not shown, but by `ai` 6, which cannot take it back.
      if unquote(client) != "ai6", do: assert(words(scenes["killed"]) == "one two three")
    end
  end

  # Beside the scenes that a run of the client keeps.
  defp keep(client, shown) do
    file = Path.join(@fixtures, "#{client}.node.json")
    File.write!(file, JSON.encode(%{"killed node" => shown}))
  end

  defp words(%{"messages" => messages}) do
    for %{"role" => "assistant"} = message <- messages,
        part <- message["parts"] || [%{"type" => "text", "text" => message["content"]}],
        part["type"] == "text",
        into: "",
        do: part["text"] || ""
  end

  test "questions and tools of pages are answered in each client" do
    for client <- ["ai6", "ai7", "ag_ui"], scenes = recorded(client) do
      for {scene, last} <- [
            {"question", "Booked."},
            {"form", "Booked."},
            {"front-end tool", "You saw it."},
            {"everything", "That was all."}
          ],
          do: assert(words(scenes[scene]) =~ last, "#{client} #{scene}")
    end

    for client <- ["ai6", "ai7"], scenes = recorded(client) do
      outputs =
        for %{"parts" => parts} <- scenes["form"]["messages"],
            %{"output" => output} <- parts,
            do: output

      assert outputs == [%{"name" => "Ada", "seats" => 2}]
      again = ["hello", "Hello, Ada!"]
      edited = ["think", "I have seen it."]

      assert %{"again" => ^again, "edited" => ^edited, "kept" => ^edited, "errors" => []} =
               scenes["regenerate and edit"]

      assert scenes["typed answer"]["value"] == %{"city" => "Prague", "days" => 3}
    end

    scenes = recorded("ag_ui")
    assert scenes["typed answer"]["custom"]
    assert %{"status" => 409, "kind" => "not_all_answered"} = scenes["an interrupt left out"]
    assert scenes["helper"]["agents"] == ["helper"]
    assert scenes["big"]["length"] == 1_000_000
    assert scenes["long"]["words"] == 10_000
  end

  test "AG-UI shows everything once, ends each run, and has no warning" do
    scenes = recorded("ag_ui")
    [_, %{"content" => text}] = scenes["a lost connection"]["messages"]
    assert text == Enum.map_join(1..40, &"word#{&1} ")
    assert scenes["stop"]["outcome"] == %{"type" => "cancelled"}

    results =
      for %{"role" => "tool", "content" => text} <- scenes["deny and edit"]["messages"], do: text

    assert [denied, edited] = results
    assert denied =~ "not that"
    assert edited =~ "cleaned /other"

    for {scene, %{"last" => last, "warned" => warned}} <- scenes do
      assert Enum.all?(last, &(&1 in ["RUN_FINISHED", "RUN_ERROR"])), scene
      assert warned == [], scene
    end
  end

  test "the guide has the table" do
    guide = File.read!(Path.expand("../../guides/what-clients-show.md", __DIR__))
    assert guide =~ Table.docs()
  end

  test "the table has a row for each event" do
    named = for event <- Rows.events(), uniq: true, do: elem(event, 0)
    rows = for {event, _words, row} <- Table.rows(), is_list(row), do: event
    assert Enum.sort(named) == Enum.sort(rows)
  end

  defp bytes({200, _headers, {:stream, bytes}}),
    do: bytes |> Enum.to_list() |> IO.iodata_to_binary()
end
