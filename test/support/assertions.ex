defmodule AshAgent.TestSupport.Assertions do
  @moduledoc false

  import ExUnit.Assertions

  alias AshAgent.Context
  alias AshAgent.Context.Error

  # What a caller may get for a wrong argument. Anything else (ErlangError from a panic, MatchError, KeyError, ...)
  # is a fault of the package.
  @caller_bugs [FunctionClauseError, ArgumentError]

  @doc "The `reason` of the `AshAgent.Context.Error` that `fun` raises."
  def reason_of(fun) do
    case attempt(fun) do
      {:raised, %Error{reason: reason}} -> reason
      {:raised, other} -> flunk("expected an AshAgent.Context.Error, got #{short(other)}")
      {:ok, value} -> flunk("expected an AshAgent.Context.Error, but it returned #{short(value)}")
    end
  end

  @doc "Asserts that `fun` is refused as a caller's bug and returns the exception."
  def assert_caller_bug(fun) do
    case attempt(fun) do
      {:raised, %kind{} = exception} when kind in @caller_bugs ->
        exception

      {_, other} ->
        flunk("expected a FunctionClauseError or an ArgumentError, got #{short(other)}")
    end
  end

  @doc "Asserts that `fun` is refused, as a caller's bug or as an error of the package, and returns the exception."
  def assert_refused(fun) do
    case attempt(fun) do
      {:raised, exception} -> assert_known(exception)
      {:ok, value} -> flunk("expected a refusal, but it returned #{short(value)}")
    end
  end

  @doc "Runs `fun`; a value and a refusal are both fine, anything else is a fault."
  def assert_survives(fun) do
    case attempt(fun) do
      {:ok, value} -> {:ok, value}
      {:raised, exception} -> {:refused, assert_known(exception)}
    end
  end

  defp assert_known(%kind{} = exception) when kind in [Error | @caller_bugs] do
    assert is_binary(Exception.message(exception))
    exception
  end

  defp assert_known(exception), do: flunk("unexpected #{short(exception)}")

  defp attempt(fun) do
    {:ok, fun.()}
  rescue
    exception -> {:raised, exception}
  end

  defp short(value), do: inspect(value, limit: 20, printable_limit: 200)

  @doc """
  Asserts that two terms are equal to the last bit: integers are not floats, `-0.0` is not `0.0`.
  """
  def assert_same(expected, actual) do
    case difference(expected, actual, []) do
      nil ->
        actual

      {path, left, right} ->
        flunk("""
        terms differ at #{inspect(Enum.reverse(path))}
        expected: #{inspect(left, limit: 200, printable_limit: 2000)}
        actual:   #{inspect(right, limit: 200, printable_limit: 2000)}
        """)
    end
  end

  @doc "Where two terms differ: `nil` or `{reversed_path, expected, actual}`."
  def difference(left, right, path) when is_map(left) and is_map(right) do
    cond do
      left === right and not has_float?(left) ->
        nil

      Enum.sort(Map.keys(left)) !== Enum.sort(Map.keys(right)) ->
        {[:keys | path], Map.keys(left), Map.keys(right)}

      true ->
        left
        |> Map.to_list()
        |> Enum.find_value(fn {key, value} ->
          difference(value, Map.fetch!(right, key), [key | path])
        end)
    end
  end

  def difference(left, right, path) when is_list(left) and is_list(right) do
    if length(left) == length(right) do
      [left, right]
      |> Enum.zip()
      |> Enum.with_index()
      |> Enum.find_value(fn {{a, b}, index} -> difference(a, b, [index | path]) end)
    else
      {[:length | path], left, right}
    end
  end

  def difference(left, right, path) when is_tuple(left) and is_tuple(right) do
    if tuple_size(left) == tuple_size(right),
      do: difference(Tuple.to_list(left), Tuple.to_list(right), path),
      else: {path, left, right}
  end

  def difference(left, right, path) when is_float(left) and is_float(right) do
    if <<left::float>> == <<right::float>>, do: nil, else: {path, left, right}
  end

  def difference(left, right, _path) when left === right, do: nil
  def difference(left, right, path), do: {path, left, right}

  # Only maps that may hold a float need the slow comparison: `===` takes -0.0 for 0.0 on OTP 25.
  defp has_float?(map),
    do: map |> Map.values() |> Enum.any?(&(not (is_binary(&1) or is_atom(&1))))

  @methods [:auto, :estimate, :o200k_base, :cl100k_base]

  @doc "All that can be read of a context at once."
  def read_all(context) do
    %{
      messages: Context.to_messages(context),
      log: Context.to_messages(context, view: :log),
      view: Context.View.view(context),
      messages_count: Context.count_messages(context),
      tokens: for(method <- @methods, do: Context.Tokens.count_tokens(context, method: method)),
      kinds: for(method <- @methods, do: Context.Tokens.token_breakdown(context, method: method)),
      usage: Context.Tokens.get_cumulative_tokens(context),
      ready: Context.validate_for_request(context),
      prompt: Context.to_prompt(context),
      document: Context.dump(context)
    }
  end

  @doc "Asserts that a context comes back from storage as it is, counts included."
  def assert_stored(context) do
    for copy <- [
          Context.load!(Context.dump(context)),
          Context.load!(Context.to_snapshot(context))
        ] do
      assert Context.equal?(copy, context)
      copied = read_all(copy)
      for {key, value} <- read_all(context), do: assert({key, copied[key]} == {key, value})
    end

    for method <- @methods do
      kinds =
        context |> Context.Tokens.token_breakdown(method: method) |> Map.values() |> Enum.sum()

      counted = if method == :auto, do: :estimate, else: method
      assert kinds == Context.Tokens.count_tokens(context, method: counted)
    end
  end
end
