defmodule AshAgent.LLM.RecordedMasksTest do
  # What a conversation masks is not in a cassette that is written from then on, and what is played goes on alike.
  use ExUnit.Case, async: true

  alias AshAgent.{Context, LLM, Response}
  alias AshAgent.Context.View
  alias AshAgent.LLM.Recorded
  alias AshAgent.Test.Server
  alias AshAgent.TestSupport.Clients

  @moduletag :tmp_dir
  @clients Clients.modules()
  @words "[masked]"

  setup %{tmp_dir: folder}, do: {:ok, cassette: Path.join(folder, "cassette.json")}

  defp llm(provider, url, opts) do
    own = if provider == :bedrock, do: [region: "eu-central-1"], else: []

    ([model: "m", base_url: url, api_key: "key-of-test", max_retries: 0] ++ own)
    |> @clients[provider].new()
    |> Recorded.new(opts)
  end

  defp record(provider, script, cassette, opts) do
    own = for(:mistral <- [provider], do: {:provider, :mistral})
    server = start_supervised!({Server, [script: script] ++ own ++ opts}, id: make_ref())
    llm(provider, Server.base_url(server), cassette: cassette, mode: :record_missing)
  end

  defp replay(provider, cassette),
    do: llm(provider, Server.refused_url(), cassette: cassette, mode: :replay)

  defp ask(llm, context, true), do: LLM.stream(llm, context, fn _events, _response -> :ok end)
  defp ask(llm, context, false), do: LLM.chat(llm, context)

  # Two requests: the second has what became of the first answer.
  defp converse(llm, context, stream?) do
    {:ok, first} = ask(llm, context, stream?)
    context = Context.add_response!(context, first)
    context = Context.interrupt(context)
    {:ok, second} = ask(llm, Context.add_user_message(context, "And?"), stream?)
    {first, context, Response.text(second)}
  end

  defp secret do
    letters = for _ <- 1..Enum.random(6..20), do: Enum.random(~c"QXZJKVWYqxzjkvwy0123456789")
    # A quote, a backslash or an umlaut are written otherwise in JSON.
    to_string(letters) <> Enum.random(["", " ö\"q", "\\zq", "\nzq"])
  end

  defp pieces_of(secret) do
    graphemes = String.graphemes(secret)
    graphemes |> Enum.chunk_every(6, 1, :discard) |> Enum.map(&Enum.join/1)
  end

  defp kept(cassette) do
    text = File.read!(cassette)
    {:ok, recordings} = Recorded.Form.read(text)
    bytes = for %{pieces: pieces} <- recordings, {_at, piece} <- pieces, into: "", do: piece
    # Streamed texts, joined: what stands between the quotes of neighbours is left out.
    values = Regex.scan(~r/:\s*"((?:[^"\\]|\\.)*)"/s, bytes, capture: :all_but_first)
    [text, bytes, Enum.join(values), inspect(bytes)]
  end

  for {provider, _client} <- @clients, stream? <- [true, false] do
    @tag provider: provider, stream?: stream?
    test "#{provider}, streamed #{stream?}: no cassette has a masked text or a piece of it", %{
      cassette: cassette,
      provider: provider,
      stream?: stream?
    } do
      for seed <- 1..String.to_integer(System.get_env("MASKS_RUNS", "10")) do
        :rand.seed(:exsss, {seed, :erlang.phash2(provider), 1})
        cassette = cassette <> "#{seed}"
        secret = secret()

        call = %{
          id: "call_1",
          name: "send",
          arguments: %{"to" => secret, "n" => 1, "all" => ["a #{secret}", %{"x" => "y"}]}
        }

        thought = %{type: :thinking, text: "Hm, #{secret}?"}
        signature = %{provider_metadata: %{signature: "sig"}}
        # A piece with a signature is a part of its own at Gemini, and a mask looks at one part.
        whole? = {provider, stream?} != {:gemini, true} or not (secret =~ ~r/\s/)
        signed? = rem(seed, 2) == 0 and whole?
        thought = if signed?, do: Map.merge(thought, signature), else: thought
        text = "It is #{secret}, or #{secret}. Grüße!"
        content = if rem(seed, 3) == 0, do: [thought, %{type: :text, text: text}], else: text
        calls = Enum.random([nil, [call], [call, %{call | id: "call_2"}]])
        message = if calls, do: %{content: content, tool_calls: calls}, else: %{content: content}
        masks = [{Regex.escape(secret), @words}, {"-|Error|interrupted", ""}]

        context =
          "Tell #{secret}"
          |> Context.new(system_prompt: "Not #{secret}")
          |> View.put_masks(masks)

        cuts = &Clients.cut_randomly(&1, {provider, seed}, 12)
        script = [message, "Again: #{secret}"]

        {first, heard, "Again: " <> ^secret} =
          provider |> record(script, cassette, cuts: cuts) |> converse(context, stream?)

        assert Response.text(first) =~ secret
        for text <- kept(cassette), piece <- pieces_of(secret), do: refute(text =~ piece)

        {played, again, "Again: " <> @words} =
          provider |> replay(cassette) |> converse(context, stream?)

        assert Response.text(played) == String.replace(Response.text(first), secret, @words)
        assert Context.request(again, provider) == Context.request(heard, provider)
        assert Response.usage(played) == Response.usage(first)
      end
    end
  end

  test "numbers, keys and errors are masked, ids and lengths of frames are right", %{
    cassette: cassette
  } do
    arguments = %{"4111222233334444" => [4_111_222_233_334_444, 5, nil]}
    call = %{id: "call_4111222233334444", name: "pay", arguments: arguments}
    message = %{content: "Paid.", tool_calls: [call]}
    context = View.put_masks(Context.new("Pay"), [{"4111222233334444", @words}])

    for {provider, _client} <- @clients, stream? <- [true, false] do
      file = cassette <> "#{provider}#{stream?}"

      {_first, heard, _} =
        provider |> record([message, "Ok"], file, []) |> converse(context, stream?)

      {played, again, _} = provider |> replay(file) |> converse(context, stream?)
      assert [%{arguments: %{@words => [@words, 5, nil]}}] = Response.message(played).tool_calls
      assert Context.request(again, provider) == Context.request(heard, provider)
      for text <- kept(file), do: refute(text =~ ~r/(?<!call_)41112222/)

      refusal = {:refuse, 400, "No 4111222233334444 here"}
      asked = View.put_masks(Context.new("Refuse"), [{"4111222233334444", @words}])
      {:error, said} = provider |> record([refusal], file, []) |> ask(asked, stream?)
      assert said.provider_message =~ "4111222233334444"
      {:error, said} = provider |> replay(file) |> ask(asked, stream?)
      assert said.provider_message =~ "No #{@words} here"
      assert {said.status, said.kind} == {400, :invalid_request}
    end
  end

  test "a stream that was cut within an event is played as it was, without its end", %{
    cassette: cassette
  } do
    context = View.put_masks(Context.new("Hi"), [{"one two", @words}])

    calls = [%{id: "call_1", name: "send", arguments: %{"a" => "one two", "b" => "three four"}}]

    for {provider, _client} <- @clients, said <- ["one two three four", %{tool_calls: calls}] do
      file = cassette <> "#{provider}#{is_map(said)}"
      answer = {:cut, said}
      {:error, said} = provider |> record([answer], file, []) |> ask(context, true)
      {:error, played} = provider |> replay(file) |> ask(context, true)
      assert played.kind == said.kind
      text = said.response && Response.text(said.response)
      shown = played.response && Response.text(played.response)
      assert shown == (text && String.replace(text, "one two", @words))
    end
  end

  test "an answer that would not be played alike is not recorded", %{cassette: cassette} do
    grows = [{"o", "oo"}]

    for {provider, answer, masks} <- [
          {:anthropic, "no", grows},
          {:bedrock, "no", grows},
          {:mistral, "no", grows}
        ],
        stream? <- [true, false] do
      context = View.put_masks(Context.new("Hi"), masks)
      llm = record(provider, [answer], cassette, [])

      assert_raise ArgumentError, ~r/would not be played alike/, fn ->
        ask(llm, context, stream?)
      end

      refute File.exists?(cassette)
    end
  end
end
