defmodule AshAgent.Context.Enhancer.Memory do
  alias AshAgent.Options

  @headings [
    recall: "## Recalled",
    pending_tasks: "## Pending tasks",
    profile: "## User profile",
    summaries: "## Summaries",
    outcomes: "## Outcomes"
  ]
  @blocks Keyword.keys(@headings)
  @least_bytes 100

  @loader [type: {:or, [{:fun, 1}, {:fun, 2}, nil]}, type_doc: "a function of arity 1 or 2"]
  @loaders for block <- @blocks,
               do: {block, @loader, "the loader of this block. Defaults to no loader."}
  @bytes "an integer of at least #{@least_bytes}, or a keyword list of blocks and such integers"
  @schema Options.schema(
            @loaders ++
              [
                {:headings, {:custom, &__MODULE__.headings?/1},
                 [type_doc: "a keyword list of blocks and strings", default: []],
                 "lines to show above blocks instead of `## Recalled`, `## Pending tasks`, `## User profile`, " <>
                   "`## Summaries` and `## Outcomes`."},
                {:max_bytes, {:custom, &__MODULE__.max_bytes?/1}, [type_doc: @bytes],
                 "how long a block may be, not counting its heading. Only the beginning of a longer one is shown, with a note " <>
                   "of how much was left out. Defaults to no limit."},
                {:name, {:custom, &__MODULE__.name?/1},
                 [type_doc: "an atom or a UTF-8 string", default: :memory],
                 "the name of the prompt block."}
              ]
          )

  @moduledoc """
  An enhancer that puts what the application remembers into the system prompt.

      iex> alias AshAgent.Context
      iex> memory = {Context.Enhancer.Memory,
      ...>   profile: fn _context -> "Ann, a pilot." end,
      ...>   recall: fn _context, topic -> ["Asked for \#{topic} in May.", "Likes short answers."] end}
      iex> {:ok, context, _report} = Context.Enhancer.run(Context.new("Hello!"), [memory], needs: [:profile, recall: "maps"])
      iex> context |> Context.to_messages() |> hd() |> Map.fetch!(:content) |> String.split("\\n")
      [
        "## Recalled", "", "- Asked for maps in May.", "- Likes short answers.", "",
        "## User profile", "", "Ann, a pilot."
      ]

  There are five blocks, in this order: `:recall`, `:pending_tasks`, `:profile`, `:summaries`, `:outcomes`. A block is
  loaded only if the needs ask for it and it has a loader.

  A loader is a function that takes the context, or the context and the value given with the need (`true` if there is
  none). It returns a string, a list of strings, which become the items of a list, or `nil` for nothing; or one of them as
  `{:ok, value}`; or `{:error, reason}`. Loaders run one after the other, in the order of the blocks.

  All blocks together form one prompt block, see `AshAgent.Context.View.put_prompt_block/4`, which replaces that of an earlier
  run. Blank blocks are left out, and if nothing remains, the prompt block is removed: memory shows up only
  when it is asked for.

  The enhancer fails with `{block, reason}` if a loader fails, and with `{block, :no_text}` if it returns anything else or
  a string that is not valid UTF-8. The prompt then stays as it was.

  Loaded text is inserted as it is, and a model cannot tell it from the system prompt: make sure that text from other
  users or from web pages does not get there unchecked.

  ## Options

  #{Options.docs(@schema)}
  """

  @behaviour AshAgent.Context.Enhancer

  alias AshAgent.Context
  alias AshAgent.Context.Enhancer

  @impl true
  def prepare(opts) do
    opts
    |> Options.validate!(@schema)
    |> Keyword.update!(:headings, &Keyword.merge(@headings, &1))
  end

  @doc false
  def name?(name), do: text?(name) or (is_atom(name) and name != nil)

  @doc false
  def headings?(lines), do: by_block?(lines, &text?/1)

  @doc false
  def max_bytes?(most), do: is_nil(most) or bytes?(most) or by_block?(most, &bytes?/1)

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
    given = if is_function(load, 1), do: [context], else: [context, need]

    case Enhancer.attempt(fn -> apply(load, given) end) do
      {:error, reason} -> {:error, reason}
      {:ok, loaded} -> text(loaded)
      loaded -> text(loaded)
    end
  end

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

  # The note counts, too. The number in it is smaller than that of all, so the note is no longer than the one in the
  # calculation.
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
    there = List.keyfind(Context.View.view(context).blocks, to_string(name), 0, {name, nil})
    text = if text == "", do: nil, else: text
    same? = elem(there, 1) == text
    if same?, do: context, else: Context.View.put_prompt_block(context, name, text)
  end
end
