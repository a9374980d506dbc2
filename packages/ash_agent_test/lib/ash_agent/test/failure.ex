defmodule AshAgent.Test.Failure do
  @moduledoc false

  # The message of a failed assertion: the difference, the conversation with an arrow at it, and the command that shows it as
  # a page.

  alias AshAgent.Context
  alias AshAgent.Trace.Stored

  # Messages that are shown before the marked one and after it, as far as the conversation has them.
  @around 30

  @doc "Returns the message of an `ExUnit.AssertionError`."
  def message(context, words, mark \\ nil) do
    """
    #{words}

    #{print(context, mark)}
    #{page(context)}\
    """
  end

  defp print(context, mark) do
    opts = [width: 120, limit: limit(context, mark)]
    Stored.print_text(context, if(mark, do: [mark: mark] ++ opts, else: opts))
  end

  # The newest messages are printed; a mark in older ones has to be among them.
  defp limit(_context, nil), do: 2 * @around

  defp limit(context, {number, _position}) do
    numbers = number..context.current_iteration//1
    length(Enum.flat_map(numbers, &Context.get_iteration_messages(context, &1))) + @around
  end

  # The test's process is gone when somebody reads this, so the conversation is written down.
  defp page(context) do
    folder = Path.join(System.tmp_dir!(), "ash_agent_test")
    file = Path.join(folder, String.replace(context[:id], ~r/[^\w.-]/, "_") <> ".json")

    with :ok <- File.mkdir_p(folder),
         :ok <- File.write(file, Context.to_snapshot(context)) do
      "as a page: mix ash_agent.trace #{file} --open"
    else
      {:error, reason} -> "(not written as a page: #{:file.format_error(reason)})"
    end
  end
end
