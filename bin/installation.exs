# The steps of bin/installation, inside of bin/tarballs --registry.

defmodule Installation do
  @moduledoc false

  @source System.fetch_env!("TARBALLS_SOURCE")
  @answer "IO.inspect(Sample.answer())"
  @packages ~w(ash_agent_context ash_agent_runtime ash_agent_test ash_agent_resources ash_agent_web)

  # What a package is not compiled without.
  @libraries [ash_agent_resources: :ash, ash_agent_web: :phoenix_live_view]

  def main do
    File.cd!(make_application())

    cases = Enum.filter(cases(), &asked?/1)
    ways = Enum.filter(igniter_ways(), &asked?/1)

    for {name, deps} <- cases do
      IO.puts("--- #{name}: #{deps}")
      check(deps)
    end

    for {name, deps, command} <- ways do
      IO.puts("--- #{name}: mix #{command}")
      check_generators(deps, command)
    end

    without =
      for {package, library} <- @libraries,
          not here?(library),
          do: "; #{package} was not compiled, which needs #{library}: see bin/integration"

    igniter =
      if igniter_ways() == [],
        do:
          "; Igniter's are left out, which need Elixir 1.15 and the libraries of a Phoenix application with Ash",
        else: ""

    count = length(cases) + length(ways)
    IO.puts("installation: checked #{count} ways to install the packages#{without}#{igniter}")
  end

  defp asked?(way), do: elem(way, 0) =~ Enum.at(System.argv(), 0, "")

  # The registry has an empty package in its place, if it has to.
  defp here?(library), do: File.dir?("deps/#{library}/lib")

  @pages ["README.md"] ++
           for(name <- ~w(runtime test resources web), do: "packages/ash_agent_#{name}/README.md")

  # Names and dependencies, with the copy in the place of the address that a page has.
  defp cases do
    [_, runtime, test, resources, web] = typed = Enum.map(@pages, &read_deps/1)

    Enum.uniq_by(Enum.zip(@pages, typed), fn {_page, deps} -> deps end) ++
      [
        {"from a folder", from_folder(resources)},
        {"from Hex", from_hex(resources)},
        {"tests from a folder", from_folder(test)},
        {"tests from Hex", from_hex(test)},
        {"a page from a folder", from_folder(web)},
        {"a page from Hex", from_hex(web)},
        # The pages advise against it, and say how.
        {"two from git", join(String.replace(runtime, "}", ", override: true}"), resources)},
        {"two from a folder", join(from_folder(runtime), from_folder(resources))}
      ]
  end

  defp read_deps(page) do
    text = File.read!(Path.join(@source, page))
    [_, deps] = Regex.run(~r/^## Installation.*?^def deps do\n(.*?)^end$/ms, text)
    deps = String.replace(deps, ~r/\s+/, " ")

    if not (deps =~ "https://…/ash_agent_context"), do: raise("#{page} names no address: #{deps}")
    String.replace(deps, "https://…/ash_agent_context", "file://" <> @source)
  end

  @git ~r/git: "[^"]*", subdir: "([^"]*)"/

  defp from_folder(deps), do: Regex.replace(@git, deps, ~s(path: "#{@source}/\\1"))
  defp from_hex(deps), do: Regex.replace(@git, deps, ~s("~> 0.1"))

  defp join(deps, more),
    do: String.replace(deps, ~r/\]\s*$/, ",") <> String.replace(more, ~r/^\s*\[/, "")

  defp check(deps) do
    remove_packages()
    write_mix(deps)
    mix(~w(deps.get))
    lock = File.read("mix.lock")

    whole? =
      Enum.all?(@libraries, fn {_, library} -> not (deps =~ ":#{library},") or here?(library) end)

    write_sample(
      cond do
        not whole? -> tools()
        deps =~ ":phoenix_live_view," -> ash_tools() <> page()
        deps =~ ":ash," -> ash_tools()
        true -> tools()
      end
    )

    run(whole?)
    mix(~w(deps.get))
    unchanged!(lock)
    mix(~w(deps.update --all))
    unchanged!(lock)
    run(whole?)
  end

  # Ash is compiled once.
  defp remove_packages do
    for app <- @packages,
        folder <- ~w(deps _build/dev/lib),
        do: File.rm_rf!(Path.join(folder, app))

    File.rm("mix.lock")
  end

  defp run(whole?) do
    words =
      if whole? do
        mix(["run", "-e", @answer])
      else
        # Applications that were not compiled cannot start.
        mix(~w(deps.compile ash_agent_context ash_agent_runtime))
        start = "{:ok, _} = Application.ensure_all_started(:ash_agent_runtime); "
        unchecked = ~w(run --no-compile --no-deps-check --no-start -r lib/sample.ex -e)
        mix(unchecked ++ [start <> @answer])
      end

    if not (words =~ ~s({"It is open.", ["The printer is broken"]})),
      do: raise("the agent said:\n\n" <> words)
  end

  ## Igniter

  # `mix igniter.install` without a version asks hex.pm for the newest, and its `@git:` knows no folder.
  defp igniter_ways do
    [git] =
      Regex.run(
        ~r/\{:ash_agent_resources, [^}]*\}/,
        read_deps("packages/ash_agent_resources/README.md")
      )

    if Version.match?(System.version(), ">= 1.15.0") and
         Enum.all?(~w(igniter ash_postgres phoenix phoenix_live_view), &in_registry?/1),
       do: [
         {"Igniter, from Hex", "", "igniter.install ash_agent_resources@0.1 --yes"},
         {"Igniter, from a folder", "",
          "igniter.install ash_agent_resources@path:#{@source}/packages/ash_agent_resources --yes"},
         {"Igniter, from git", git <> ", ", "ash_agent_resources.install --yes"}
       ],
       else: []
  end

  defp in_registry?(name),
    do: Path.wildcard(Path.expand("../registry/tarballs/#{name}-*.tar", @source)) != []

  # A second time, they change nothing.
  defp check_generators(deps, command) do
    remove_packages()
    for folder <- ~w(lib config test priv), do: File.rm_rf!(folder)
    Enum.each(phoenix_application(deps), fn {path, text} -> write(path, text) end)
    mix(~w(deps.get))
    mix(String.split(command))
    mix(~w(ash_agent.gen.chat Sample.Chat --live --yes))
    mix(~w(deps.get))
    mix(~w(compile --warnings-as-errors))
    before = read_application()
    mix(~w(ash_agent_resources.install --yes))
    mix(~w(ash_agent.gen.chat Sample.Chat --live --yes))
    mix(~w(deps.get))
    mix(~w(compile --warnings-as-errors))

    for {path, text} <- read_application(),
        text != before[path],
        do: raise("a second time, #{command} and ash_agent.gen.chat changed #{path}:\n\n#{text}")
  end

  defp read_application do
    for pattern <- ~w(mix.exs mix.lock .formatter.exs {lib,config,test}/**/*.{ex,exs}),
        path <- Path.wildcard(pattern, match_dot: true),
        into: %{},
        do: {path, File.read!(path)}
  end

  defp phoenix_application(deps) do
    [
      {"mix.exs",
       """
       defmodule Sample.MixProject do
         use Mix.Project

         def project do
           [app: :sample, version: "0.1.0", elixir: "~> 1.15", deps: deps()]
         end

         def application do
           [mod: {Sample.Application, []}, extra_applications: [:logger]]
         end

         defp deps do
           [
             #{deps}{:ash, "~> 3.7"},
             {:ash_postgres, "~> 2.0"},
             {:igniter, "~> 0.6"},
             {:jason, "~> 1.4"},
             {:phoenix, "~> 1.7"},
             {:phoenix_live_view, "~> 1.0"},
             {:simple_sat, "~> 0.1"}
           ]
         end
       end
       """},
      {".formatter.exs", ~s([inputs: ["{config,lib,test}/**/*.{ex,exs}"]]\n)},
      {"config/config.exs",
       """
       import Config

       config :sample, ecto_repos: [Sample.Repo]
       """},
      {"lib/sample/application.ex",
       """
       defmodule Sample.Application do
         use Application

         def start(_type, _args) do
           children = [Sample.Repo]
           Supervisor.start_link(children, strategy: :one_for_one)
         end
       end
       """},
      {"lib/sample/repo.ex",
       """
       defmodule Sample.Repo do
         use AshPostgres.Repo, otp_app: :sample

         def installed_extensions, do: []
         def min_pg_version, do: %Version{major: 13, minor: 0, patch: 0}
       end
       """},
      {"lib/sample_web.ex",
       """
       defmodule SampleWeb do
         defmacro __using__(:live_view), do: quote(do: use(Phoenix.LiveView))
       end
       """},
      {"lib/sample_web/endpoint.ex",
       """
       defmodule SampleWeb.Endpoint do
         use Phoenix.Endpoint, otp_app: :sample

         plug SampleWeb.Router
       end
       """},
      {"lib/sample_web/router.ex",
       """
       defmodule SampleWeb.Router do
         use Phoenix.Router
         import Phoenix.LiveView.Router

         pipeline :browser do
           plug :accepts, ["html"]
         end
       end
       """}
    ]
  end

  defp write(path, text) do
    File.mkdir_p!(Path.dirname(path))
    File.write!(path, text)
  end

  defp unchanged!(lock) do
    if File.read("mix.lock") != lock,
      do: raise("mix.lock changed from #{inspect(lock)} to #{inspect(File.read("mix.lock"))}")
  end

  defp write_mix(deps) do
    File.write!("mix.exs", """
    defmodule Sample.MixProject do
      use Mix.Project
      def project, do: [app: :sample, version: "0.1.0", deps: deps()]
      def application, do: [extra_applications: [:logger]]
      defp deps do
        #{deps}
      end
    end
    """)
  end

  defp write_sample(tools) do
    File.mkdir_p!("lib")

    File.write!("lib/sample.ex", """
    defmodule Sample do
      alias AshAgent.{Context, LLM, Runtime}

      def answer do
        call = %{id: "call_1", name: "ticket_create", arguments: %{"title" => "The printer is broken"}}
        llm = LLM.Scripted.new([%{tool_calls: [call]}, "It is open."])
        {:ok, result} = Runtime.run(Context.new("Open a ticket"), llm: llm, tools: tools())
        {result.output, tickets()}
      end

      #{tools}
    end
    """)
  end

  defp tools do
    """
    def tools do
      open = fn %{"title" => title} -> {:persistent_term.put(:tickets, [title]), title} end
      %{ticket_create: %{function: open, description: "Opens a ticket", parameters: %{}}}
    end

    def tickets, do: :persistent_term.get(:tickets)
    """
  end

  defp ash_tools do
    """
    def tools, do: AshAgent.Tools.actions(Sample.Ticket, [:create])
    def tickets, do: Enum.map(Ash.read!(Sample.Ticket), & &1.title)

    defmodule Desk do
      use Ash.Domain, validate_config_inclusion?: false

      resources do
        resource Sample.Ticket
      end
    end

    defmodule Ticket do
      use Ash.Resource, domain: Sample.Desk, data_layer: Ash.DataLayer.Ets

      attributes do
        uuid_primary_key :id
        attribute :title, :string, public?: true
      end

      actions do
        defaults [:read, create: [:title]]
      end
    end
    """
  end

  defp page do
    """

    defmodule Page do
      use Phoenix.Component

      def page(assigns), do: ~H"<AshAgent.Web.style />"
    end

    true = Page.page(%{__changed__: nil}) |> Phoenix.HTML.Safe.to_iodata() |> to_string() |> String.contains?(".agent-chat")
    """
  end

  defp make_application do
    folder = Path.expand("../application", @source)
    File.mkdir_p!(folder)
    folder
  end

  defp mix(args), do: run!("mix", args)

  defp run!(program, args) do
    case System.cmd(program, args, stderr_to_stdout: true) do
      {words, 0} ->
        words

      {words, status} ->
        raise "#{program} #{Enum.join(args, " ")} ended with #{status}\n\n#{words}"
    end
  end
end

Installation.main()
