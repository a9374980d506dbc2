defmodule AshAgent.InspectTest do
  use AshAgent.TestSupport.InspectCases, app: :ash_agent_context

  alias AshAgent.{ChatContext, Context, Prices, Response}

  defp values do
    context = Context.new("a secret", system_prompt: "a secret")
    chat = ChatContext.new(context: context, user_prompt: "a secret")

    prices = %Prices{
      ref: make_ref(),
      sha256: String.duplicate("a", 64),
      models: 2,
      skipped: [{"secret", "no price"}]
    }

    {:ok, prepared} =
      Context.PreparedRequest.new(:ollama, body: %{key: "secret"}, model: "secret")

    {:ok, response} =
      Response.decode(:ollama, %{message: %{role: "assistant", content: "a secret"}, done: true})

    [
      context,
      chat,
      chat.branches["main"],
      chat.config || ChatContext.Config.new(model: "secret"),
      prices,
      response,
      prepared,
      Context.JSON.fragment(%{a: "a secret"}),
      %Context.UnknownAtom{name: String.duplicate("long ", 40)},
      %Context.Error{reason: {:unknown_tool_call, "call_1", Enum.map(2..40, &"call_#{&1}")}},
      %Response.Error{
        reason: {:provider, "busy"},
        kind: :overloaded,
        retryable?: true,
        provider_message: "Come back later."
      }
    ]
  end
end
