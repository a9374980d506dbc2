defmodule AshAgent.Test do
  @moduledoc """
  Assertions about the runs of agents, for ExUnit.

      defmodule MyApp.RefundTest do
        use ExUnit.Case, async: true
        use AshAgent.Test

        test "looks the order up before it pays back" do
          {:ok, result} = MyApp.Agent.run("I want my money back for order 7", llm: recorded("refund"))

          assert_calls result, [find_order(id: "7"), refund(%{amount: amount}) when amount <= 100]
          refute_called result, delete_order
          assert_approved result, :refund, by: "ann"
          assert_answer result, ~r/refunded/i
          assert_within result, calls: 5, iterations: 4, tokens: 10_000
        end
      end

  Each takes a context, a chat (of which it uses the active branch), or a result, error or pause of `AshAgent.Runtime.run/2`. They
  only look at the conversation, so they work on stored ones too, need neither network nor processes, and run
  `async: true`.

  ## Patterns

  A call is written as a call: `search(q: "Oslo")` is a call of the tool `search` with at least this argument, and `search`, `search()`
  and `search(_)` are any call of it. A tool whose name is not one in Elixir is a pair: `{"get-time", %{zone: "UTC"}}`. `_` is any call.

  The arguments are an Elixir pattern, with pins and guards, and two additions: a regex literal stands for any text that it
  matches, and atom keys match string keys. A pin takes any expression.

      assert_calls result, [
        search(q: ~r/oslo/i, limit: limit) when limit in 1..10,
        pay(%{id: ^order.id, items: [%{sku: "a"} | _]})
      ]

  ## When an assertion fails

  It says what is different, prints the conversation as `AshAgent.Context.print/2` does, with an arrow at the first call that differs,
  and names the command that shows the conversation as a page.
  """

  use AshAgent.Arguments

  alias AshAgent.Test.{Assertions, Branch, Pattern, Replay}

  @doc false
  defmacro __using__(_opts) do
    quote do
      import AshAgent.Test
    end
  end

  @doc """
  Asserts that a conversation has these calls, and returns all its calls.

  Each returned call has its `:id`, `:name`, `:arguments` (with text as keys) and `:result`. Calls that the provider answered itself,
  such as a web search, count as well; they have `by: :provider`.

  The third argument is a mode, or options:

    * `:exactly` - these calls, in this order, and no others. The default.
    * `:in_order` - these calls, in this order; there may be others
    * `:any_order` - these calls, in any order, each pattern matching a call of its own; there may be others
    * `:within` - no other calls than these: each call matches a pattern of its own

  ## Options

  #{AshAgent.Options.docs(Assertions.calls_options())}

  ## Examples

      iex> import AshAgent.Test
      iex> llm = AshAgent.LLM.Scripted.new([%{tool_calls: [%{name: "search", arguments: %{"q" => "Oslo weather"}}]}, "Rain."])
      iex> tools = %{search: fn %{"q" => _} -> {:ok, "rain"} end}
      iex> {:ok, result} = AshAgent.Runtime.run(AshAgent.Context.new("Umbrella?"), llm: llm, tools: tools)
      iex> [call] = assert_calls result, [search(q: ~r/oslo/i)]
      iex> call.result
      {:ok, "rain"}
  """
  @doc since: "0.1.0"
  defmacro assert_calls(conversation, patterns, mode_or_options \\ :exactly) do
    unless is_list(patterns),
      do: raise(ArgumentError, "expected a list of calls, got: #{Macro.to_string(patterns)}")

    patterns = Enum.map(patterns, &Pattern.compile_call/1)
    raise_unless_ok(:check_calls, [conversation, patterns, mode_or_options])
  end

  @doc """
  Asserts that a conversation has no call that matches the pattern, or any of a list of them.

  ## Options

  #{AshAgent.Options.docs(Assertions.since_options())}

  ## Examples

      iex> import AshAgent.Test
      iex> context = AshAgent.Context.new("Hi") |> AshAgent.Context.add_assistant_message("Hello!")
      iex> refute_called(context, [pay, delete(%{all: true})]) == context
      true
  """
  @doc since: "0.1.0"
  defmacro refute_called(conversation, patterns, options \\ []) do
    patterns = patterns |> List.wrap() |> Enum.map(&Pattern.compile_call/1)
    raise_unless_ok(:check_not_called, [conversation, patterns, options])
  end

  @doc """
  Asserts that the answer matches a pattern, and returns the answer.

  The answer is the output of a result, or the text of a context's last message. A conversation that does not end with an answer
  has none.

  ## Examples

      iex> import AshAgent.Test
      iex> context = AshAgent.Context.new("Hi") |> AshAgent.Context.add_assistant_message("Hello Ann!")
      iex> assert_answer context, ~r/ann/i
      "Hello Ann!"
      iex> assert_answer context, text when byte_size(text) < 20
      "Hello Ann!"
  """
  @doc since: "0.1.0"
  defmacro assert_answer(conversation, pattern),
    do: raise_unless_ok(:check_answer, [conversation, Pattern.compile_value(pattern)])

  @doc """
  Asserts that a conversation stayed within its budgets, and returns its context.

  A budget that cannot be checked, because the models reported no tokens or have no price, fails.

  ## Options

  #{AshAgent.Options.docs(Assertions.within_options())}

  ## Examples

      iex> import AshAgent.Test
      iex> context = AshAgent.Context.new("Hi") |> AshAgent.Context.add_assistant_message("Hello!")
      iex> context = AshAgent.Context.Tokens.add_token_usage(context, %{input_tokens: 9, output_tokens: 2})
      iex> assert_within(context, tokens: 11, calls: 0, iterations: 1) == context
      true
  """
  @doc since: "0.1.0"
  defmacro assert_within(conversation, budgets),
    do: raise_unless_ok(:check_within, [conversation, budgets])

  @doc """
  Asserts that no call of this tool ran without an approval, and returns the calls of the tool.

  Calls that were denied or still wait did not run. If there is no call of the tool, none ran: use `assert_calls/3` to assert that there
  is one. A run records who approved a call if its option `:approval` is a function, see `AshAgent.Runtime`.

  ## Options

  #{AshAgent.Options.docs(Assertions.approved_options())}

  ## Examples

      iex> import AshAgent.Test
      iex> context = AshAgent.Context.new("Pay") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :pay}])
      iex> context = AshAgent.Context.Calls.approve_tool_call(context, "a", by: "ann")
      iex> context = AshAgent.Context.add_tool_results(context, [{"a", {:ok, "paid"}}])
      iex> [%{id: "a"}] = assert_approved context, :pay, by: "ann"
  """
  @doc since: "0.1.0"
  defmacro assert_approved(conversation, tool, options \\ []),
    do: raise_unless_ok(:check_approved, [conversation, tool, options])

  @doc """
  Runs a conversation again from an iteration with one thing changed, and returns an `AshAgent.Test.Branch`.

  Change a tool's result, and the model continues after it; change the user's message or the system prompt, and the model answers
  again in this iteration; or change none of them, and pass another model or other tools. The branch is a fork with the
  conversation's masks, prompt blocks, limits and metadata, and the conversation stays as it is. The model may be scripted, recorded or real. Tools that the branch calls are really run, so pass
  tools that may run.

  ## Options

  #{AshAgent.Options.docs(Branch.options())}

  Raises `ArgumentError` for an iteration that does not exist or has nothing of the kind.

  ## Examples

      iex> alias AshAgent.{Context, LLM, Runtime, Test}
      iex> tools = %{weather: fn _ -> {:ok, "sun"} end}
      iex> llm = LLM.Scripted.new([%{tool_calls: [%{id: "call_1", name: "weather"}]}, "No umbrella."])
      iex> {:ok, result} = Runtime.run(Context.new("Umbrella?"), llm: llm, tools: tools)
      iex> llm = LLM.Scripted.new(["Take one."])
      iex> branch = Test.branch(result, 1, tool_result: {"call_1", {:ok, "rain"}}, run: [llm: llm, tools: tools])
      iex> {:ok, changed} = branch.result
      iex> {result.output, changed.output}
      {"No umbrella.", "Take one."}
  """
  @doc since: "0.1.0"
  @spec branch(term(), pos_integer(), keyword()) :: Branch.t()
  def branch(conversation, iteration, opts),
    do: conversation |> Assertions.context!() |> Branch.new(iteration, opts)

  @doc """
  Rebuilds the requests of a stored conversation and compares them with what was sent.

  Returns `{:same, count}` with how many requests were compared, `{:different, found}` with
  `%{iteration: number, differences: [%AshAgent.LLM.Difference{}]}` for each that differs first in something, or `:not_comparable` for a conversation that
  keeps nothing of its requests, since no run made it, or one before they were noted.

  The rendered messages are compared byte by byte, by the digests that runs of the package's clients keep, see `AshAgent.Context.Audit.replay/1`: a
  difference is in the kept conversation, in its view, or in the version of the package. Then the rest of each request is compared with
  today's code: the model, the options of the provider, the fields of the body, the tools with their schemas, and the system prompt and the views, if
  you pass them. No tool runs and no connection is opened.

  ## Options

  #{AshAgent.Options.docs(Replay.options())}

  ## Examples

      iex> alias AshAgent.{Context, LLM, Runtime, Test}
      iex> look = fn about -> %{name: "look", description: about, function: fn _ -> {:ok, 1} end} end
      iex> {:ok, result} = Runtime.run(Context.new("Hi"), llm: LLM.Scripted.new(["Hello!"]), tools: [look.("Looks.")])
      iex> Test.replay(result, llm: LLM.Scripted.new([]), tools: [look.("Looks.")])
      {:same, 1}
      iex> {:different, [%{differences: [difference]}]} = Test.replay(result, llm: LLM.Scripted.new([]), tools: [look.("Sees.")])
      iex> to_string(difference)
      ~s|the tool `look`, description: was "Looks.", is "Sees."|
  """
  @doc since: "0.1.0"
  @spec replay(term(), keyword()) ::
          {:same, pos_integer()}
          | {:different,
             [%{iteration: pos_integer(), differences: [AshAgent.LLM.Difference.t()]}]}
          | :not_comparable
  def replay(conversation, opts) do
    case conversation |> Assertions.context!() |> Replay.run(opts) do
      %{different: [_ | _] = different} -> {:different, different}
      %{compared: 0} -> :not_comparable
      %{compared: compared} -> {:same, compared}
    end
  end

  # The error is raised where ExUnit is, so that the package does not depend on it.
  defp raise_unless_ok(check, arguments) do
    quote generated: true do
      case unquote(Assertions).unquote(check)(unquote_splicing(arguments)) do
        {:ok, value} -> value
        {:error, message} -> raise ExUnit.AssertionError, message: message
      end
    end
  end
end
