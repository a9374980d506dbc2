defmodule AshAgent.Context.Options.Chats do
  @moduledoc false

  # The options of the functions of AshAgent.ChatContext.

  import AshAgent.Context.Options.Kinds

  alias AshAgent.Context.Options.Kinds

  def schemas do
    [
      chat_new: [
        {:input, input(),
         "the first user message, see `AshAgent.Context.new/2`. By default the conversation is empty."},
        {:context, {:or, [{:custom, &Kinds.context?/1}, nil]}, [type_doc: "a context"],
         "a context to begin with instead."},
        {:id, text(),
         "the chat's id, which a new context gets as well. Defaults to the id of the context; for a new one that is " <>
           "a UUID v4."},
        {:config, settings(), "the settings. Defaults to an empty configuration."},
        {:branch, main(), "the name of the branch."},
        {:system_prompt, prompt(), "the system prompt. Defaults to the context's own."},
        {:user_prompt, string(),
         "text that follows the system prompt in requests. Defaults to the context's own."},
        {:at, time(), "when the chat starts. Defaults to now."}
      ],
      branch: [
        {:from, branch(), "the branch to start from. Defaults to the active one."},
        {:iteration, iteration(),
         "starts the branch at the end of this iteration, see `AshAgent.Context.rewind/2`. Defaults to the current " <>
           "iteration."},
        {:system_prompt, prompt(), "see `put_system_prompt/3`. Defaults to that of `:from`."},
        {:user_prompt, string(), "see `put_user_prompt/3`. Defaults to that of `:from`."}
      ],
      update_context: [
        {:branch, branch(),
         "the branch to update, for instance when another may have become active. Defaults to the active one."}
      ],
      put_prompt: [
        {:branch, branch(), "the branch to change. Defaults to the active one."},
        {:at, at()}
      ],
      spawn_child: [
        {:seed, range(&Kinds.seed?/1),
         "iterations of the parent to begin with. Defaults to none."},
        {:from, branch(),
         "the parent's branch that they are taken from. Defaults to the active one."},
        {:input, input(), "a user message after the seed: the task. Defaults to no message."},
        {:id, text(),
         "the child's id, which must differ from the parent's. Defaults to a new UUID v4."},
        {:config, settings(), "the settings. Defaults to the parent's."},
        {:branch, main(), "the name of the child's branch."},
        {:system_prompt, prompt(), "the system prompt. Defaults to no system prompt."},
        {:user_prompt, string(),
         "text that follows the system prompt in requests. Defaults to no text."},
        {:at, time(), "when the child starts. Defaults to now."}
      ],
      complete_child: [
        {:branch, branch(), "the branch that gets the message. Defaults to the active one."},
        {:at, time(), "the time of the message. Defaults to now."}
      ]
    ]
  end

  defp main, do: [default: "main"] ++ name()
end
