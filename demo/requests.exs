defmodule AshAgent.Demo.Requests do
  @moduledoc false

  # A conversation as the body of a request, for one provider and another, and as a snapshot.

  import AshAgent.Demo.Terminal

  alias AshAgent.Context

  @providers [:anthropic, :openai_chat, :openai_responses, :gemini, :bedrock, :ollama, :mistral]

  def show(context) do
    headline("The same conversation as a request, for each provider")
    later = Context.add_user_message(context, "Thanks!")

    # Timed before anything else asks for it: each message is encoded once for each provider.
    bodies =
      for provider <- @providers do
        {first, body} = timed(fn -> Context.encode_request!(context, provider) end)
        {again, _body} = timed(fn -> Context.encode_request!(later, provider) end)
        {provider, grouped(IO.iodata_length(body)), time(first), time(again)}
      end

    reports =
      for provider <- @providers, do: {provider, Context.request_report(context, provider)}

    rows =
      for {provider, bytes, first, again} <- bodies,
          do: ["#{provider}", bytes, first, again, changes(reports[provider])]

    table(["provider", "bytes", "first", "one message later", "changed for it"], rows)

    for {provider, [change | _]} <- Enum.uniq_by(reports, fn {_, report} -> kinds(report) end) do
      what = "#{change.change} #{short(change.from)} → #{short(change.to)}"
      IO.puts("  #{provider}, iteration #{change.iteration}: #{what}")
    end

    IO.puts("The conversation itself is as it was: #{inspect(context)}")
  end

  defp changes([]), do: "nothing"

  defp changes(report) do
    report
    |> Enum.frequencies_by(& &1.change)
    |> Enum.sort()
    |> Enum.map_join(", ", fn {change, count} -> "#{count} #{change}" end)
  end

  defp kinds(report), do: report |> Enum.map(& &1.change) |> Enum.uniq()
  defp short(nil), do: "nothing"
  defp short(term), do: term |> inspect(limit: 6) |> clip(70)

  def show_storage(context) do
    headline("Storage")
    {us, text} = timed(fn -> Context.to_snapshot(context) end)
    IO.puts("  to_snapshot/1    #{bytes(byte_size(text))} of JSON, #{time(us)}")

    {us, copy} = timed(fn -> Context.load!(text) end)

    equal =
      if Context.equal?(copy, context), do: "the same conversation", else: red("another one!")

    IO.puts("  load/1           #{equal}, #{time(us)}")
  end
end
