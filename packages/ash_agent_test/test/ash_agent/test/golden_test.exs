defmodule AshAgent.Test.GoldenTest do
  # Recorded conversations, as tests of the package by its own means: they run, are stored, and their requests are made again.
  use ExUnit.Case, async: true
  use AshAgent.Test

  alias AshAgent.{Context, LLM, Response, Runtime}
  alias AshAgent.Context.JSON
  alias AshAgent.Test.Server
  alias AshAgent.TestSupport.PiSession

  @moduletag :tmp_dir

  @root Path.expand("../../../../..", __DIR__)
  @shared Path.expand("../shared", @root)
  @demo Path.join(@root, "demo/conversation.json")
  @providers [:anthropic, :openai_chat, :openai_responses, :gemini, :bedrock, :ollama, :mistral]

  # The demo's conversation, and where they are, the conversations and trajectories beside the checkout. Those are long, and two
  # forms of messages show enough.
  @sources [{"demo", @demo, @providers}] ++
             for(
               path <- Path.wildcard(Path.join(@shared, "conversations/*.json")),
               do: {Path.basename(path, ".json"), path, @providers}
             ) ++
             for(
               path <- Path.wildcard(Path.join(@shared, "trajectories/*.{json,jsonl}")),
               do: {Path.rootname(Path.basename(path)), path, [:anthropic, :openai_chat]}
             )

  for {name, path, providers} <- @sources do
    test "#{name}: each request that is made again is the one that was sent" do
      for conversation <- read(unquote(path)), provider <- unquote(providers) do
        context = play(conversation, provider)
        stored = context |> Context.to_snapshot() |> Context.load!()
        assert replay(stored, []) == {:same, answers(context)}
      end
    end
  end

  defp answers(context) do
    Enum.count(first(context)..context.current_iteration, fn number ->
      Enum.any?(Context.get_iteration_messages(context, number), &(&1.role == :assistant))
    end)
  end

  defp first(context), do: context.current_iteration - Context.count_iterations(context) + 1

  ## Playing

  defp read(path) do
    case Path.extname(path) do
      ".jsonl" -> [path |> PiSession.read() |> elem(0)]
      ".json" -> path |> File.read!() |> JSON.decode!() |> import_all()
    end
  end

  defp import_all([_ | _] = many), do: Enum.flat_map(many, &import_all/1)

  defp import_all(%{"messages" => messages}),
    do: [import_one(%{"messages" => messages}, :openai_chat)]

  defp import_all(%{"body" => body, "format" => format}) do
    provider = Enum.find(@providers, &(Atom.to_string(&1) == String.replace(format, "-", "_")))
    [import_one(body, provider)]
  end

  defp import_one(body, provider) do
    {:ok, context, _report} = Context.Import.from_request(body, provider)
    context
  end

  # As a run of the package's clients would have had it.
  defp play(conversation, provider) do
    prompt = Context.system_prompt(conversation)
    fields = %{"provider" => Atom.to_string(provider), "model" => "m"}

    first(conversation)..conversation.current_iteration
    |> Enum.map(&Context.get_iteration(conversation, &1))
    |> Enum.reduce(nil, fn iteration, context ->
      results = for call <- iteration.tool_calls, result = call[:result], do: {call.id, result}

      iteration.messages
      |> Enum.reject(&(&1.role == :system or results?(&1)))
      |> Enum.reduce(context, &say(&1, &2, {provider, fields, prompt}))
      |> then(&if(results == [], do: &1, else: Context.add_tool_results(&1, results)))
    end)
  end

  defp results?(%{role: :user, content: [%{type: :tool_result} | _]}), do: true
  defp results?(_message), do: false

  defp say(%{role: :user, content: content}, nil, {_provider, fields, prompt}) do
    opts = if prompt, do: [system_prompt: prompt], else: []
    Context.new(content, opts) |> Context.Audit.put_request(fields, [])
  end

  defp say(%{role: :user, content: content}, context, _how),
    do: Context.add_user_message(context, content)

  defp say(%{role: :assistant} = message, context, {provider, _fields, _prompt}) do
    {:ok, context} = Context.Audit.put_sent(context, provider, model: "m")
    {:ok, response} = Response.from_message(Map.take(message, [:content, :tool_calls]))

    {:ok, context} =
      Context.add_response(context, response, requested_at: ~U[2026-01-01 10:00:00Z])

    context
  end

  ## The demo's conversation, as an application would test it

  test "the demo's turns are played by a real client, recorded, and asserted", %{tmp_dir: folder} do
    [conversation] = read(@demo)
    cassette = Path.join(folder, "demo.json")
    answers = for %{role: :assistant} = message <- Context.to_messages(conversation), do: message

    results =
      for number <- first(conversation)..conversation.current_iteration,
          call <- Context.get_iteration(conversation, number).tool_calls,
          into: %{},
          do: {call.id, call[:result]}

    tools =
      for name <-
            ~w(search_trains get_weather search_hotels book_hotel book_train hold_room release_hold) ++
              ~w(search_restaurants translate book_table) do
        %{
          name: name,
          function: fn _arguments, tool_context -> results[tool_context.call_id] end
        }
      end

    users =
      for %{role: :user, content: text} when is_binary(text) <- Context.to_messages(conversation),
          do: text

    chat = fn llm ->
      Enum.reduce(users, nil, fn text, before ->
        context = if before, do: Context.add_user_message(before, text), else: Context.new(text)
        {:ok, result} = Runtime.run(context, llm: llm, tools: tools)
        result.context
      end)
    end

    script = for message <- answers, do: Map.take(message, [:content, :tool_calls])
    server = start_supervised!({Server, script: script})
    client = fn url -> LLM.OpenAICompatible.new(model: "m", base_url: url) end

    recording =
      LLM.Recorded.new(client.(Server.base_url(server)), cassette: cassette, mode: :record_all)

    recorded = chat.(recording)

    played =
      chat.(LLM.Recorded.new(client.(Server.refused_url()), cassette: cassette, mode: :replay))

    for context <- [recorded, played] do
      assert {:same, count} = replay(context, llm: client.(Server.refused_url()), tools: tools)
      assert count == length(answers)
      assert_answer context, ~r/\w/

      assert_calls context,
                   [
                     search_trains(from: ~r/^Wien/, to: "Kraków Główny"),
                     search_hotels(nights: nights) when nights == 3,
                     book_hotel(names: [~r/^Zoë/ | _]),
                     hold_room(minutes: 30),
                     release_hold(hold: "HX-118"),
                     book_table(guests: 2)
                   ],
                   :in_order

      refute_called context, cancel
      assert_within context, calls: 14
    end
  end
end
