defmodule AshAgent.NewcomerTest do
  # What a newcomer writes by hand and wrong: each is refused or explained where it is written, in words that say what to write.
  use ExUnit.Case, async: true

  import ExUnit.CaptureLog

  alias AshAgent.{Context, LLM, Output, Runtime, Session}

  defp model, do: LLM.Scripted.new(["Hello!"])
  defp run(opts), do: Runtime.run(Context.new("Hi"), Keyword.put_new(opts, :llm, model()))
  defp look(more), do: Map.merge(%{name: "look", function: fn _ -> {:ok, 1} end}, more)

  # `{what they wrote, a part of what they are told}`
  @table [
    {:properties, ~s|properties: %{"q" => %{type: :string}}|},
    {:described, ~s|properties: %{"q" => %{type: :string}}|},
    {:module, "AshAgent.LLM.OpenAI, which is no module; the models are AshAgent.LLM.Anthropic, "},
    {:tuple, "AshAgent.LLM.OpenAI, which is no module; the models are AshAgent.LLM.Anthropic, "},
    {:option, "the field :name has no option :min; its options are :type, :doc"},
    {:store, "no store has the name :nope; start one under a supervisor"},
    {:path, "expected :store to be a store or its name, got: a binary of 9 bytes"}
  ]

  defp write(:properties), do: run(tools: [look(%{parameters: %{q: :string}})])
  defp write(:described), do: run(tools: [look(%{parameters: %{"q" => %{type: :string}}})])
  defp write(:module), do: run(llm: LLM.OpenAI)
  defp write(:tuple), do: run(llm: {LLM.OpenAI, model: "m"})
  defp write(:option), do: Output.new(name: [type: :string, min: 3])
  defp write(:store), do: Session.start_link(llm: model(), store: :nope, id: "a")
  defp write(:path), do: Session.start_link(llm: model(), store: "agents.db", id: "a")

  test "each mistake is told where it is written" do
    for {mistake, words} <- @table do
      error = assert_raise ArgumentError, fn -> write(mistake) end
      assert {mistake, Exception.message(error)} |> elem(1) =~ words, inspect({mistake, error})
    end
  end

  test "the option model says where the body's model is written" do
    {:docs_v1, _, _, _, _, _, docs} = Code.fetch_docs(Context)

    for name <- [:request, :encode_request] do
      text =
        Enum.find_value(docs, fn {key, _, _, doc, _} ->
          match?({_, ^name, 3}, key) and doc["en"]
        end)

      assert text =~ "body: %{model:" or text =~ "`body: %{model: \"...\"}`"
    end
  end

  test "schemas with keywords that we do not know stay, and so do maps without any" do
    for parameters <- [
          %{},
          %{"$id" => "x"},
          %{"x-order" => []},
          %{type: :object},
          %{"anyOf" => []}
        ],
        do: assert({:ok, _result} = run(tools: [look(%{parameters: parameters})]))
  end

  test "a tool that wants atoms as keys is told so in the log, without its arguments" do
    tool = %{name: "look", function: fn %{q: q} -> {:ok, q} end}

    llm =
      LLM.Scripted.new([
        %{tool_calls: [%{id: "1", name: "look", arguments: %{"q" => "secret"}}]},
        "Done"
      ])

    log = capture_log(fn -> run(llm: llm, tools: [tool]) end)

    assert log =~
             ~s(The keys of its arguments are texts, as in fn %{"city" => city} -> ..., not atoms)

    refute log =~ "secret"
  end
end
