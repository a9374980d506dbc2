defmodule AshAgent.Response.Schema do
  @moduledoc false

  # The JSON Schema that an answer has to fit, behind a handle: it reads and checks JSON. `AshAgent.Output` of the package
  # ash_agent_runtime makes Elixir values of the results.

  alias AshAgent.Context.Native

  @doc "Returns the handle of a schema, and the schema as JSON data."
  def new(schema) do
    with {:ok, ref} <- Native.answer_type(schema),
         {:ok, schema} <- Native.answer_schema(ref),
         do: {:ok, ref, schema}
  end

  @doc "Reads a text leniently, or JSON only."
  defdelegate read(ref, text, strict?), to: Native, as: :answer_read

  @doc "Checks JSON data."
  defdelegate check(ref, value, strict?), to: Native, as: :answer_check

  @doc "Returns the handle of a schema for the arguments of calls."
  defdelegate compile(schema), to: Native, as: :answer_type

  @doc "Checks the arguments of a call. Repairs only what leaves them as they were meant."
  defdelegate check_arguments(ref, arguments), to: Native, as: :answer_check_arguments

  @doc "Reads a text as far as it has come."
  def read_partial(ref, text), do: Native.answer_partial(ref, text, false)

  @doc "Begins to follow a stream."
  def follow do
    {:ok, follow} = Native.answer_follow_new()
    follow
  end

  @doc "Reads the next piece of a stream."
  def follow(ref, follow, piece), do: Native.answer_follow(follow, ref, piece, false)

  @doc "The fields of a request that hold its answer to the schema."
  def constrain(ref, provider, model, {beside_tools?, forced?}),
    do: Native.answer_constrain(ref, provider, model, "answer", beside_tools?, forced?)
end
