alias AshAgent.TestSupport.{Browser, Integrations, OtlpModels}

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
  axe: Browser.axe(),
  chromium: Browser.executable(),
  otlp: OtlpModels.find()
]

Integrations.put_version("OTLP", fn -> OtlpModels.find() |> elem(1) |> Enum.join(" and ") end)

Integrations.put_version("Chromium", fn ->
  String.replace(Browser.version(), "Chromium ", "")
end)

Integrations.start(libraries, programs, [MyApp.Repo])
