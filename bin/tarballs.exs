# The part of bin/tarballs that needs Hex: reads the packages, serves them, and builds an application with them. See there.

defmodule Tarballs do
  # What only the repository needs. A file that is neither here nor in a package makes the check fail, so that none is forgotten.
  @repository ~r{^(\.ci/|\.github/|\.gitignore|CONTRIBUTING\.md|bench/|bin/|clippy\.toml|demo/|deny\.toml|doc_links\.exs|native/fuzz/|native/\w+/tests/|soak/|test/|packages/\w+/test/)}
  # Of Hex, packed and unpacked.
  @most 8_000_000
  @most_unpacked 64_000_000

  def main([root, scratch, from | command]) do
    packages = Enum.map(Path.wildcard(Path.join(scratch, "registry/tarballs/*.tar")), &read/1)
    make_registry(scratch)
    address = serve(Path.join(scratch, "registry"))

    env = [
      {"HEX_MIRROR", address},
      {"HEX_UNSAFE_REGISTRY", "1"},
      {"HEX_HOME", Path.join(scratch, "hex")},
      {"RUSTLER_PRECOMPILED_GLOBAL_CACHE_PATH", Path.join(scratch, "libraries")},
      {"MIX_ENV", nil},
      {"CARGO_TARGET_DIR", nil}
    ]

    case command do
      ["--registry", program | args] ->
        {_, status} = System.cmd(program, args, cd: from, env: env, into: IO.stream())
        System.halt(status)

      ["--check"] ->
        check_files(packages, File.read!(Path.join(scratch, "files")))
        check_crates(packages, root, scratch)
        without = check_resources(packages, scratch, env)
        check_application(scratch, env)
        IO.puts("tarballs: checked #{Enum.map_join(packages, ", ", & &1.name)}#{without}")

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
          {"ash_agent_resources", ["ash", "ash_agent_runtime", "spark", "splode"]}
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

  # The registry has no Ash. An application takes it from the libraries of bin/integration, and the packages unpacked beside each
  # other. Returns what the last line says where there is none.
  defp check_resources(packages, scratch, env) do
    case System.get_env("TARBALLS_LIBRARIES", "") do
      "" -> "; ash_agent_resources was not compiled, which needs Ash: see bin/integration"
      libraries -> check_resources(packages, scratch, env, libraries)
    end
  end

  defp check_resources(packages, scratch, env, libraries) do
    unpacked = Path.join(scratch, "unpacked")
    folder = Path.join(scratch, "ash_application")

    for package <- packages, {file, bytes} <- package.files do
      path = Path.join([unpacked, folder(package.name), file])
      File.mkdir_p!(Path.dirname(path))
      File.write!(path, bytes)
    end

    write_files(folder, ash_application(unpacked))

    more = [
      {"PATH", hide_rust(scratch)},
      {"HOME", Path.join(scratch, "home")},
      {"ERL_LIBS", libraries},
      {"MIX_ENV", "integration"}
    ]

    options = [cd: folder, env: List.keydelete(env, "MIX_ENV", 0) ++ more]

    words =
      time("compile with Ash", fn -> run("mix", ~w(compile --warnings-as-errors), options) end)

    expect(words =~ "Generated ash_agent_resources app", words)
    expect(words =~ "ash_agent_context: using the precompiled library", words)

    run = fn -> run("mix", ["run", "-e", "IO.inspect(Sample.answer())"], options) end
    words = time("run with Ash", run)
    expect(words =~ ~s({"It is open.", ["The printer is broken"]}), words)
    ""
  end

  defp folder("ash_agent_context"), do: ""
  defp folder(name), do: "packages/#{name}"

  defp ash_application(unpacked) do
    deps =
      for name <- ~w(ash_agent_resources ash_agent_runtime ash_agent_context)a do
        path = Path.join(unpacked, folder("#{name}"))
        {name, path: path, env: :integration, override: name != :ash_agent_resources}
      end

    %{
      "mix.exs" => """
      defmodule Sample.MixProject do
        use Mix.Project
        def project, do: [app: :sample, version: "0.1.0", prune_code_paths: false, deps: #{inspect(deps)}]
        def application, do: [extra_applications: [:logger]]
      end
      """,
      "lib/sample.ex" => """
      defmodule Sample.Ticket do
        use Ash.Resource, domain: Sample.Desk, data_layer: Ash.DataLayer.Ets

        attributes do
          uuid_primary_key :id
          attribute :title, :string, public?: true
        end

        actions do
          defaults [:read, create: [:title]]
        end
      end

      defmodule Sample.Desk do
        use Ash.Domain, validate_config_inclusion?: false

        resources do
          resource Sample.Ticket
        end
      end

      defmodule Sample do
        alias AshAgent.{Context, LLM, Runtime, Tools}

        def answer do
          call = %{id: "call_1", name: "ticket_create", arguments: %{"title" => "The printer is broken"}}
          llm = LLM.Scripted.new([%{tool_calls: [call]}, "It is open."])
          tools = Tools.actions(Sample.Ticket, [:create])
          {:ok, result} = Runtime.run(Context.new("Open a ticket"), llm: llm, tools: tools)
          {result.output, Enum.map(Ash.read!(Sample.Ticket), & &1.title)}
        end
      end
      """
    }
  end

  defp write_application(folder) do
    write_files(folder, %{
      "mix.exs" => """
      defmodule Sample.MixProject do
        use Mix.Project
        def project, do: [app: :sample, version: "0.1.0", deps: [{:ash_agent_runtime, "~> 0.1"}]]
        def application, do: [extra_applications: [:logger]]
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
    })
  end

  defp write_files(folder, files) do
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
