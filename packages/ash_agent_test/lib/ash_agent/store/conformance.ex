defmodule AshAgent.Store.Conformance do
  @moduledoc """
  Tests for stores: conversations load back equal, there is one writer, calls and prompts happen once, and what
  was started is never lost sight of.

      defmodule MyApp.StoreTest do
        use ExUnit.Case, async: true
        use AshAgent.Store.Conformance, store: MyApp.Store.for_tests()
      end

  `:store` is an expression that returns a store; it is evaluated before each test. `chats: false` is for a store that takes only contexts. Put tags for all tests between the two lines. The
  tests use their own ids and delete nothing else. They take some seconds; to repeat a random test that failed, use ExUnit's seed.
  """

  alias AshAgent.Store.Conformance

  @groups ~w(Conversations Chats Writers Claims Journal Runs Prompts Late) ++
            ~w(Finding Searching Media Erasing Hostile Model)

  @doc false
  defmacro __using__(opts) do
    opts = Keyword.validate!(opts, [:store, chats: true])

    quote do
      import AshAgent.Store.Conformance.{Helpers, Random}
      alias AshAgent.{ChatContext, Context, Store}
      alias AshAgent.Store.Conversation

      setup do
        {:ok, store: unquote(Keyword.fetch!(opts, :store))}
      end

      unquote_splicing(Enum.map(Conformance.groups(opts[:chats]), &describe_group/1))
    end
  end

  @doc false
  def groups(chats?) do
    for name <- @groups, chats? or name != "Chats", do: Module.concat(Conformance, name)
  end

  defp describe_group(group) do
    tests =
      for {name, function} <- group.checks() do
        quote do
          test unquote(name), context do
            unquote(group).check(unquote(function), context)
          end
        end
      end

    quote do
      describe unquote(group.title()) do
        (unquote_splicing(tests))
      end
    end
  end
end
