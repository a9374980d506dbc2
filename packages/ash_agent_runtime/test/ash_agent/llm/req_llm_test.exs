defmodule AshAgent.LLM.ReqLLMTest do
  use ExUnit.Case, async: true

  alias AshAgent.{Context, LLM}
  alias AshAgent.LLM.Error

  doctest AshAgent.LLM.ReqLLM

  test "checks its options, and hides the key" do
    assert {LLM.ReqLLM, opts} = LLM.ReqLLM.new(model: "openai:gpt-5", api_key: "sk-secret-1")
    refute inspect(opts) =~ "sk-secret-1"
    assert LLM.streams?({LLM.ReqLLM, opts})
    assert_raise ArgumentError, ~r/:model/, fn -> LLM.ReqLLM.new([]) end

    assert_raise ArgumentError, ~r/:temperature/, fn ->
      LLM.ReqLLM.new(model: "m", temperature: 0)
    end
  end

  unless Code.ensure_loaded?(ReqLLM) do
    test "says what to add where ReqLLM is not available" do
      llm = LLM.ReqLLM.new(model: "openai:gpt-5")

      for ask <- [&LLM.chat/2, &LLM.stream(&1, &2, fn _event -> :ok end)] do
        assert {:error, %Error{reason: {:request, _exception}} = error} =
                 ask.(llm, Context.new("Hi"))

        assert Exception.message(error) =~ "add {:req_llm"
      end
    end
  end
end
