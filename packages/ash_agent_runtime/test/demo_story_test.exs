defmodule AshAgent.DemoStoryTest do
  # The demo's story in two VMs, with a model on a server, as `bin/demo --url` runs it.
  use ExUnit.Case, async: true

  alias AshAgent.Test.Server

  @moduletag :tmp_dir
  @moduletag timeout: 180_000

  defp call(id, name, arguments), do: %{tool_calls: [%{id: id, name: name, arguments: arguments}]}

  defp script do
    [
      call("call_1", "find_train", %{"to" => "Prague"}),
      call("call_2", "book_train", %{"train" => "EC 173"}),
      call("call_3", "send_mail", %{"train" => "EC 173"}),
      ~s({"train": "EC 173", "booked": true, "mail": "sent"})
    ]
  end

  defp tell(half, folder, url) do
    arguments =
      ~w(run --no-compile ../../demo/story.exs #{half} #{folder} --url #{url} --model small)

    System.cmd("mix", arguments, env: [{"MIX_ENV", "#{Mix.env()}"}], stderr_to_stdout: true)
  end

  test "goes on in another VM with the model that --url names", %{tmp_dir: folder} do
    server = start_supervised!({Server, script: script()})
    url = Server.base_url(server)

    {words, status} = tell("begin", folder, url)
    assert status == 137, words
    assert words =~ ~s(May it call book_train %{"train" => "EC 173"}? She says yes.)

    {words, status} = tell("go_on", folder, url)
    assert status == 0, words
    assert words =~ "send_mail was started, and nobody knows how it ended."
    assert [_, answer] = Regex.run(~r/^The answer, with its type: (.*)$/m, words)
    assert {%{booked: true, mail: :sent, train: "EC 173"}, _} = Code.eval_string(answer)

    # Both effects happened once, although the machine stopped within the second.
    assert [["booked EC 173"], ["sent the mail"]] =
             Regex.scan(~r/^(.*), key/m, File.read!(Path.join(folder, "ledger")),
               capture: :all_but_first
             )

    requests = Server.requests(server)
    assert Enum.map(requests, & &1.path) |> Enum.uniq() == ["/v1/chat/completions"]
    assert length(requests) == 4
    assert List.last(List.last(requests).body["messages"])["content"] =~ "The mail is there"
  end

  test "says what to start where nobody listens", %{tmp_dir: folder} do
    {words, status} = tell("begin", folder, Server.refused_url())
    assert status != 0
    assert words =~ "no server answers at the address that --url names"
  end
end
