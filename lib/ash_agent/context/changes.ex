defmodule AshAgent.Context.Changes do
  @moduledoc false

  # The difference between two versions of a conversation, as JSON text, for stores that keep an iteration in a row of its own and
  # media beside it, and how the rows become a document again. The form is that of `AshAgent.Context.dump/2`.

  alias AshAgent.Context
  alias AshAgent.Context.{Native, Reply}

  @doc "Returns true if two contexts are the same version, behind the same handle."
  def same?(%Context{ref: a}, %Context{ref: b}), do: a == b

  @doc "The late calls that may not be the same in two contexts: those of the first, and those of the second."
  def late_calls(%Context{ref: ref}, %Context{ref: before}),
    do: ref |> Native.context_late_changes(before) |> Reply.ok!()

  @doc "The number of the first iteration that the context has."
  def first_iteration(%Context{ref: ref}), do: Native.context_first_iteration(ref)

  @doc """
  The changes since `before`, or all of the context when that is `nil`: the document without its iterations, or `nil`
  where that is the same, the time of the change, and the iterations that are new or changed.
  """
  def since(%Context{ref: ref}, before),
    do: ref |> Native.snapshot_changes(before && before.ref) |> Reply.ok!()

  @doc "The iterations from the first one that differs from those of `other`."
  def beyond(%Context{ref: ref}, %Context{ref: other}),
    do: ref |> Native.snapshot_changes_from(other) |> Reply.ok!()

  @doc """
  The document of rows: of each branch its number, that of its base, the first iteration of its own, the time of its change, its
  label, its head and its iterations, with commas between. `chat` is what a chat is beside its branches, `nil` for a context.
  """
  def join(chat, rows), do: chat |> Native.snapshot_join(rows) |> Reply.ok!()

  @doc """
  A text with references in place of its images and files, and those of them that are not known: the digest of their base64, their
  id and the base64. What is known are ids by such digests.
  """
  def take_media(text, known), do: text |> Native.media_take(known) |> Reply.ok!()

  @doc "The reverse, with the base64 of each id, or one for all."
  def put_media_back(text, data), do: text |> Native.media_put_back(data) |> Reply.ok!()
end
