# Random operations from many processes on thousands of conversations, for minutes: see bin/soak, which runs it.

# The generators and the checker are those of the tests.
tests =
  for name <-
        ~w(json_text model generators context_generators wait request_checker request_checker/*),
      file <- Path.wildcard(Path.join(__DIR__, "../test/support/#{name}.ex")),
      do: file

{:ok, _modules, []} =
  Kernel.ParallelCompiler.compile(tests ++ Path.wildcard(Path.join(__DIR__, "support/*.exs")))

options = AshAgent.Soak.Options.parse!(System.argv())
ok? = options |> AshAgent.Soak.Rounds.run() |> AshAgent.Soak.Report.print(options)
System.halt(if ok?, do: 0, else: 1)
