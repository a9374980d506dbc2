# Since Elixir 1.15, Mix hides what the package does not name: this is called before the module is compiled.
if function_exported?(Mix, :ensure_application!, 1),
  do: apply(Mix, :ensure_application!, [:inets])

defmodule AshAgent.PrecompiledTest do
  use ExUnit.Case, async: true

  alias AshAgentContext.Precompiled

  @moduletag :tmp_dir

  # A server of files on loopback, as a mirror is one.
  defp serve(dir) do
    {:ok, _} = Application.ensure_all_started(:inets)
    root = String.to_charlist(dir)

    {:ok, server} =
      :inets.start(:httpd,
        port: 0,
        server_name: ~c"mirror",
        server_root: root,
        document_root: root,
        bind_address: {127, 0, 0, 1}
      )

    on_exit(fn -> :inets.stop(:httpd, server) end)
    "http://127.0.0.1:#{:httpd.info(server)[:port]}/"
  end

  defp library(dir, options \\ []) do
    Map.merge(
      %{
        app: :ash_agent_context,
        crate: "ash_agent_context_nif",
        version: "0.1.0",
        features: [],
        checksums: Path.join(dir, "checksum.exs"),
        base_url: nil
      },
      Map.new(options)
    )
  end

  defp release(dir, library, bytes) do
    name = Precompiled.archive_name(library, Precompiled.target())
    path = Path.join(dir, name)
    entry = name |> String.trim_trailing(".tar.gz") |> String.to_charlist()
    :ok = :erl_tar.create(path, [{entry, bytes}], [:compressed])
    sum = :crypto.hash(:sha256, File.read!(path)) |> Base.encode16(case: :lower)
    File.write!(library.checksums, inspect(%{name => "sha256:" <> sum}))
    path
  end

  defp cache(dir), do: Path.join(dir, "cache")

  test "names archives as rustler_precompiled does, with features as the variant" do
    library = library(".", features: [:otlp, :exact_tokens])

    assert Precompiled.archive_name(library, "x86_64-unknown-linux-gnu") ==
             "libash_agent_context_nif-v0.1.0-nif-2.15-x86_64-unknown-linux-gnu--exact_tokens-otlp.so.tar.gz"

    assert Precompiled.archive_name(%{library | features: []}, "x86_64-pc-windows-msvc") ==
             "ash_agent_context_nif-v0.1.0-nif-2.15-x86_64-pc-windows-msvc.dll.tar.gz"

    assert Precompiled.checksum_file("AshAgent.Context.Native") ==
             "checksum-Elixir.AshAgent.Context.Native.exs"
  end

  test "knows the machines that Erlang names" do
    for {architecture, target} <- [
          {"x86_64-pc-linux-gnu", "x86_64-unknown-linux-gnu"},
          {"x86_64-linux-gnu", "x86_64-unknown-linux-gnu"},
          {"amd64-redhat-linux-gnu", "x86_64-unknown-linux-gnu"},
          {"aarch64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"},
          {"x86_64-alpine-linux-musl", "x86_64-unknown-linux-musl"},
          {"riscv64-unknown-linux-gnu", "riscv64gc-unknown-linux-gnu"},
          {"aarch64-apple-darwin23.2.0", "aarch64-apple-darwin"},
          {"arm-apple-darwin21", "arm-apple-darwin"},
          {"x86_64-unknown-freebsd14.0", "x86_64-unknown-freebsd14.0"}
        ] do
      assert Precompiled.target(architecture, {:unix, :any}, fn _ -> nil end) == target
    end

    nerves = %{"TARGET_ARCH" => "aarch64", "TARGET_OS" => "linux", "TARGET_ABI" => "musl"}

    assert Precompiled.target("x86_64-pc-linux-gnu", {:unix, :linux}, &nerves[&1]) ==
             "aarch64-unknown-linux-musl"
  end

  test "takes the library that fits from a server, then from the cache", %{tmp_dir: dir} do
    library = library(dir)
    archive = release(dir, library, "the library")
    options = [base_url: serve(dir), cache: cache(dir)]

    assert {:ok, "the library", sentence} = Precompiled.fetch(library, options)
    assert sentence =~ "using the precompiled library libash_agent_context_nif-v0.1.0"
    assert sentence =~ "from 127.0.0.1"

    File.rm!(archive)
    assert {:ok, "the library", sentence} = Precompiled.fetch(library, options)
    assert sentence =~ "from the cache"
  end

  test "refuses a library with another checksum, from a server and from the cache, and keeps nothing of it",
       %{tmp_dir: dir} do
    library = library(dir)
    archive = release(dir, library, "the library")
    File.write!(archive, "another one")
    options = [base_url: serve(dir), cache: cache(dir)]

    assert {:error, message} = Precompiled.fetch(library, options)
    assert message =~ "damaged or not the one that was released"
    assert message =~ "config :ash_agent_context, precompiled: false"
    assert File.ls(cache(dir)) in [{:error, :enoent}, {:ok, []}]

    File.mkdir_p!(cache(dir))
    File.write!(Path.join(cache(dir), Path.basename(archive)), "an old one")
    assert {:error, message} = Precompiled.fetch(library, options)
    assert message =~ cache(dir)
  end

  # Answers one request with a body that has no end, and says how much of it was taken.
  defp send_without_end(listener, test) do
    {:ok, socket} = :gen_tcp.accept(listener)
    {:ok, _request} = :gen_tcp.recv(socket, 0)
    :ok = :gen_tcp.send(socket, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
    part = :binary.copy("x", 1_000_000)

    taken =
      Enum.find(Stream.iterate(0, &(&1 + 1)), fn _ -> :gen_tcp.send(socket, part) != :ok end)

    send(test, {:taken, taken})
  end

  test "stops reading what is larger than any library, before it has all of it", %{tmp_dir: dir} do
    library = library(dir)
    archive = release(dir, library, "the library")
    {:ok, listener} = :gen_tcp.listen(0, [:binary, active: false, ip: {127, 0, 0, 1}])
    {:ok, port} = :inet.port(listener)
    test = self()
    start_supervised!({Task, fn -> send_without_end(listener, test) end})
    options = [base_url: "http://127.0.0.1:#{port}", cache: cache(dir)]

    assert {:build, sentence} = Precompiled.fetch(library, options)
    assert sentence =~ "larger than any library"
    assert_receive {:taken, megabytes} when megabytes in 64..512, 60_000
    assert File.ls(cache(dir)) in [{:error, :enoent}, {:ok, []}]

    # A sparse file, in the cache and on a disk that is a mirror.
    File.mkdir_p!(cache(dir))
    cached = Path.join(cache(dir), Path.basename(archive))
    {:ok, file} = :file.open(cached, [:write, :raw])
    {:ok, _} = :file.position(file, 64_000_000)
    :ok = :file.write(file, "x")
    :ok = :file.close(file)
    assert {:error, message} = Precompiled.fetch(library, options)
    assert message =~ "#{cached} is larger than any library"

    mirror = [base_url: "file://" <> cache(dir), cache: Path.join(dir, "empty")]
    assert {:build, sentence} = Precompiled.fetch(library, mirror)
    assert sentence =~ "could not be fetched (larger than any library)"
  end

  test "takes a library from a folder that is a mirror", %{tmp_dir: dir} do
    library = library(dir)
    release(dir, library, "the library")
    options = [base_url: "file://" <> dir, cache: cache(dir)]
    assert {:ok, "the library", sentence} = Precompiled.fetch(library, options)
    assert sentence =~ "from a file"
  end

  test "refuses an archive that holds something else", %{tmp_dir: dir} do
    library = library(dir)
    archive = release(dir, library, "the library")
    :ok = :erl_tar.create(archive, [{~c"../evil.so", "bytes"}], [:compressed])
    sum = :crypto.hash(:sha256, File.read!(archive)) |> Base.encode16(case: :lower)
    File.write!(library.checksums, inspect(%{Path.basename(archive) => "sha256:" <> sum}))

    assert {:error, message} = Precompiled.fetch(library, base_url: serve(dir), cache: cache(dir))
    assert message =~ "does not hold the one file"
  end

  test "builds, and says why, where none fits or none can be fetched", %{tmp_dir: dir} do
    # As in a checkout, nobody expects a precompiled library.
    assert Precompiled.fetch(library(dir), nil) == {:build, nil}

    library = library(dir)
    release(dir, library, "the library")
    url = serve(dir)

    assert {:build, "ash_agent_context: building the library, since precompiled: false" <> _} =
             Precompiled.fetch(library, false)

    for {library, options, words} <- [
          {library, [cache: cache(dir)], "no address"},
          {%{library | features: [:otlp]}, [base_url: url, cache: cache(dir)],
           "no precompiled one"},
          {%{library | version: "9.9.9"}, [base_url: url, cache: cache(dir)],
           "no precompiled one"},
          {library, [base_url: url <> "elsewhere", cache: cache(dir)], "status 404"},
          {library, [base_url: "http://127.0.0.1:1", cache: cache(dir)], "no connection"}
        ] do
      assert {:build, sentence} = Precompiled.fetch(library, options)
      assert sentence =~ words
    end
  end

  test "does not read checksums and options that are no checksums and options", %{tmp_dir: dir} do
    library = library(dir)
    File.write!(library.checksums, ~s|System.halt(1)|)
    assert {:error, message} = Precompiled.fetch(library, nil)
    assert message =~ "is not a file of checksums"

    release(dir, library, "the library")
    assert {:error, message} = Precompiled.fetch(library, mirror: "https://example.com")
    assert message =~ "has no option :mirror"
    assert {:error, message} = Precompiled.fetch(library, true)
    assert message =~ "neither false nor a list of options"
  end
end
