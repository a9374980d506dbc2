defmodule AshAgent.Conversation.Codegen do
  @moduledoc false

  # The migrations that conversations need, for `mix ash.codegen`: the tables of the store, and the triggers that tie the
  # tables of resources to them. Existing migrations show which of it is done, so that those of other releases count as well.

  alias Ash.Error.Framework.PendingCodegen
  alias AshAgent.Conversation.{Info, Migrations, Structure}
  alias AshAgent.Store

  @switches Enum.map(~w(domains migration_path tenant_migration_path name)a, &{&1, :string}) ++
              Enum.map(~w(dry_run check dev quiet snapshots_only)a, &{&1, :boolean})

  @doc "Does what `mix ash.codegen` asks of extensions."
  def run(argv) do
    {opts, _rest, _others} = argv |> drop_unnamed() |> OptionParser.parse(switches: @switches)

    pending = if opts[:snapshots_only], do: [], else: list_pending(opts)
    if pending == [], do: :ok, else: write(pending, argv, opts)
  end

  # `mix ash.codegen` passes an option with `nil` on where there is no name.
  defp drop_unnamed(argv) do
    case Enum.find_index(argv, &is_nil/1) do
      nil -> argv
      at -> Enum.take(argv, at - 1) ++ Enum.drop(argv, at + 1)
    end
  end

  defp write(pending, argv, opts) do
    cond do
      opts[:check] ->
        raise PendingCodegen, diff: files(pending, opts)

      opts[:dry_run] ->
        for {path, text} <- files(pending, opts), do: Mix.shell().info("#{path}\n#{text}")
        :ok

      true ->
        # The tables of the resources come before the triggers on them. Extensions are in no order.
        apply(AshPostgres.DataLayer, :codegen, [argv])
        unless opts[:dev], do: Enum.each(pending, &remove_dev/1)

        for {path, text} <- files(pending, opts),
            do: Mix.Generator.create_file(path, text, quiet: opts[:quiet] || false)

        :ok
    end
  end

  ## Missing migrations

  defp list_pending(opts) do
    resources = for domain <- domains(opts), resource <- conversations(domain), do: resource

    for {{folder, repo, tenants?}, resources} <- Enum.group_by(resources, &place(&1, opts)),
        done = read_done(folder, repo, opts),
        _said = warn_renamed(Enum.uniq(resources), done, opts),
        steps = steps(Enum.uniq(resources), tenants?, done),
        steps != [],
        do: %{folder: folder, repo: repo, tenants?: tenants?, steps: steps}
  end

  defp domains(opts) do
    if opts[:domains] in [nil, ""],
      do: Enum.flat_map(apps(), &Application.get_env(&1, :ash_domains, [])),
      else: for(name <- String.split(opts[:domains], ",", trim: true), do: Module.concat([name]))
  end

  defp apps do
    if paths = Mix.Project.apps_paths(),
      do: paths |> Map.keys() |> Enum.sort(),
      else: [Mix.Project.config()[:app]]
  end

  defp conversations(domain) do
    for resource <- Ash.Domain.Info.resources(Code.ensure_compiled!(domain)),
        Info.conversation?(Code.ensure_compiled!(resource)),
        Info.tables?(resource),
        postgres(:migrate?, resource),
        do: resource
  end

  # Called by name: AshPostgres may be missing when this is compiled.
  defp postgres(name, resource), do: apply(AshPostgres.DataLayer.Info, name, [resource])
  defp repo(resource), do: apply(AshPostgres.DataLayer.Info, :repo, [resource, :mutate])

  defp place(resource, opts) do
    repo = repo(resource)
    tenants? = Ash.Resource.Info.multitenancy_strategy(resource) == :context
    {folder(repo, tenants?, opts), repo, tenants?}
  end

  defp folder(repo, tenants?, opts) do
    name = if tenants?, do: "tenant_migrations", else: "migrations"
    setting = if tenants?, do: :tenant_migration_path, else: :migration_path
    config = repo.config()

    priv =
      config[:priv] || "priv/" <> (repo |> Module.split() |> List.last() |> Macro.underscore())

    opts[setting] || config[:"#{name}_path"] ||
      Path.join([Mix.Project.deps_paths()[config[:otp_app]] || File.cwd!(), priv, name])
  end

  # The calls of both modules of migrations in a folder, and what a dump of the structure beside it has. Those of --dev are made anew without it.
  defp read_done(folder, repo, opts) do
    calls =
      for path <- Path.wildcard(Path.join(folder, "**/*.exs")),
          opts[:dev] || not String.ends_with?(path, "_dev.exs"),
          {:ok, code} <- [path |> File.read!() |> Code.string_to_quoted()],
          aliases = read_aliases(code),
          {{:., _, [{:__aliases__, _, module}, :up]}, _, args} <- Macro.prewalker(code),
          call <- done(module |> expand(aliases) |> Enum.take(-2), args),
          do: call

    dump = repo.config()[:dump_path] || Path.join(Path.dirname(folder), "structure.sql")
    calls ++ with {:ok, sql} <- File.read(dump), do: Structure.read(sql), else: (_none -> [])
  end

  # What a file names shorter: the last part of a module, or its name after `as:`.
  defp read_aliases(code) do
    for {:alias, _, [named | opts]} <- Macro.prewalker(code),
        module <- list_named(named),
        into: %{},
        do: {short(opts, module), module}
  end

  defp list_named({:__aliases__, _, module}), do: [module]

  defp list_named({{:., _, [{:__aliases__, _, base}, :{}]}, _, named}),
    do: for({:__aliases__, _, rest} <- named, do: base ++ rest)

  defp list_named(_other), do: []

  defp short([[as: {:__aliases__, _, [name]}]], _module), do: name
  defp short(_opts, module), do: List.last(module)

  defp expand([first | rest] = module, aliases) do
    case aliases do
      %{^first => full} when full != [first] -> full ++ rest
      _not_short -> module
    end
  end

  defp done([_, :Migrations] = module, args) do
    opts = List.first(args) || []
    if Keyword.keyword?(opts), do: [{module, opts}], else: []
  end

  defp done(_module, _args), do: []

  defp steps(resources, tenants?, done) do
    prefixes = resources |> Enum.map(&prefix(&1, tenants?)) |> Enum.uniq()

    stores =
      for prefix <- prefixes,
          installed = find_installed(done, prefix),
          installed < Store.Postgres.Migrations.latest(),
          do: {:store, prefix, installed}

    ties =
      for resource <- resources,
          {prefix, tie} <- [{prefix(resource, tenants?), tie(resource)}],
          not tied?(done, tie, prefix),
          do: {:tie, prefix, tie}

    stores ++ ties
  end

  # The conversations of a table that was renamed have its old name in their keys, and nobody would find them.
  defp warn_renamed(resources, done, opts) do
    known =
      for domain <- domains([]) ++ domains(opts),
          resource <- conversations(domain),
          do: Info.name(resource)

    made = for {[:Conversation, :Migrations], tie} <- done, uniq: true, do: tie[:name]

    for gone <- [made -- known],
        gone != [],
        resource <- resources,
        Info.name(resource) not in made do
      Mix.shell().error(
        "#{inspect(resource)} has no conversations under the name #{inspect(Info.name(resource))} yet, and no resource has those of " <>
          "#{Enum.map_join(gone, ", ", &inspect/1)} any more. If its table was renamed, write `name #{inspect(hd(gone))}` in its section " <>
          "conversation, so that it keeps them"
      )
    end
  end

  defp prefix(_resource, true), do: :tenant
  defp prefix(resource, false), do: postgres(:schema, resource)

  defp tie(resource) do
    key = Ash.Resource.Info.attribute(resource, Info.primary_key(resource))

    [
      version: Migrations.latest(),
      table: postgres(:table, resource),
      key: to_string(key.source),
      name: Info.name(resource)
    ]
  end

  defp find_installed(done, prefix) do
    versions =
      for {[:Postgres, :Migrations], opts} <- done,
          prefix(opts) == prefix,
          do: Keyword.get(opts, :version, Store.Postgres.Migrations.latest())

    Enum.max(versions, fn -> 0 end)
  end

  defp tied?(done, tie, prefix) do
    Enum.any?(done, fn {module, opts} ->
      module == [:Conversation, :Migrations] and prefix(opts) == prefix and
        Keyword.take(opts, Keyword.keys(tie)) |> Enum.sort() == Enum.sort(tie)
    end)
  end

  defp prefix(opts) do
    case opts[:prefix] do
      text when is_binary(text) or is_nil(text) -> text
      _code -> :tenant
    end
  end

  ## The files

  defp files(pending, opts) do
    name = opts[:name] || "add_conversations"
    dev = if opts[:dev], do: "_dev", else: ""

    for %{folder: folder, repo: repo, steps: steps} <- pending do
      module = Module.concat([repo, "Migrations", Macro.camelize(name <> "_ash_agent" <> dev)])
      path = Path.join(folder, "#{version(folder)}_#{name}_ash_agent#{dev}.exs")
      {path, text(module, steps)}
    end
  end

  # Migrations of --dev are replaced. AshPostgres does so where it writes migrations itself, and not where only these are new.
  defp remove_dev(%{folder: folder, repo: repo, tenants?: tenants?}) do
    paths = folder |> Path.join("*_ash_agent_dev.exs") |> Path.wildcard() |> Enum.reverse()

    if paths != [],
      do: {:ok, _, _} = apply(Ecto.Migrator, :with_repo, [repo, &roll_back(&1, paths, tenants?)])

    Enum.each(paths, &File.rm!/1)
  end

  defp roll_back(repo, paths, tenants?) do
    for path <- paths,
        {version, _rest} = path |> Path.basename() |> Integer.parse(),
        [{module, _code} | _] = Code.compile_file(path),
        opts <-
          if(tenants?, do: for(tenant <- repo.all_tenants(), do: [prefix: tenant]), else: [[]]),
        version in apply(Ecto.Migrator, :migrated_versions, [repo, opts]),
        do: apply(Ecto.Migrator, :down, [repo, version, module, [log: false] ++ opts])
  end

  # After all existing ones.
  defp version(folder) do
    now = DateTime.utc_now() |> Calendar.strftime("%Y%m%d%H%M%S") |> String.to_integer()

    for(
      path <- Path.wildcard(Path.join(folder, "*.exs")),
      {version, _rest} <- [Integer.parse(Path.basename(path))],
      do: version + 1
    )
    |> Enum.max(fn -> now end)
    |> max(now)
  end

  defp text(module, steps) do
    formatted = """
    defmodule #{inspect(module)} do
      @moduledoc \"\"\"
      The tables of conversations, and what ties the tables of resources to them.

      This file was generated with `mix ash.codegen`.
      \"\"\"

      use Ecto.Migration

      def up do
        #{Enum.map_join(steps, "\n", &call(&1, :up))}
      end

      def down do
        #{steps |> Enum.reverse() |> Enum.map_join("\n", &call(&1, :down))}
      end
    end
    """

    IO.iodata_to_binary([Code.format_string!(formatted), ?\n])
  end

  @store "AshAgent.Store.Postgres.Migrations"
  @conversation "AshAgent.Conversation.Migrations"

  defp call({:tie, prefix, tie}, name), do: "#{@conversation}.#{name}(#{options(tie, prefix)})"

  defp call({:store, prefix, installed}, name) do
    version = if name == :up, do: Store.Postgres.Migrations.latest(), else: installed + 1
    "#{@store}.#{name}(#{options([version: version], prefix)})"
  end

  defp options(opts, prefix) do
    given = if prefix in [nil, :tenant], do: opts, else: opts ++ [prefix: prefix]
    words = for {name, value} <- given, do: "#{name}: #{inspect(value)}"
    Enum.join(words ++ if(prefix == :tenant, do: ["prefix: prefix()"], else: []), ", ")
  end
end
