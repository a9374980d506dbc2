# What needs a library that is not here.
libraries = [
  ash: Ash,
  ecto: Ecto.Schema,
  finch: Finch,
  jason: Jason,
  json: JSON,
  req: Req
]

missing = for {tag, library} <- libraries, not Code.ensure_loaded?(library), do: tag

repo = MyApp.Repo
postgres? = Code.ensure_loaded?(repo) and System.get_env("ASH_AGENT_CONTEXT_PGPORT") != nil
if postgres?, do: apply(repo, :start, [])

# Generous, because the property tests keep both cores of a small machine busy beside the others.
options = [
  assert_receive_timeout: 20_000,
  exclude: if(postgres?, do: missing, else: [:postgres | missing])
]

ExUnit.start(options ++ AshAgent.Test.Integrations.options())
