defmodule AshAgent.Runtime.AskUser do
  @moduledoc """
  A tool by which a model asks the person a question, and waits for the answer.

      iex> alias AshAgent.{Context, LLM, Runtime}
      iex> question = %{"question" => "Which seat?", "choices" => ["window", "aisle"]}
      iex> llm = LLM.Scripted.new([%{tool_calls: [%{id: "call_1", name: "ask_user", arguments: question}]}, "Booked."])
      iex> opts = [llm: llm, tools: [Runtime.AskUser.tool()]]
      iex> {:paused, paused} = Runtime.run(Context.new("Book a seat"), opts)
      iex> paused.calls
      [%{id: "call_1", name: "ask_user", arguments: question, question: true}]
      iex> context = Context.Calls.answer_tool_call(paused.context, "call_1", "aisle", by: "ann")
      iex> {:ok, result} = Runtime.resume(context, opts)
      iex> result.output
      "Booked."

  A question pauses the run whatever `:approval` says, and needs none. Everything else about pauses holds, see `AshAgent.Session` and
  `AshAgent.Runtime.Paused`: the conversation can be stored, loaded on another node and answered there. The answer is the call's result, with
  the decision `:answered` beside it, which says who answered and when. Hooks after tools do not see it.

  Answer with `AshAgent.Session.answer/4`, `AshAgent.Sessions.answer/5` or `AshAgent.Context.Calls.answer_tool_call/4`. Whoever does not want to answer
  denies the call, with or without a reason. A question cannot be approved, and no other call can be answered. Rules and the hooks
  `:before_tool` may refuse a question. A sub-agent cannot ask: the model reads that it has to say what is missing.

  ## Going on without the answer

  With `late: true`, a question does not pause the run: the call waits, as that of a tool that answers late, and the model goes on, waits with
  `wait_for`, or ends. `for:` says whom it is for, and `AshAgent.Sessions.waiting/2` lists it. `AshAgent.Session.answer/4` delivers the answer, which has to be right
  as any other, and begins a turn if nothing runs. Hooks after tools see it. Such a question needs a store, and cannot be denied: `AshAgent.Sessions.cancel_call/4`
  calls it off.
  """

  use AshAgent.Arguments

  alias AshAgent.{Context, Options}
  alias AshAgent.Response.Schema
  alias AshAgent.Runtime.Tool

  @schema Options.schema([
            {:name, :string, [default: "ask_user"],
             "the tool's name. An agent may have several such tools."},
            {:description, :string,
             "tells the model when to ask. Defaults to words for any question."},
            {:choices, {:list, :string}, [default: []],
             "the answers to choose from. Without them the model may give choices with its question."},
            {:form, {:or, [:map, nil]}, [type_doc: "a JSON schema"],
             "the schema of an object. The answer is a map that fits it, and a page shows its properties as fields."},
            {:late, {:or, [:boolean, :pos_integer]}, [default: false],
             "whether the run goes on without the answer, see above, or the milliseconds that it waits at most. `true` is a day."},
            {:for, :any, "whom a late question is for, a person or a tag. Defaults to `nil`."},
            {:parameters, {:or, [:map, nil]}, [type_doc: "a JSON schema"],
             "what the model writes instead of a question, for a tool that a page runs itself, such as one that shows a map, see `AshAgent.Door`. Without " <>
               "properties named `choices` and `form`, which say what may be answered."}
          ])

  @description "Asks the person a question and returns the answer. Use it when you cannot go on without something that only the person knows."

  @asked %{"question" => %{"type" => "string", "minLength" => 1}}
  # The model writes them if the tool has none.
  @choices %{
    "choices" => %{
      "type" => "array",
      "items" => %{"type" => "string"},
      "description" => "the answers to choose from, if there are only these"
    }
  }

  @doc """
  Makes the tool, and returns it.

  ## Options

  #{Options.docs(@schema)}

  Raises `ArgumentError` for a form that is not the schema of an object.

  ## Examples

      iex> AshAgent.Runtime.AskUser.tool(name: "ask_seat", choices: ["window", "aisle"]).name
      "ask_seat"
      iex> AshAgent.Runtime.AskUser.tool(form: %{"type" => "string"})
      ** (ArgumentError) expected :form to be a JSON schema with "type" => "object"
  """
  @doc since: "0.1.0"
  @spec tool(keyword()) :: Tool.t()
  def tool(opts \\ []) when is_list(opts) do
    opts = Options.validate!(opts, @schema)
    form = opts[:form] && check_form(opts[:form])
    shown = if form, do: %{"form" => form}, else: %{}
    shown = if opts[:choices] == [], do: shown, else: Map.put(shown, "choices", opts[:choices])
    own = opts[:parameters] && check_parameters(opts[:parameters])

    %Tool{
      name: opts[:name],
      description: opts[:description] || @description,
      parameters:
        own ||
          %{
            "type" => "object",
            "properties" => if(shown == %{}, do: Map.merge(@asked, @choices), else: @asked),
            "required" => ["question"],
            "additionalProperties" => false
          },
      # A section of a DSL can hold no other function.
      run: if(opts[:late], do: &__MODULE__.ask_later/2, else: &__MODULE__.ask_nobody/2),
      late: Tool.late!(opts[:late], opts[:name]),
      for: opts[:for],
      asks?: true,
      shown: shown
    }
  end

  @doc false
  def ask_later(_arguments, _tool_context), do: {:later, []}

  @doc false
  # Returns `{:ok, value}` with an answer to a call as the conversation keeps it, or raises the errors of an answer.
  def check_answer(tool, call, answer, opts) do
    {:ok, arguments} = Tool.arguments(call.arguments)
    call = %{id: call.id, name: call.name, arguments: arguments}
    shown = if tool, do: Map.merge(arguments, tool.shown)

    context = "?" |> Context.new() |> Context.add_assistant_message(nil, [call])
    ask = &Context.Calls.ask_about_tool_call(&1, call.id, shown, question: true)
    context = if tool, do: ask.(context), else: context
    context = Context.Calls.answer_tool_call(context, call.id, answer, opts)
    [%{result: result}] = Context.get_iteration(context, 1).tool_calls
    result
  end

  # A tool that has done nothing yet may ask itself: then its call runs once more with the answer. What it wants to find again then is a note in the
  # metadata of the call's iteration.
  @note "tool_questions"

  @doc false
  # Asks a person about a pending call, as which it ran. `asked` has the `:question`, the `:form` and the `:note`.
  def put_question(context, %{id: id, arguments: arguments}, asked) do
    shown = %{"question" => asked.question, "form" => asked.form, "to_tool" => true}
    notes = Map.put(notes(context), id, asked.note)

    context
    |> Context.put_iteration_metadata(context.current_iteration, @note, notes)
    |> Context.Calls.ask_about_tool_call(id, Map.put(shown, "arguments", arguments),
      question: true
    )
  end

  @doc false
  # The note of a call that runs once more, and the answer, by the scope of its tool; or `nil`.
  def find_answer(%{conversation: %Context{} = context, tool_call_id: id}) do
    with %{^id => note} <- notes(context),
         %{decision: :approved, reason: %{} = answer} <-
           Context.Calls.tool_call_decision(context, id),
         do: {note, answer},
         else: (_not_asked -> nil)
  end

  def find_answer(_scope), do: nil

  defp notes(context) do
    with %{metadata: %{@note => %{} = notes}} <-
           Context.get_iteration(context, context.current_iteration),
         do: notes,
         else: (_none -> %{})
  end

  @doc false
  def ask_nobody(_arguments, _tool_context), do: {:error, "nobody is there who could be asked"}

  # The model does not write what may be answered.
  defp check_parameters(parameters) do
    named = Map.get(parameters, "properties", %{})

    if is_map(named) and not is_map_key(named, "choices") and not is_map_key(named, "form"),
      do: Map.merge(%{"type" => "object", "additionalProperties" => false}, parameters),
      else:
        AshAgent.Caller.refuse!(
          ~s(expected :parameters to be a JSON schema without the properties "choices" and "form")
        )
  end

  defp check_form(form) do
    case Schema.new(form) do
      {:ok, _ref, %{"type" => "object"} = form} ->
        form

      _other ->
        AshAgent.Caller.refuse!(~s(expected :form to be a JSON schema with "type" => "object"))
    end
  end
end
