defmodule AshAgent.Freeze.Inputs do
  @moduledoc false

  # Everything that is kept, as `{name, group of operations.txt, fn -> variables end}`. Names that begin with "shared/" are of what
  # is beside the checkout.

  import AshAgent.Freeze.Helpers
  import AshAgent.TestSupport.Generators, only: [one_of: 1]

  alias AshAgent.Freeze.Table
  alias AshAgent.Freeze.Old.{ChatContext, Context, Output, Prices}
  alias AshAgent.TestSupport.{ContextGenerators, Generators, PiSession, Recorded, Replayed}

  @compile {:no_warn_undefined, [ChatContext, Context, Context.JSON, Output, Prices]}

  @root Path.expand("../..", __DIR__)
  @fixtures Path.join(@root, "test/fixtures")
  @shared Path.expand("../shared", @root)

  def shared?, do: File.dir?(@shared)
  def fixtures, do: @fixtures

  # Long ones first, so that no processor waits for the last of them.
  def all(cases) do
    [shared(), kept(), answers(), random(cases), outputs(), arguments(), clients()]
    |> List.flatten()
    |> Enum.map(fn
      {name, group, give} -> {name, group, give}
      {name, make} -> {name, "context", fn -> %{c: make.()} end}
    end)
    |> Enum.filter(fn {name, _, _} -> shared?() or not String.starts_with?(name, "shared/") end)
  end

  defp files(folder, pattern),
    do: for(path <- Path.wildcard(Path.join(folder, pattern)), do: {Path.basename(path), path})

  defp load(path), do: path |> File.read!() |> Context.from_snapshot!()
  defp load_chat(path), do: path |> File.read!() |> ChatContext.from_snapshot!()
  defp read(path), do: path |> File.read!() |> Context.JSON.decode!()

  defp kept do
    snapshots = files(@root, "test/corpus/*.json") ++ files(@fixtures, "snapshot_*.json")
    chats = files(@fixtures, "chat_*.json")
    stores = files(@root, "packages/*/test/corpus/*.db")

    [
      {"kept/media", "kept", fn -> %{c: media()} end},
      for {words, n} <- words() |> Enum.chunk_every(100) |> Enum.with_index() do
        {"kept/words-#{n}", "word", fn -> %{xs: words} end}
      end,
      for({name, path} <- snapshots, do: {"kept/#{name}", "kept", fn -> %{c: load(path)} end}),
      for(
        {name, path} <- chats,
        do: {"kept/#{name}", "chat", fn -> %{chat: load_chat(path)} end}
      ),
      for({name, path} <- stores, do: {"kept/#{name}", "store", fn -> %{xs: [path]} end}),
      for kind <- [:log, :view],
          path = Path.join(@fixtures, "#{kind}_operations.jsonl"),
          {lines, n} <- path |> Replayed.read() |> Enum.with_index(1) do
        {"kept/#{kind}-#{n}", fn -> kind |> Replayed.play(lines) |> List.last() |> elem(0) end}
      end
    ]
  end

  # Pictures of which only the size can be read, and files.
  defp media do
    png = <<0x89, "PNG\r\n", 26, 10, 13::32, "IHDR", 1200::32, 900::32, 8, 6, 0, 0, 0>>
    jpeg = <<0xFF, 0xD8, 0xFF, 0xC0, 17::16, 8, 700::16, 3000::16, 3>>
    gif = <<"GIF89a", 640::16-little, 480::16-little, 0, 0, 0>>
    pdf = "%PDF-1.4 /Type /Page /Type /Page"

    parts =
      for {type, bytes} <- [{"image/png", png}, {"image/jpeg", jpeg}, {"image/gif", gif}] do
        %{type: :image, media_type: type, data: Base.encode64(bytes)}
      end ++
        for type <- ["application/pdf", "text/csv", "application/json", "audio/wav"] do
          %{type: :file, media_type: type, data: Base.encode64(pdf), filename: "a.b"}
        end

    Context.new([%{type: :text, text: "See"} | parts], new())
  end

  defp answers do
    for x <- Recorded.answers() ++ Recorded.samples() do
      ours? = x in Recorded.samples() or File.exists?(Path.join([@fixtures, "answers", x.name]))
      {if(ours?, do: "", else: "shared/") <> "answers/" <> x.name, "answer", fn -> %{xs: [x]} end}
    end
  end

  ## Beside the checkout

  defp shared do
    sessions = files(@shared, "trajectories/*.jsonl")
    dialogues = Enum.flat_map(files(@shared, "trajectories/*.json"), &read(elem(&1, 1)))
    dialogues = dialogues |> Enum.take_every(4) |> Enum.with_index()

    [
      for {name, path} <- sessions do
        give = fn -> %{c: elem(PiSession.read(path), 0), p: [:anthropic, :openai_chat]} end
        {"shared/#{name}", "long context", give}
      end,
      for {dialogue, n} <- dialogues do
        {"shared/tau-#{n}", fn -> Context.from_request!(dialogue, :openai_chat, new()) end}
      end,
      for {name, path} <- files(@shared, "conversations/*.json"), document = read(path) do
        format = String.replace(document["format"], "-", "_")
        p = Enum.find(providers(), &(Atom.to_string(&1) == format))
        body = document["body"] || Map.take(document, ["messages"])

        [{"shared/#{name}", fn -> Context.from_request!(body, p, new()) end}] ++
          bodies(name, Context.JSON.encode(body))
      end,
      for(
        {name, path} <- files(@shared, "inputs/*-import-*"),
        do: bodies(name, File.read!(path))
      ),
      for {name, path} <- files(@shared, "prices/prices.json") do
        usages =
          path |> Path.dirname() |> Path.join("usages.json") |> read() |> Enum.map(&usage/1)

        [{"shared/#{name}", "prices", fn -> %{xs: [path]} end}] ++
          for {usages, n} <- usages |> Enum.chunk_every(40) |> Enum.with_index() do
            {"shared/usages-#{n}", "usage",
             fn -> %{o: elem(Prices.read(path), 1), xs: usages} end}
          end
      end
    ]
  end

  defp bodies(name, text) do
    for p <- providers(),
        do: {"shared/#{name} as #{p}", "body", fn -> %{o: p, xs: [text]} end}
  end

  defp usage(%{"body" => body} = row),
    do: {row["model"] || body["model"], body["usage"] || body["usageMetadata"] || %{}}

  ## Random

  defp random(cases) do
    terms = fn -> %{xs: for(n <- 1..cases, do: Generators.term(rem(n, 9)))} end

    [
      for(n <- 1..cases, do: {"random/messages-#{n}", fn -> messages(1 + rem(n, 14)) end}),
      for n <- 1..cases do
        {"random/terms-#{n}", fn -> Generators.random_context(1 + rem(n, 14)) end}
      end,
      {"random/json", "term", terms},
      {"random/answers", "message", fn -> %{xs: for(_ <- 1..cases, do: message())} end}
    ]
  end

  defp messages(size) do
    script = ContextGenerators.script(size)
    script = if rem(size, 2) == 0, do: ContextGenerators.with_views(script), else: script
    ContextGenerators.build(script)
  end

  defp message do
    text = ContextGenerators.text()
    deltas = [{:text, text}, {:thinking, text}, {:usage, %{input_tokens: 3}}, {:finish, "odd"}]
    call = [{:tool_call_started, 0, "a", "f"}, {:tool_call_arguments, 0, ~s({"a":)}]

    one_of([
      for(_ <- 1..8, do: one_of(deltas ++ call)),
      %{content: Generators.assistant_parts(), tool_calls: Generators.tool_calls(3)}
    ])
  end

  ## Answers of a type, arguments, clients and runs

  @size [size: {:in, [:small, :large]}, on: [type: :date, required: false]]
  @types [
    fields: [city: :string, people: [type: :integer, minimum: 1]] ++ @size,
    list: {:list, [name: :string, done: :boolean]},
    choice: {:one_of, [trip: [to: :string], stay: [nights: :pos_integer]]},
    nullable: {:nullable, :float},
    map: :map
  ]
  @texts [
    ~s({"city": "Ulm", "people": "127000", "size": "Large", "on": "2026-01-31"}),
    ~s({"value": [{"name": "a", "done": true}, {"name": "b", "done": "false"}]}),
    ~s([{'name': 'a', done: True,},]),
    ~s({"stay": {"nights": 3.0}} // a comment),
    ~s({"value": "1,5"}),
    "Sure! Here it is:\n```json\n{\"trip\": {\"to\": \"R\\u00f6m\\ud83d\\ude00\"}}\n```\nMore?"
  ]

  defp outputs do
    for {name, type} <- @types,
        do: {"outputs/#{name}", "output", fn -> %{o: Output.new(type), xs: @texts} end}
  end

  @junk [nil, :openai, "sk-secret", 7.5, -1, {:a}, [:a | :b], %{wrong: "sk"}, [colour: 1]]

  defp arguments do
    for name <- Table.calls() do
      give = fn ->
        args = Table.args(name, load(Path.join(@fixtures, "snapshot_v1.json")))

        %{
          o: name,
          xs: for(at <- 0..(length(args) - 1), j <- @junk, do: List.replace_at(args, at, j))
        }
      end

      {"arguments/#{name}", "arguments", give}
    end
  end

  defp clients do
    calls = ["", ~s({"a": 1, "b": 2}) | @texts]

    [
      for(p <- providers(), do: {"clients/#{p}", "client", fn -> %{o: p, xs: replies(p)} end}),
      {"runs/calls", "call", fn -> %{xs: calls} end},
      {"runs/runs", "runs", fn -> %{} end}
    ]
  end

  defp replies(p) do
    %{type: type, body: body} = Recorded.sample(p)
    whole = [status: 200, type: type, body: body]

    [whole, Keyword.merge(whole, body: elem(split(body, 150), 0), cut: true)] ++
      for {status, body} <- [
            {200, "oops"},
            {400, ~s({"error":{"message":"prompt is too long: 210000 tokens > 200000 maximum"}})},
            {401, ~s({"error":{"type":"authentication_error","message":"no key sk-secret"}})},
            {429, ~s({"error":{"code":"insufficient_quota","message":"quota"}})},
            {503, "<html><title>Busy</title></html>"}
          ],
          do: [status: status, type: "application/json", body: body]
  end
end
