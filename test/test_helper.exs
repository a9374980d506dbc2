# What needs a library that is not here.
libraries = [
  ash: Ash,
  ecto: Ecto.Schema,
  finch: Finch,
  jason: Jason,
  jido: Jido.AI.Context,
  json: JSON,
  kino: Kino.Render,
  langchain: LangChain.Message,
  mcp: Anubis.Client,
  opentelemetry: :otel_ctx,
  req: Req,
  req_llm: ReqLLM.Context
]

missing = for {tag, library} <- libraries, not Code.ensure_loaded?(library), do: tag

missing = if AshAgent.Test.Browser.executable(), do: missing, else: [:chromium | missing]
missing = if AshAgent.Test.AtifModels.find(), do: missing, else: [:atif | missing]
missing = if AshAgent.Test.OtlpModels.find(), do: missing, else: [:otlp | missing]
missing = if AshAgent.Test.McpServers.npm("everything"), do: missing, else: [:mcp_npm | missing]
missing = if AshAgent.Test.McpServers.python(), do: missing, else: [:mcp_python | missing]
missing = if AshAgent.Test.Phoenix.executable(), do: missing, else: [:phoenix | missing]

repo = MyApp.Repo
postgres? = Code.ensure_loaded?(repo) and System.get_env("ASH_AGENT_CONTEXT_PGPORT") != nil
if postgres?, do: apply(repo, :start, [])

server = if AshAgent.Test.PgSQL.ready?(), do: [], else: [:p1_pgsql]

# Generous, because the property tests keep both cores of a small machine busy beside the others.
options = [
  assert_receive_timeout: 20_000,
  timeout: 300_000,
  exclude: server ++ if(postgres?, do: missing, else: [:postgres | missing])
]

ExUnit.start(options ++ AshAgent.Test.Integrations.options())
