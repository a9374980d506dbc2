defmodule AshAgent.TestSupport.Live do
  @moduledoc false

  # LiveViews of pages, without Phoenix: only what they use of it is here. The tutorial's view runs in Phoenix.

  import ExUnit.Assertions

  defmodule Phoenix do
    @moduledoc false

    defmacro __using__(_opts), do: quote(do: import(unquote(__MODULE__)))
    def assign(socket, values), do: update_in(socket.assigns, &Map.merge(&1, Map.new(values)))
    def update(socket, key, fun), do: update_in(socket.assigns[key], fun)
    defmacro sigil_H(_text, _modifiers), do: :shown
  end

  @doc "Compiles the view of this name from a page."
  def compile(page, name) do
    [_, block] = Regex.run(~r/```elixir\n(defmodule #{Regex.escape(name)} .*?)```/s, page)

    code =
      block
      |> String.replace("use Phoenix.LiveView", "use #{inspect(Phoenix)}")
      # Assigns are only read by what Phoenix makes of the template.
      |> String.replace("def render(assigns)", "def render(_assigns)")

    [{live, _}] = Code.compile_string(code)
    live
  end

  @doc "Mounts a view for a session."
  def mount(live, session) do
    {:ok, socket} = live.mount(%{}, %{"agent" => session}, %{assigns: %{}})
    socket
  end

  @doc "Hands messages to a view until what it shows satisfies a function."
  def watch(live, socket, shown?) do
    if shown?.(socket.assigns) do
      socket
    else
      receive do
        message ->
          {:noreply, socket} = live.handle_info(message, socket)
          watch(live, socket, shown?)
      after
        5_000 -> flunk("shown: #{inspect(socket.assigns)}")
      end
    end
  end
end
