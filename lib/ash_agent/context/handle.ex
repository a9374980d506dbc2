defmodule AshAgent.Context.Handle do
  @moduledoc false

  # A handle works in the VM that made it. One of another node is a plain reference here, and so is one that outlived its VM
  # in a file or a message; a NIF takes neither and only says "argument error". Checking each handle before each call would
  # cost time, so this error is explained when it comes.

  alias AshAgent.Caller
  alias AshAgent.Context.{Error, Native}

  @doc """
  Returns whether a context's handle works here: `:ok`, or the error that names the node that made it, with the reason
  `{:foreign_handle, node}`.

  For those who keep or hand on a context without calling a function of `AshAgent.Context`.
  """
  def check(%{ref: ref}) do
    cond do
      not is_reference(ref) ->
        {:error, %Error{reason: {:invalid, [], "a context with its handle"}}}

      Native.foreign?(ref) ->
        {:error, %Error{reason: {:foreign_handle, node(ref)}}}

      true ->
        :ok
    end
  end

  @doc "Like `check/1`, but raises `ArgumentError`."
  def check!(context) do
    with {:error, error} <- check(context),
         do: Caller.refuse!(Exception.message(error))
  end

  @doc "The number of the current iteration, of a context whose handle works here."
  def current_iteration!(%{ref: ref, current_iteration: number}) when node(ref) == node(),
    do: number

  def current_iteration!(context) do
    check!(context)
    context.current_iteration
  end
end
