defmodule AshAgent.Context.Reply do
  @moduledoc """
  A context in the specs of the modules that document the functions of `AshAgent.Context`. It has no functions of its own.
  """

  # Turns a NIF's answer into what a function returns or raises. A NIF that changes or makes a context answers
  # `{:ok, {ref, current_iteration}}`, which becomes the given context's new fields, or a map of them where no context was given.
  # So the modules below `AshAgent.Context` need not know its struct.

  alias AshAgent.Caller
  alias AshAgent.Context.Error

  @typedoc "A context, for modules that do not know its struct."
  @type handle :: %{
          :ref => reference(),
          :current_iteration => pos_integer(),
          optional(:__struct__) => module()
        }

  @type reply :: {:ok, {reference(), pos_integer()}} | {:error, term()}

  @blank %{ref: nil, current_iteration: nil}

  @doc false
  # The context with its new handle, or the error.
  @spec put(reply(), context) :: {:ok, context} | {:error, Error.t()} when context: map()
  def put(reply, context \\ @blank)
  def put({:ok, _handle} = reply, context), do: {:ok, put!(reply, context)}
  def put({:error, reason}, _context), do: {:error, %Error{reason: reason}}

  @doc false
  # Like `put/2`, but a wrong time raises, as it is the caller's mistake.
  @spec put_at(reply(), context) :: {:ok, context} | {:error, Error.t()} when context: map()
  def put_at(reply, context \\ @blank)
  def put_at({:error, :bad_time} = reply, context), do: put!(reply, context)
  def put_at(reply, context), do: put(reply, context)

  @doc false
  # Like `put/2`, but returns the context or raises the error.
  @spec put!(reply(), context) :: context when context: map()
  def put!(reply, context \\ @blank)

  def put!({:ok, {ref, number}}, context), do: %{context | ref: ref, current_iteration: number}

  def put!({:error, :bad_time}, _context) do
    Caller.refuse!(
      "expected the option :at to be a valid DateTime of the ISO calendar and the years 0 to 9999"
    )
  end

  def put!({:error, reason}, _context), do: Caller.raise!(%Error{reason: reason})

  @doc false
  # The term of a reply. Raises the error.
  @spec ok!({:ok, term()} | {:error, term()}) :: term()
  def ok!({:ok, term}), do: term
  def ok!({:error, reason}), do: Caller.raise!(%Error{reason: reason})

  @doc false
  # The reply with its reason as an error.
  @spec to_result({:ok, term()} | {:error, term()}) :: {:ok, term()} | {:error, Error.t()}
  def to_result({:ok, term}), do: {:ok, term}
  def to_result({:error, reason}), do: {:error, %Error{reason: reason}}
end
