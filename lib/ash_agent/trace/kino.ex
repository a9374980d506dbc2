# A conversation's page in Livebook.

if Code.ensure_loaded?(Kino.Render) do
  defimpl Kino.Render, for: [AshAgent.Context, AshAgent.ChatContext] do
    def to_livebook(shown) do
      shown
      |> AshAgent.Trace.to_html(fragment: true)
      |> Kino.HTML.new()
      |> Kino.Render.to_livebook()
    end
  end
end
