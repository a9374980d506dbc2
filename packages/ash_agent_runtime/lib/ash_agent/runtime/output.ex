defmodule AshAgent.Runtime.Output do
  @moduledoc false

  # The ways of asking a model for a typed answer: by a field of its provider, by a tool, or in the system prompt.

  alias AshAgent.{Context, LLM, Output}
  alias AshAgent.LLM.Client
  alias AshAgent.Runtime.Run

  @tool Output.tool_name()
  @description "Gives the final answer. Call it once, when you are done, and do not answer in text."

  #   * `type` - an `AshAgent.Output`
  #   * `mode` - `:native`, `:tool` or `:text`
  #   * `note` - the reason why it is not native, in words, or `nil`
  #   * `fields` - the fields of a native request
  #   * `strict?` - the provider holds its model to the schema
  #   * `forced?` - no other way may be taken
  #   * `max_retries`, `retries` - how often the model may be asked again, and has been
  #   * `hide_retries?` - the view shows the answer without the attempts before it
  @enforce_keys [:type, :mode, :max_retries, :hide_retries?]
  defstruct @enforce_keys ++ [note: nil, fields: nil, strict?: false, forced?: false, retries: 0]

  # These providers promise that an answer fits.
  @strict [:openai_chat, :openai_responses, :anthropic, :bedrock, :mistral]

  @doc "The output of a run with these options and tools, or `nil`. Raises `ArgumentError` for a mode that cannot be."
  def new(opts, tools) do
    if type = opts[:output] do
      if Enum.any?(tools, &(&1.name == @tool)),
        do:
          raise(ArgumentError, "a run with :output has a tool #{@tool} of its own; rename yours")

      {most, hide?} = {opts[:max_retries], opts[:hide_retries]}
      output = %__MODULE__{type: type, mode: :text, max_retries: most, hide_retries?: hide?}
      choose(opts[:output_mode], output, opts[:llm], tools)
    end
  end

  defp choose(:text, output, _llm, _tools), do: output
  defp choose(:tool, output, llm, _tools), do: choose_tool(output, llm, nil)

  defp choose(mode, output, llm, tools) do
    case constrain(output.type, llm, beside_tools?: tools != [], forced?: mode == :native) do
      {:ok, fields} ->
        strict? = LLM.provider(llm) in @strict
        %{output | mode: :native, fields: fields, strict?: strict?, forced?: mode == :native}

      {:error, words} when mode == :native ->
        raise ArgumentError, "the :output cannot be asked for with output_mode: :native: #{words}"

      {:error, words} ->
        choose_tool(output, llm, words)
    end
  end

  # A function of one argument gets no tools.
  defp choose_tool(output, llm, note) when is_function(llm, 1), do: %{output | note: note}
  defp choose_tool(output, _llm, note), do: %{output | mode: :tool, note: note}

  defp constrain(type, {module, _opts} = llm, how) do
    provider = LLM.provider(llm)

    if provider && function_exported?(module, :credentials, 1),
      do: Output.constrain(type, provider, LLM.model_name(llm) || "", how),
      else: {:error, "it needs a client of this package"}
  end

  defp constrain(_type, _function, _how), do: {:error, "it needs a client of this package"}

  # The limits of providers are not all known, and what stands behind a gateway is not either.
  @schema_words ~r/schema|grammar|structured.?output|(response|output).?(format|config)|text\.?format/i

  @doc """
  Returns the output of the same run with a tool, if the provider refused the request because of its schema, or `:error`. That happens
  once: the tool's schema is not enforced.
  """
  def after_refusal(output, reason) do
    with %{mode: :native, forced?: false} <- output,
         {:llm_error, %LLM.Error{kind: :invalid_request, provider_message: words}} <- reason,
         true <- words != nil and words =~ @schema_words do
      note = "the provider refused its schema, see AshAgent.Context.Audit.failures/1"
      {:ok, %{output | mode: :tool, fields: nil, strict?: false, note: note}}
    else
      _another_failure -> :error
    end
  end

  @doc "The tools that the model is offered, with that of the answer."
  def offer(%__MODULE__{mode: :tool, type: type}, tools),
    do: tools ++ [%{name: @tool, description: @description, parameters: type.schema}]

  def offer(_output, tools), do: tools

  @doc "The fields of a request that ask for the answer, or `nil`."
  def fields(%__MODULE__{fields: fields}), do: fields
  def fields(nil), do: nil

  @doc "Returns the note of a request's fields, with the way in which its answer is asked for."
  def describe(nil, fields), do: fields

  def describe(%__MODULE__{mode: :native, fields: own}, fields) do
    fields
    |> Map.put("output", %{"mode" => "native"})
    |> Map.update("body", own, &Client.put_output(&1, own))
  end

  def describe(%__MODULE__{mode: mode, type: type}, fields),
    do: Map.put(fields, "output", %{"mode" => to_string(mode), "schema" => type.schema})

  @doc "The context of a request: without a tool or a field of the provider, the system prompt has the schema."
  def instruct(%__MODULE__{mode: :text, type: type}, context) do
    words =
      "When you are done, answer with one JSON object that fits this JSON Schema, and with nothing else:\n\n" <>
        Context.JSON.encode(type.schema)

    case Context.system_prompt(context) do
      nil -> Context.put_system_prompt(context, words)
      text when is_binary(text) -> Context.put_system_prompt(context, text <> "\n\n" <> words)
      parts -> Context.put_system_prompt(context, parts ++ [%{type: :text, text: words}])
    end
  end

  def instruct(_output, context), do: context

  ## A turn remembers that it has a type

  @doc "Marks the iteration of a message that asks for an answer. Another message beside it may ask for text."
  def mark_asked(context, nil), do: context

  def mark_asked(%{current_iteration: number} = context, output) do
    asked = length(Run.said(context, number))
    context = mark(output, context)
    Context.put_iteration_metadata(context, number, "output_asked", asked)
  end

  @doc "Returns whether a message that asks for an answer is the last one of its iteration."
  def asked?(%{current_iteration: number} = context) do
    with %{metadata: %{"output_asked" => asked}} <- Context.get_iteration(context, number),
         do: asked == length(Run.said(context, number)),
         else: (_not_marked -> false)
  end

  @doc "Marks the iteration, so that nobody goes on with it without its type."
  def mark(nil, context), do: context

  def mark(%__MODULE__{mode: mode}, %{current_iteration: number} = context),
    do: Context.put_iteration_metadata(context, number, "output", to_string(mode))
end
