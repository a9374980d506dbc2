defmodule AshAgent.Context.Reply do
  @moduledoc false

  # Turns the result of a NIF into a return value or an error. A NIF that changes or makes a context returns `{:ok, {ref,
  # current_iteration}}`, which becomes a context.

  alias AshAgent.{Caller, Context}
  alias AshAgent.Context.Error

  @doc "The context with its new handle, or a new one, or the error."
  def put(reply, context \\ nil)
  def put({:ok, _handle} = reply, context), do: {:ok, put!(reply, context)}
  def put({:error, reason}, _context), do: {:error, %Error{reason: reason}}

  @doc "Like `put/2`, but a wrong time raises, as it is the caller's mistake."
  def put_at(reply, context \\ nil)
  def put_at({:error, :bad_time} = reply, context), do: put!(reply, context)
  def put_at(reply, context), do: put(reply, context)

  @doc "Like `put/2`, but returns the context or raises the error."
  def put!(reply, context \\ nil)

  def put!({:ok, {ref, number}}, nil), do: %Context{ref: ref, current_iteration: number}
  def put!({:ok, {ref, number}}, context), do: %{context | ref: ref, current_iteration: number}

  def put!({:error, :bad_time}, _context) do
    Caller.refuse!(
      "expected the option :at to be a valid DateTime of the ISO calendar and the years 0 to 9999"
    )
  end

  def put!({:error, reason}, _context), do: Caller.raise!(%Error{reason: reason})

  @doc "The term of a reply. Raises the error."
  def ok!({:ok, term}), do: term
  def ok!({:error, reason}), do: Caller.raise!(%Error{reason: reason})

  @doc "The term of a result. Raises the error."
  def bang!({:ok, term}), do: term
  def bang!({:error, error}), do: Caller.raise!(error)

  @doc "The reply with its reason as an error."
  def to_result({:ok, term}), do: {:ok, term}
  def to_result({:error, reason}), do: {:error, %Error{reason: reason}}
end
