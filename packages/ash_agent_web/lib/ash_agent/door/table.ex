defmodule AshAgent.Door.Table do
  @moduledoc false

  # What happens in a conversation, and what it becomes in each protocol: the documentation shows this table, and a test looks at
  # each of its rows in what the real client has read.

  # A row has the event's name, what happened, and by protocol the types of what is sent, or why nothing is.
  @rows [
    {:step_started, "The model begins an answer.", ai_sdk: ["start-step"]},
    {:text_started, "A text begins.", ai_sdk: ["text-start"]},
    {:text, "More of it.", ai_sdk: ["text-delta"]},
    {:text_ended, "It is whole.", ai_sdk: ["text-end"]},
    {:thinking_started, "The model's thinking begins.", ai_sdk: ["reasoning-start"]},
    {:thinking, "More of it.", ai_sdk: ["reasoning-delta"]},
    {:thinking_ended, "It is whole.", ai_sdk: ["reasoning-end"]},
    {:file, "The model has made a picture or another file.", ai_sdk: ["file"]},
    {:call_started, "A call of a tool begins.", ai_sdk: ["tool-input-start"]},
    {:call_arguments, "More of its arguments, as JSON.", ai_sdk: ["tool-input-delta"]},
    {:call, "The call with its arguments.", ai_sdk: ["tool-input-available"]},
    {:asked, "A person has to decide about it.", ai_sdk: ["tool-approval-request"]},
    {:progress, "The tool tells how far it is.", ai_sdk: ["data-progress"]},
    {:result, "The call's result.", ai_sdk: ["tool-output-available"]},
    {:failed, "The call failed, or was given up.", ai_sdk: ["tool-output-error"]},
    {:denied, "A person or a rule has denied it.", ai_sdk: ["tool-output-denied"]},
    {:value, "A typed answer, as far as it came.", ai_sdk: ["data-value"]},
    {:retry, "A request failed and is sent again soon.", ai_sdk: ["data-retry"]},
    {:waiting, "The model has said nothing for a while.", ai_sdk: ["data-waiting"]},
    {:said, "Somebody said something to the running turn.", ai_sdk: ["data-said"]},
    {:broken, "The answer broke off, and what came of it is kept.", ai_sdk: ["data-broken"]},
    {:dropped, "What came of the answer is lost, and the model is asked again.",
     ai_sdk: ["data-dropped"]},
    {:step_finished, "The answer and its calls are done.", ai_sdk: ["finish-step"]},
    {:end, "The turn is over, or waits.", ai_sdk: ["finish", "error", "abort"]},
    {:question, "A tool asks a person a question.", "not yet: a question is a call that waits"},
    {:sub_agent, "A sub-agent works.", "its tool's call and result stand for it"},
    {:cleared, "Old results are not sent to the model any more.",
     "nothing: people still see them"},
    {:cost, "What the turn cost.", "nothing: `AshAgent.Context.Audit.fetch_cost/2` has it"}
  ]

  @doc "The rows: `{event, words, protocols}`."
  def rows, do: @rows

  @doc "The names of what a protocol sends, in the order of the table."
  def sent(protocol),
    do: for({_event, _words, row} <- @rows, is_list(row), type <- row[protocol], do: type)

  @doc "The table for the documentation."
  def docs do
    lines =
      for {event, words, row} <- @rows do
        cell = if is_list(row), do: Enum.map_join(row[:ai_sdk], ", ", &"`#{&1}`"), else: row
        "| `#{event}` | #{words} | #{cell} |\n"
      end

    "| event | what happened | AI SDK |\n|---|---|---|\n#{lines}"
  end
end
