defmodule AshAgent.Context.CorpusTest do
  use ExUnit.Case, async: true

  # Each form of a snapshot that was ever written loads for ever, see test/corpus/README.md.

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.Context.JSON

  @contexts Path.wildcard("test/corpus/*.json") ++ ["test/fixtures/snapshot_v1.json"]
  @chats ["test/fixtures/chat_v1.json", "test/fixtures/chat_child_v1.json"]

  test "no file is missing" do
    listed = Regex.scan(~r/^\| `(.+\.json)`/m, File.read!("test/corpus/README.md"))
    here = "test/corpus/*.json" |> Path.wildcard() |> Enum.map(&Path.basename/1)
    assert Enum.sort(for [_, name] <- listed, do: name) == Enum.sort(here)
  end

  # What is later than now differs from one day to the next: `bin/freeze` takes such times for the time it runs at.
  test "no file is of the future" do
    for path <- @contexts ++ @chats,
        [time] <- Regex.scan(~r/(?<=")2\d{3}-\d\d-\d\dT[\d:.]+Z(?=")/, File.read!(path)) do
      {:ok, time, 0} = DateTime.from_iso8601(time)
      assert DateTime.compare(time, DateTime.utc_now()) == :lt, "#{path}: #{time}"
    end
  end

  for path <- @contexts do
    test "#{path} loads, and is written as it was" do
      text = File.read!(unquote(path))
      assert {:ok, context} = Context.load(text)
      assert Context.dump(context) == text |> JSON.decode!() |> put_digest()
      again = context |> Context.to_snapshot() |> Context.load!()
      assert Context.equal?(again, context)
      # It goes on.
      goes_on = context |> Context.interrupt() |> Context.add_user_message("More")
      assert goes_on.current_iteration >= context.current_iteration
      assert [_ | _] = Context.to_messages(goes_on)
    end
  end

  # A form without it was masked when it was loaded.
  defp put_digest(%{"view" => %{"masks" => [_ | _], "covers" => [_ | _]} = view} = document) do
    assert %{"masks_digest" => digest} =
             document |> Context.load!() |> Context.dump() |> Map.get("view")

    assert view["masks_digest"] in [nil, digest]
    put_in(document, ["view", "masks_digest"], digest)
  end

  defp put_digest(document), do: document

  for path <- @chats do
    test "#{path} loads, and is written as it was" do
      text = File.read!(unquote(path))
      assert {:ok, chat} = ChatContext.from_snapshot(text)
      again = chat |> ChatContext.to_snapshot() |> ChatContext.from_snapshot!()
      assert ChatContext.equal?(again, chat)
    end
  end

  # Of deltas only.
  @elsewhere ~w(since shared)

  # Reads the maps of `to_map/1`.
  @maps "native/ash_agent_context_core/src/storage/read_shown.rs"

  test "the files have each field of the format" do
    # Fields of tables, fields that are written by hand, and fields that are read so.
    field =
      ~r/^    \w+: "(\w+)" \w|\.key\("(\w+)"\)|, "(\w+)", json\)|(?:take|read)\w*\(\s*(?:(?:&mut )?fields, )?"(\w+)"/m

    files = Path.wildcard("native/ash_agent_context_core/src/storage/*.rs") -- [@maps]
    source = Enum.map_join(files, &File.read!/1)
    fields = for found <- Regex.scan(field, source), uniq: true, do: List.last(found)
    assert length(fields) > 80
    texts = Enum.map_join(@contexts ++ @chats, &File.read!/1)
    missing = for field <- fields -- @elsewhere, not (texts =~ ~s("#{field}":)), do: field
    assert missing == []
  end
end
