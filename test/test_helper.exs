alias AshAgent.Test.{AtifModels, Browser, Integrations, OtlpModels}

libraries = [
  ecto: Ecto.Schema,
  jason: Jason,
  jido: Jido.AI.Context,
  json: JSON,
  kino: Kino.Render,
  langchain: LangChain.Message,
  req_llm: ReqLLM.Context
]

programs = [
  atif: AtifModels.find(),
  chromium: Browser.executable(),
  otlp: OtlpModels.find()
]

Integrations.start(libraries, programs, [MyApp.Repo])
