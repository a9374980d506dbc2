defmodule AshAgent.Session.Client do
  @moduledoc false

  # The client of a run: a caller that waits for the reply to its call, or a process that gets messages. `nil` is nobody, as
  # for a prompt that was given to an earlier session of the conversation.

  alias AshAgent.Session.Border

  @enforce_keys [:from]
  defstruct [:from, :pid, :ref, :tag]

  @doc "A caller that waits."
  def new(from), do: %__MODULE__{from: from}

  @doc "A process that gets messages `{tag, ref, message}` once the job is confirmed to the caller."
  def new(from, pid, tag),
    do: %__MODULE__{from: from, pid: pid, ref: make_ref(), tag: tag}

  @doc "Clients of one job: all of them get what it leads to."
  def join(clients, client), do: [client | List.wrap(clients)]

  @doc "Returns how many clients a job has."
  def count(clients), do: clients |> List.wrap() |> length()

  @doc "Tells a caller that does not wait for the reply that its job is accepted."
  def confirm(%__MODULE__{ref: nil}), do: :ok
  def confirm(%__MODULE__{from: from, ref: ref}), do: GenServer.reply(from, {:ok, ref})

  @doc "Sends a new context to a process that gets messages."
  def send_context(%__MODULE__{pid: pid} = client, context) when pid != nil,
    do: send_message(client, {:context, context})

  def send_context(clients, context) when is_list(clients),
    do: Enum.each(clients, &send_context(&1, context))

  def send_context(_client, _context), do: :ok

  @doc "Answers, which is the last that a client hears of its job."
  def reply(nil, _reply), do: :ok
  def reply(clients, reply) when is_list(clients), do: Enum.each(clients, &reply(&1, reply))

  def reply(%__MODULE__{pid: nil, from: {pid, _tag} = from}, reply),
    do: GenServer.reply(from, Border.pack(reply, pid))

  def reply(%__MODULE__{} = client, reply), do: send_message(client, reply)

  defp send_message(%{pid: pid, ref: ref, tag: tag}, message),
    do: send(pid, {tag, ref, Border.pack(message, pid)})
end
