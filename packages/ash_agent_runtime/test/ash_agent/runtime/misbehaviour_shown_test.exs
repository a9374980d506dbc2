defmodule AshAgent.Runtime.MisbehaviourShownTest do
  # What went wrong can be read wherever one looks, by the same name, and a key nowhere. With MISBEHAVIOUR_TABLE=1, the rows are printed.
  use ExUnit.Case, async: true

  import ExUnit.CaptureIO

  alias AshAgent.{Context, LLM, Session, Trace}
  alias AshAgent.Runtime.DefaultLogger
  alias AshAgent.TestSupport.Misbehaviour

  # What those come to in which the client gets an answer: the failure of the first try, or what becomes of the call.
  @answered %{
    busy_once: :rate_limited,
    broken_once: :server_error,
    arguments_without_json: "are not a JSON object",
    same_call_forever: "max_iterations_exceeded"
  }

  @places [:conversation, :page, :terminal, :otlp, :log, :subscriber, :no_key]

  @logged [
    [:run, :stop],
    [:llm, :stop],
    [:llm, :exception],
    [:llm, :retry],
    [:tool, :stop],
    [:tool, :exception]
  ]

  # The lines that the default logger writes, whose handler gets no texts.
  defp log_to(lines) do
    fn [:ash_agent, :runtime | name], measured, metadata ->
      if name in @logged do
        metadata = Map.drop(metadata, [:events, :context, :sub_agents])
        line = DefaultLogger.format_line(name, measured, metadata)
        Agent.update(lines, &[IO.iodata_to_binary(line) | &1])
      end
    end
  end

  defp look(kind) do
    {:ok, lines} = Agent.start_link(fn -> [] end)
    options = kind |> Misbehaviour.start(:openai_chat) |> Keyword.delete(:region)

    {:ok, session} =
      Session.start_link(
        llm: LLM.OpenAICompatible.new(options),
        tools: %{"pay" => fn _ -> {:ok, "paid"} end},
        max_iterations: 3,
        on_event: log_to(lines)
      )

    {_outcome, ended} = Session.prompt(session, "Hi")
    {:ok, _ref, now} = Session.subscribe(session)
    context = now.context

    %{
      conversation: inspect(Context.Audit.failures(context)) <> Context.to_snapshot(context),
      page: Trace.to_html(context),
      terminal: capture_io(fn -> Context.print(context, width: :infinity) end),
      otlp: Trace.to_otlp(context, format: :json, messages: true),
      log: lines |> Agent.get(& &1) |> Enum.join("\n"),
      subscriber: inspect({Context.Audit.failures(context), Context.to_messages(context)}),
      ended: inspect(ended, limit: :infinity)
    }
  end

  # People read it as words.
  defp named?(text, failure) do
    name = to_string(failure)
    String.contains?(text, [name, String.replace(name, "_", " ")])
  end

  # A turn that ran out of iterations is no failure of a request: who asked for it is told, and the log.
  defp expected(:same_call_forever), do: [:log, :no_key]
  # The tool was not run, and the model was told.
  defp expected(:arguments_without_json), do: @places -- [:log]
  defp expected(_kind), do: @places

  for {kind, expected} <- Misbehaviour.kinds() do
    @failure if is_tuple(expected), do: elem(expected, 0), else: @answered[kind]

    test "#{kind} is #{inspect(@failure)} in the conversation, page, terminal, trace, log and for a late subscriber" do
      shown = look(unquote(kind))
      no_key = Enum.all?(shown, fn {_place, text} -> not (text =~ Misbehaviour.key()) end)

      found =
        for place <- @places,
            if(place == :no_key, do: no_key, else: named?(shown[place], @failure)),
            do: place

      if System.get_env("MISBEHAVIOUR_TABLE") do
        marks = for place <- @places, do: if(place in found, do: "yes", else: "-")
        IO.puts("| " <> Enum.join([unquote(kind), inspect(@failure) | marks], " | ") <> " |")
      end

      assert expected(unquote(kind)) -- found == []
    end
  end
end
