defmodule AshAgent.Integration.AgentSetupTest do
  # What is checked at compile time, and which models a client is.
  use ExUnit.Case, async: false

  alias AshAgent.Integration.Compiled
  alias AshAgent.LLM
  alias AshAgent.Resource.Client

  @moduletag :ash
  @moduletag integrations: ["Ash"]

  @id "attributes do\nuuid_primary_key :id\nend\n"

  defp compile(agent, tools \\ nil) do
    tools = if tools, do: "tools do\n#{tools}\nend\n", else: ""
    Compiled.said(AshAgent.Resource, "#{@id}agent do\n#{agent}\nend\n#{tools}")
  end

  defp with_tool(tool, more \\ ""),
    do: compile("client \"anthropic:m\"", "tool :a do\n#{tool}\nend\n#{more}")

  test "an agent that cannot work is refused with words" do
    client = "client \"anthropic:m\"\n"

    for {section, words} <- [
          {"prompt \"Hi\"", ~r/required :client option/},
          {"client 7", ~r/expected "provider:model"/},
          {"client nil", ~r/expected "provider:model"|required :client/},
          {"client \"claude\"", ~r/expected "provider:model"/},
          {"client \"anthropic:\"", ~r/expected "provider:model"/},
          {"client \"acme:claude\"", ~r/one of the providers amazon_bedrock, anthropic/},
          {"#{client}fly true", ~r/fly/},
          {"#{client}prompt ~p\"{{ name }}\"",
           ~r/{{ name }}, which is not an argument; there are: output_format/},
          {"#{client}prompt \"{% if a %}\"", ~r/nothing else of Liquid/},
          {"#{client}prompt ~p\"{{ a | upcase }}\"", ~r/nothing else of Liquid/},
          {"#{client}prompt 7", ~r/prompt/},
          {"#{client}output :integer", ~r/its values are not objects/},
          {"#{client}output Nothing.There", ~r/Nothing.There is not an Ash type/},
          {"#{client}output :term", ~r/no model can write/},
          {"#{client}token_budget 0", ~r/token_budget/},
          {"#{client}budget_strategy :stop", ~r/budget_strategy/},
          {"#{client}budget_strategy :halt", ~r/add token_budget/},
          {"#{client}options tools: []", ~r/have a place of their own/},
          {"#{client}options runtime_context: %{}", ~r/are set by the agent itself/},
          {"#{client}options llm_timeout: 0", ~r/invalid value for option :llm_timeout/},
          {"#{client}input do\nargument :context, :map\nend", ~r/the conversation to go on with/},
          {"#{client}input do\nargument :a, :nothing\nend", ~r/nothing/},
          {"#{client}hooks AshAgent.Integration.AgentSetupTest.OldHooks",
           ~r/OldHooks.prepare_context\/1 would not be called; use the argument `context`/}
        ] do
      assert compile(section) =~ words, section
    end

    assert Compiled.said(AshAgent.Resource, @id) =~ "expected \"provider:model\""
  end

  defmodule OldHooks do
    def prepare_context(hooked), do: {:ok, hooked.context}
  end

  test "so is a tool" do
    one = "description \"b\"\nfunction fn a -> a end"
    action = "description \"b\"\naction {AshAgent.Integration.MemoryTicket, "

    for {tool, words} <- [
          {"function fn a -> a end", ~r/required :description option/},
          {"description \"b\"", ~r/the tool :a needs an action or a function/},
          {"#{one}\naction {B, :c}", ~r/has an action and a function/},
          {"description \"b\"\nfunction fn -> 1 end", ~r/function/},
          {"description \"b\"\nfunction {String, :nothing, []}",
           ~r/there is no String.nothing\/2/},
          {"description \"b\"\nfunction {__MODULE__, :nothing, [1]}", ~r/Compiled\d+.nothing\/3/},
          {"description \"b\"\naction {String, :read}", ~r/expected an Ash resource/},
          {"#{action}:fly}", ~r/has no action :fly; there are: /},
          {"#{action}:read, filter: [:note]}", ~r/:note/},
          {"#{action}:keep}", ~r/no model can write :state/},
          {"#{action}:read}\nparameters id: [type: :uuid]",
           ~r/are those of its action; remove `parameters`/},
          {"#{one}\nparameters c: [type: :nothing]", ~r/nothing/},
          {"#{one}\nparameters c: [kind: :string]", ~r/kind/},
          {"#{one}\nparameters c: [type: :function]", ~r/no model can write/},
          {"#{one}\nparameters c: [type: :atom, constraints: [unsafe_to_atom?: true]]",
           ~r/would make atoms/}
        ] do
      assert with_tool(tool) =~ words, tool
    end

    assert with_tool(one, "tool :a do\n#{one}\nend") =~ ~r/duplicate/i

    assert with_tool(one, "tool :submit_answer do\n#{one}\nend") =~
             "the tool that takes the answer"

    for wrong <- ["max_iterations 0", "timeout 0", "on_error :stop"],
        do: assert(with_tool(one, wrong) =~ ~r/invalid value/)
  end

  test "those that can work are not" do
    tool = "tool :a do\ndescription \"b\"\nfunction fn a -> a end\nend"

    for section <- [
          "client \"anthropic:m\", max_tokens: 5",
          "client AshAgent.LLM.Ollama",
          "client {AshAgent.LLM.Ollama, model: \"m\"}",
          "client &AshAgent.Integration.Guarded.model/0",
          "client \"ollama:m\"\ninput do\nargument :a, :string\nend\nprompt ~p\"{{ a }} {{output_format}}\"",
          "client \"ollama:m\"\noutput AshAgent.Integration.Reply\noptions max_cost: :infinity",
          "client \"ollama:m\"\ninput do\nargument :context, :struct, constraints: [instance_of: AshAgent.Context], allow_nil?: false\nend",
          "client \"ollama:m\"\ntools do\n#{tool}\nend"
        ] do
      refute compile(section) =~ ~r/DslError|rror:/, section
    end

    own =
      "#{@id}actions do\naction :stream, :string do\nrun fn _, _ -> {:ok, \"mine\"} end\nend\nend\n"

    refute Compiled.said(AshAgent.Resource, own <> "agent do\nclient \"ollama:m\"\nend") =~
             "rror"
  end

  test "a prompt with too much of Liquid is an error of the sigil, too" do
    assert Compiled.said(
             AshAgent.Resource,
             @id <> "agent do\nclient \"ollama:m\"\nprompt ~p\"{{ a.b }}\"\nend"
           ) =~
             "nothing else of Liquid"
  end

  describe "the shape of what a model writes" do
    alias AshAgent.Resource.Shape

    test "has every type of parameters" do
      types = [
        string: "string",
        integer: "integer",
        float: "number",
        boolean: "boolean",
        uuid: "string",
        map: "object"
      ]

      {:ok, shape} =
        Shape.new(:map, fields: for({type, _json} <- types, do: {type, [type: type]}))

      for {type, json} <- types,
          do: assert(shape.schema["properties"]["#{type}"]["type"] == json)

      assert shape.schema["required"] == []

      written = %{
        "string" => "a",
        "integer" => "5",
        "float" => 1,
        "boolean" => "true",
        "map" => %{"b" => nil}
      }

      assert Shape.cast(shape, written) ==
               {:ok, %{string: "a", integer: 5, float: 1.0, boolean: true, map: %{"b" => nil}}}

      assert {:error, words} = Shape.cast(shape, %{"uuid" => "no"})
      assert words =~ "invalid"
    end

    test "has typed structs in each other, and in lists" do
      {:ok, shape} = Shape.new(AshAgent.Integration.Report, [])

      assert %{"lead" => lead, "replies" => replies, "grid" => grid} = shape.schema["properties"]

      assert %{"type" => "object", "required" => ["content"]} = lead
      assert replies == %{"type" => "array", "items" => lead}
      assert %{"items" => %{"type" => "array", "items" => %{"type" => "integer"}}} = grid
      assert shape.schema["required"] == ["title"]

      written = %{
        "title" => "A",
        "lead" => %{"content" => "b"},
        "replies" => [%{"content" => "c", "score" => 1}],
        "grid" => [[1, "2"], []]
      }

      assert {:ok, %{lead: %{content: "b"}, replies: [%{score: 1}], grid: [[1, 2], []]}} =
               Shape.cast(shape, written)

      for wrong <- [
            %{written | "lead" => %{}},
            %{written | "lead" => "b"},
            %{written | "replies" => [%{"content" => "c", "score" => 99}]},
            %{written | "replies" => [5]},
            %{written | "grid" => [["x"]]},
            %{}
          ] do
        assert {:error, words} = Shape.cast(shape, wrong)
        assert is_binary(words) and words != ""
      end
    end

    test "takes whatever a model writes" do
      {:ok, shape} = Shape.new(AshAgent.Integration.Report, [])
      seed = :rand.uniform(1_000_000)
      :rand.seed(:exsss, seed)

      for n <- 1..500 do
        value = anything(4)

        try do
          case Shape.cast(shape, value) do
            {:ok, %AshAgent.Integration.Report{}} -> :ok
            {:error, words} when is_binary(words) -> :ok
          end
        rescue
          error ->
            flunk("seed #{seed}, value #{n}: #{inspect(value)}: #{Exception.message(error)}")
        end
      end
    end

    @names ~w(title lead replies grid content score mood tags other)

    defp anything(0), do: Enum.random([nil, true, 0, -1, 1.5, "", "text", "5", "glad", <<255>>])

    defp anything(depth) do
      case :rand.uniform(4) do
        1 ->
          anything(0)

        2 ->
          for _ <- 1..:rand.uniform(3), do: anything(depth - 1)

        _ ->
          for name <- Enum.take_random(@names, :rand.uniform(6)),
              into: %{},
              do: {name, anything(depth - 1)}
      end
    end
  end

  describe "a client" do
    test "is the model of its provider, with the options in their places" do
      for {name, client, body} <- [
            {"anthropic:m", LLM.Anthropic, %{temperature: 0.5}},
            {"openai:m", LLM.OpenAICompatible, %{temperature: 0.5, max_completion_tokens: 9}},
            {"mistral:m", LLM.Mistral, %{temperature: 0.5, max_tokens: 9}},
            {"google:m", LLM.Gemini,
             %{generationConfig: %{temperature: 0.5, maxOutputTokens: 9}}},
            {"ollama:m:1b", LLM.Ollama, %{options: %{temperature: 0.5, num_predict: 9}}},
            {"amazon_bedrock:m", LLM.Bedrock,
             %{inferenceConfig: %{temperature: 0.5, maxTokens: 9}}}
          ] do
        more = if client == LLM.Bedrock, do: [region: "us-east-1"], else: []

        assert {:ok, {^client, opts}} =
                 Client.model({name, [temperature: 0.5, max_tokens: 9] ++ more})

        assert opts[:model] == String.replace(name, ~r/^\w+:/, "")
        assert opts[:body] == body
        assert {^client, _prepared} = LLM.new({client, opts})
      end

      assert {:ok, {LLM.Anthropic, opts}} =
               Client.model({"anthropic:m", [max_tokens: 9, body: %{top_k: 1}]})

      assert {opts[:max_tokens], opts[:body]} == {9, %{top_k: 1}}

      refute inspect(Client.model({"anthropic:m", [api_key: fn -> "sk-secret" end]})) =~
               "sk-secret"
    end

    test "reads its key from the environment when it is asked" do
      {:ok, {_client, opts}} = Client.model("mistral:m")
      on_exit(fn -> System.delete_env("MISTRAL_API_KEY") end)
      System.delete_env("MISTRAL_API_KEY")
      assert opts[:api_key].() == nil
      System.put_env("MISTRAL_API_KEY", "sk-1")
      assert opts[:api_key].() == "sk-1"

      # Another server does not get it.
      {:ok, {_client, opts}} = Client.model({"mistral:m", base_url: "http://127.0.0.1:1/v1"})
      assert opts[:api_key] == nil
    end
  end
end
