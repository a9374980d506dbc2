Code.require_file("native/precompiled.exs", __DIR__)

defmodule Mix.Tasks.Compile.Cargo do
  @moduledoc """
  Builds the Rust library of a package with Cargo and puts it where the package's module of NIFs loads it from. It serves
  all packages of this repository: `ash_agent_context`, and those that depend on it and have a library of their own.

  A package says in its `project/0` what there is to build:

      cargo: [crate: "ash_agent_context_nif", module: "AshAgent.Context.Native", workspace: ".", sources: ["native/ash_agent_context_*"], features: [:otlp]]

  It runs `cargo build` for the crate, with the target directory inside the Mix build path, and
  copies the library to `priv/native` of the *built* application. Nothing is written to the source tree, so one checkout
  can be a path or git dependency of several applications, also when it is read-only. All Mix environments share one
  Cargo target directory.

  Applications get the profile `quick` of the workspace's `Cargo.toml` in `dev` and `test`, so that the first build takes a minute,
  and `release` in `prod` and every other environment: that takes more than twice as long and encodes requests faster by a
  quarter to a half. An application can choose:

      config :ash_agent_context, profile: :release

  In the repository's own checkout, `dev`, `test` and `integration` get the profile `checkout`, which rebuilds in seconds.

  An application chooses what is built in:

      config :ash_agent_context, features: [:exact_tokens]

  The features are those of the crate's `Cargo.toml`; none is built in by default. The repository's own checkout builds those
  of `features:`; for those of `chosen_features:` no libraries are published. With `built_with: :sqlite`, `:sqlite` is one more, and the library is only built for those who choose it. After a change
  run `mix deps.compile ash_agent_context --force`.

  Packages from Hex come with the checksums of libraries that were built for them. Where one fits the machine, the version and the
  features, it is taken instead, from a cache or from `base_url`, and no Rust is needed. Otherwise, or if it cannot be fetched,
  the library is built; one with another checksum stops the compilation.

      config :ash_agent_context, precompiled: [base_url: "https://mirror.example.com/libraries", cache: "/var/cache/nifs"]
      config :ash_agent_context, precompiled: false # build it

  The options of `rustler_precompiled` hold as well: `config :rustler_precompiled, force_build: [ash_agent_context: true]`,
  `force_build_all`, `RUSTLER_PRECOMPILED_FORCE_BUILD_ALL`, `RUSTLER_PRECOMPILED_GLOBAL_CACHE_PATH`.

  Cargo is started only when something it reads has changed since the last build (contents, not times), so that a
  compilation with nothing to do costs a few milliseconds. In its own checkout Cargo may update `Cargo.lock`; as a
  dependency it is run with `--locked`.

  A running VM (`iex -S mix`) keeps the library it has loaded. The new one is moved into its place, never written over
  it, which would crash the VM. So `recompile/0` is safe, but to run changed Rust code, or after a change of
  `AshAgent.Context.Native` itself (Rustler's libraries cannot be upgraded in a running VM), restart `iex`.
  """

  use Mix.Task.Compiler

  alias Mix.Task.Compiler.Diagnostic

  # Of the workspace, and of each crate in it.
  @workspace_inputs ~w(Cargo.toml Cargo.lock rust-toolchain* .cargo/config.toml)
  @crate_inputs ~w(*.toml build.rs src/**/*)

  # This file is at the root of the repository.
  @checkout __DIR__

  # These change the library without changing a file.
  @variables ~w(CARGO_BUILD_TARGET CARGO_BUILD_RUSTFLAGS RUSTFLAGS RUSTUP_TOOLCHAIN)

  @impl true
  def run(args) do
    fingerprint = fingerprint()

    cond do
      not wanted?() ->
        File.rm(manifest())
        File.rm(library())
        :noop

      "--force" not in args and File.exists?(library()) and
          File.read(manifest()) == {:ok, fingerprint} ->
        :noop

      true ->
        build(fingerprint)
    end
  end

  @impl true
  def manifests, do: [manifest()]

  @impl true
  def clean do
    File.rm(manifest())
    File.rm(library())
    File.rm_rf!(target_dir())
    :ok
  end

  defp build(fingerprint) do
    with {:ok, features} <- features(),
         :ok <- check_profile(),
         {:ok, output} <- fetch_or_build(features) do
      File.mkdir_p!(Path.dirname(manifest()))
      File.write!(manifest(), fingerprint)
      {:ok, diagnostics(output)}
    else
      {:error, message} when is_binary(message) ->
        Mix.shell().error(message)
        {:error, [diagnostic(:error, message)]}

      {:error, diagnostics} ->
        {:error, diagnostics}
    end
  end

  defp fetch_or_build(features) do
    case fetch_precompiled(features) do
      {:ok, bytes, sentence} ->
        Mix.shell().info(sentence)
        with :ok <- install(&File.write!(&1, bytes)), do: {:ok, ""}

      {:build, sentence} ->
        if sentence, do: Mix.shell().info(sentence)

        with {:ok, cargo} <- find_cargo(),
             {:ok, output} <- run_cargo(cargo, features),
             :ok <- install_built(),
             do: {:ok, output}

      {:error, message} ->
        {:error, message}
    end
  end

  # A profile that was chosen is built.
  defp fetch_precompiled(features) do
    if own_checkout?() or Application.get_env(app(), :profile) != nil do
      {:build, nil}
    else
      AshAgentContext.Precompiled.fetch(
        %{
          app: app(),
          crate: crate(),
          version: Mix.Project.config()[:version],
          features: features,
          checksums: AshAgentContext.Precompiled.checksum_file(config(:module)),
          base_url: config(:base_url)
        },
        Application.get_env(app(), :precompiled)
      )
    end
  end

  defp find_cargo do
    # Editors started from a desktop often lack rustup's directory in their PATH.
    rustup = Path.expand("~/.cargo/bin/cargo")

    cond do
      cargo = System.find_executable("cargo") ->
        {:ok, cargo}

      File.regular?(rustup) ->
        {:ok, rustup}

      true ->
        {:error,
         "#{app()} is compiled with Rust and found no cargo: " <>
           "install Rust from https://rustup.rs, or put cargo on the PATH."}
    end
  end

  defp run_cargo(cargo, features) do
    args =
      ~w(build --profile #{profile()} --manifest-path #{manifest_path()} --package #{crate()}) ++
        ["--features", Enum.join(features, ","), "--target-dir", target_dir()] ++ lock_options()

    port =
      Port.open({:spawn_executable, cargo}, [
        :binary,
        :exit_status,
        :stderr_to_stdout,
        :hide,
        args: args,
        env: color(),
        line: 65_536
      ])

    case relay(port, []) do
      {0, output} ->
        {:ok, output}

      {status, output} ->
        case Enum.filter(diagnostics(output), &(&1.severity == :error)) do
          # No fault in a Rust file, but no network, no linker, a wrong manifest.
          [] -> {:error, [diagnostic(:error, "cargo build failed (#{status})\n\n" <> output)]}
          errors -> {:error, errors}
        end
    end
  end

  defp profile do
    if own_checkout?() and Mix.env() in [:dev, :test, :integration],
      do: "checkout",
      else: "#{Application.get_env(app(), :profile, usual_profile())}"
  end

  defp check_profile do
    if profile() in ~w(checkout quick release),
      do: :ok,
      else:
        {:error,
         "config #{inspect(app())}, profile: is not one of those there are: choose :quick or :release."}
  end

  # A dependency is compiled in the environment `prod`, in the folder of the application's environment.
  defp usual_profile do
    if Path.basename(Mix.Project.build_path()) in ~w(dev test), do: :quick, else: :release
  end

  # Those of the crate. What the whole library depends on is not one of them.
  defp features do
    known =
      List.wrap(config(:built_with)) ++ config(:features) ++ List.wrap(config(:chosen_features))

    if is_list(fetch_features()) and fetch_features() -- known == [] do
      {:ok, fetch_features() -- List.wrap(config(:built_with))}
    else
      {:error,
       "config #{inspect(app())}, features: #{inspect(fetch_features())} is not a list of known features: " <>
         "choose from #{inspect(known)}."}
    end
  end

  defp fetch_features do
    if own_checkout?(),
      do: List.wrap(config(:built_with)) ++ config(:features),
      else: Application.get_env(app(), :features, [])
  end

  # `build/1` refuses what is not a feature.
  defp wanted?, do: config(:built_with) == nil or fetch_features() != []

  defp lock_options do
    lock = Path.join(config(:workspace), "Cargo.lock")
    if File.exists?(lock) and not own_checkout?(), do: ["--locked"], else: []
  end

  # The packages of the repository share its build folder.
  defp own_checkout?, do: String.starts_with?(Mix.Project.build_path(), @checkout <> "/")

  defp app, do: Mix.Project.config()[:app]
  defp crate, do: config(:crate)
  defp manifest_path, do: Path.join(config(:workspace), "Cargo.toml")

  defp config(key), do: Mix.Project.config()[:cargo][key]

  defp color do
    if IO.ANSI.enabled?() and System.get_env("CARGO_TERM_COLOR") == nil,
      do: [{~c"CARGO_TERM_COLOR", ~c"always"}],
      else: []
  end

  # Shows Cargo's messages as they come and keeps them for the diagnostics.
  defp relay(port, lines) do
    receive do
      {^port, {:data, {_eol, line}}} ->
        if String.valid?(line), do: IO.puts(:stderr, line)
        relay(port, [lines, line, ?\n])

      {^port, {:exit_status, status}} ->
        {status, lines |> IO.iodata_to_binary() |> String.replace(~r/\e\[[0-9;]*m/, "")}
    end
  end

  defp diagnostics(output) do
    ~r/^(error|warning)(?:\[\w+\])?: (.+)\n +--> (.+?):(\d+):\d+$/m
    |> Regex.scan(output, capture: :all_but_first)
    |> Enum.map(fn [severity, message, file, line] ->
      diagnostic = diagnostic(String.to_existing_atom(severity), message)

      %{
        diagnostic
        | file: Path.expand(file, config(:workspace)),
          position: String.to_integer(line)
      }
    end)
  end

  defp diagnostic(severity, message) do
    %Diagnostic{
      compiler_name: "cargo",
      file: Path.expand(manifest_path()),
      message: message,
      position: 0,
      severity: severity
    }
  end

  defp install_built do
    built = built_library()

    if File.exists?(built),
      do: install(&File.cp!(built, &1)),
      else: {:error, "cargo succeeded but left no library at #{built}"}
  end

  defp install(write) do
    unlink_priv()
    temporary = "#{library()}.#{System.pid()}"
    File.mkdir_p!(Path.dirname(temporary))
    write.(temporary)
    File.rename!(temporary, library())
  end

  # Mix links the build's priv to that of the source when there is one; a real directory it keeps, and copies into.
  defp unlink_priv do
    priv = Path.join(Mix.Project.app_path(), "priv")

    if match?({:ok, _}, File.read_link(priv)) do
      File.rm!(priv)
      File.mkdir_p!(priv)
      Mix.Project.build_structure()
    end
  end

  defp built_library do
    name =
      case :os.type() do
        {:win32, _} -> "#{crate()}.dll"
        {:unix, :darwin} -> "lib#{crate()}.dylib"
        _ -> "lib#{crate()}.so"
      end

    Path.join([target_dir(), System.get_env("CARGO_BUILD_TARGET", ""), profile(), name])
  end

  # :erlang.load_nif/2 adds .so on every Unix, also on macOS.
  defp library do
    extension = if match?({:win32, _}, :os.type()), do: "dll", else: "so"
    Path.join(Mix.Project.app_path(), "priv/native/lib#{crate()}.#{extension}")
  end

  defp target_dir do
    build_path = Mix.Project.build_path()

    if System.get_env("MIX_BUILD_PATH"),
      do: Path.join(build_path, "cargo/#{app()}"),
      else: Path.expand("../cargo/#{app()}", build_path)
  end

  defp manifest, do: Path.join(Mix.Project.manifest_path(), "compile.cargo")

  defp fingerprint do
    patterns =
      for(name <- @workspace_inputs, do: Path.join(config(:workspace), name)) ++
        for crate <- config(:sources), name <- @crate_inputs, do: Path.join(crate, name)

    files =
      for path <- patterns |> Enum.flat_map(&Path.wildcard/1) |> Enum.uniq(),
          File.regular?(path),
          do: {path, :erlang.md5(File.read!(path))}

    machine = :erlang.system_info(:system_architecture)
    variables = Enum.map(@variables, &System.get_env/1)

    precompiled = {Application.get_env(app(), :precompiled), Application.get_env(app(), :profile)}
    checksums = File.read(AshAgentContext.Precompiled.checksum_file(config(:module)))

    {files, machine, profile(), features(), variables, precompiled, checksums}
    |> :erlang.term_to_binary()
    |> :erlang.md5()
    |> Base.encode16()
  end
end

defmodule AshAgentContext.MixProject do
  use Mix.Project

  @version "0.1.0"

  # The repository's address, which it does not have yet: links and the address of the precompiled libraries follow from it.
  @source_url nil

  def project do
    [
      app: :ash_agent_context,
      version: @version,
      elixir: "~> 1.14",
      compilers: [:cargo] ++ Mix.compilers(),
      cargo: [
        crate: "ash_agent_context_nif",
        module: "AshAgent.Context.Native",
        workspace: ".",
        sources: ["native/ash_agent_context_*"],
        features: [:exact_tokens, :otlp],
        # It takes a minute more to build, and changes which schemas are taken: only for those who choose it.
        chosen_features: [:json_schema],
        base_url: @source_url && "#{@source_url}/releases/download/v#{@version}"
      ],
      elixirc_paths: elixirc_paths(Mix.env()),
      start_permanent: Mix.env() == :prod,
      prune_code_paths: Mix.env() != :integration,
      deps: deps(),
      name: "AshAgent Context",
      description: description(),
      package: package(),
      docs: &docs/0
    ]
  end

  # It starts no process.
  def application, do: [extra_applications: [:logger] ++ integrations()]

  # Of the libraries that bin/integration puts on the code path, those that the package and its tests name.
  @integrations [:ecto, :ecto_sql, :jason, :kino, :postgrex]

  defp integrations do
    libraries = Mix.env() == :integration && System.get_env("ERL_LIBS")
    for app <- @integrations, libraries && File.dir?(Path.join(libraries, "#{app}")), do: app
  end

  # In :integration with the libraries of an application that bin/integration is given.
  defp elixirc_paths(env) when env in [:test, :integration],
    do: ["lib", "test/support", "test/integration/support"]

  defp elixirc_paths(_env), do: ["lib"]

  # All of them are optional: where Hex is out of reach, everything but the integrations works without them.
  defp deps do
    if Code.ensure_loaded?(Hex) and Mix.env() != :integration do
      [
        {:jason, "~> 1.4", optional: true},
        {:kino, "~> 0.14", optional: true},
        {:ex_doc, "~> 0.31", only: :dev, runtime: false}
      ]
    else
      []
    end
  end

  defp description do
    "An LLM agent's conversation as an immutable value, structured in iterations and held in Rust: " <>
      "cheap to append to, to fork and to hand to another process."
  end

  defp package do
    [
      licenses: ["Apache-2.0"],
      links: links(),
      files:
        ~w(lib mix.exs .formatter.exs README.md ARCHITECTURE.md CHANGELOG.md SECURITY.md LICENSE NOTICE usage-rules.md guides/*.{md,livemd,cheatmd} assets) ++
          ~w(Cargo.toml Cargo.lock checksum-*.exs native/precompiled.exs native/ash_agent_context_*/{src,benches,build.rs,Cargo.toml,askama.toml})
    ]
  end

  defp links do
    for {name, url} <- [
          {"Changelog", "https://hexdocs.pm/ash_agent_context/changelog.html"},
          {"GitHub", @source_url}
        ],
        url,
        into: %{},
        do: {name, url}
  end

  defp source_url(nil), do: nil
  defp source_url(url), do: "#{url}/blob/v#{@version}/%{path}#L%{line}"

  defp docs do
    # Packages come without this file: this function is called for documentation alone.
    Code.require_file("doc_links.exs", __DIR__)

    [
      main: "readme",
      markdown_processor: AshAgent.DocLinks,
      filter_modules: Function.capture(AshAgent.DocLinks, :library?, 2),
      # ARCHITECTURE.md names it.
      skip_code_autolink_to: ["AshAgent.Context.Native"],
      # Where the sources are is known when they are published.
      source_url_pattern: source_url(System.get_env("ASH_AGENT_SOURCE_URL") || @source_url),
      assets: %{"assets" => "assets"},
      source_ref: "v#{@version}",
      extras:
        ["README.md" | guides()] ++
          ~w(ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md SECURITY.md LICENSE NOTICE bench/RESULTS.md),
      groups_for_extras: [
        Start: ~r"guides/(getting-started|tasks|cheatsheet)",
        Reference: ~r"guides/(snapshot-format|snapshot-values|rent|benchmarks)",
        Guides: ~r"guides/",
        "The project": ~r"(ARCHITECTURE|CONTRIBUTING|CHANGELOG|SECURITY|LICENSE|NOTICE|RESULTS)"
      ],
      groups_for_docs:
        for(
          group <- ["Build", "Read", "Fork", "Requests", "Store"],
          do: {String.to_atom(group), &(&1[:group] == group)}
        ),
      groups_for_modules: [
        Conversations:
          ~r"^AshAgent\.(Context|ChatContext|Response)(\.Error|\.Branch|\.Config.*)?$",
        "Conversations by topic":
          ~r"^AshAgent\.Context\.(Audit|Calls|Import|Pins|PreparedRequest|Recall|Rent|Shortening|Tokens|View)$",
        "Other libraries": ~r"^AshAgent\.Context\.(Jido|LangChain|ReqLLM)$",
        Enhancers: ~r"^AshAgent\.Context\.Enhancer$",
        "Ecto and JSON": ~r"(EctoType|JSON|UnknownAtom)",
        Looking: ~r"^AshAgent\.(Trace|Prices)"
      ]
    ]
  end

  # A path: in the order in which they are read.
  @path ~w(getting-started.md tasks.md cheatsheet.cheatmd requests.md request-changes.md thinking.md calls.md responses.md answer-ends.md) ++
          ~w(budgets.md recall.md costs.md cache.md tokens.md masks.md branches.md storage.md untrusted.md history.md looking.livemd) ++
          ~w(libraries.md upgrading.md snapshot-format.md snapshot-values.md rent.md benchmarks.md)

  defp guides do
    path = for name <- @path, do: "guides/#{name}"
    path ++ (Path.wildcard("guides/*") -- path)
  end
end
