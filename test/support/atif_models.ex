defmodule AshAgent.TestSupport.AtifModels do
  @moduledoc false

  # The published models of ATIF, in Python: nvidia-nat-atif and Harbor's.

  alias AshAgent.TestSupport.Python

  @script "atif_models.py"

  @doc "The interpreter that has one of the models, and which it has, or nil."
  def find, do: Python.find(@script)

  @doc "What the models find wrong with each of these JSON texts: an empty text where nothing is."
  def problems(texts), do: Python.answers(@script, texts)
end
