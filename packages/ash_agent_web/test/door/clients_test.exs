defmodule AshAgent.Door.ClientsTest do
  # Programs, ports and seconds.
  use ExUnit.Case, async: false

  @moduletag :capture_log

  alias AshAgent.Context.JSON
  alias AshAgent.Door
  alias AshAgent.Door.{AISDK, Play, Rows, Server, Table}

  # What the real clients have read is kept in test/fixtures/door. With npm, they read it again:
  #
  #     npm install --prefix _build/door/ai6 ai@6 && npm install --prefix _build/door/ai7 ai@7 node@22
  #     ASH_AGENT_WRITE_FIXTURES=1 mix test test/door/clients_test.exs
  @versions [6, 7]
  @fixtures Path.expand("../fixtures/door", __DIR__)
  @installed Path.expand("../../../../_build/door", __DIR__)

  # `ai` 7 needs a newer node than some systems have.
  defp node_of(folder) do
    own = Path.join(folder, "node_modules/node/bin/node")
    if File.exists?(own), do: own, else: System.find_executable("node")
  end

  defp recorded(version) do
    @fixtures |> Path.join("ai#{version}.json") |> File.read!() |> JSON.decode!()
  end

  defp start(version, context) do
    name = Module.concat(context.module, "V#{version}#{System.unique_integer([:positive])}")
    {:ok, _sessions} = Play.sessions(name)
    files = %{"/rows/rows/stream" => {"text/event-stream", Rows.bytes(AISDK, ai: version)}}
    door = &Play.door(name, &1, ai: version)
    server = start_supervised!({Server, door: door, files: files}, id: {name, :server})
    {name, Server.port(server)}
  end

  # Ids of errors are drawn, and how pieces are put together depends on who was quicker.
  defp normal(sent) do
    sent
    |> String.replace(~r/\([0-9a-f]{12}\)|"[0-9a-f]{12}"/, "(id)")
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
    begun = ["tool-input-start", "tool-input-delta"]
    Enum.reject(normal(sent), &(is_map(&1) and &1["type"] in begun))
  end

  @pieces %{
    "text-delta" => "delta",
    "reasoning-delta" => "delta",
    "tool-input-delta" => "inputTextDelta"
  }

  defp join(%{"type" => type} = chunk, [%{"type" => type} = last | before] = all) do
    field = @pieces[type]
    rest = &Map.delete(&1, field)

    if field && rest.(chunk) == rest.(last),
      do: [Map.update!(last, field, &(&1 <> chunk[field])) | before],
      else: [chunk | all]
  end

  defp join(chunk, all), do: [chunk | all]

  for version <- @versions do
    describe "ai #{version}" do
      @version version
      @folder Path.join(@installed, "ai#{version}")

      @tag skip:
             if(not File.dir?(Path.join(@folder, "node_modules/ai")),
               do: "ai #{version} is not in #{@folder}"
             )
      @tag :clients
      test "shows what is recorded", context do
        {_name, port} = start(@version, context)
        script = Path.expand("clients/ai.mjs", __DIR__)
        {json, 0} = System.cmd(node_of(@folder), [script, @folder, "http://127.0.0.1:#{port}"])

        if System.get_env("ASH_AGENT_WRITE_FIXTURES"),
          do: File.write!(Path.join(@fixtures, "ai#{@version}.json"), json)

        now = JSON.decode!(json)["scenarios"]

        for {scene, was} <- recorded(@version)["scenarios"] do
          for key <- Map.keys(was) -- ~w(sent errors data),
              do: assert(now[scene][key] == was[key], scene)

          assert Enum.map(now[scene]["sent"], &settled/1) == Enum.map(was["sent"], &settled/1),
                 scene
        end
      end

      test "has read what is still sent", context do
        {name, port} = start(@version, context)
        door = Play.door(name, port, ai: @version)
        %{"scenarios" => scenes} = recorded(@version)

        for scene <- ["hello", "think", "two calls", "cut", "refused", "retry"] do
          sent = say(door, port, "ada-#{String.replace(scene, " ", "-")}", scene)
          assert settled(sent) == settled(hd(scenes[scene]["sent"])), scene
        end

        asked = say(door, port, "ada-ask", "ask")
        assert settled(asked) == settled(hd(scenes["approve"]["sent"]))
        %{"approvalId" => id} = Enum.find(normal(asked), &match?(%{"approvalId" => _}, &1))
        answer = %{state: "approval-responded", approval: %{id: id, approved: true}}

        decided =
          post(door, port, %{id: "ada-ask", messages: [%{role: "assistant", parts: [answer]}]})

        assert settled(decided) == settled(List.last(scenes["approve"]["sent"]))

        rows = Rows.bytes(AISDK, ai: @version)
        assert normal(rows) == normal(hd(scenes["rows"]["sent"]))
      end

      test "has seen each row of the table, and no error but those that are told" do
        %{"scenarios" => scenes} = recorded(@version)

        seen =
          for {_scene, %{"sent" => sent}} <- scenes,
              text <- sent,
              text =~ "data: ",
              do: normal(text)

        types = for chunks <- seen, %{"type" => type} <- chunks, uniq: true, do: type

        aborted = if scenes["stop"]["aborted"], do: ["abort"], else: []
        assert Table.sent(:ai_sdk) -- (types ++ aborted) == []

        own = if @version >= 7, do: ["start", "reset-step"], else: ["start"]
        assert Enum.sort(types ++ aborted) == Enum.sort(Table.sent(:ai_sdk) ++ own)

        failed = for {scene, %{"errors" => [_ | _]}} <- scenes, do: scene
        assert Enum.sort(failed) == ["cut", "edit", "refused", "regenerate"]
        for {_, %{"errors" => errors}} <- scenes, do: refute(inspect(errors) =~ "secret")
      end

      test "shows everything once, whoever comes when" do
        %{"scenarios" => scenes} = recorded(@version)
        words = Enum.map_join(1..40, &"word#{&1} ")

        for scene <- ["a late joiner", "a closed tab"] do
          assert [_person, %{"parts" => parts}] = scenes[scene]["messages"]
          assert Enum.map_join(parts, &(&1["text"] || "")) == words, scene
        end

        assert scenes["a late joiner"]["same"]
        assert scenes["big"]["length"] == 1_000_000
        assert scenes["long"]["words"] == 10_000
        assert scenes["nothing to resume"]["sent"] == [hd(scenes["nothing to resume"]["sent"])]
        assert scenes["stop"]["stopped"] == 200
      end
    end
  end

  test "the table has a row for each event" do
    named = for event <- Rows.events(), uniq: true, do: elem(event, 0)
    rows = for {event, _words, row} <- Table.rows(), is_list(row), do: event
    assert Enum.sort(named) == Enum.sort(rows)
  end

  defp say(door, port, id, text) do
    message = %{id: "m-#{id}", role: "user", parts: [%{type: "text", text: text}]}
    post(door, port, %{id: id, messages: [message]})
  end

  defp post(door, port, body) do
    headers = [
      {"host", "127.0.0.1:#{port}"},
      {"authorization", "Bearer ada"},
      {"content-type", "application/json"}
    ]

    request = %{method: "POST", path: [], headers: headers, body: JSON.encode(body)}
    {200, _headers, {:stream, bytes}} = Door.call(door, request)
    bytes |> Enum.to_list() |> IO.iodata_to_binary()
  end
end
