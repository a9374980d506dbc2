defmodule AshAgent.Trace.StoredTest do
  use ExUnit.Case, async: true

  import ExUnit.CaptureIO

  alias AshAgent.{Context, Store}
  alias AshAgent.Trace.Stored

  doctest Stored

  setup do
    {:ok, store} = Store.SQLite.open(":memory:")
    %{store: store}
  end

  test "prints the newest messages, and says what is not there", %{store: store} do
    context = "Hello!" |> Context.new(id: "c1") |> Context.add_assistant_message("Hi, **you**.")
    {:ok, _} = Store.create(store, context)
    assert capture_io(fn -> assert Stored.print(store, "c1") == :ok end) =~ "Hi, **you**."
    refute capture_io(fn -> assert Stored.print(store, "c1", limit: 1) == :ok end) =~ "Hello!"
    assert Stored.print(store, "c2") == {:error, :not_found}
  end

  test "pages have the sub-agents, and their sub-agents, but no forks", %{store: store} do
    {:ok, _} = Store.create(store, Context.new("The question", id: "c1"))

    for {id, parent} <- [{"child", "c1"}, {"grandchild", "child"}] do
      context = Context.new("Asked of #{id}", id: id, metadata: %{parent_id: parent})
      {:ok, _} = Store.create(store, context)
    end

    {:ok, page} = Stored.to_html(store, "c1")
    assert page =~ "Asked of child"
    assert page =~ "Asked of grandchild"
    {:ok, page} = Stored.to_html(store, "c1", children: false)
    refute page =~ "Asked of child"
  end
end
