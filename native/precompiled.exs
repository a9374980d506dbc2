# Finds a library that was built elsewhere, and trusts it by its checksum alone.
#
# Names, checksum file, cache and options are those of rustler_precompiled, so that mirrors and build scripts serve both.
# It needs nothing but OTP, since it runs before any dependency is compiled.
defmodule AshAgentContext.Precompiled do
  @moduledoc false

  # The crates use no newer NIFs than these, which every later VM loads.
  @nif_version "2.15"

  @targets ~w(
    aarch64-apple-darwin
    aarch64-unknown-linux-gnu
    aarch64-unknown-linux-musl
    riscv64gc-unknown-linux-gnu
    x86_64-apple-darwin
    x86_64-pc-windows-msvc
    x86_64-unknown-linux-gnu
    x86_64-unknown-linux-musl
  )

  # A library has 5 MB. What is larger was not made by the release workflow.
  @max_bytes 64_000_000
  @too_large "larger than any library"
  @timeout 120_000

  @type library :: %{
          app: atom(),
          crate: String.t(),
          version: String.t(),
          features: [atom()],
          checksums: Path.t(),
          base_url: String.t() | nil
        }

  @doc "Lists the targets that releases have libraries for."
  def targets, do: @targets

  @doc "Returns the name of the checksum file of the module that loads a library."
  def checksum_file(module), do: "checksum-Elixir.#{module}.exs"

  @doc """
  Returns the name of a library's archive for a target, with its features as the variant:

      libash_agent_context_nif-v0.1.0-nif-2.15-x86_64-unknown-linux-gnu--otlp.so.tar.gz
  """
  def archive_name(library, target), do: file_name(library, target) <> ".tar.gz"

  @doc """
  Fetches the library that fits this machine.

  Returns `{:ok, bytes, sentence}`, `{:build, sentence}` where it is to be built from source (`nil` for the sentence where nobody expects
  anything else), or `{:error, message}` for an archive that is not what was released, which is never replaced by a build in silence.
  """
  @spec fetch(library(), keyword() | false | nil) ::
          {:ok, binary(), String.t()} | {:build, String.t() | nil} | {:error, String.t()}
  def fetch(library, options) do
    with {:ok, checksums} <- read_checksums(library.checksums),
         :ok <- check_wanted(library.app, options),
         {:ok, target} <- fetch_target(library.app),
         name = archive_name(library, target),
         {:ok, checksum} <- find_checksum(checksums, name, library),
         :ok <- put_applications(),
         {:ok, archive, origin} <- read_archive(name, checksum, library, options || []),
         {:ok, bytes} <- unpack(archive, name, file_name(library, target)) do
      {:ok, bytes,
       "#{library.app}: using the precompiled library #{name} (#{origin}, SHA-256 checked)"}
    end
  end

  # A checkout and a git dependency have no checksums, and are always built.
  defp read_checksums(path) do
    with {:ok, text} <- File.read(path),
         {:ok, {:%{}, _, pairs}} <- Code.string_to_quoted(text),
         true <- Enum.all?(pairs, &match?({name, "sha256:" <> _} when is_binary(name), &1)) do
      {:ok, Map.new(pairs)}
    else
      {:error, :enoent} -> {:build, nil}
      _ -> {:error, "#{path} is not a file of checksums: fetch the package again."}
    end
  end

  defp check_wanted(app, options) do
    forced = Application.get_env(:rustler_precompiled, :force_build, [])

    cond do
      options == false ->
        {:build, "#{app}: building the library, since precompiled: false is configured"}

      Application.get_env(:rustler_precompiled, :force_build_all, false) == true or
        System.get_env("RUSTLER_PRECOMPILED_FORCE_BUILD_ALL") in ~w(1 true) or
          (Keyword.keyword?(forced) and forced[app] == true) ->
        {:build,
         "#{app}: building the library, since rustler_precompiled is told to force builds"}

      is_nil(options) or Keyword.keyword?(options) ->
        check_options(app, options || [])

      true ->
        {:error, "config #{inspect(app)}, precompiled: is neither false nor a list of options."}
    end
  end

  defp check_options(app, options) do
    case Keyword.keys(options) -- [:base_url, :cache] do
      [] ->
        :ok

      [key | _] ->
        {:error,
         "config #{inspect(app)}, precompiled: has no option #{inspect(key)}: choose from :base_url, :cache."}
    end
  end

  defp find_checksum(checksums, name, library) do
    case checksums do
      %{^name => "sha256:" <> checksum} ->
        {:ok, String.downcase(checksum)}

      %{} ->
        {:build,
         "#{library.app}: building the library, since no precompiled one is called #{name}"}
    end
  end

  # Since Elixir 1.15, Mix hides the parts of OTP that the package does not name among its applications.
  defp put_applications do
    if Code.ensure_loaded?(Mix) and function_exported?(Mix, :ensure_application!, 1),
      do: for(app <- [:crypto, :inets, :ssl], do: apply(Mix, :ensure_application!, [app]))

    :ok
  end

  defp read_archive(name, checksum, library, options) do
    cache = Path.join(cache_dir(options), name)

    case read_file(cache) do
      {:ok, archive} ->
        with :ok <- check_archive(archive, checksum, cache, library.app),
             do: {:ok, archive, "from the cache"}

      {:error, @too_large} ->
        {:error,
         "#{cache} is #{@too_large}: delete it, it is not what was released for #{library.app}."}

      {:error, _} ->
        download(name, checksum, cache, library, options)
    end
  end

  defp download(name, checksum, cache, library, options) do
    case options[:base_url] || library.base_url do
      url when is_binary(url) ->
        address = "#{String.trim_trailing(url, "/")}/#{name}"

        case get(address) do
          {:ok, archive} ->
            with :ok <- check_archive(archive, checksum, address, library.app) do
              write_cache(cache, archive)
              {:ok, archive, "from #{describe_origin(URI.parse(address))}"}
            end

          {:error, reason} ->
            {:build,
             "#{library.app}: building the library, since #{address} could not be fetched (#{reason})"}
        end

      _ ->
        {:build,
         "#{library.app}: building the library, since no address of precompiled ones is configured (precompiled: [base_url: \"https://...\"])"}
    end
  end

  defp check_archive(archive, checksum, where, app) do
    case Base.encode16(:crypto.hash(:sha256, archive), case: :lower) do
      ^checksum ->
        :ok

      other ->
        {:error,
         "#{where} has the SHA-256 #{other}, and the package says #{checksum}: it is damaged or not the one that was released. " <>
           "Delete it if it is a file of the cache, ask who runs the server if it is a mirror, " <>
           "or build the library from source: config #{inspect(app)}, precompiled: false"}
    end
  end

  defp describe_origin(%URI{host: host}) when host in [nil, ""], do: "a file"
  defp describe_origin(%URI{host: host}), do: host

  # The next build reads it, and a cache that cannot be written costs a download, not the build.
  defp write_cache(path, archive) do
    temporary = "#{path}.#{System.pid()}"

    with :ok <- File.mkdir_p(Path.dirname(path)),
         :ok <- File.write(temporary, archive),
         do: File.rename(temporary, path)
  end

  defp cache_dir(options) do
    options[:cache] || System.get_env("RUSTLER_PRECOMPILED_GLOBAL_CACHE_PATH") ||
      :filename.basedir(:user_cache, "rustler_precompiled/precompiled_nifs", xdg())
  end

  defp xdg, do: if(System.get_env("MIX_XDG") in ~w(1 true), do: %{os: :linux}, else: %{})

  # The archive has one file, which is read into memory: no name in it can lead out of a folder.
  defp unpack(archive, name, file) do
    case :erl_tar.extract({:binary, archive}, [:memory, :compressed]) do
      {:ok, [{entry, bytes}]} ->
        if Path.basename(entry) == file,
          do: {:ok, bytes},
          else: {:error, describe_archive(name, file)}

      _ ->
        {:error, describe_archive(name, file)}
    end
  end

  defp describe_archive(name, file),
    do: "#{name} does not hold the one file #{file}: tell the maintainers."

  defp file_name(library, target) do
    {prefix, extension} = if target =~ "windows", do: {"", "dll"}, else: {"lib", "so"}

    variant =
      case Enum.sort(library.features) do
        [] -> ""
        features -> "--" <> Enum.map_join(features, "-", &to_string/1)
      end

    "#{prefix}#{library.crate}-v#{library.version}-nif-#{@nif_version}-#{target}#{variant}.#{extension}"
  end

  defp fetch_target(app) do
    case target() do
      target when target in @targets ->
        {:ok, target}

      target ->
        {:build, "#{app}: building the library, since there is no precompiled one for #{target}"}
    end
  end

  @doc """
  Returns the target of this machine, or the one that Nerves names in `TARGET_ARCH`, `TARGET_VENDOR`, `TARGET_OS` and `TARGET_ABI`.
  """
  def target(
        architecture \\ List.to_string(:erlang.system_info(:system_architecture)),
        os \\ :os.type(),
        env \\ &System.get_env/1
      )

  def target(_architecture, {:win32, _}, _env) do
    if :erlang.system_info(:wordsize) == 8,
      do: "x86_64-pc-windows-msvc",
      else: "i686-pc-windows-msvc"
  end

  def target(architecture, _os, env) do
    case String.split(architecture, "-", parts: 4) do
      [arch, vendor | rest] ->
        {system, abi} = split_system(rest)

        join_target(
          normalize_arch(env.("TARGET_ARCH") || arch),
          env.("TARGET_VENDOR") || vendor,
          env.("TARGET_OS") || system,
          env.("TARGET_ABI") || abi
        )

      _ ->
        architecture
    end
  end

  defp split_system([system, abi]), do: {system, abi}
  # "x86_64-linux-gnu" names no vendor, and "aarch64-apple-darwin23.0" no ABI.
  defp split_system(["gnu" <> _ = abi]), do: {"linux", abi}
  defp split_system(["musl" <> _ = abi]), do: {"linux", abi}
  defp split_system([system]), do: {system, nil}
  defp split_system([]), do: {"unknown", nil}

  defp join_target(arch, _vendor, "darwin" <> _, _abi), do: "#{arch}-apple-darwin"

  defp join_target(arch, _vendor, "linux" <> _, abi),
    do: "#{riscv(arch)}-unknown-linux-#{abi || "gnu"}"

  defp join_target(arch, vendor, system, abi),
    do: Enum.join([arch, vendor, system | List.wrap(abi)], "-")

  defp normalize_arch("amd64"), do: "x86_64"
  defp normalize_arch("arm64"), do: "aarch64"
  defp normalize_arch("arm"), do: "arm"
  defp normalize_arch(arch), do: arch

  # Rust names the extensions that Linux distributions require.
  defp riscv("riscv64"), do: "riscv64gc"
  defp riscv(arch), do: arch

  # The size is known before the first byte is read.
  defp read_file(path) do
    case File.stat(path) do
      {:ok, %{type: :regular, size: size}} when size <= @max_bytes -> File.read(path)
      {:ok, %{type: :regular}} -> {:error, @too_large}
      {:ok, _} -> {:error, :einval}
      {:error, reason} -> {:error, reason}
    end
  end

  defp get("file://" <> path) do
    with {:error, reason} when is_atom(reason) <- read_file(path),
         do: {:error, :file.format_error(reason)}
  end

  defp get(url) do
    {:ok, _} = Application.ensure_all_started(:inets)
    {:ok, _} = Application.ensure_all_started(:ssl)

    # A profile of its own, so that its proxies are nobody else's. It is there until the VM of the compilation ends.
    client = :ash_agent_context_precompiled
    _ = :inets.start(:httpc, profile: client)
    put_proxies(client)
    options = [timeout: @timeout, connect_timeout: 15_000, autoredirect: true] ++ tls(url)

    # The next part is asked for when this one has been counted: a server that sends without end is left after @max_bytes.
    streamed = [sync: false, stream: {:self, :once}, body_format: :binary]

    case :httpc.request(:get, {String.to_charlist(url), []}, options, streamed, client) do
      {:ok, request} ->
        with {:error, reason} <- receive_archive(request, nil, [], 0) do
          :httpc.cancel_request(request, client)
          {:error, reason}
        end

      {:error, reason} ->
        {:error, describe_failure(reason)}
    end
  end

  defp receive_archive(_request, _sender, _parts, size) when size > @max_bytes,
    do: {:error, @too_large}

  defp receive_archive(request, sender, parts, size) do
    receive do
      {:http, {^request, :stream_start, _headers, sender}} ->
        :httpc.stream_next(sender)
        receive_archive(request, sender, parts, size)

      {:http, {^request, :stream, part}} ->
        :httpc.stream_next(sender)
        receive_archive(request, sender, [parts, part], size + byte_size(part))

      {:http, {^request, :stream_end, _headers}} ->
        {:ok, IO.iodata_to_binary(parts)}

      {:http, {^request, {:error, reason}}} ->
        {:error, describe_failure(reason)}

      {:http, {^request, {{_, status, _}, _headers, _body}}} ->
        {:error, "status #{status}"}
    end
  end

  defp tls("https:" <> _) do
    [
      ssl: [
        verify: :verify_peer,
        cacerts: read_authorities(System.get_env("HEX_CACERTS_PATH")),
        depth: 4,
        customize_hostname_check: [match_fun: :public_key.pkix_verify_hostname_match_fun(:https)]
      ]
    ]
  end

  defp tls(_url), do: []

  # Hex's variable, for networks that have an authority of their own.
  defp read_authorities(nil), do: :public_key.cacerts_get()

  defp read_authorities(path) do
    for {:Certificate, der, :not_encrypted} <- :public_key.pem_decode(File.read!(path)), do: der
  end

  defp put_proxies(client) do
    for {option, names} <- [
          proxy: ~w(HTTP_PROXY http_proxy),
          https_proxy: ~w(HTTPS_PROXY https_proxy)
        ],
        address = Enum.find_value(names, &System.get_env/1),
        %URI{host: host, port: port} when is_binary(host) <- [URI.parse(address)] do
      :httpc.set_options([{option, {{String.to_charlist(host), port}, no_proxy()}}], client)
    end
  end

  defp no_proxy do
    (System.get_env("NO_PROXY") || System.get_env("no_proxy") || "localhost,127.0.0.1")
    |> String.split(",", trim: true)
    |> Enum.map(&(&1 |> String.trim() |> String.to_charlist()))
  end

  defp describe_failure({:failed_connect, _}), do: "no connection"
  defp describe_failure(:timeout), do: "no answer within #{div(@timeout, 1000)} s"
  defp describe_failure(_reason), do: "the answer was not understood"
end
