if Code.ensure_loaded?(Kino.Render) do
  defmodule AshAgent.Integration.KinoTest do
    use ExUnit.Case, async: true

    alias AshAgent.{ChatContext, Context}

    @moduletag :kino
    @moduletag integrations: ["Kino"]

    setup_all do
      {:ok, _} = Application.ensure_all_started(:kino)
      :ok
    end

    test "a cell whose value is a context or a chat shows its page, masked" do
      context = Context.new("My key is sk-1") |> Context.View.put_masks([{"sk-[0-9]+", "[key]"}])

      for shown <- [context, ChatContext.new(context: context)] do
        assert %{type: :js, js_view: %{pid: pid, ref: ref}} = Kino.Render.to_livebook(shown)
        # As the notebook's page asks for what it shows.
        send(pid, {:connect, self(), %{origin: "test", ref: ref}})
        assert_receive {:connect_reply, html, %{ref: ^ref}}
        assert "<iframe" <> _ = html
        assert html =~ "My key is [key]"
      end
    end
  end
end
