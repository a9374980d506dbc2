defmodule AshAgent.TestSupport.OtlpModels do
  @moduledoc false

  # The published reader of OTLP, opentelemetry-proto for Python, and the JSON schemas of the semantic conventions.

  alias AshAgent.Context.JSON
  alias AshAgent.TestSupport.Python

  @script "otlp_models.py"
  @schemas Path.expand("../shared/schemas", File.cwd!())

  @doc "The interpreter that has the reader, and its version, or nil; nil as well where the schemas are not."
  def find, do: File.dir?(@schemas) && Python.find(@script)

  @doc "What is wrong with each trace, given as `{protobuf, json}`: an empty text where nothing is."
  def problems(traces) do
    lines =
      for {protobuf, json} <- traces do
        {:ok, json} = JSON.decode(json)
        JSON.encode(%{"protobuf" => Base.encode64(protobuf), "json" => json})
      end

    Python.answers(@script, [@schemas], lines)
  end
end
