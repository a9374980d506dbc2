defmodule AshAgent.Store.BlobsTest do
  use ExUnit.Case, async: true

  import ExUnit.CaptureLog

  alias AshAgent.{Context, Store}
  alias AshAgent.Context.Changes
  alias AshAgent.Store.{Blobs, Error, SQLite}

  @secret "what foreign code says"

  defmodule Files do
    @moduledoc false
    # Keeps blobs in an agent, as S3 would.
    @behaviour AshAgent.Store.Blobs

    @impl true
    def put(%{agent: agent} = config, "sha256:" <> digest, bytes) do
      place = digest <> "/#{System.unique_integer([:positive])}"

      fault(config, :put, fn ->
        Agent.update(agent, &Map.put(&1, place, bytes)) && {:ok, place}
      end)
    end

    @impl true
    def get(%{agent: agent} = config, place),
      do: fault(config, :get, fn -> Agent.get(agent, &Map.fetch(&1, place)) end)

    @impl true
    def delete(%{agent: agent} = config, places),
      do: fault(config, :delete, fn -> Agent.update(agent, &Map.drop(&1, places)) end)

    defp fault(config, name, function), do: Map.get(config, name, function).()
  end

  setup do
    agent = start_supervised!({Agent, fn -> %{} end})
    store = fn faults -> open!({Files, Map.put(faults, :agent, agent)}) end
    {:ok, store: store, held: fn -> Agent.get(agent, & &1) end}
  end

  defp open!(blobs) do
    {:ok, store} = SQLite.open(":memory:", blobs: blobs)
    store
  end

  defp image(size) do
    data = Base.encode64(:crypto.strong_rand_bytes(size))
    %{type: :image, media_type: "image/png", data: data}
  end

  test "are where the option says, and go with their conversation", ctx do
    store = ctx.store.(%{})
    [one, two] = images = [image(4_000), image(5_000)]
    {:ok, kept} = Store.create(store, Context.new(images, id: "a"))
    {:ok, _} = Store.create(store, Context.new([one], id: "b"))

    assert Enum.sort(Map.values(ctx.held.())) ==
             Enum.sort(for(i <- [one, two, one], do: bytes(i)))

    {:ok, fetched} = Store.fetch(store, "a")
    assert Context.equal?(fetched.value, kept.value)
    {:ok, _} = Store.append(store, fetched, Context.add_assistant_message(fetched.value, "x"))
    assert map_size(ctx.held.()) == 3

    assert :ok = Store.delete(store, "a")
    assert Map.values(ctx.held.()) == [bytes(one)]
    assert {:ok, %{blobs: 1}} = Store.prune(store, older_than: 0, metadata: %{})
    assert ctx.held.() == %{}
  end

  defp bytes(%{data: data}), do: Base.decode64!(data)

  test "that cannot be had are errors that show nothing", ctx do
    for fault <- [fn -> raise @secret end, fn -> throw(@secret) end, fn -> {:error, @secret} end] do
      context = Context.new([image(4_000)], id: "a")
      assert {:error, error} = Store.create(ctx.store.(%{put: fault}), context)
      assert %Error{reason: {:unavailable, "AshAgent.Store.BlobsTest.Files"}} = error

      store = ctx.store.(%{get: fault, delete: fault})
      {:ok, kept} = Store.create(store, context)
      assert {:error, %Error{reason: {:unavailable, _}}} = Store.fetch(store, "a")
      assert {:error, %Error{reason: {:unavailable, _}}} = Store.fetch(%{store | blobs: nil}, "a")
      # The conversation is gone, its objects are not.
      assert {:error, %Error{reason: {:unavailable, _}}} = Store.delete(store, "a")
      assert {:error, :not_found} = Store.append(store, kept, kept.value)
    end

    assert_raise ArgumentError, fn -> SQLite.open(":memory:", blobs: Files) end
  end

  test "that a rewind took back are deleted where they are", ctx do
    store = ctx.store.(%{})
    [one, two] = [image(4_000), image(5_000)]
    {:ok, kept} = Store.create(store, Context.new([one], id: "a"))
    {:ok, kept} = Store.append(store, kept, Context.add_user_message(kept.value, [one, two]))
    assert map_size(ctx.held.()) == 2

    assert {:error, :stale} =
             Store.append(store, %{kept | revision: 1}, Context.new("x", id: "a"))

    {:ok, kept} = Store.append(store, kept, Context.new([one], id: "a"))
    assert Map.values(ctx.held.()) == [bytes(one)]

    refused = %{store | blobs: {Files, %{delete: fn -> {:error, @secret} end}}}
    value = Context.new("nothing", id: "a")
    log = capture_log(fn -> assert {:ok, _kept} = Store.append(refused, kept, value) end)
    assert log =~ ~s(the conversation "a") and not (log =~ @secret)
  end

  test "that are gone or have other bytes are errors that say so", ctx do
    for {blobs, change} <- [
          {nil, "update ash_agent_blobs set data = 'AAAA'"},
          {nil, "update ash_agent_blobs set data = '?'"},
          {nil, "delete from ash_agent_blobs"},
          {:outside, fn {_place, _bytes} -> "other" end}
        ] do
      store = if blobs, do: ctx.store.(%{}), else: open!(nil)
      {:ok, _kept} = Store.create(store, Context.new([image(4_000)], id: "a"))

      if blobs,
        do:
          Agent.update(
            store.blobs |> elem(1) |> Map.fetch!(:agent),
            &Map.new(&1, fn {place, _} = held -> {place, change.(held)} end)
          ),
        else: run!(store, change)

      assert {:error, %Error{reason: {:corrupt, words}} = error} = Store.fetch(store, "a")
      assert words =~ "medium" and Exception.message(error) =~ words
      assert {:error, ^error} = Store.claim(store, "a", owner: "me")
      # It is nobody's.
      assert {:ok, %{conversations: [%{owner: nil}]}} = Store.list(store)
      assert {:error, ^error} = Store.claim(store, "a", owner: "you")
    end
  end

  defp run!(store, statement) do
    reference = make_ref()
    :ok = SQLite.Native.run(store.ref, {:script, reference}, [statement], [])
    assert_receive {:ash_agent_sqlite, ^reference, {:ok, _rows}}
  end

  test "are taken out of a text and put back as they were" do
    data = fn size -> Base.encode64(:crypto.strong_rand_bytes(size)) end

    for text <- [
          ~s({"data":"#{data.(2_000)}","x":[{"data":"#{data.(2_001)}"}]}),
          ~s({"data":"#{data.(2_002)}"}),
          # Unclosed, short, not base64, and base64 that says the same in another way.
          ~s({"data":"#{data.(2_000)}),
          ~s({"data":"#{data.(200)}","text":"#{data.(2_000)}"}),
          ~s({"data":"#{data.(2_000)}-_"}),
          ~s({"data":"#{String.duplicate("A", 4_000)}AB=="}),
          ~s({"data":"#{String.duplicate("A", 4_000)}A"})
        ] do
      {taken, blobs, known} = Blobs.take(text, %{})
      taken = IO.iodata_to_binary(taken)
      assert Changes.put_media_back(taken, blobs) == text
      assert known == Blobs.index(blobs)
      assert {again, none, ^known} = Blobs.take(text, known)
      assert IO.iodata_to_binary(again) == taken and none == %{}
    end
  end

  # What looks like a reference, as a document of others may have it.
  defp foreign(levels, id),
    do: String.duplicate(~s({"$blob":), levels) <> ~s("#{id}") <> String.duplicate("}", levels)

  test "are told from references of others, in any place and depth" do
    medium = image(3_000).data
    id = "sha256:" <> Base.encode16(:crypto.hash(:sha256, Base.decode64!(medium)), case: :lower)
    stranger = "sha256:" <> String.duplicate("0", 64)

    for id <- [id, stranger, "sha256:1", "other"],
        levels <- 1..3,
        key <- ["data", "x"],
        more <- ["", ~s(,"data":"#{medium}"), ~s(,"more":1)] do
      text = ~s({"data":"#{medium}","y":{"#{key}":#{foreign(levels, id)}#{more}}})
      {taken, blobs, _known} = Blobs.take(text, %{})
      refute taken =~ medium
      assert Changes.put_media_back(taken, blobs) == text
      # PostgreSQL writes a space after each colon.
      spaced = String.replace(taken, ~s(":), ~s(": ))
      put_back = spaced |> Changes.put_media_back(blobs) |> Context.JSON.decode!()
      assert put_back == Context.JSON.decode!(text)
    end
  end

  @tag :tmp_dir
  test "of 16 MB leave rows of some KB", %{tmp_dir: folder} do
    path = Path.join(folder, "store.db")
    {:ok, store} = SQLite.open(path, synchronous: :normal)
    context = Context.new(for(_ <- 1..16, do: image(1_000_000)), id: "c")
    {:ok, kept} = Store.create(store, context)
    {:ok, document} = Store.dump(store, "c")
    text = inspect(document, limit: :infinity, printable_limit: :infinity)
    assert byte_size(text) < 10_000
    {:ok, kept} = Store.append(store, kept, Context.add_assistant_message(context, "x"))
    {:ok, fetched} = Store.fetch(store, "c")
    assert Context.equal?(fetched.value, kept.value)
  end
end
