defmodule AshAgent.Context.Enhancer.Memory do
  @moduledoc """
  An enhancer that puts what the application remembers into the system prompt.

      iex> alias AshAgent.Context
      iex> memory = {Context.Enhancer.Memory,
      ...>   profile: fn _context -> "Ann, a pilot." end,
      ...>   recall: fn _context, topic -> ["Asked for \#{topic} in May.", "Likes short answers."] end}
      iex> {:ok, context, _report} = Context.enhance(Context.new("Hello!"), [memory], needs: [:profile, recall: "maps"])
      iex> context |> Context.to_messages() |> hd() |> Map.fetch!(:content) |> String.split("\\n")
      [
        "## Recalled", "", "- Asked for maps in May.", "- Likes short answers.", "",
        "## User profile", "", "Ann, a pilot."
      ]

  There are five blocks, which stand in this order: `:recall`, `:pending_tasks`, `:profile`, `:summaries`, `:outcomes`. A block
  is loaded when the needs ask for it and a loader is given, and not otherwise.

  A loader is a function of the context, or of the context and the value that stands with the need (`true` when none does).
  It returns text, a list of texts, which become the items of a list, or `nil` for nothing; or `{:ok, that}` or
  `{:error, reason}`. Loaders run one after the other, in the order of the blocks.

  All blocks are put as one prompt block, see `AshAgent.Context.put_prompt_block/4`, in the place of what an earlier run put.
  Blank blocks are left out, and when nothing is left the prompt block is taken away: memory that is not asked for this time
  is not shown this time.

  The enhancer fails with `{block, reason}` when a loader fails, and with `{block, :no_text}` when it gives something else or
  text that is no UTF-8. The prompt is then as it was.

  What is loaded is put as it is. A model cannot tell it from the system prompt: take care that what other users or web
  pages say does not get there as it is.

  ## Options

    * `:recall`, `:pending_tasks`, `:profile`, `:summaries`, `:outcomes` - the loader of this block. Defaults to none.
    * `:headings` - a keyword list of lines to stand above blocks, in the place of `## Recalled`, `## Pending tasks`,
      `## User profile`, `## Summaries` and `## Outcomes`. Defaults to `[]`.
    * `:max_bytes` - how long a block may be without its heading, at least 100, or a keyword list of such numbers. Of a longer
      one the beginning is kept, with a note of how much was left out. Defaults to no limit.
    * `:name` - the name of the prompt block. Defaults to `:memory`.
  """

  @behaviour AshAgent.Context.Enhancer

  alias AshAgent.Context
  alias AshAgent.Context.Enhancer
  alias AshAgent.Runtime.Options

  @headings [
    recall: "## Recalled",
    pending_tasks: "## Pending tasks",
    profile: "## User profile",
    summaries: "## Summaries",
    outcomes: "## Outcomes"
  ]
  @blocks Keyword.keys(@headings)
  @least_bytes 100

  @impl true
  def prepare(opts) do
    opts = Options.validate!(opts, @blocks ++ [headings: [], max_bytes: nil, name: :memory])
    Enum.each(opts, &check!/1)

    Keyword.update!(opts, :headings, &Keyword.merge(@headings, &1))
  end

  defp check!({option, value}) do
    unless valid?(option, value),
      do: raise(ArgumentError, "invalid value for option #{inspect(option)}: #{inspect(value)}")
  end

  defp valid?(:name, name), do: text?(name) or (is_atom(name) and name != nil)
  defp valid?(:headings, lines), do: by_block?(lines, &text?/1)
  defp valid?(:max_bytes, most), do: is_nil(most) or bytes?(most) or by_block?(most, &bytes?/1)
  defp valid?(_block, load), do: is_nil(load) or is_function(load, 1) or is_function(load, 2)

  defp by_block?(list, valid?) do
    Keyword.keyword?(list) and
      Enum.all?(list, fn {key, value} -> key in @blocks and valid?.(value) end)
  end

  defp bytes?(number), do: is_integer(number) and number >= @least_bytes
  defp text?(text), do: is_binary(text) and String.valid?(text)

  @impl true
  def enhance(%Context{} = context, needs, opts) do
    wanted =
      for block <- @blocks, need = needs[block], load = opts[block], do: {block, load, need}

    with {:ok, sections} <- sections(wanted, context, opts, []),
         do: {:ok, put(context, opts[:name], Enum.join(sections, "\n\n"))}
  end

  defp sections([], _context, _opts, done), do: {:ok, Enum.reverse(done)}

  defp sections([{block, load, need} | rest], context, opts, done) do
    case load(load, context, need) do
      {:ok, ""} ->
        sections(rest, context, opts, done)

      {:ok, text} ->
        section = opts[:headings][block] <> "\n\n" <> cut(text, most(opts[:max_bytes], block))
        sections(rest, context, opts, [section | done])

      {:error, reason} ->
        {:error, {block, reason}}
    end
  end

  defp load(load, context, need) do
    case Enhancer.attempt(fn -> call(load, context, need) end) do
      {:error, reason} -> {:error, reason}
      {:ok, loaded} -> text(loaded)
      loaded -> text(loaded)
    end
  end

  defp call(load, context, _need) when is_function(load, 1), do: load.(context)
  defp call(load, context, need), do: load.(context, need)

  defp text(nil), do: {:ok, ""}

  defp text(text) when is_binary(text),
    do: if(text?(text), do: {:ok, String.trim(text)}, else: {:error, :no_text})

  defp text([head | tail] = items) when is_binary(head) and is_list(tail) do
    if List.improper?(items) or not Enum.all?(items, &text?/1),
      do: {:error, :no_text},
      else: {:ok, list(items)}
  end

  defp text([]), do: {:ok, ""}
  defp text(_other), do: {:error, :no_text}

  defp list(items) do
    for item <- items, item = String.trim(item), item != "" do
      "- " <> String.replace(item, "\n", "\n  ")
    end
    |> Enum.join("\n")
  end

  defp most(most, block) when is_list(most), do: most[block]
  defp most(most, _block), do: most

  # The note counts, too. How much is left out is less than all, so the note is no longer than the one reckoned with.
  defp cut(text, most) when is_nil(most) or byte_size(text) <= most, do: text

  defp cut(text, most) do
    head = text |> binary_part(0, most - byte_size(note(byte_size(text)))) |> whole()
    head <> note(byte_size(text) - byte_size(head))
  end

  defp note(bytes), do: "\n[... #{bytes} bytes left out ...]"

  # A character has four bytes at most.
  defp whole(text) do
    if String.valid?(text), do: text, else: text |> binary_part(0, byte_size(text) - 1) |> whole()
  end

  defp put(context, name, text) do
    there = for {known, text} <- Context.view(context).blocks, known == to_string(name), do: text
    text = if text == "", do: nil, else: text
    if List.first(there) == text, do: context, else: Context.put_prompt_block(context, name, text)
  end
end
