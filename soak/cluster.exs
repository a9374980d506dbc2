# Nodes on loopback with sessions on one PostgreSQL, which are killed, stopped, cut off and drained: see bin/soak-cluster,
# which runs it.

# The nodes load these from a folder, since they are VMs of their own.
folder = System.fetch_env!("SOAK_FOLDER")

runtime = "packages/ash_agent_runtime/test/support"

support =
  for file <- ["#{runtime}/nodes.ex", "#{runtime}/pgsql.ex", "test/support/integrations.ex"],
      do: Path.join([__DIR__, "..", file])

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
