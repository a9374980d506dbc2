defmodule AshAgent.Store.Conversation do
  @moduledoc """
  A stored conversation, as `AshAgent.Store.fetch/2` and the writing functions return it.

  It identifies a state of the conversation (`revision`) and who may write (`epoch`); `AshAgent.Store.append/3` compares both. Keep
  the newest one and pass it to the next call. It works on this node only: `value` holds handles.

    * `id`, `parent_id` - as in the context or chat. `parent_id` is the chat's, the origin of a fork, or the parent of a sub-agent
    * `kind` - `:context` or `:chat`
    * `value` - the `AshAgent.Context` or `AshAgent.ChatContext`, or `nil` if it was not loaded, as in lists
    * `status` - as set by the application: `:idle`, `:running`, `:paused` or `:waiting`. A session gives up a turn that takes it down again
      and again: then it is `:parked`, until somebody resumes it
    * `revision` - the number of writes, from 1
    * `epoch` - the number of claims, from 0
    * `owner` - who has claimed it, or `nil`
    * `claimed?` - whether this value is that claim
    * `lease_until` - when the claim ends unless it is renewed
    * `metadata` - the context's, or that of a chat's active branch
    * `created_at`, `updated_at` - when it was first and last written, by the store's clock

  Other fields are private. `inspect/1` shows neither the metadata nor anything of the messages.
  """

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.Context.Terms

  @enforce_keys [:id]
  defstruct ~w(id kind parent_id value status revision epoch owner)a ++
              ~w(lease_until created_at updated_at)a ++
              [metadata: %{}, claimed?: false, lease: 30_000, lines: [], blobs: %{}]

  @type status :: :idle | :running | :paused | :waiting | :parked

  @type t :: %__MODULE__{
          id: String.t(),
          kind: :context | :chat,
          parent_id: String.t() | nil,
          value: Context.t() | ChatContext.t() | nil,
          status: status(),
          revision: pos_integer(),
          epoch: non_neg_integer(),
          owner: String.t() | nil,
          claimed?: boolean(),
          lease_until: DateTime.t() | nil,
          metadata: map(),
          created_at: DateTime.t(),
          updated_at: DateTime.t(),
          lease: pos_integer(),
          lines: list(),
          blobs: %{binary() => String.t()}
        }

  @statuses [:idle, :running, :paused, :waiting, :parked]

  @doc false
  def statuses, do: @statuses

  @doc false
  # The columns are those of `AshAgent.Store.SQL.summary/2`.
  def from_row([id, kind, parent_id, metadata, status, revision, epoch, owner | times]) do
    [lease, created, updated | _] = times

    %__MODULE__{
      id: id,
      kind: word(kind, [:context, :chat]),
      parent_id: parent_id,
      metadata: Terms.decode!(metadata),
      status: word(status, @statuses),
      revision: number(revision),
      epoch: number(epoch),
      owner: owner,
      lease_until: time(lease),
      created_at: time(created),
      updated_at: time(updated)
    }
  end

  @doc false
  # The passed claim is kept if it is still valid.
  def renew(kept, %__MODULE__{claimed?: true} = claim) do
    cond do
      {kept.epoch, kept.owner} == {claim.epoch, claim.owner} ->
        {:ok, %{kept | claimed?: true, lease: claim.lease}}

      kept.owner ->
        {:error, {:owned, kept.owner}}

      true ->
        {:error, :stale}
    end
  end

  def renew(kept, _id), do: {:ok, kept}

  @doc false
  def word(text, words), do: Enum.find(words, &(Atom.to_string(&1) == text))

  @doc false
  def number(nil), do: nil
  def number(number) when is_integer(number), do: number
  def number(text) when is_binary(text), do: String.to_integer(text)

  @doc false
  def time(nil), do: nil

  def time(text) do
    {:ok, time, 0} = DateTime.from_iso8601(text)
    time
  end

  @doc false
  def storable?(terms) do
    _ = Terms.encode!(terms)
    true
  rescue
    _ in [Context.Error, ArgumentError] -> false
  end

  defimpl Inspect do
    def inspect(kept, _opts) do
      "#AshAgent.Store.Conversation<#{kept.kind} #{Kernel.inspect(kept.id)}, #{kept.status}, revision: #{kept.revision}, " <>
        "epoch: #{kept.epoch}, owner: #{Kernel.inspect(kept.owner)}#{if kept.claimed?, do: ", claimed here"}>"
    end
  end
end
