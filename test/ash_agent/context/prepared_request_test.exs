defmodule AshAgent.Context.PreparedRequestTest do
  use ExUnit.Case, async: true

  alias AshAgent.Context
  alias AshAgent.Context.PreparedRequest
  alias AshAgent.TestSupport.ContextGenerators

  @bodies [
    %{},
    %{model: "m", tools: [%{name: "look", parameters: %{type: :object}}], temperature: 0.5},
    %{"container" => %{skills: [%{id: "pdf"}]}, "model" => "m"},
    %{model: Context.JSON.fragment(%{a: [1, nil, "é"]})}
  ]

  test "a request with prepared options and fields is the same as without" do
    for provider <- Context.Requests.providers(), body <- @bodies, _ <- 1..20 do
      context = 30 |> ContextGenerators.script() |> ContextGenerators.build()
      opts = [body: body, pending: :interrupt, model: "m"]
      assert {:ok, prepared} = PreparedRequest.new(provider, opts)

      given = Context.encode_request(context, provider, opts)
      again = PreparedRequest.encode(prepared, context)
      assert text(again) == text(given)
      # It is used as often as one likes.
      assert text(PreparedRequest.encode(prepared, context)) == text(given)
    end
  end

  defp text({:ok, iodata}), do: IO.iodata_to_binary(iodata)
  defp text(error), do: error

  test "wrong options and fields are refused when they are prepared, and fields of the messages with a context" do
    assert_raise ArgumentError, fn -> PreparedRequest.new(:ollama, colour: 1) end
    assert_raise ArgumentError, fn -> PreparedRequest.new(:ollama, dialect: :openai) end
    huge = %{number: Integer.pow(10, 400)}
    assert {:error, %Context.Error{}} = PreparedRequest.new(:ollama, body: huge)

    {:ok, prepared} = PreparedRequest.new(:ollama, body: %{messages: []})
    words = ~r/made from the conversation/

    assert_raise ArgumentError, words, fn ->
      PreparedRequest.encode(prepared, Context.new("Hi"))
    end
  end

  test "shows the provider and nothing of the fields" do
    {:ok, prepared} = PreparedRequest.new(:ollama, body: %{key: "SECRET"}, model: "SECRET")
    assert inspect(prepared) == "#AshAgent.Context.PreparedRequest<ollama>"
  end

  test "many tools fit a normal scheduler" do
    tool = fn n ->
      %{name: "t#{n}", description: String.duplicate("words ", 80), parameters: %{}}
    end

    {:ok, prepared} = PreparedRequest.new(:ollama, body: %{tools: Enum.map(1..100, tool)})
    context = Context.new("Hi")

    normal =
      Context.Native.context_encode_request_normal(context.ref, prepared.options, prepared.fields)

    assert {:ok, [_ | _]} = normal
  end
end
