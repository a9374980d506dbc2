defmodule AshAgent.MCPTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.McpClient,
    only: [listing: 1, page: 1, page: 2, server: 2, server: 3, text: 1, tool: 1, tool: 2]

  import AshAgent.TestSupport.Runs, only: [prompt: 2, results: 1, say: 1]
  import ExUnit.CaptureLog

  alias AshAgent.{ChatContext, Context, LLM, MCP, Runtime, Session}
  alias AshAgent.MCP.{Content, Listing}
  alias AshAgent.Runtime.ToolExecutor
  alias AshAgent.TestSupport.{McpClient, RequestChecker, Wait}

  doctest AshAgent.MCP

  defp start!(servers, opts \\ []) do
    opts = [servers: servers, client: McpClient] ++ opts
    start_supervised!({MCP, opts}, id: make_ref())
  end

  defp call(tools, name, arguments \\ %{}, opts \\ []) do
    [%{result: result}] =
      ToolExecutor.execute_tools([%{id: "1", name: name, arguments: arguments}], tools, %{}, opts)

    result
  end

  # The tools of one server, whose calls are answered by a function.
  defp tools_of(names, call),
    do: [server("s", %{list: listing(names), call: call})] |> start!() |> MCP.tools()

  defp names(tools), do: Enum.map(tools, & &1.name)

  @unknown "ended during the call, and whether the call did its work is not known"

  # A server whose calls wait.
  defp waiting(fake \\ %{}) do
    me = self()
    call = fn _, _, _ -> send(me, :waits) && Process.sleep(:infinity) end
    mcp = start!([server("s", Map.merge(%{list: listing(["wait"]), call: call}, fake))])
    assert_receive {:started, client, owner, _}
    {mcp, MCP.tools(mcp), client, owner}
  end

  # Without the warnings that are expected.
  defp quietly(fun) do
    capture_log(fn -> send(self(), {:returned, fun.()}) end)
    receive do: ({:returned, value} -> value)
  end

  describe "start_link/1" do
    test "takes the servers of a configuration in every form" do
      config = ChatContext.Config.new(mcp_servers: [%{"name" => "a b", "command" => "x"}])
      fake = %{list: listing(["one"]), test: self()}
      config = update_in(config.mcp_servers, fn [server] -> [Map.put(server, :fake, fake)] end)
      assert config |> start!() |> MCP.tools() |> names() == ["a_b__one"]
    end

    test "says what is wrong with servers" do
      for {servers, words} <- [
            {[%{name: "a"}], "invalid value for option :servers"},
            {[%{command: "a"}], "invalid value for option :servers"},
            {[%{name: "a", url: 1}], "invalid value for option :servers"},
            {%{ChatContext.Config.new() | mcp_servers: [%{name: "a"}]},
             "invalid value for option :servers"},
            {[%{name: "a", command: "b", url: "c"}], "has a :command and a :url"},
            {[%{name: "a", url: "c", env: %{"KEY" => "hunter2"}, cwd: "/"}],
             "has a :url, for which [:env, :cwd] cannot be used"},
            {[%{name: "a", command: "b", headers: %{"key" => "hunter2"}}],
             "has a :command, for which [:headers] cannot be used"},
            {[%{name: "a", command: "b"}, %{name: "a", command: "c"}], "the same :name"},
            {[%{name: "a b", command: "b"}, %{name: "a.b", command: "c"}], "the same :prefix"},
            {[%{name: "1", command: "b"}], "needs another :prefix"},
            {[%{name: "ü", command: "b"}], "needs another :prefix"},
            {[%{name: "a", command: "b", prefix: "a__b"}], "needs another :prefix"},
            {[%{name: "a", command: "b", prefix: "a_"}], "needs another :prefix"},
            {[%{name: "a", command: "b", prefix: String.duplicate("a", 33)}],
             "needs another :prefix"}
          ] do
        error = assert_raise ArgumentError, fn -> MCP.start_link(servers: servers) end
        assert Exception.message(error) =~ words
      end
    end

    unless Code.ensure_loaded?(ExMCP.Client) do
      test "says what to add to mix.exs when there are servers and no client" do
        chat = ChatContext.new(config: [mcp_servers: [%{name: "files", command: "mcp-files"}]])

        assert {:error, %MCP.Error{reason: {:no_client, _}} = error} =
                 MCP.start_link(servers: chat.config)

        assert Exception.message(error) =~
                 ~r/\Athe MCP server "files" needs a client(: add {:ex_mcp, "~> 1.0"} to the deps in mix.exs|, and that needs Elixir 1.17)/
      end
    end

    test "does not start what its client cannot reach" do
      opts = [servers: [server("a", %{unavailable: "Add it."})], client: McpClient]
      assert {:error, %MCP.Error{reason: {:no_client, "Add it."}} = error} = MCP.start_link(opts)
      assert Exception.message(error) == "Add it."
    end

    @tag :capture_log
    test "shows secrets neither in a specification nor in a state nor in an error" do
      fake = %{list: fn _ -> {:error, "refuses the key hunter2"} end}
      server = server("a", fake, %{env: %{"KEY" => "hunter2"}})
      refute inspect(MCP.child_spec(servers: [server], client: McpClient)) =~ "hunter2"

      log =
        capture_log(fn ->
          mcp = start!([server])
          assert_receive {:started, _client, owner, _changed}
          refute inspect(Supervisor.which_children(mcp)) =~ "hunter2"
          refute inspect(:supervisor.get_childspec(mcp, "a")) =~ "hunter2"
          refute inspect(:sys.get_status(mcp), limit: :infinity) =~ "hunter2"
          refute inspect(:sys.get_status(owner)) =~ "hunter2"
          assert_raise MCP.Error, fn -> MCP.tools(mcp) end
          # A crash in the middle of its work.
          ref = Process.monitor(owner)
          :sys.replace_state(owner, fn state -> Map.put(state, :jobs, "hunter2") end)
          send(owner, {:DOWN, make_ref(), :process, self(), "hunter2"})
          assert_receive {:DOWN, ^ref, :process, _, _}
        end)

      refute log =~ "hunter2"
    end
  end

  describe "tools/2" do
    test "prefixes names, so that servers may have tools of the same name" do
      tools =
        [server("b", %{list: listing(["x", "y"])}), server("a", %{list: listing(["x"])})]
        |> start!()
        |> MCP.tools()

      assert names(tools) == ["a__x", "b__x", "b__y"]
    end

    test "follows cursors to the end, and stops when they lead nowhere" do
      next = %{nil => {"a", "1"}, "1" => {"b", "2"}, "2" => {"c", nil}}

      good = fn cursor ->
        with({name, next} <- next[cursor], do: {:ok, page([tool(name)], next)})
      end

      again = fn _cursor -> {:ok, page([tool("x")], "again")} end
      endless = fn cursor -> {:ok, page([tool("x#{cursor}")], "#{cursor}i")} end
      lists = [{"good", good}, {"same", again}, {"endless", endless}]
      mcp = start!(for {name, list} <- lists, do: server(name, %{list: list}))
      assert mcp |> MCP.tools(only: ["good"]) |> names() == ["good__a", "good__b", "good__c"]
      assert mcp |> MCP.tools(only: ["same"]) |> names() == ["same__x"]
      assert mcp |> MCP.tools(only: ["endless"]) |> length() == 50
    end

    test "asks for no more pages than it takes tools from" do
      me = self()

      endless = fn cursor ->
        send(me, {:page, cursor})
        {:ok, page(for(n <- 1..200, do: tool("x#{cursor}#{n}")), "#{cursor}i")}
      end

      quietly(fn ->
        assert [server("s", %{list: endless})] |> start!() |> MCP.tools() |> length() == 256
      end)

      assert_received {:page, "i"}
      refute_received {:page, "ii"}
    end

    test "raises for servers that are not available, or does without them" do
      quietly(fn ->
        silent = server("silent", %{list: fn _ -> Process.sleep(:infinity) end})
        error = assert_raise MCP.Error, fn -> [silent] |> start!(timeout: 100) |> MCP.tools() end
        assert error.reason == {:unavailable, %{"silent" => "did not respond within 100 ms"}}

        mcp =
          start!([
            server("good", %{list: listing(["a"])}),
            server("wrong", %{list: fn _ -> {:ok, %{"tools" => "x"}} end}),
            server("broken", %{list: fn _ -> raise "hunter2" end})
          ])

        error = assert_raise MCP.Error, fn -> MCP.tools(mcp) end

        wrong = "did not list its tools as MCP says"
        words = %{"wrong" => wrong, "broken" => "failed (RuntimeError)"}
        assert error.reason == {:unavailable, words}
        assert Exception.message(error) =~ "missing: :skip"
        assert mcp |> MCP.tools(missing: :skip) |> names() == ["good__a"]
        assert mcp |> MCP.tools(only: ["good"]) |> names() == ["good__a"]
        assert_raise ArgumentError, fn -> MCP.tools(mcp, only: ["other"]) end
      end)
    end

    test "knows a changed list, also for a session that lives on" do
      {:ok, names} = Agent.start_link(fn -> ["a"] end)
      list = fn _ -> {:ok, page(Enum.map(Agent.get(names, & &1), &tool/1))} end
      mcp = start!([server("s", %{list: list})])
      assert mcp |> MCP.tools() |> names() == ["s__a"]
      assert_receive {:started, _client, _owner, changed}

      me = self()

      llm = fn _context, opts ->
        send(me, {:offered, names(opts[:tools])}) && {:ok, %{content: "Done."}}
      end

      session = start_supervised!({Session, llm: llm, tools: fn -> MCP.tools(mcp) end})
      {:ok, _} = Session.prompt(session, "Hi")
      assert_receive {:offered, ["s__a"]}

      Agent.update(names, fn _ -> ["a", "b"] end)
      for _ <- 1..100, do: changed.()
      assert Wait.until(fn -> mcp |> MCP.tools() |> names() == ["s__a", "s__b"] end)
      {:ok, _} = Session.prompt(session, "And now?")
      assert_receive {:offered, ["s__a", "s__b"]}
    end

    @tag :capture_log
    test "raises in a session's run, which is that prompt's error and nothing more" do
      {:ok, down?} = Agent.start_link(fn -> true end)

      list = fn _ ->
        if Agent.get(down?, & &1), do: {:error, "is shy"}, else: {:ok, page([tool("a")])}
      end

      mcp = start!([server("s", %{list: list})])

      session = start_supervised!({Session, llm: say("Hi."), tools: fn -> MCP.tools(mcp) end})

      assert {:error, %Runtime.Error{reason: reason}} = Session.prompt(session, "Hi")
      assert {:tools_exception, :error, %MCP.Error{}} = reason
      Agent.update(down?, fn _ -> false end)
      assert Wait.until(fn -> match?({:ok, _}, Session.prompt(session, "Hi")) end, 60_000)
    end

    test "misses no change that comes while it lists" do
      me = self()
      {:ok, names} = Agent.start_link(fn -> ["a"] end)

      list = fn _ ->
        tools = Enum.map(Agent.get(names, & &1), &tool/1)
        send(me, {:lists, self()})
        receive do: (:go -> {:ok, page(tools)})
      end

      mcp = start!([server("s", %{list: list})])
      assert_receive {:started, _client, _owner, changed}
      assert_receive {:lists, first}
      Agent.update(names, fn _ -> ["a", "b"] end)
      changed.()
      send(first, :go)
      assert mcp |> MCP.tools() |> names() == ["s__a"]
      assert_receive {:lists, second}
      send(second, :go)
      assert Wait.until(fn -> mcp |> MCP.tools() |> names() == ["s__a", "s__b"] end)
    end

    test "keeps the old list when the new one cannot be had" do
      answers = [{:ok, page([tool("a")])}, {:error, "fails"}, {:ok, page([tool("b")])}]
      {:ok, answers} = Agent.start_link(fn -> answers end)
      list = fn _ -> Agent.get_and_update(answers, fn [first | rest] -> {first, rest} end) end
      mcp = start!([server("s", %{list: list})])
      assert mcp |> MCP.tools() |> names() == ["s__a"]
      assert_receive {:started, _client, _owner, changed}
      changed.()
      assert Wait.until(fn -> length(Agent.get(answers, & &1)) == 1 end)
      assert mcp |> MCP.tools() |> names() == ["s__a"]
      changed.()
      assert Wait.until(fn -> mcp |> MCP.tools() |> names() == ["s__b"] end)
    end
  end

  describe "a server with per_actor" do
    defp own(opts \\ [], fake \\ %{}) do
      fake = Map.merge(%{list: listing(["x"]), call: fn _, _, _ -> text("done") end}, fake)
      others = server("shared", %{list: listing(["x"])})
      start!([server("own", fake, %{per_actor: true}), others], opts)
    end

    defp of(mcp, keys), do: MCP.tools(mcp, [only: ["own"]] ++ keys)

    defp alive(clients), do: Enum.filter(clients, &Process.alive?/1)

    test "has a client for each actor and tenant that asks, and none before" do
      mcp = own()
      assert_receive {:started, _shared, _owner, _}
      error = assert_raise MCP.Error, fn -> MCP.tools(mcp) end

      assert error.reason ==
               {:unavailable, %{"own" => "has a client for each actor; pass :actor or :tenant"}}

      assert mcp |> MCP.tools(missing: :skip) |> names() == ["shared__x"]
      refute_received {:started, _, _, _}

      people = [
        [actor: %{id: 1}],
        [actor: %{id: 2}],
        [tenant: "a"],
        [actor: %{id: 1}, tenant: "a"]
      ]

      for keys <- people do
        assert mcp |> MCP.tools(keys) |> names() == ["own__x", "shared__x"]
        assert_receive {:started, _client, _owner, _}
        # One that was loaded anew is the same.
        keys = if keys[:actor], do: put_in(keys[:actor][:name], "new"), else: keys
        assert mcp |> of(keys) |> call("own__x") == {:ok, "done"}
        refute_received {:started, _, _, _}
      end
    end

    test "makes a call for whom its tools were listed, and for nobody else" do
      tools = of(own(), actor: %{id: 1}, tenant: "a")
      calls = [%{id: "1", name: "own__x", arguments: %{}}]

      for {context, made?} <- [
            {%{}, true},
            {%{actor: %{id: 1}, tenant: "a"}, true},
            {%{actor: %{id: 2}, tenant: "a"}, false},
            {%{actor: %{id: 1}, tenant: "b"}, false},
            {%{actor: nil, tenant: "a"}, false},
            {%{tenant: "a"}, false}
          ] do
        [%{result: result}] = ToolExecutor.execute_tools(calls, tools, context)

        if made?,
          do: assert(result == {:ok, "done"}),
          else: assert({:error, "this tool was listed for somebody else" <> _} = result)
      end
    end

    test "closes clients that are idle, and starts them again; not one that makes a call" do
      me = self()
      wait = fn _, _, _ -> send(me, {:waits, self()}) && receive do: (:go -> text("waited")) end
      mcp = own([idle: 50], %{call: wait})
      tools = of(mcp, actor: 1)
      run = Task.async(fn -> call(tools, "own__x") end)
      assert_receive {:waits, pid}
      assert mcp |> of(actor: 2) |> names() == ["own__x"]
      # The other one is closed.
      assert_receive {:stopped, _client}, 5_000
      refute_receive {:stopped, _client}, 200
      send(pid, :go)
      assert Task.await(run) == {:ok, "waited"}
      assert_receive {:stopped, _client}, 5_000
      again = Task.async(fn -> call(tools, "own__x") end)
      assert_receive {:waits, pid}, 5_000
      send(pid, :go)
      assert Task.await(again) == {:ok, "waited"}
    end

    test "has no more clients than are allowed" do
      me = self()
      wait = fn _, _, _ -> send(me, {:waits, self()}) && Process.sleep(:infinity) end
      mcp = own([max_clients: 2], %{call: wait})
      run = fn tools -> Task.async(fn -> call(tools, "own__x") end) end
      calls = for actor <- [1, 2], do: mcp |> of(actor: actor) |> run.()
      for _ <- calls, do: assert_receive({:waits, _}, 5_000)
      Process.sleep(1_100)
      error = assert_raise MCP.Error, fn -> of(mcp, actor: 3) end
      assert Exception.message(error) =~ "has a client for each actor, and 2 are in use"
      calls |> hd() |> Task.shutdown(:brutal_kill)

      assert Wait.until(fn ->
               match?([_], MCP.tools(mcp, only: ["own"], actor: 3, missing: :skip))
             end)
    end

    test "closes the one that was not used for the longest time when there are as many as are allowed" do
      mcp = own(max_clients: 2)
      assert_receive {:started, _shared, _owner, _}

      [first, second] =
        for actor <- [1, 2] do
          of(mcp, actor: actor)
          assert_receive {:started, client, _owner, _}
          client
        end

      # The one that was started first is used last, which the clock has to see.
      Process.sleep(10)
      assert mcp |> of(actor: 1) |> call("own__x") == {:ok, "done"}
      Process.sleep(1_100)
      assert mcp |> of(actor: 3) |> names() == ["own__x"]
      assert_receive {:stopped, ^second}
      assert Process.alive?(first)
      assert mcp |> of(actor: 1) |> call("own__x") == {:ok, "done"}
      refute_received {:stopped, ^first}
    end

    @tag :capture_log
    test "is not available while what keeps its clients restarts" do
      mcp = own()
      tools = of(mcp, actor: 1)
      {id, _, _, _} = mcp |> Supervisor.which_children() |> Enum.find(&is_tuple(elem(&1, 0)))
      :ok = Supervisor.terminate_child(mcp, id)
      error = assert_raise MCP.Error, fn -> MCP.tools(mcp, actor: 1) end
      assert error.reason == {:unavailable, %{"own" => "is restarting"}}
      assert mcp |> MCP.tools(actor: 1, missing: :skip) |> names() == ["shared__x"]
      assert MCP.tools(mcp, actor: 1, only: ["own"], missing: :skip) == []
      assert call(tools, "own__x") == {:error, "the MCP server was stopped"}
      {:ok, _pid} = Supervisor.restart_child(mcp, id)
      assert mcp |> of(actor: 1) |> call("own__x") == {:ok, "done"}
    end

    @tag :capture_log
    test "ends its clients with itself" do
      mcp = own()
      for actor <- 1..3, do: of(mcp, actor: actor)
      clients = for _ <- 1..4, do: assert_receive({:started, client, _owner, _}) && client
      assert length(alive(clients)) == 4
      Supervisor.stop(mcp)
      assert Wait.until(fn -> alive(clients) == [] end)
    end
  end

  describe "descriptions of servers" do
    test "become names that every provider takes, whatever they are" do
      :rand.seed(:exsss, {1, 2, 3})
      bytes = fn n -> for _ <- 1..n, into: "", do: <<:rand.uniform(128) - 1>> end
      random = for n <- 1..200, do: bytes.(n)

      for remote <- ~w(read_file a.b a/b ü __x -) ++ [String.duplicate("x", 500) | random] do
        name = Listing.name("p", remote)
        assert name =~ ~r/\Ap__[a-zA-Z0-9_-]{1,61}\z/
        if remote == "read_file", do: assert(name == "p__read_file")
      end

      # The names of other servers cannot be taken, nor those of other tools of the same one.
      assert Listing.name("a", "b__x") == "a__b__x"
      assert Listing.name("p", "a.b") != Listing.name("p", "a/b")
    end

    test "are cut, made readable, or left out with a reason" do
      long = String.duplicate("ä", 500_000)

      deep =
        Enum.reduce(1..10_000, %{}, fn _, schema ->
          %{"type" => "object", "properties" => %{"x" => schema}}
        end)

      wide = %{"type" => "object", "enum" => Enum.to_list(1..100_000)}
      properties = &%{"type" => "object", "properties" => &1}

      {entries, refused} =
        Listing.read(
          [
            tool("long", %{"description" => long}),
            tool("bytes", %{"description" => "a" <> <<255>> <> "b"}),
            tool("none", %{"description" => %{"a" => 1}}),
            tool("bare") |> Map.delete("inputSchema"),
            tool("top", %{"inputSchema" => %{"anyOf" => [], "$schema" => "x", "required" => "a"}}),
            tool("twice", %{"description" => "first"}),
            tool("twice", %{"description" => "second"}),
            tool("deep", %{"inputSchema" => deep}),
            tool("wide", %{"inputSchema" => wide}),
            tool("large", %{"inputSchema" => %{"description" => long}}),
            tool("list", %{"inputSchema" => []}),
            tool("array", %{"inputSchema" => %{"type" => "array"}}),
            tool("atoms", %{"inputSchema" => %{"type" => "object", "a" => :b}}),
            tool("tuples", %{"inputSchema" => %{"a" => [{"b", 1}]}}),
            tool("improper", %{"inputSchema" => %{"a" => [1 | 2]}}),
            tool("utf8", %{"inputSchema" => %{"a" => <<255>>}}),
            tool("key", %{"inputSchema" => properties.(%{"a b" => %{}})}),
            tool("value", %{"inputSchema" => properties.(%{"a" => 1})}),
            tool(""),
            tool(String.duplicate("a", 2_000)),
            tool(<<255>>),
            %{},
            nil
          ],
          "p",
          false
        )

      entries = Map.new(entries, &{&1.remote, &1})
      assert entries |> Map.keys() |> Enum.sort() == ~w(bare bytes long none top twice)

      assert byte_size(entries["long"].description) <= 4_098 and
               String.valid?(entries["long"].description)

      assert :binary.referenced_byte_size(entries["long"].description) <= 4_098

      assert entries["bytes"].description == "a\uFFFDb"
      assert entries["none"].description == nil
      assert entries["bare"].parameters == %{"type" => "object", "properties" => %{}}
      assert entries["top"].parameters == %{"type" => "object", "properties" => %{}}
      assert entries["twice"].description == "first"
      assert length(refused) == 16
      assert Enum.count(refused, &(&1 == "a schema that is too large or too deep")) == 3
    end

    test "are limited in number, make no atoms, and what is left out is logged without their words" do
      unique = "never_an_atom_#{System.unique_integer([:positive])}"

      tools =
        for n <- 1..300,
            do: tool("#{unique}_#{n}", %{"inputSchema" => %{"properties" => %{unique => %{}}}})

      log =
        capture_log(fn ->
          page = page([%{"name" => "hunter2", "inputSchema" => 1} | tools])
          mcp = start!([server("s", %{list: fn _ -> {:ok, page} end})])
          assert length(MCP.tools(mcp)) == 255
        end)

      assert log =~ ~s(the MCP server "s" lists tools that are left out: a schema)
      refute log =~ "hunter2"
      assert_raise ArgumentError, fn -> String.to_existing_atom(unique) end
    end

    test "do not widen a right unless they are trusted" do
      claims = [
        {"reads", %{"readOnlyHint" => true}},
        {"repeats", %{"idempotentHint" => true}},
        {"lies", %{"readOnlyHint" => "yes"}},
        {"says", "nothing"}
      ]

      list = fn _ ->
        {:ok, page(for {name, claim} <- claims, do: tool(name, %{"annotations" => claim}))}
      end

      repeat = fn keys ->
        for tool <- [server("s", %{list: list}, keys)] |> start!() |> MCP.tools(), do: tool.repeat
      end

      assert repeat.(%{}) == [:never, :never, :never, :never]
      assert repeat.(%{trust_annotations: true}) == [:safe, :safe, :never, :never]
    end
  end

  describe "results" do
    @png Base.encode64("png")

    test "become text or parts" do
      part = fn type, keys -> Map.put(keys, "type", type) end
      text = &part.("text", %{"text" => &1})
      media = &part.(&1, %{"data" => &2, "mimeType" => &3})
      resource = &part.("resource", %{"resource" => Map.put(&1, "uri", "a://b")})
      link = %{"uri" => "a://b", "name" => "B", "mimeType" => "text/plain"}
      unreadable = {:ok, "(the server sent an image that cannot be read)"}
      file = %{type: :file, media_type: "application/octet-stream", data: @png}
      unknown = "(the server sent content of an unknown kind)"

      for {content, expected} <- [
            {[text.("a")], {:ok, "a"}},
            {[text.("a"), text.("b")], {:ok, "a\nb"}},
            {[], {:ok, ""}},
            {[text.("a" <> <<255>>)], {:ok, "a\uFFFD"}},
            {[media.("image", @png, "image/png")],
             {:ok, [%{type: :image, media_type: "image/png", data: @png}]}},
            {[media.("audio", @png, "audio/wav; x=y"), text.("b")],
             {:ok,
              [%{type: :audio, media_type: "audio/wav", data: @png}, %{type: :text, text: "b"}]}},
            {[media.("image", "not base64!", "image/png")], unreadable},
            {[media.("image", @png, "text/html")], unreadable},
            {[resource.(%{"text" => "c"})], {:ok, "Resource a://b:\nc"}},
            {[resource.(%{"blob" => @png})],
             {:ok, [%{type: :text, text: "Resource a://b:"}, file]}},
            {[part.("resource_link", link)], {:ok, "Resource a://b (B, text/plain)"}},
            {[part.("hologram", %{}), 1], {:ok, "#{unknown}\n#{unknown}"}},
            {[text.("a") | :improper], {:ok, ""}},
            {"text", {:ok, ""}}
          ] do
        assert Content.result(%{"content" => content}, 10_000) == expected
      end

      png = %{"type" => "image", "data" => @png, "mimeType" => "image/png"}

      for {result, expected} <- [
            {%{}, {:ok, ""}},
            {%{"structuredContent" => %{"a" => 1}}, {:ok, ~s({"a":1})}},
            {%{"structuredContent" => %{"a" => 1}, "content" => [text.(~s({ "a": 1 }))]},
             {:ok, ~s({ "a": 1 })}},
            {%{"structuredContent" => %{"result" => "b"}, "content" => [text.("b")]}, {:ok, "b"}},
            {%{"structuredContent" => %{"a" => 1}, "content" => [text.("b")]},
             {:ok, ~s(b\n{"a":1})}},
            {%{"isError" => true, "content" => [text.("no such file")]},
             {:error, "no such file"}},
            {%{"isError" => true}, {:error, "the tool failed, and the server does not say why"}},
            {%{"isError" => true, "content" => [text.("broken"), png]},
             {:error,
              [
                %{type: :text, text: "broken"},
                %{type: :image, media_type: "image/png", data: @png}
              ]}},
            {[], {:error, "the server returned something that is not a result"}}
          ] do
        assert Content.result(result, 10_000) == expected
      end

      assert {:error, words} =
               Content.result(%{"content" => [text.(String.duplicate("a", 20_000))]}, 10_000)

      assert words =~ "and may have 10000; ask for less"
    end

    test "of any form leave a conversation that every provider accepts" do
      part = fn type, keys -> Map.put(keys, "type", type) end
      media = &part.(&1, %{"data" => &2, "mimeType" => &3})
      blob = %{"uri" => 1, "blob" => @png, "mimeType" => "application/gzip"}

      contents = [
        [media.("image", @png, "image/x-" <> <<255>>)],
        [media.("image", "", "image/png")],
        [media.("image", "AA", "image/png")],
        [media.("audio", @png, "audio/x"), media.("image", @png, "image/svg+xml")],
        [part.("resource", %{"resource" => blob})],
        [part.("resource", %{"resource" => %{"uri" => <<255>>, "text" => <<255>>}})],
        [part.("resource_link", %{"uri" => nil, "description" => %{}})],
        [part.("text", %{"text" => <<0, 255, 1>>})]
      ]

      call = fn _name, %{"n" => n}, _progress -> {:ok, %{"content" => Enum.at(contents, n)}} end
      tools = tools_of(["x"], call)

      ids = 0..(length(contents) - 1)
      calls = for n <- ids, do: %{id: "c#{n}", name: "s__x", arguments: %{"n" => n}}
      llm = LLM.Scripted.new([%{tool_calls: calls}, "Done."])
      {:ok, result} = Runtime.run(Context.new("Go"), llm: llm, tools: tools)

      assert Enum.all?(results(result.context), &match?({:ok, _}, &1))

      for provider <- RequestChecker.providers(),
          do: assert({:ok, _} = Context.request(result.context, provider))
    end
  end

  describe "calls" do
    test "get plain arguments, and words when the server refuses" do
      call = fn
        "echo", arguments, _progress -> text(inspect(arguments))
        "refuse", _arguments, _progress -> {:error, "answered with an error: no"}
        "crash", _arguments, _progress -> raise "hunter2"
        "odd", _arguments, _progress -> :odd
      end

      tools = tools_of(["echo", "refuse", "crash", "odd"], call)

      for {given, plain} <- [
            {%{a: :b, c: [1.5, nil]}, ~s(%{"a" => "b", "c" => [1.5, nil]})},
            {%{a: <<255>>}, ~s(%{"a" => "\uFFFD"})}
          ],
          do: assert(call(tools, "s__echo", given) == {:ok, plain})

      for {name, words} <- [
            {"refuse", "answered with an error: no"},
            {"crash", "failed (RuntimeError)"}
          ],
          do: assert(call(tools, "s__" <> name) == {:error, ~s(the MCP server "s" ) <> words})

      assert {:error, ~s(the MCP server "s" ended) <> _} = call(tools, "s__odd")
    end

    test "pass permissions, hooks and approval like those of any tool" do
      me = self()

      call = fn name, arguments, _progress ->
        send(me, {:called, name, arguments}) && text("done")
      end

      tools = tools_of(["read", "write"], call)

      calls = [
        %{id: "r", name: "s__read", arguments: %{"a" => 1}},
        %{id: "w", name: "s__write", arguments: %{}}
      ]

      llm = fn _ -> {:ok, %{tool_calls: calls}} end

      before = fn call, _ -> {:ok, put_in(call.arguments["b"], 2)} end
      opts = [tools: tools, before_tool: before, approval: fn _call, _ -> :ask end]
      {:paused, paused} = prompt("Go", [llm: llm, permission_rules: [{:deny, "s__w*"}]] ++ opts)
      assert [%{name: "s__read", arguments: %{"a" => 1, "b" => 2}}] = paused.calls
      assert Context.Calls.tool_call_status(paused.context, "w") == :denied
      refute_received {:called, _, _}

      approved = [by: "ann", arguments: %{"a" => 1, "b" => 2}]
      context = Context.Calls.approve_tool_call(paused.context, "r", approved)
      {:ok, _} = Runtime.resume(context, [llm: LLM.Scripted.new(["Done."])] ++ opts)
      assert_receive {:called, "read", %{"a" => 1, "b" => 2}}
    end

    # A server whose tool is described by an agent, and what it is called with. The run asks about each call.
    defp described(keys \\ []) do
      me = self()
      {:ok, kept} = Agent.start_link(fn -> %{"description" => "Reads"} end)
      list = fn _ -> {:ok, page([tool("read", Agent.get(kept, & &1))])} end
      call = fn name, _, _ -> send(me, {:called, name}) && text("done") end
      mcp = start!([server("s", %{list: list, call: call})])
      assert_receive {:started, _client, _owner, changed}
      tools = fn -> MCP.tools(mcp) end

      llm = fn context, _opts ->
        if results(context) == [],
          do: {:ok, %{tool_calls: [%{id: "r", name: "s__read", arguments: %{}}]}},
          else: {:ok, %{content: "Done."}}
      end

      change = fn new ->
        before = names_and_words(tools.())
        Agent.update(kept, fn _ -> new end)
        changed.()
        # It lists what there is, whether or not that is new.
        assert new == %{"description" => "Reads"} or
                 Wait.until(fn -> names_and_words(tools.()) != before end)
      end

      {[llm: llm, approval: fn _call, _ -> :ask end] ++ keys, tools, change}
    end

    defp names_and_words(tools), do: for(tool <- tools, do: {tool.description, tool.parameters})

    test "that were approved are made only of the tool that was shown" do
      schema = %{"type" => "object", "properties" => %{"path" => %{"type" => "string"}}}

      for keys <- [[], [request_notes: :hashes]],
          {new, runs?} <- [
            {%{"description" => "Reads"}, true},
            {%{"description" => "Reads and sends"}, false},
            {%{"description" => "Reads", "inputSchema" => schema}, false}
          ],
          reload <- [& &1, &(&1 |> Context.dump() |> Context.load!())] do
        {opts, tools, change} = described(keys)
        {:paused, paused} = prompt("Go", [tools: tools] ++ opts)
        context = Context.Calls.approve_tool_call(paused.context, "r", by: "ann")
        change.(new)
        {:ok, result} = Runtime.resume(reload.(context), [tools: tools] ++ opts)

        if runs? do
          assert results(result.context) == [{:ok, "done"}]
          assert_received {:called, "read"}
        else
          assert [{:error, words}] = results(result.context)
          assert words =~ "no longer described as it was when the call was approved"
          refute_received {:called, _}
        end
      end
    end

    test "are not made of a tool that has changed since the run began" do
      {opts, tools, change} = described()
      offered = tools.()

      approval = fn _call, _ ->
        change.(%{"description" => "Reads and sends"})
        :approve
      end

      {:ok, result} = prompt("Go", [tools: offered] ++ Keyword.put(opts, :approval, approval))
      assert [{:error, words}] = results(result.context)

      assert words ==
               ~s(the MCP server "s" has changed or removed this tool since it was shown; the call was not made)

      refute_received {:called, _}
      assert call(tools.(), "s__read") == {:ok, "done"}
    end

    test "tell their progress, and no flood of it" do
      {:ok, kept} = Agent.start_link(fn -> nil end)

      call = fn _name, _arguments, progress ->
        for n <- 1..10_000, do: progress.(n, 10_000)
        progress.("hunter2", nil)
        Agent.update(kept, fn _ -> progress end)
        text("done")
      end

      tools = tools_of(["x"], call)
      me = self()

      on_event = fn name, measurements, metadata ->
        send(me, {:event, List.last(name), measurements, metadata})
      end

      assert call(tools, "s__x", %{}, on_event: on_event) == {:ok, "done"}

      assert_receive {:event, :progress, %{progress: 1, total: 10_000},
                      %{tool: "s__x", tool_call_id: "1"}}

      # What comes late reaches nobody.
      Agent.get(kept, & &1).(10_001, nil)
      {:messages, messages} = Process.info(self(), :messages)
      progress = Enum.count(messages, &match?({:event, :progress, _, _}, &1))
      assert progress < 1_000

      assert messages
             |> Enum.reject(&match?({:event, _, _, _}, &1))
             |> Enum.reject(&match?({:started, _, _, _}, &1)) == []
    end

    test "that time out or are cancelled are cancelled at the server, and others go on" do
      me = self()

      call = fn
        "wait", _arguments, _progress -> send(me, {:waits, self()}) && Process.sleep(:infinity)
        "echo", _arguments, _progress -> text("here")
      end

      tools = tools_of(["wait", "echo"], call)

      assert call(tools, "s__wait", %{}, timeout: 2_000) == {:error, "timed out after 2000 ms"}
      assert_receive {:waits, pid}
      assert_receive {:cancel, ^pid}

      calls = [%{id: "1", name: "s__wait"}, %{id: "2", name: "s__echo"}]
      llm = LLM.Scripted.new([%{tool_calls: calls}])
      session = start_supervised!({Session, llm: llm, tools: tools})
      prompt = Task.async(fn -> Session.prompt(session, "Go") end)
      assert_receive {:waits, pid}
      :ok = Session.cancel(session)
      assert_receive {:cancel, ^pid}
      assert {:error, %{reason: :cancelled}} = Task.await(prompt)
      assert call(tools, "s__echo") == {:ok, "here"}
      refute_received {:stopped, _}
    end

    test "have an unknown outcome when the client dies, and the run goes on; the client is started again" do
      quietly(fn ->
        {mcp, tools, client, _owner} = waiting()
        llm = LLM.Scripted.new([%{tool_calls: [%{id: "1", name: "s__wait"}]}, "Sorry."])
        run = Task.async(fn -> prompt("Go", llm: llm, tools: tools) end)
        assert_receive :waits
        Process.exit(client, :kill)
        assert {:ok, %{output: "Sorry.", context: context}} = Task.await(run)
        assert [{:error, words}] = results(context)
        assert words =~ ~s(the MCP server "s" ) <> @unknown
        assert_receive {:started, again, _owner, _}
        assert again != client
        assert mcp |> MCP.tools() |> names() == ["s__wait"]
      end)
    end

    test "survive the death of the process that keeps the server" do
      quietly(fn ->
        {mcp, tools, client, owner} = waiting()
        call = Task.async(fn -> call(tools, "s__wait") end)
        assert_receive :waits
        ref = Process.monitor(client)
        Process.exit(owner, :kill)

        assert Task.await(call) == {:error, "the MCP server " <> @unknown}
        # Its client is linked.
        assert_receive {:DOWN, ^ref, :process, _, _}
        assert call(tools, "s__wait") == {:error, "the MCP server was stopped"}
        assert Wait.until(fn -> mcp |> MCP.tools(missing: :skip) |> names() == ["s__wait"] end)
      end)
    end

    test "have an outcome that nobody knows when the client, their worker or the process that keeps the server dies" do
      for who <- [:client, :worker, :owner] do
        quietly(fn ->
          me = self()
          call = fn _, _, _ -> send(me, {:waits, self()}) && Process.sleep(:infinity) end
          mcp = start!([server("s", %{list: listing(["wait"]), call: call})])
          tools = MCP.tools(mcp)
          # The ones before were started again.
          [{_name, owner, _, _}] = Supervisor.which_children(mcp)
          assert_receive {:started, client, ^owner, _}
          llm = LLM.Scripted.new([%{tool_calls: [%{id: "1", name: "s__wait"}]}, "Sorry."])
          run = Task.async(fn -> prompt("Go", llm: llm, tools: tools) end)
          assert_receive {:waits, worker}
          Process.exit(%{client: client, worker: worker, owner: owner}[who], :kill)
          assert {:ok, %{output: "Sorry.", context: context}} = Task.await(run)
          assert {who, Context.Calls.tool_call_status(context, "1")} == {who, :unknown}
        end)
      end
    end

    test "fail at once while a server is down, which is tried more and more seldom" do
      {:ok, down?} = Agent.start_link(fn -> false end)

      list = fn _ ->
        if Agent.get(down?, & &1),
          do: {:lost, "cannot be reached"},
          else: {:ok, page([tool("x")])}
      end

      call = fn _, _, _ -> {:lost, "answered with HTTP status 500"} end
      failed = ~s(the MCP server "s" answered with HTTP status 500)

      quietly(fn ->
        mcp = start!([server("s", %{list: list, call: call})])
        tools = MCP.tools(mcp)
        Agent.update(down?, fn _ -> true end)

        assert call(tools, "s__x") == {:error, failed}
        assert_receive {:stopped, _}

        words = ~s(the MCP server "s" cannot be reached; try again later)
        assert Wait.until(fn -> call(tools, "s__x") == {:error, words} end)
        # Those who begin now still know its tools.
        assert mcp |> MCP.tools() |> names() == ["s__x"]
        Agent.update(down?, fn _ -> false end)

        assert Wait.until(fn -> call(tools, "s__x") == {:error, failed} end, 60_000)
      end)
    end

    @tag :capture_log
    test "of a client that makes one at a time wait for each other; a cancelled one costs the connection alone" do
      me = self()

      call = fn
        "wait", _, _ -> send(me, {:waits, self()}) && receive do: (:go -> text("waited"))
        "echo", _, _ -> text("here")
      end

      fake = %{list: listing(["wait", "echo"]), call: call, concurrent?: false}
      mcp = start!([server("s", fake)])
      tools = MCP.tools(mcp)
      assert_receive {:started, client, owner, _}

      wait = Task.async(fn -> call(tools, "s__wait") end)
      assert_receive {:waits, waiting}
      echo = Task.async(fn -> call(tools, "s__echo") end)
      assert Wait.until(fn -> :queue.len(:sys.get_state(owner).queue) == 1 end)
      assert Task.yield(echo, 50) == nil
      send(waiting, :go)
      assert Task.await(wait) == {:ok, "waited"}
      assert Task.await(echo) == {:ok, "here"}

      # A call whose caller has gone before it ran never runs, and one that runs is cancelled with its caller.
      queued = fn -> :queue.len(:sys.get_state(owner).queue) end
      run = Task.async(fn -> call(tools, "s__wait") end)
      assert_receive {:waits, _}
      gone = Task.async(fn -> call(tools, "s__wait") end)
      assert Wait.until(fn -> queued.() == 1 end)
      Task.shutdown(gone, :brutal_kill)
      assert Wait.until(fn -> queued.() == 0 end)
      echo = Task.async(fn -> call(tools, "s__echo") end)
      assert Wait.until(fn -> queued.() == 1 end)
      Task.shutdown(run, :brutal_kill)
      assert Task.await(echo) == {:ok, "here"}
      assert_receive {:cancel, _}
      assert_receive {:stopped, ^client}
      refute_received {:waits, _}
    end

    test "that run at the same time know nothing of each other" do
      me = self()
      call = fn _, _, _ -> send(me, {:waits, self()}) && Process.sleep(:infinity) end
      tools = tools_of(["x"], call)
      for _ <- 1..12, do: Task.async(fn -> call(tools, "s__x") end)

      [first | others] =
        for _ <- 1..12 do
          assert_receive {:waits, worker}, 60_000
          worker |> Process.info(:memory) |> elem(1)
        end

      # Each held those before it, and with them those before these.
      assert Enum.max(others) < 3 * first
    end

    test "are not disturbed by messages that nobody expects" do
      call = fn _, _, _ -> text("once") end
      tools = tools_of(["x"], call)
      assert_receive {:started, _client, owner, _}

      odd = [:odd, :connect, {:changed, 1}, {make_ref(), {:ok, %{}}}]

      for message <- odd ++ for(tag <- [:late, :list], do: {tag, make_ref()}),
          do: send(owner, message)

      assert call(tools, "s__x") == {:ok, "once"}
      assert call(tools, "s__x") == {:ok, "once"}
      assert Process.alive?(owner)
    end

    test "whose cancellation the client does not take end with the connection" do
      quietly(fn ->
        {_mcp, tools, client, _owner} = waiting(%{cancel: fn _ -> {:lost, "has ended"} end})
        call = Task.async(fn -> call(tools, "s__wait") end)
        assert_receive :waits
        Task.shutdown(call, :brutal_kill)
        assert_receive {:cancel, _}
        assert_receive {:stopped, ^client}
        assert_receive {:started, _again, _, _}
      end)
    end
  end
end
