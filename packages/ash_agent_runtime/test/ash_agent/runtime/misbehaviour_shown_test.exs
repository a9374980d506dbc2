defmodule AshAgent.Runtime.MisbehaviourShownTest do
  # What went wrong can be read wherever one looks, by the same name, and a key nowhere.
  use ExUnit.Case, async: true

  alias AshAgent.{Context, LLM, Runtime, Trace}
  alias AshAgent.TestSupport.Misbehaviour

  defp run(kind) do
    options = kind |> Misbehaviour.start(:openai_chat) |> Keyword.delete(:region)
    Runtime.run(Context.new("Hi"), llm: LLM.OpenAICompatible.new(options))
  end

  defp print(context) do
    {:ok, device} = StringIO.open("")
    Context.print(context, device: device, color: false)
    {:ok, {_, text}} = StringIO.close(device)
    text
  end

  for {kind, {failure, _reason}} <- Misbehaviour.kinds() do
    test "#{kind} is #{inspect(failure)} in the conversation, its snapshot, page, trace and print" do
      name = unquote(to_string(failure))
      assert {:error, %{context: context}} = run(unquote(kind))
      assert %{kind: unquote(failure)} = context |> Context.failures() |> List.last()

      for shown <- [
            Context.to_snapshot(context),
            IO.iodata_to_binary(Trace.to_html(context)),
            Trace.to_otlp(context, format: :json),
            # People read it as words.
            context |> print() |> String.replace(String.replace(name, "_", " "), name)
          ] do
        assert shown =~ name
        refute shown =~ Misbehaviour.key()
      end
    end
  end
end
