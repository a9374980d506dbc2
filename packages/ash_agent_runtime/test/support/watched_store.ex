defmodule AshAgent.TestSupport.WatchedStore do
  @moduledoc false

  # A store that asks a function before and after each thing that it is asked: `fun.(:before | :after, name)` returns `:ok`,
  # or the error that is the answer. After an error before, the store is not asked; after one after, it was.

  @behaviour AshAgent.Store

  defstruct [:store, :fun]

  def new(store, fun), do: %__MODULE__{store: store, fun: fun}

  @late [arrive: 5, arrivals: 2, waiting_calls: 2, expire_waiting: 2, arrived: 2]

  for {name, arity} <- AshAgent.Store.behaviour_info(:callbacks) ++ @late do
    [_ | args] = Macro.generate_arguments(arity, __MODULE__)

    if {name, arity} not in @late, do: @impl(true)

    def unquote(name)(%{store: %module{} = store, fun: fun}, unquote_splicing(args)) do
      with :ok <- fun.(:before, unquote(name)) do
        answer = apply(module, unquote(name), [store, unquote_splicing(args)])
        with :ok <- fun.(:after, unquote(name)), do: answer
      end
    end
  end
end
