defmodule AshAgent.Store.Conformance.Group do
  @moduledoc false
  # A module of checks. A check is a function that gets the context of a test, under the name of that test.

  # A group is named by its title, or by that and the callback that it checks where a store has it.
  defmacro __using__(title) do
    # All stores have the first one.
    {title, needs} = if is_binary(title), do: {title, {:fetch, 2}}, else: title

    quote do
      import ExUnit.Assertions
      import AshAgent.Store.Conformance.{Group, Helpers, Random}
      alias AshAgent.{ChatContext, Context, Store}
      alias AshAgent.Store.Conversation

      Module.register_attribute(__MODULE__, :checks, accumulate: true)
      @before_compile AshAgent.Store.Conformance.Group

      def title, do: unquote(title)

      def check(name, %{store: store} = context) do
        {callback, arity} = unquote(needs)
        if can?(store, callback, arity), do: apply(__MODULE__, name, [context])
      end
    end
  end

  defmacro check(name, context, do: body) do
    function = String.to_atom("check " <> name)

    quote do
      @checks {unquote(name), unquote(function)}
      def unquote(function)(unquote(context)), do: unquote(body)
    end
  end

  defmacro __before_compile__(_env) do
    quote do
      def checks, do: Enum.reverse(@checks)
    end
  end
end
