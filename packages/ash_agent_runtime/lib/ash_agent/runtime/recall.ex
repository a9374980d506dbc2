defmodule AshAgent.Runtime.Recall do
  @moduledoc """
  A tool that lets a model read the parts of its own conversation that its view leaves out.

      iex> alias AshAgent.{Context, LLM, Runtime}
      iex> context = Context.new("My booking is QX7R2M.") |> Context.add_assistant_message("Noted.") |> Context.add_user_message("Which one was it?")
      iex> llm = LLM.Scripted.new([
      ...>   %{tool_calls: [%{id: "call_1", name: "recall", arguments: %{"query" => "booking"}}]},
      ...>   "QX7R2M."
      ...> ])
      iex> {:ok, result} = Runtime.run(Context.View.hide(context, {:all_but_last, 1}), llm: llm, tools: [Runtime.Recall.tool()])
      iex> [%{result: {:ok, found}}] = Context.get_iteration(result.context, 2).tool_calls
      iex> found =~ "My booking is QX7R2M."
      true

  A view of a conversation hides, summarises, clears and cuts, see `AshAgent.Context.View`. A run with this tool puts a
  handle on everything that is left out, and the tool reads what a handle stands for, or searches for words; see
  `AshAgent.Context.Recall`. It works in sessions and in sub-agents as well: each agent reads its own conversation.

  Give the tool to a conversation's first run or not at all: tools come first in a request, so a new one costs the prompt
  cache of the whole conversation.

  A request that the provider refuses as too long is made again from a shorter view, step by step, see
  `AshAgent.Context.Shortening`. With prices that have the model's `:context_window`, a request that would not fit is
  shortened before it is sent. The failures stay with the iteration (`AshAgent.Context.Audit.failures/1`), the steps with the
  view. A run without the tool stops with the error, since it would lose what it leaves out.

  The tool only reads, and only what the model was shown before, without what the view masks. So `:allowed_tools`,
  `:permission_rules` and `:approval` do not apply to it; hooks do. Its answers are results like any other, and can be
  cleared themselves. A model that asks for the same twice in a row is told so instead of being shown it again.
  """

  use AshAgent.Arguments

  alias AshAgent.{Context, Options}
  alias AshAgent.Runtime.Tool

  @name "recall"

  @schema [max_bytes: [type: :pos_integer, default: 8_000, doc: "how long an answer may be."]]

  @description "Reads earlier parts of this conversation that are no longer shown. A note where something was left out " <>
                 "ends with recall and a handle, such as 17.2-431: pass it as handle. from and lines select lines, " <>
                 "pattern selects the lines that match a regular expression. Where there are more lines, the answer ends with " <>
                 "what is in them: read the ones you need with from. Without a handle, query searches for words, or parts of them, in " <>
                 "everything that is not shown."

  @parameters %{
    "type" => "object",
    "properties" => %{
      "handle" => %{"type" => "string", "description" => "such as 17.2-431 or 3..17-431"},
      "from" => %{"type" => "integer", "description" => "the first line, from 1"},
      "lines" => %{"type" => "integer", "description" => "how many lines"},
      "pattern" => %{"type" => "string", "description" => "a regular expression"},
      "query" => %{"type" => "string", "description" => "words to search for"}
    }
  }

  @doc """
  Makes the tool, and returns it. Its name is `recall`.

  ## Options

  #{Options.docs(@schema)}

  ## Examples

      iex> AshAgent.Runtime.Recall.tool().name
      "recall"
  """
  @doc since: "0.1.0"
  @spec tool(keyword()) :: Tool.t()
  def tool(opts \\ []) do
    opts = Options.validate!(opts, @schema)

    %Tool{
      name: @name,
      description: @description,
      parameters: @parameters,
      repeat: :safe,
      recall?: true,
      run: fn arguments, _tool_context, scope -> answer(scope, arguments, opts[:max_bytes]) end
    }
  end

  @doc false
  # Handles are for a tool that reads them. One of this name may be the application's own.
  def put_handles(context, recall?, tools) do
    cond do
      Enum.any?(tools, & &1.recall?) -> Context.Recall.put_recall(context, true)
      Enum.any?(tools, &(&1.name == @name)) -> context
      recall? -> Context.Recall.put_recall(context, false)
      true -> context
    end
  end

  defp answer(%{conversation: context}, arguments, max_bytes) do
    if repeated?(context, arguments),
      do: {:ok, "[the same as in the answer before: read it there, or ask for other lines]"},
      else: read(context, arguments, max_bytes)
  end

  defp answer(_scope, _arguments, _max_bytes),
    do: {:error, "recall works only in a run, which has a conversation"}

  defp read(context, %{"handle" => handle} = arguments, max_bytes)
       when is_binary(handle) and handle != "" do
    opts =
      for {name, check} <- [from: &positive?/1, lines: &positive?/1, pattern: &text?/1],
          value = arguments[Atom.to_string(name)],
          check.(value),
          do: {name, value}

    opts = [max_bytes: max_bytes] ++ opts

    with {:error, error} <- Context.Recall.recall(context, handle, opts),
         do: {:error, Exception.message(error)}
  end

  defp read(context, %{"query" => query}, max_bytes) when is_binary(query) and query != "" do
    case Context.Recall.search(context, query) do
      [] -> {:ok, "[nothing found]"}
      hits -> {:ok, hits |> Enum.map_join("\n", &"#{&1.handle}: #{&1.text}") |> cut(max_bytes)}
    end
  end

  defp read(_context, _arguments, _max_bytes),
    do: {:error, "give a handle, such as 17.2-431, or a query"}

  defp positive?(value), do: is_integer(value) and value > 0
  defp text?(value), do: is_binary(value) and value != ""

  defp cut(text, max_bytes) when byte_size(text) <= max_bytes, do: text

  defp cut(text, max_bytes) do
    cut = binary_part(text, 0, max_bytes)
    if String.valid?(cut), do: cut, else: cut(text, max_bytes - 1)
  end

  # Returns true if the iteration before had the same call, whose answer the view still shows.
  defp repeated?(context, arguments) do
    before = context.current_iteration - 1
    cleared = Context.View.view(context).cleared

    with true <- cleared == nil or cleared.iteration < before,
         %{tool_calls: calls} <- Context.get_iteration(context, before) do
      Enum.any?(calls, fn call ->
        to_string(call.name) == @name and call.arguments == arguments and
          match?({:ok, _}, call.result)
      end)
    else
      _ -> false
    end
  end
end
