defmodule AshAgent.Context.Enhancer.RedactTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions

  alias AshAgent.Context
  alias AshAgent.Context.Enhancer.Redact

  doctest AshAgent.Context.Enhancer.Redact

  defp run(context, opts) do
    {:ok, context, %{skipped: []}} = Context.Enhancer.run(context, [{Redact, opts}])
    context
  end

  defp masked(text, patterns) do
    [%{content: content}] =
      text |> Context.new() |> run(patterns: patterns) |> Context.to_messages()

    content
  end

  defp masks(context), do: Context.View.view(context).masks

  test "masks in messages, arguments, results and the prompt; the log has it all" do
    context =
      Context.new("I am a@b.com", system_prompt: "Write to c@d.org")
      |> Context.add_assistant_message(nil, [%{id: "a", name: :mail, arguments: %{to: "e@f.net"}}])
      |> Context.add_tool_results([{"a", {:ok, %{from: "g@h.io"}}}])

    text = context |> run(patterns: [:email]) |> Context.to_messages() |> inspect()
    refute text =~ "@"
    assert length(String.split(text, "[redacted]")) == 5

    assert context |> run(patterns: [:email]) |> Context.to_messages(view: :log) ==
             Context.to_messages(context)
  end

  test "takes names, texts and expressions, with replacements of their own" do
    assert masked("ann a@b.com 7", [:email, "ann", ~r/[0-9]/]) ==
             "[redacted] [redacted] [redacted]"

    assert masked("ann a@b.com 7", [{:email, "E"}, {"ann", "A"}, {~r/[0-9]/, "N"}]) == "A E N"

    other = "ann" |> Context.new() |> run(patterns: ["ann"], replacement: "*")
    assert [%{content: "*"}] = Context.to_messages(other)

    assert masked("a.b axb", [Regex.escape("a.b")]) == "[redacted] axb"
  end

  test "keeps the masks that are there, and repeats none" do
    context = Context.View.put_masks(Context.new("Hi"), [{"a", "A"}, {"b", "B"}])
    once = run(context, patterns: ["c", {"b", "other"}, "c"])
    assert masks(once) == [{"a", "A"}, {"b", "other"}, {"c", "[redacted]"}]
    assert run(once, patterns: ["c", {"b", "other"}, "c"]) == once
    assert masks(run(once, patterns: [])) == masks(once)
  end

  test "gives the context as it is for no patterns" do
    context = Context.new("Hi")
    assert run(context, patterns: []) == context
  end

  test "refuses what is no pattern, also when failures are skipped" do
    odd = [:phone, 1, ~r/a/i, {"a", 1}, {:email, nil}, <<255>>, {"a", "b", "c"}]

    for patterns <- [nil, :email | Enum.map(odd, &[&1])] do
      run = &Context.Enhancer.run(Context.new("Hi"), &1, on_error: :skip)
      assert_caller_bug(fn -> run.([{Redact, patterns: patterns}]) end)
    end

    assert_caller_bug(fn -> Redact.prepare([]) end)
    assert_caller_bug(fn -> Redact.prepare(patterns: ["a"], replacement: nil) end)
    assert {:invalid_pattern, "(", _} = reason_of(fn -> Redact.prepare(patterns: ["("]) end)

    assert {:invalid_pattern, "(?=a)", _} =
             reason_of(fn -> Redact.prepare(patterns: ["(?=a)"]) end)
  end

  describe "names" do
    defp assert_masks(name, texts) do
      for text <- texts,
          {before, behind} <- [{"", ""}, {"so ", " it"}, {"(", ")."}, {"\"", "\""}, {"ü:", ",é"}],
          do: assert(masked(before <> text <> behind, [name]) == before <> "[redacted]" <> behind)
    end

    defp refute_masks(name, texts),
      do: for(text <- texts, do: assert(masked(text, [name]) == text))

    test ":email" do
      assert_masks(:email, ~w(a@b.co ann.lee+x@mail.example.com a_b-c%d@x-y.io 1@163.com A@B.ORG))

      refute_masks(:email, ["a @ b.com" | ~w(a@b @ann a@ react@18.2.0 a@b.c @b.com a@.com)])
      refute_masks(:email, ["root@10.0.0.1"])

      assert masked("a@b.com,c@d.org;<e@f.net>", [:email]) == "[redacted],[redacted];<[redacted]>"
    end

    test ":credit_card" do
      assert_masks(:credit_card, ["4111 1111 1111 1111", "3782 822463 10005"])

      assert_masks(:credit_card, ~w(4111111111111111 4111-1111-1111-1111 5555555555554444
        2221000000000009 2720999999999999 378282246310005 6011111111111117 6500000000000002))

      others = ["4111  1111 1111 1111", "2026-01-01 10:00:00.000000", "+49 170 1234567"]
      refute_masks(:credit_card, others)

      refute_masks(:credit_card, ~w(1111111111111111 411111111111111 41111111111111111
        2220999999999999 2721000000000000 1735689600000000 1847261938471625984 4111.1111.1111.1111
        f4111111111111111 id_4111111111111111 550e8400-e29b-41d4-a716-446655440000
        41112222-4111-4222-8333-444455556666))
    end

    test ":ipv4" do
      assert_masks(:ipv4, ["10.0.0.1", "255.255.255.255", "0.0.0.0", "192.168.1.254"])

      refute_masks(:ipv4, ~w(256.1.1.1 1.2.3 10.0.0 1.2.3.400 01.02.03.04 10,0,0,1 1.5 v1.2.3 1))

      assert masked("http://10.0.0.1:8080/a", [:ipv4]) == "http://[redacted]:8080/a"
    end

    test ":api_key" do
      letters = String.duplicate("aB3", 40)

      assert_masks(:api_key, [
        "sk-" <> String.slice(letters, 0, 48),
        "sk-proj-" <> String.slice(letters, 0, 40) <> "_-" <> String.slice(letters, 0, 40),
        "sk-ant-api03-" <> String.slice(letters, 0, 93) <> "AA",
        "sk-or-v1-" <> String.duplicate("0f", 32),
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_" <> String.slice(letters, 0, 36),
        "github_pat_" <> String.slice(letters, 0, 22) <> "_" <> letters,
        "glpat-" <> String.slice(letters, 0, 20),
        "AIza" <> String.slice(letters, 0, 35),
        "hf_" <> String.slice(letters, 0, 34),
        "xoxb-123456789012-abcdefghijkl",
        "sk_live_" <> String.slice(letters, 0, 24),
        "gsk_" <> String.slice(letters, 0, 40),
        "xai-" <> String.slice(letters, 0, 40),
        "ya29." <> String.slice(letters, 0, 40),
        "whsec_" <> String.slice(letters, 0, 32),
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmNHl0w5N",
        "Bearer " <> String.slice(letters, 0, 20),
        "?api_key=" <> String.slice(letters, 0, 8),
        "&X-Amz-Signature=" <> String.slice(letters, 0, 64)
      ])

      refute_masks(:api_key, [
        "sk-learn-pipeline-with-a-very-long-name-indeed",
        "task-" <> String.slice(letters, 0, 48),
        "risk-management-and-compliance-officers-of-europe",
        "disk_live_" <> String.slice(letters, 0, 24),
        "AKIA is a prefix",
        "ghp_short",
        "hf_hub_download",
        "sk-or-something-else",
        "xoxo-hugs",
        "Bearer of news",
        "?page=12345678&order=by_name_and_age",
        "eyJ is how a JWT begins",
        "ya29.5 m",
        "550e8400-e29b-41d4-a716-446655440000",
        "da39a3ee5e6b4b0d3255bfef95601890afd80709"
      ])
    end

    test "take linear time" do
      names = [:email, :credit_card, :ipv4, :api_key]

      # Quadratic work on two million bytes would take hours.
      for piece <- [
            "4111 "
            | ~w(a 4 1. a. a@ a@b. a@b.cc- a@b.cc.1. sk- sk-ant- - @ ü xoxb-1 eyJa. ?key= &sig=a)
          ] do
        text = String.duplicate(piece, div(2_000_000, byte_size(piece)))
        masked(text, names)
      end
    end
  end
end
