defmodule AshAgent.Store.Conformance.Helpers do
  @moduledoc false
  # The operations of the checks on a store, for an application's own tests of it as well.

  import ExUnit.Assertions

  alias AshAgent.{Context, Store}
  alias AshAgent.Store.Conversation

  def new_id, do: "conformance-" <> Base.encode16(:crypto.strong_rand_bytes(8))

  def talk(id \\ new_id()),
    do: Context.new("Hello!", id: id) |> Context.add_assistant_message("Hi!")

  def create!(store, value, opts \\ []) do
    assert {:ok, %Conversation{revision: 1} = kept} = Store.create(store, value, opts)
    kept
  end

  # A written value comes back, from the writer's own result and from the store.
  def append!(store, kept, value, opts \\ []) do
    assert {:ok, %Conversation{} = next} = Store.append(store, kept, value, opts)
    assert next.revision == kept.revision + 1
    assert_kept(store, value)
    next
  end

  def assert_kept(store, %module{} = value) do
    id = if module == Context, do: value[:id], else: value.id
    assert {:ok, fetched} = Store.fetch(store, id)
    assert module.equal?(fetched.value, value)
    fetched
  end

  # Functions that a store may leave out.
  def can?(store, function, arity), do: function_exported?(store.__struct__, function, arity)

  def image(size) do
    data = Base.encode64(:crypto.strong_rand_bytes(size))
    %{type: :image, media_type: "image/png", data: data}
  end

  def at_once(count, function) do
    1..count
    |> Enum.map(fn number ->
      Task.async(fn ->
        receive do: (:go -> function.(number))
      end)
    end)
    |> Enum.map(fn task -> send(task.pid, :go) && task end)
    |> Enum.map(&Task.await(&1, 60_000))
  end

  # A lease that is over.
  def lapse, do: Process.sleep(15)
end
