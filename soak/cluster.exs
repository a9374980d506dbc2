# Nodes on loopback with sessions on one PostgreSQL, which are killed, stopped, cut off and drained: see bin/soak-cluster,
# which runs it.

# The nodes load these from a folder, since they are VMs of their own.
folder = System.fetch_env!("SOAK_FOLDER")

support =
  for name <- ~w(nodes pgsql integrations atif_models browser),
      do: Path.join(__DIR__, "../test/support/#{name}.ex")

modules = Path.join(folder, "modules")
File.mkdir_p!(modules)

{:ok, _modules, []} =
  Kernel.ParallelCompiler.compile_to_path(
    support ++ Path.wildcard(Path.join(__DIR__, "cluster/*.exs")),
    modules
  )

Code.append_path(modules)
options = AshAgent.Soak.Cluster.Options.parse!(System.argv())
ok? = options |> Map.put(:folder, folder) |> AshAgent.Soak.Cluster.run()
System.halt(if ok?, do: 0, else: 1)
