defmodule AshAgent.Integration.PeersTest do
  use ExUnit.Case, async: true

  alias AshAgent.Context
  alias AshAgent.Integration.{PeerBodies, PeerConversations}
  alias AshAgent.TestSupport.RequestChecker

  @compile {:no_warn_undefined, [LangChain.Message, ReqLLM.Context]}

  import AshAgent.TestSupport.Generators, only: [check_all: 3]

  @all [:images, :urls, :files, :thinking, :errors]

  # What a library sends to a provider and the provider takes: more is in the libraries' conversations, but fails there.
  @req_llm [
    anthropic: [:images, :urls, :files, :thinking, :errors],
    openai_chat: [:images, :urls],
    openai_responses: [:images, :urls],
    gemini: [:images, :files, :thinking]
  ]

  @langchain [
    anthropic: [:images, :files, :thinking, :errors],
    openai_chat: [:images, :files],
    openai_responses: [:images],
    gemini: [:images, :files]
  ]

  defp comes_back(from, to, given) do
    assert {:ok, context, %{repairs: []}} = from.(given)
    assert to.(context) == given
    assert context |> Context.to_snapshot() |> Context.load!() |> to.() == given
    context
  end

  defp same_body(library, provider, context, theirs) do
    assert {:ok, ours} = Context.request(context, provider)
    assert RequestChecker.validate_request(ours, provider, thinking: false) == []

    assert PeerBodies.normal(library, provider, :ours, ours) ==
             PeerBodies.normal(library, provider, :theirs, theirs)
  end

  describe "ReqLLM" do
    @describetag :req_llm
    @describetag integrations: ["ReqLLM"]

    setup do
      {:ok, _} = Application.ensure_all_started(:req_llm)
      :ok
    end

    test "gets its conversations back as they were" do
      for reasoning <- [:anthropic, :openai, :google] do
        check_all("conversations of ReqLLM", [runs: 60], fn size ->
          given = size |> PeerConversations.turns(@all) |> PeerConversations.req_llm(reasoning)
          comes_back(&Context.ReqLLM.from_req_llm/1, &Context.ReqLLM.to_req_llm/1, given)
        end)
      end
    end

    for {provider, traits} <- @req_llm do
      test "sends the body of #{provider} that a context makes" do
        check_all("bodies of ReqLLM", [runs: 40], fn size ->
          given =
            size
            |> PeerConversations.turns(unquote(traits))
            |> PeerConversations.req_llm(
              unquote(if provider == :gemini, do: :google, else: :anthropic)
            )
            |> ReqLLM.Context.append(ReqLLM.Context.user("Thanks"))

          {:ok, context, _report} = Context.ReqLLM.from_req_llm(given)

          same_body(
            :req_llm,
            unquote(provider),
            context,
            PeerBodies.req_llm(unquote(provider), given)
          )
        end)
      end
    end
  end

  describe "LangChain" do
    @describetag :langchain
    @describetag integrations: ["LangChain"]

    test "gets its conversations back as they were" do
      check_all("conversations of LangChain", [runs: 150], fn size ->
        given = size |> PeerConversations.turns(@all) |> PeerConversations.langchain()
        comes_back(&Context.LangChain.from_langchain/1, &Context.LangChain.to_langchain/1, given)
      end)
    end

    for {provider, traits} <- @langchain do
      test "sends the body of #{provider} that a context makes" do
        check_all("bodies of LangChain", [runs: 40], fn size ->
          given =
            (size |> PeerConversations.turns(unquote(traits)) |> PeerConversations.langchain()) ++
              [LangChain.Message.new_user!("Thanks")]

          {:ok, context, _report} = Context.LangChain.from_langchain(given)

          same_body(
            :langchain,
            unquote(provider),
            context,
            PeerBodies.langchain(unquote(provider), given)
          )
        end)
      end
    end
  end

  describe "Jido AI" do
    @describetag :jido
    @describetag integrations: ["JidoAI"]

    test "gets its conversations back as they were" do
      check_all("conversations of Jido AI", [runs: 150], fn size ->
        given = size |> PeerConversations.turns(@all) |> PeerConversations.jido()
        comes_back(&Context.Jido.from_jido/1, &Context.Jido.to_jido/1, given)
      end)
    end
  end
end
