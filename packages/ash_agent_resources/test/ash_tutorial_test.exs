if Code.ensure_loaded?(Phoenix.LiveView) and Code.ensure_loaded?(AshPostgres.DataLayer) do
  defmodule AshAgent.Integration.TutorialTest do
    # Does what the tutorial says, block by block, runs the test that the guide on testing has for it, and talks to the application in
    # a browser. Within bin/tutorial, it fetches what the tutorial names, as it stands there, from a copy of this checkout and a registry
    # on loopback. Otherwise the list of dependencies is another one: the application finds the libraries compiled, those that the
    # tutorial names and what these need.
    use ExUnit.Case, async: false

    alias AshAgent.Context.JSON
    alias AshAgent.TestSupport.{Browser, Wait, WireServer}

    @moduletag :ash
    @moduletag :postgres
    @moduletag :chromium
    @moduletag :tmp_dir
    @source System.get_env("TARBALLS_SOURCE")
    @archives System.get_env("TUTORIAL_ARCHIVES")
    @moduletag timeout: if(@source, do: 7_200_000, else: 900_000)
    # `mix ash.codegen` of Ash needs Elixir 1.15, as Igniter does.
    unless function_exported?(Code, :ensure_all_loaded, 1) and Code.ensure_loaded?(Igniter) and
             Code.ensure_loaded?(AshPhoenix.Form),
           do: @moduletag(skip: "the tutorial needs Elixir 1.15, Igniter and AshPhoenix")

    @moduletag integrations: ["Ash", "AshPostgres", "LiveView", "PostgreSQL", "Chromium"]

    @guide "guides/ash_tutorial.md"
    @page "guides/liveview.md"
    @testing "guides/testing.md"
    @built "../../_build/integration"
    @wait 120_000
    @conversation ~r/^\/[0-9a-f-]{36}$/

    test "the tutorial's application passes its test, shows a stream, asks, branches and goes on after a crash",
         %{tmp_dir: folder} do
      for env <- ~w(dev test),
          do: AshAgent.Integration.Repo.query!("DROP DATABASE IF EXISTS my_app_#{env}")

      ollama = WireServer.start(&ollama/1)
      port = free_port()

      start =
        build(folder, [
          {"MIX_ENV", "dev"},
          {"ERL_LIBS", if(!@source, do: "#{libraries(folder)}:#{packages(folder)}")},
          {"MIX_ARCHIVES", @archives || System.get_env("MIX_ARCHIVES")},
          {"CARGO_TARGET_DIR", nil},
          {"POSTGRES_URL", database()},
          {"OLLAMA_URL", String.replace_suffix(ollama.url, "/v1", "")},
          {"PORT", to_string(port)}
        ])

      server = start.()
      assert Wait.until(fn -> answers?(port) end, @wait)
      empty = Path.join(folder, "empty.html")
      File.write!(empty, "")
      browser = Browser.open(empty)
      Browser.go(browser, "http://localhost:#{port}/")
      connected(browser)
      Browser.click(browser, "#start")
      first = await_url(browser, @conversation)

      # It asks before it closes the ticket.
      say(browser, "Please close ticket 7")
      await_text(browser, "#approval", "May I call ticket_close with %{\"id\" => 7}?")

      # The form tells that it waits, and the question outlives the application.
      say(browser, "Well?")
      await_text(browser, ".problem", "tool calls wait for decisions")
      server = restart(server, start, port)
      Browser.go(browser, "http://localhost:#{port}#{first}")
      await_text(browser, "#approval", "May I call ticket_close")
      connected(browser)
      Browser.click(browser, "#approve")

      # The beginning of an answer is there before its end.
      assert_receive {:held, model, result}, @wait
      assert result =~ "closed"
      await_text(browser, "#answer", "Ticket 7 ")

      call = "call ticket_close %{\"id\" => 7}"
      assert shown(browser) == ["user Please close ticket 7", call]
      say(browser, "")
      await_text(browser, ".problem", "write something")
      send(model, :go)
      await(browser, fn -> List.last(shown(browser)) == "assistant Ticket 7 is closed." end)
      assert [_said, ^call, "result " <> closed, _answer] = shown(browser)
      assert closed =~ "closed"

      # Another conversation goes on from the first iteration, and leaves this one as it is. What is sent twice is said once.
      say(browser, "Thanks", 2)
      await(browser, fn -> List.last(shown(browser)) == "assistant You said: Thanks" end)
      assert Enum.count(shown(browser), &(&1 == "user Thanks")) == 1
      Browser.click(browser, ".branch", "Branch from 2")
      branch = await_url(browser, @conversation, first)
      await(browser, fn -> List.last(shown(browser)) == "assistant Ticket 7 is closed." end)
      say(browser, "And 8?")
      await(browser, fn -> List.last(shown(browser)) == "assistant You said: And 8?" end)
      Browser.go(browser, "http://localhost:#{port}#{first}")
      await(browser, fn -> List.last(shown(browser)) == "assistant You said: Thanks" end)
      assert branch != first

      # A turn that is cut short goes on by itself.
      connected(browser)
      say(browser, "Take your time")
      assert_receive {:held, _model, "Take your time"}, @wait
      restart(server, start, port)
      assert_receive {:held, model, "Take your time"}, @wait
      send(model, :go)
      Browser.go(browser, "http://localhost:#{port}#{first}")
      await(browser, fn -> List.last(shown(browser)) == "assistant Here I am." end)
      Browser.close(browser)
      refute File.read!(Path.join(folder, "my_app/server.log")) =~ ~r/\[(warning|error)\]/
    end

    defp restart(server, start, port) do
      true = Port.close(server)
      assert Wait.until(fn -> not answers?(port) end, @wait)
      server = start.()
      assert Wait.until(fn -> answers?(port) end, @wait)
      server
    end

    ## The guide

    defp build(folder, env) do
      app = Path.join(folder, "my_app")

      tests =
        for [_language, text] = block <- blocks(@testing),
            text =~ ~r{\A(# (test|config)/|mix test)},
            do: block

      assert length(tests) == 5

      for [language, text] <- blocks(@guide) ++ blocks(@page) ++ tests,
          do: follow(language, text, folder, app, env)

      run("mix ash.codegen --check", app, env)
      run("mix compile --force --warnings-as-errors", app, env)
      [[command]] = Regex.scan(~r/^mix run --no-halt .*$/m, File.read!(@page))
      fn -> serve(command, app, env) end
    end

    defp blocks(page),
      do: Regex.scan(~r/^```(\w+)\n(.*?)^```/ms, File.read!(page), capture: :all_but_first)

    defp follow("sh", text, folder, app, env) do
      for line <- String.split(text, "\n", trim: true) do
        cond do
          line == "cd my_app" -> :ok
          line =~ "--no-halt" -> :ok
          true -> run(line, if(File.dir?(app), do: app, else: folder), env)
        end
      end
    end

    defp follow("elixir", "# mix.exs\n" <> text, folder, app, _env) do
      text = if @source, do: take_copy(text), else: take_compiled(text, folder, app)
      File.write!(Path.join(app, "mix.exs"), text)
    end

    defp follow("elixir", "# " <> text, _folder, app, _env) do
      [path, _code] = String.split(text, "\n", parts: 2)
      path = Path.join(app, path)
      path = List.first(Path.wildcard(path)) || path
      File.mkdir_p!(Path.dirname(path))
      File.write!(path, "# " <> text)
    end

    @address "https://…/ash_agent_context"

    defp take_copy(text) do
      assert text =~ @address
      String.replace(text, @address, "file://#{@source}")
    end

    # Each dependency is an empty package here, and what it compiles to is there already, the modules of ash_agent_test with the runtime.
    defp take_compiled(text, folder, app) do
      [project, deps] = String.split(text, "  defp deps do\n")
      names = named() -- ~w(igniter ash_agent_runtime ash_agent_test)
      assert "ash_agent_resources" in names
      for name <- names, do: stand_in(name, folder, app)

      compiled =
        for name <- names,
            do: "{:#{name}, path: \"../packages/#{name}\", compile: false}"

      project = String.replace(project, "deps: deps()", "prune_code_paths: false, deps: deps()")
      [_named, rest] = String.split(deps, ~r/^    \]\n/m)
      "#{project}  defp deps do\n    [#{Enum.join(compiled, ", ")}]\n#{rest}"
    end

    # The dependencies of the tutorial.
    defp named do
      [_, deps] = Regex.run(~r/^  defp deps do\n(.*?)^  end$/ms, File.read!(@guide))
      for [name] <- Regex.scan(~r/\{:(\w+),/, deps, capture: :all_but_first), do: name
    end

    # What is named and what that needs, as Hex would fetch it.
    defp libraries(folder) do
      place = Path.join(folder, "libraries")
      File.mkdir_p!(place)

      for name <- Enum.reduce(["ash", "spark", "splode" | named()], [], &needed/2),
          do: File.ln_s!(Path.expand("#{@built}/libraries/#{name}"), Path.join(place, name))

      place
    end

    defp needed(name, known) do
      app = "#{@built}/libraries/#{name}/ebin/#{name}.app"

      if name in known or not File.exists?(app) do
        known
      else
        {:ok, [{:application, _name, properties}]} = :file.consult(app)
        needs = properties[:applications] -- Keyword.get(properties, :optional_applications, [])
        needs |> Enum.map(&to_string/1) |> Enum.reduce([name | known], &needed/2)
      end
    end

    # The packages without the modules of their tests, which have the names of the tutorial's.
    defp packages(folder) do
      lib = Path.join(folder, "lib")

      for name <- ~w(ash_agent_context ash_agent_runtime ash_agent_resources) do
        ebin = Path.join([lib, name, "ebin"])
        File.mkdir_p!(ebin)

        for path <- Path.wildcard("#{@built}/lib/#{name}/ebin/*"),
            not String.contains?(Path.basename(path), "MyApp."),
            do: File.ln_s!(Path.expand(path), Path.join(ebin, Path.basename(path)))

        need_less(Path.join(ebin, "#{name}.app"), folder)
        priv = Path.expand("#{@built}/lib/#{name}/priv")
        if File.dir?(priv), do: File.ln_s!(priv, Path.join([lib, name, "priv"]))
      end

      lib
    end

    # Here the package was compiled with more libraries than the tutorial has, and says that it needs them.
    defp need_less(file, folder) do
      {:ok, [{:application, name, properties}]} = :file.consult(file)
      here? = &File.exists?(Path.join([folder, "libraries", to_string(&1)]))
      all = Path.wildcard("#{@built}/libraries/*") |> Enum.map(&Path.basename/1)
      kept = Enum.filter(properties[:applications], &(to_string(&1) not in all or here?.(&1)))
      File.rm!(file)
      term = {:application, name, Keyword.put(properties, :applications, kept)}
      File.write!(file, :io_lib.format("~tp.~n", [term]))
    end

    defp stand_in(name, folder, app) do
      package = Path.join([folder, "packages", name])
      File.mkdir_p!(package)
      # `mix ash.codegen` asks those for extensions that depend on Ash.
      deps = if name =~ ~r/^ash_/, do: ~s([{:ash, path: "../ash", compile: false}]), else: "[]"

      File.write!(Path.join(package, "mix.exs"), """
      defmodule #{Macro.camelize(name)}.StandIn.MixProject do
        use Mix.Project
        def project, do: [app: :#{name}, version: "99.0.0", deps: #{deps}]
      end
      """)

      formatter = if name == "ash_agent_resources", do: File.read!(".formatter.exs"), else: "[]"
      File.write!(Path.join(package, ".formatter.exs"), formatter)

      built =
        Enum.find(
          [Path.expand("#{@built}/libraries/#{name}"), Path.join([folder, "lib", name])],
          &File.dir?/1
        )

      for env <- ~w(dev test), place = Path.join([app, "_build", env, "lib"]) do
        File.mkdir_p!(place)
        :ok = File.ln_s(built, Path.join(place, name))
      end
    end

    defp run(line, folder, env) do
      env = if line == "mix test", do: [{"MIX_ENV", "test"} | tl(env)], else: env

      {said, status} =
        System.cmd("sh", ["-c", line], cd: folder, env: env, stderr_to_stdout: true)

      assert status == 0, "#{line}\n#{said}"
      refute ours(said) =~ ~r/warning|\[error\]|\*\* \(/, "#{line}\n#{said}"
    end

    # What the compiler says of other packages is theirs.
    defp ours(said) do
      for part <- String.split(said, ~r/^(?===> )/m),
          not (part =~ ~r/\A==> (?!my_app|ash_agent)/),
          into: "",
          do: part
    end

    # It ends with the test.
    defp serve(line, app, env) do
      env =
        for {name, value} <- env,
            do: {String.to_charlist(name), if(value, do: String.to_charlist(value), else: false)}

      command = "#{line} </dev/null >server.log 2>&1 & cat >/dev/null; kill -9 $!"
      args = [args: ["-c", command], cd: app, env: env]
      Port.open({:spawn_executable, "/bin/sh"}, [:binary | args])
    end

    defp database do
      password = URI.encode_www_form(System.fetch_env!("ASH_AGENT_CONTEXT_PGPASSWORD"))

      "ecto://postgres:#{password}@127.0.0.1:#{System.fetch_env!("ASH_AGENT_CONTEXT_PGPORT")}"
    end

    defp free_port do
      {:ok, socket} = :gen_tcp.listen(0, ip: {127, 0, 0, 1})
      {:ok, port} = :inet.port(socket)
      :gen_tcp.close(socket)
      port
    end

    defp answers?(port) do
      case :gen_tcp.connect({127, 0, 0, 1}, port, []) do
        {:ok, socket} -> :gen_tcp.close(socket) == :ok
        {:error, _reason} -> false
      end
    end

    ## The browser

    defp say(browser, text, times \\ 1) do
      connected(browser)
      input = "document.querySelector('#say input[name=\"say[input]\"]')"
      Browser.eval(browser, "#{input}.focus()")
      Browser.eval(browser, "#{input}.value = ''")
      Browser.type(browser, text)

      # Before the page hears of the first one.
      send = "document.querySelector('#say').requestSubmit();"
      Browser.eval(browser, String.duplicate(send, times))
    end

    defp connected(browser) do
      connected = "!!document.querySelector('[data-phx-main].phx-connected')"
      await(browser, fn -> Browser.eval(browser, connected) end)
    end

    defp shown(browser), do: browser |> Browser.texts(".message") |> Enum.map(&String.trim/1)

    defp await_text(browser, selector, text),
      do: await(browser, fn -> (Browser.text(browser, selector) || "") =~ String.trim(text) end)

    defp await_url(browser, form, other \\ nil) do
      await(browser, fn ->
        path = Browser.eval(browser, "location.pathname")
        if path =~ form and path != other, do: path
      end)
    end

    defp await(browser, fun) do
      answer = Wait.until(fun, @wait)
      assert answer, "the page shows: #{Browser.eval(browser, "document.body.innerText")}"
      answer
    end

    ## The model

    # Wants to close the ticket, holds in the middle of the answer after that, and else says back what it was told.
    defp ollama(connection) do
      {:ok, %{path: "/api/chat", body: body}} = WireServer.read_request(connection)

      WireServer.write(connection, WireServer.stream_head("application/x-ndjson"))

      case List.last(JSON.decode!(body)["messages"]) do
        %{"role" => "user", "content" => "Please close ticket" <> _} ->
          call = %{"function" => %{"name" => "ticket_close", "arguments" => %{"id" => 7}}}
          piece(connection, %{"content" => "", "tool_calls" => [call]})

        %{"role" => "tool", "content" => result} ->
          piece(connection, %{"content" => "Ticket 7 "})
          WireServer.tell(connection, {:held, self(), result})
          receive do: (:go -> piece(connection, %{"content" => "is closed."}))

        %{"content" => "Take your time"} ->
          WireServer.tell(connection, {:held, self(), "Take your time"})
          receive do: (:go -> piece(connection, %{"content" => "Here I am."}))

        %{"content" => text} ->
          piece(connection, %{"content" => "You said: "})
          piece(connection, %{"content" => text})
      end

      piece(connection, %{"content" => ""}, %{"done" => true, "done_reason" => "stop"})
      WireServer.write_chunk(connection, "")
    end

    defp piece(connection, message, more \\ %{"done" => false}) do
      line =
        Map.merge(
          %{"model" => "llama3.2", "message" => Map.put(message, "role", "assistant")},
          more
        )

      WireServer.write_chunk(connection, [JSON.encode(line), "\n"])
    end
  end
end
