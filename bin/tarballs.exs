# The part of bin/tarballs that needs Hex: reads the packages, serves them, and builds an application with them. See there.

defmodule Tarballs do
  # What only the repository needs. A file that is neither here nor in a package makes the check fail, so that none is forgotten.
  @repository ~r{^(\.ci/|\.github/|\.gitignore|CONTRIBUTING\.md|bench/|bin/|clippy\.toml|demo/|deny\.toml|doc_links\.exs|native/fuzz/|native/\w+/tests/|soak/|test/|packages/\w+/test/)}
  # Of Hex, packed and unpacked.
  @most 8_000_000
  @most_unpacked 64_000_000

  def main([root, scratch, from | command]) do
    packages = Enum.map(Path.wildcard(Path.join(scratch, "registry/tarballs/*.tar")), &read/1)
    pack_libraries(Path.join(scratch, "registry/tarballs"))
    make_registry(scratch)
    address = serve(Path.join(scratch, "registry"))

    env = [
      {"HEX_MIRROR", address},
      {"HEX_UNSAFE_REGISTRY", "1"},
      {"HEX_HOME", Path.join(scratch, "hex")},
      {"RUSTLER_PRECOMPILED_GLOBAL_CACHE_PATH", Path.join(scratch, "libraries")},
      {"TARBALLS_SOURCE", Path.join(scratch, "source")},
      # Mix does not look for a distribution's.
      {"MIX_REBAR3", System.get_env("MIX_REBAR3") || System.find_executable("rebar3")},
      {"MIX_ENV", nil},
      {"CARGO_TARGET_DIR", nil}
    ]

    case command do
      ["--registry", program | args] ->
        make_repository(Path.join(scratch, "source"))
        {_, status} = System.cmd(program, args, cd: from, env: env, into: IO.stream())
        System.halt(status)

      ["--check"] ->
        check_files(packages, File.read!(Path.join(scratch, "files")))
        check_crates(packages, root, scratch)
        check_application(scratch, env)
        IO.puts("tarballs: checked #{Enum.map_join(packages, ", ", & &1.name)}")

      _ ->
        raise "bin/tarballs --check, or --registry COMMAND..."
    end
  end

  # The reader is hex_core's, which Hex brings along.
  defp read(path) do
    {:ok, %{metadata: metadata, contents: contents}} =
      :mix_hex_tarball.unpack(File.read!(path), :memory)

    name = metadata["name"]
    files = for {file, bytes} <- contents, do: {to_string(file), bytes}
    packed = File.stat!(path).size
    unpacked = Enum.reduce(files, 0, fn {_, bytes}, sum -> sum + byte_size(bytes) end)

    expect(
      packed < @most and unpacked < @most_unpacked,
      "#{name} is too large for Hex: #{packed}"
    )

    expect(metadata["licenses"] == ["Apache-2.0"], "#{name} names no licence")
    expect(metadata["links"] != %{} and metadata["description"] =~ ".", "#{name} says little")

    needed = for {app, %{"optional" => false}} <- pairs(metadata["requirements"]), do: app
    IO.puts("#{name}: #{length(files)} files, #{packed} bytes, needs #{inspect(needed)}")
    %{name: name, files: files, needed: needed}
  end

  defp pairs(requirements) when is_map(requirements), do: requirements
  defp pairs(requirements), do: for(one <- requirements, do: {one["name"], Map.new(one)})

  defp check_files(packages, known) do
    for {name, needed} <- [
          {"ash_agent_context", []},
          {"ash_agent_runtime", ["ash_agent_context"]},
          {"ash_agent_test", ["ash_agent_runtime"]},
          {"ash_agent_resources", ["ash", "ash_agent_runtime", "spark", "splode"]},
          {"ash_agent_web", ["ash_agent_resources"]}
        ] do
      package = Enum.find(packages, &(&1.name == name)) || raise "#{name} was not built"
      expect(Enum.sort(package.needed) == needed, "#{name} needs #{inspect(package.needed)}")
    end

    packed =
      for package <- packages,
          {file, _} <- package.files,
          not String.starts_with?(file, "checksum-") do
        if package.name == "ash_agent_context", do: file, else: "packages/#{package.name}/#{file}"
      end

    expected = known |> String.split("\n", trim: true) |> Enum.reject(&(&1 =~ @repository))
    expect(expected -- packed == [], "in no package: #{inspect(expected -- packed)}")
    expect(packed -- expected == [], "not known to git: #{inspect(packed -- expected)}")
  end

  # Both workspaces compile from their package alone. What crates of others gave is shared with the checkout's builds.
  defp check_crates(packages, root, scratch) do
    for {name, manifest} <- [
          {"ash_agent_context", "Cargo.toml"},
          {"ash_agent_runtime", "native/ash_agent_sqlite/Cargo.toml"}
        ] do
      folder = Path.join(scratch, name)

      for {file, bytes} <- Enum.find(packages, &(&1.name == name)).files do
        File.mkdir_p!(Path.dirname(Path.join(folder, file)))
        File.write!(Path.join(folder, file), bytes)
      end

      run("cargo", ~w(check --quiet --locked --manifest-path #{Path.join(folder, manifest)}),
        env: [{"CARGO_TARGET_DIR", Path.join(root, "_build/cargo/#{name}")}]
      )
    end
  end

  defp check_application(scratch, env) do
    folder = Path.join(scratch, "application")
    write_application(folder)
    env = [{"HOME", Path.join(scratch, "home")}, {"PATH", hide_rust(scratch)} | env]
    archives = System.get_env("MIX_ARCHIVES") || Mix.path_for(:archives)
    options = [cd: folder, env: [{"MIX_ARCHIVES", archives} | env]]
    fetch = fn -> run("mix", ~w(deps.get), options) end
    compile = fn -> run("mix", ~w(compile), options) end

    time("deps.get", fetch)
    words = time("compile", compile)

    for app <- ~w(ash_agent_context ash_agent_runtime),
        do: expect(words =~ "#{app}: using the precompiled library", words)

    words = time("run", fn -> run("mix", ["run", "-e", "IO.puts(Sample.answer())"], options) end)
    expect(words =~ "It is sunny in Rome.", words)

    # A library that is not the one of the release stops the build, and so does the wish to build where Rust is missing.
    again = ~w(deps.compile ash_agent_context --force)

    for path <- Path.wildcard(Path.join(scratch, "libraries/*_nif-*")),
        do: File.write!(path, "another")

    {words, status} = System.cmd("mix", again, [stderr_to_stdout: true] ++ options)
    expect(status != 0 and words =~ "not the one that was released", words)

    options =
      put_in(options[:env], [{"RUSTLER_PRECOMPILED_FORCE_BUILD_ALL", "1"} | options[:env]])

    {words, status} = System.cmd("mix", again, [stderr_to_stdout: true] ++ options)
    expect(status != 0 and words =~ "install Rust from https://rustup.rs", words)
  end

  defp write_application(folder) do
    files = %{
      "mix.exs" => """
      defmodule Sample.MixProject do
        use Mix.Project
        def project, do: [app: :sample, version: "0.1.0", deps: deps()]
        def application, do: [extra_applications: [:logger]]
        defp deps, do: [{:ash_agent_runtime, "~> 0.1"}, {:ash_agent_test, "~> 0.1", only: [:dev, :test]}]
      end
      """,
      "config/config.exs" => """
      import Config
      config :ash_agent_runtime, features: [:sqlite]
      """,
      "lib/sample.ex" => """
      defmodule Sample do
        alias AshAgent.{Context, LLM, Runtime, Store}

        def answer do
          {:ok, store} = Store.SQLite.open("sample.db")
          {:ok, kept} = Store.create(store, Context.new("What is the weather in Rome?", id: "rome"), owner: "sample")
          call = %{id: "call_1", name: "get_weather", arguments: %{"city" => "Rome"}}
          llm = LLM.Scripted.new([%{tool_calls: [call]}, "It is sunny in Rome."])
          tool = %{function: fn %{"city" => city} -> {:ok, "Sunny in " <> city} end, description: "The weather", parameters: %{}}
          {:ok, result} = Runtime.run(kept.value, llm: llm, tools: %{get_weather: tool}, store: store, kept: kept)
          result.output
        end
      end
      """
    }

    for {file, text} <- files do
      File.mkdir_p!(Path.dirname(Path.join(folder, file)))
      File.write!(Path.join(folder, file), text)
    end
  end

  # All programs of this machine but Rust's.
  defp hide_rust(scratch) do
    folder = Path.join(scratch, "programs")
    File.mkdir_p!(folder)

    for directory <- String.split(System.get_env("PATH"), ":", trim: true),
        {:ok, names} <- [File.ls(directory)],
        name <- names,
        not (name =~ ~r/^(cargo|rust)/),
        do: File.ln_s(Path.join(directory, name), Path.join(folder, name))

    folder
  end

  ## The libraries of an application as packages, so that Ash is in the registry

  # Where no application is named, or one without them: enough for Mix to find what ash_agent_resources and ash_agent_web depend on, and
  # nothing to compile these with.
  @stand_ins [ash: "3.7.6", spark: "2.3.12", splode: "0.2.9", phoenix_live_view: "1.0.18"]

  # Packages say which versions they work with. These are known to work with each other.
  defp pack_libraries(folder) do
    libraries =
      for app <-
            Path.wildcard(Path.join(System.get_env("TARBALLS_LIBRARIES", ""), "*/ebin/*.app")),
          {:ok, [{:application, name, properties}]} = :file.consult(app),
          source = find_source(app, name),
          into: %{},
          do: {name, {properties, source}}

    for {name, {properties, source}} <- libraries do
      optional = Keyword.get(properties, :optional_applications, [])

      requirements =
        for app <- properties[:applications], is_map_key(libraries, app), into: %{} do
          {"#{app}",
           %{"app" => "#{app}", "requirement" => ">= 0.0.0", "optional" => app in optional}}
        end

      files =
        for path <- Path.wildcard(Path.join(source, "**")),
            file = Path.relative_to(path, source),
            hd(Path.split(file)) not in ~w(_build bench deps node_modules test),
            File.regular?(path),
            do: {String.to_charlist(file), File.read!(path)}

      pack(folder, name, to_string(properties[:vsn]), requirements, files)
    end

    for {name, version} <- @stand_ins, not is_map_key(libraries, name) do
      mix = """
      defmodule #{Macro.camelize("#{name}")}.MixProject do
        use Mix.Project
        def project, do: [app: :#{name}, version: "#{version}"]
      end
      """

      pack(folder, name, version, %{}, [{~c"mix.exs", mix}])
    end
  end

  # Of libraries, an application has what was compiled in _build/ENV/lib, and the source in deps.
  defp find_source(app, name) do
    with {:ok, library} <- app |> Path.dirname() |> Path.dirname() |> File.read_link(),
         source = Path.expand("../../../../deps/#{name}", library),
         true <- File.dir?(source),
         do: source,
         else: (_ -> nil)
  end

  defp pack(folder, name, version, requirements, files) do
    has? = fn file -> List.keymember?(files, file, 0) end

    metadata = %{
      "name" => "#{name}",
      "app" => "#{name}",
      "version" => version,
      "build_tools" => [if(has?.(~c"mix.exs"), do: "mix", else: "rebar3")],
      "requirements" => requirements
    }

    {:ok, %{tarball: tarball}} = :mix_hex_tarball.create(metadata, files)
    File.write!(Path.join(folder, "#{name}-#{version}.tar"), tarball)
  end

  ## A registry as Hex's, on loopback. Nobody knows its key, so applications do not check its signature.

  defp make_registry(scratch) do
    key = :public_key.generate_key({:rsa, 2048, 65_537})
    pem = :public_key.pem_encode([:public_key.pem_entry_encode(:RSAPrivateKey, key)])
    File.write!(Path.join(scratch, "key.pem"), pem)
    folder = Path.join(scratch, "registry")

    run(
      "mix",
      ~w(hex.registry build #{folder} --name=hexpm --private-key=#{Path.join(scratch, "key.pem")}),
      []
    )
  end

  defp serve(folder) do
    {:ok, _} = Application.ensure_all_started(:inets)
    root = String.to_charlist(folder)

    {:ok, server} =
      :inets.start(:httpd,
        port: 0,
        server_name: ~c"registry",
        server_root: root,
        document_root: root,
        bind_address: {127, 0, 0, 1}
      )

    "http://127.0.0.1:#{:httpd.info(server)[:port]}"
  end

  # The checksums of libraries, which come with a release, are ignored by git.
  defp make_repository(folder) do
    author = ~w(-c user.name=Sample -c user.email=sample@example.com)

    for args <- [~w(init --quiet), ~w(add --all --force), ~w(commit --quiet --message=Sample)],
        do: run("git", author ++ args, cd: folder)
  end

  ## Commands

  defp run(program, args, options) do
    case System.cmd(program, args, [stderr_to_stdout: true] ++ options) do
      {words, 0} -> words
      {words, status} -> raise "#{program} #{Enum.join(args, " ")} failed (#{status})\n\n#{words}"
    end
  end

  defp time(name, run) do
    {microseconds, words} = :timer.tc(run)
    IO.puts("#{name}: #{Float.round(microseconds / 1_000_000, 1)} s")
    words
  end

  defp expect(true, _words), do: :ok
  defp expect(false, words), do: raise(words)
end

Tarballs.main(System.argv())
