defmodule AshAgent.Door.OpenAITest do
  # Programs, ports and seconds.
  use ExUnit.Case, async: false

  @moduletag :capture_log

  alias AshAgent.Context.JSON
  alias AshAgent.Door
  alias AshAgent.Door.{Asks, Play, Responses, Rows, Server, Table}

  # What OpenAI's own clients have read is kept in test/fixtures/door. Where they are, they read it again:
  #
  #     npm install --prefix _build/door/openai_js openai@7 node@22
  #     python3 -m venv _build/door/openai_py && _build/door/openai_py/bin/pip install openai==3.57.0
  #     ASH_AGENT_WRITE_FIXTURES=1 mix test test/door/openai_test.exs
  @fixtures Path.expand("../fixtures/door", __DIR__)
  @installed Path.expand("../../../../_build/door", __DIR__)
  @clients [
    {"openai_js", "openai.mjs", "node_modules/openai"},
    {"openai_py", "openai_client.py", "bin/python"}
  ]

  defp program("openai_py", folder), do: Path.join(folder, "bin/python")

  defp program(_javascript, folder) do
    own = Path.join(folder, "node_modules/node/bin/node")
    if File.exists?(own), do: own, else: System.find_executable("node")
  end

  defp recorded(client) do
    file = Path.join(@fixtures, "#{client}.json")
    file |> File.read!() |> JSON.decode!() |> Map.fetch!("scenarios")
  end

  defp start(context) do
    name = Play.name(context)
    {:ok, _sessions} = Play.sessions(name)
    files = %{"/rows/responses" => {"text/event-stream", rows()}}
    door = &Play.door(name, &1, protocol: :responses)
    server = start_supervised!({Server, door: door, at: "/v1/responses", files: files})
    {name, Server.port(server)}
  end

  defp rows do
    run = %{conversation: "rows", key: "resp:rows"}
    Rows.bytes(Responses, run: run, model: "agent")
  end

  # Names and times are drawn, and how pieces are put together depends on who was quicker.
  defp normal(sent) do
    sent
    |> String.replace(~r/\([0-9a-f]{12}\)/, "(id)")
    |> String.replace(~r/resp_[\w.-]+/, "resp")
    |> String.replace(~r/"created_at":\d+/, ~s("created_at":0))
    |> String.replace(~r/"conversation":\{"id":"[^"]*"\}/, ~s("conversation":{}))
    |> String.split("\n\n", trim: true)
    |> Enum.reject(&String.starts_with?(&1, ":"))
    |> Enum.map(fn "event: " <> event ->
      [_type, json] = String.split(event, "\ndata: ", parts: 2)
      json |> JSON.decode!() |> Map.delete("sequence_number")
    end)
    |> Enum.reduce([], &join/2)
    |> Enum.reverse()
  end

  defp join(%{"delta" => more} = event, [%{"delta" => text} = last | before]) do
    if Map.delete(event, "delta") == Map.delete(last, "delta"),
      do: [%{last | "delta" => text <> more} | before],
      else: [event, last | before]
  end

  defp join(event, all), do: [event | all]

  for {client, script, needs} <- @clients do
    describe client do
      @client client
      @script Path.expand("clients/#{script}", __DIR__)
      @folder Path.join(@installed, client)

      unless File.exists?(Path.join(@folder, needs)),
        do: @tag(skip: "#{needs} is not in #{@folder}")

      @tag :clients
      test "shows what is recorded", context do
        {_name, port} = start(context)

        {json, 0} =
          System.cmd(program(@client, @folder), [@script, @folder, "http://127.0.0.1:#{port}"])

        if System.get_env("ASH_AGENT_WRITE_FIXTURES"),
          do: File.write!(Path.join(@fixtures, "#{@client}.json"), json)

        now = JSON.decode!(json)["scenarios"]

        for {scene, was} <- recorded(@client) do
          for key <- Map.keys(was) -- ~w(sent id events),
              do: assert(now[scene][key] == was[key], "#{scene}, #{key}")

          assert Enum.map(now[scene]["sent"], &normal/1) == Enum.map(was["sent"], &normal/1),
                 scene
        end
      end

      test "has read what is still sent", context do
        {name, port} = start(context)
        door = Play.door(name, Asks.port(), protocol: :responses)
        scenes = recorded(@client)

        for scene <- ["hello", "think", "two calls", "cut", "refused", "retry", "ask"] do
          asked = Asks.request("POST", [], %{model: "agent", input: scene, stream: true})
          {200, _headers, {:stream, bytes}} = Door.call(door, asked)
          sent = bytes |> Enum.to_list() |> IO.iodata_to_binary()
          assert normal(sent) == normal(hd(scenes[scene]["sent"])), scene
        end

        assert normal(rows()) == normal(hd(scenes["rows"]["sent"]))
        assert is_integer(port)
      end

      test "has seen each row of the table, and each scenario to its end" do
        scenes = recorded(@client)
        types = for {_, %{"events" => events}} <- scenes, type <- events, uniq: true, do: type
        assert Table.sent(:responses) -- types == []
        # Nothing else is sent, but what a stream begins with.
        begun = ["response.created", "response.in_progress"]
        assert Enum.reject(types, &(&1 in Table.sent(:responses) or &1 in begun)) == []

        words = Enum.map_join(1..40, &"word#{&1} ")

        assert %{"first" => "queued", "text" => ^words, "status" => "completed", "same" => true} =
                 scenes["background"]

        assert %{"same" => true, "forked" => true, "output_text" => ["Hello, Ada!", _, _]} =
                 scenes["whole"]

        assert %{"status" => "cancelled", "later" => "incomplete"} = scenes["cancel"]

        assert %{"status" => "completed", "text" => text, "output_text" => text} =
                 scenes["helper"]

        assert %{"last" => "response.incomplete", "reason" => "approval_required"} = scenes["ask"]
        assert %{"last" => "response.failed"} = scenes["refused"]

        assert [
                 ["BadRequestError", 400, "unsupported_parameter", "instructions"],
                 ["BadRequestError", 400, "model_not_found", "model"],
                 ["BadRequestError", 400, "previous_response_not_found", "previous_response_id"],
                 ["NotFoundError", 404, "not_found", nil]
               ] = scenes["errors"]["errors"]

        refute inspect(scenes) =~ "secret"
      end
    end
  end
end
