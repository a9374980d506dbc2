defmodule AshAgent.Door.Table do
  @moduledoc false

  # What happens in a conversation, and what it becomes in each protocol: the documentation shows this table, and a test looks at
  # each of its rows in what the real client has read.

  # A row has the event's name, what happened, and by protocol the types of what is sent, or why nothing is.
  @rows [
    {:step_started, "The model begins an answer.",
     ai_sdk: ["start-step"], ag_ui: ["STEP_STARTED"]},
    {:text_started, "A text begins.", ai_sdk: ["text-start"], ag_ui: ["TEXT_MESSAGE_START"]},
    {:text, "More of it.", ai_sdk: ["text-delta"], ag_ui: ["TEXT_MESSAGE_CONTENT"]},
    {:text_ended, "It is whole.", ai_sdk: ["text-end"], ag_ui: ["TEXT_MESSAGE_END"]},
    {:thinking_started, "The model's thinking begins.",
     ai_sdk: ["reasoning-start"], ag_ui: ["REASONING_START", "REASONING_MESSAGE_START"]},
    {:thinking, "More of it.", ai_sdk: ["reasoning-delta"], ag_ui: ["REASONING_MESSAGE_CONTENT"]},
    {:thinking_ended, "It is whole.",
     ai_sdk: ["reasoning-end"], ag_ui: ["REASONING_MESSAGE_END", "REASONING_END"]},
    {:file, "The model has made a picture or another file.", ai_sdk: ["file"], ag_ui: ["CUSTOM"]},
    {:call_started, "A call of a tool begins.",
     ai_sdk: ["tool-input-start"], ag_ui: ["TOOL_CALL_START"]},
    {:call_arguments, "More of its arguments, as JSON.",
     ai_sdk: ["tool-input-delta"], ag_ui: ["TOOL_CALL_ARGS"]},
    {:call, "The call with its arguments.",
     ai_sdk: ["tool-input-available"], ag_ui: ["TOOL_CALL_END"]},
    {:asked, "A person has to decide about it.",
     ai_sdk: ["tool-approval-request"], ag_ui: ["RUN_FINISHED"]},
    {:question, "A person has to answer it, or the page itself.",
     ai_sdk: ["tool-input-available"], ag_ui: ["RUN_FINISHED"]},
    {:waits, "Its result will come later, and the turn goes on without it.",
     ai_sdk: ["data-waits"], ag_ui: ["CUSTOM"]},
    {:arrived, "The result of a call of an earlier turn.",
     ai_sdk: ["data-arrived"], ag_ui: ["TOOL_CALL_RESULT"]},
    {:sub_agent_started, "The call starts a sub-agent.",
     ai_sdk: ["data-sub-agent"], ag_ui: ["SUBAGENT_STARTED"]},
    {:sub_agent_ended, "It has ended. The call's result says with what.",
     ai_sdk: ["data-sub-agent"], ag_ui: ["SUBAGENT_FINISHED", "SUBAGENT_ERROR"]},
    {:state, "What the application's function `:state` makes of the conversation has changed.",
     ai_sdk: ["data-state"], ag_ui: ["STATE_SNAPSHOT"]},
    {:progress, "The tool tells how far it is.", ai_sdk: ["data-progress"], ag_ui: ["CUSTOM"]},
    {:result, "The call's result.",
     ai_sdk: ["tool-output-available"], ag_ui: ["TOOL_CALL_RESULT"]},
    {:failed, "The call failed, or was given up.",
     ai_sdk: ["tool-output-error"], ag_ui: ["TOOL_CALL_RESULT"]},
    {:denied, "A person or a rule has denied it.",
     ai_sdk: ["tool-output-denied"], ag_ui: ["TOOL_CALL_RESULT"]},
    {:value, "A typed answer, as far as it came.", ai_sdk: ["data-value"], ag_ui: ["CUSTOM"]},
    {:retry, "A request failed and is sent again soon.",
     ai_sdk: ["data-retry"], ag_ui: ["CUSTOM"]},
    {:waiting, "The model has said nothing for a while.",
     ai_sdk: ["data-waiting"], ag_ui: ["CUSTOM"]},
    {:said, "Somebody said something to the running turn.",
     ai_sdk: ["data-said"], ag_ui: ["TEXT_MESSAGE_START"]},
    {:broken, "The answer broke off, and what came of it is kept.",
     ai_sdk: ["data-broken"], ag_ui: ["CUSTOM"]},
    {:dropped, "What came of the answer is lost, and the model is asked again.",
     ai_sdk: ["data-dropped"], ag_ui: ["MESSAGES_SNAPSHOT"]},
    {:step_finished, "The answer and its calls are done.",
     ai_sdk: ["finish-step"], ag_ui: ["STEP_FINISHED"]},
    {:end, "The turn is over, or waits.",
     ai_sdk: ["finish", "error", "abort"], ag_ui: ["RUN_FINISHED", "RUN_ERROR"]},
    {:cleared, "Old results are not sent to the model any more.",
     "nothing: people still see them"},
    {:cost, "What the turn cost.", "nothing: `AshAgent.Context.Audit.fetch_cost/2` has it"}
  ]

  # Of a response, only its texts are sent, since a call there is one that the client has to run.
  @item ["response.output_item.added", "response.content_part.added"]
  @item_done ["response.content_part.done", "response.output_item.done"]

  @responses %{
    text_started: @item,
    text: ["response.output_text.delta"],
    text_ended: ["response.output_text.done" | @item_done],
    thinking_started: @item,
    thinking: ["response.reasoning_text.delta"],
    thinking_ended: ["response.reasoning_text.done" | @item_done],
    asked: @item ++ ["response.output_text.delta", "response.output_text.done" | @item_done],
    question: @item ++ ["response.output_text.delta", "response.output_text.done" | @item_done],
    end: ["response.completed", "response.incomplete", "response.failed"]
  }

  @doc "The rows: `{event, words, protocols}`."
  def rows do
    for {event, words, row} <- @rows do
      responses = [responses: Map.get(@responses, event, [])]
      {event, words, if(is_list(row), do: row ++ responses, else: row)}
    end
  end

  @doc "The names of what a protocol sends."
  def sent(protocol),
    do:
      for(
        {_event, _words, row} <- rows(),
        is_list(row),
        type <- row[protocol],
        uniq: true,
        do: type
      )

  @doc "The table for the documentation."
  def docs do
    lines =
      for {event, words, row} <- rows() do
        cells = for protocol <- [:ai_sdk, :ag_ui, :responses], do: "#{cell(row, protocol)} | "
        "| `#{event}` | #{words} | #{String.trim_trailing(Enum.join(cells))}\n"
      end

    "| event | what happened | AI SDK | AG-UI | Responses |\n|---|---|---|---|---|\n#{lines}"
  end

  defp cell(row, _protocol) when is_binary(row), do: row

  defp cell(row, protocol) do
    case row[protocol] do
      [] -> "nothing"
      types -> Enum.map_join(types, ", ", &"`#{&1}`")
    end
  end
end
