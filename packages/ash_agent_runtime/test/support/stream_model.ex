defmodule AshAgent.TestSupport.StreamModel do
  @moduledoc false

  # A model whose streams a test makes by hand. Its one option is a function of the context and of a function that feeds
  # a provider's bytes to the response, hands the events over as clients do, and returns the response.

  @behaviour AshAgent.LLM

  alias AshAgent.{Context, Response}

  def new(provider \\ :openai_chat, play) when is_function(play, 2),
    do: {__MODULE__, provider: provider, play: play}

  @impl true
  def chat(_context, _opts), do: {:error, :only_streams}

  @impl true
  def stream(context, opts, fun) do
    key = make_ref()
    Process.put(key, Response.new(opts[:provider], model: "m"))

    opts[:play].(context, fn bytes ->
      {:ok, response, events} = Response.feed(Process.get(key), bytes)
      Process.put(key, response)
      if events != [], do: fun.(events, response)
      response
    end)
  end

  @doc "A piece of text as OpenAI's chat streams it."
  def text(text), do: chunk(%{delta: %{content: text}})

  @doc "A call, or a piece of one."
  def call(id, name, json) do
    function = %{name: name, arguments: json}
    chunk(%{delta: %{tool_calls: [%{index: :erlang.phash2(id), id: id, function: function}]}})
  end

  @doc "The end, and why."
  def finish(word \\ "stop"), do: chunk(%{delta: %{}, finish_reason: word}) <> "data: [DONE]\n\n"

  defp chunk(choice), do: "data: " <> Context.JSON.encode(%{choices: [choice]}) <> "\n\n"

  @doc "A model that streams this text, a piece at a time, and then ends."
  def saying(pieces), do: new(fn _context, feed -> say(feed, pieces) end)

  @doc "Feeds a whole answer."
  def say(feed, pieces) do
    Enum.each(pieces, &feed.(text(&1)))
    {:ok, feed.(finish())}
  end

  @doc "A model that streams these pieces and then does something."
  def then_do(pieces, fun) do
    new(fn _context, feed ->
      Enum.each(pieces, &feed.(text(&1)))
      fun.()
    end)
  end
end
