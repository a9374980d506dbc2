defmodule AshAgent.TestSupport.Leash do
  @moduledoc "A model that says what it was told last, when the test lets it."

  import ExUnit.Assertions

  alias AshAgent.Context

  @doc "The model, of the calling test."
  def llm do
    test = self()

    fn context ->
      texts =
        for %{role: :user, content: text} <- Context.to_messages(context),
            is_binary(text),
            do: text

      send(test, {:asked, self(), texts})
      receive do: (:go -> {:ok, %{content: "re: " <> List.last(texts)}})
    end
  end

  @doc "Waits until the model is asked with these texts of the user, and lets it answer."
  def let(texts) do
    assert_receive {:asked, model, ^texts}, 5_000
    send(model, :go)
  end
end
