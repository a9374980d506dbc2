defmodule AshAgent.Context.Options.Kinds do
  @moduledoc false

  # Options that several functions have, each with its own words, and the checks of values that a type does not cover.

  @least_result_bytes 100

  @doc "The least limit of a result: below it, the note of what was left out takes all of the room."
  def least_result_bytes, do: @least_result_bytes

  def time, do: option({:or, [{:struct, DateTime}, nil]}, "a `DateTime`")
  def at, do: time() ++ [doc: "the time of the change. Defaults to now."]

  def moment do
    type = {:or, [{:struct, DateTime}, :integer, nil]}
    option(type, "a `DateTime`, or microseconds since 1970")
  end

  def text, do: option({:custom, &__MODULE__.text?/1}, "a non-empty UTF-8 string")
  def name, do: option({:custom, &__MODULE__.name?/1}, "a non-empty UTF-8 string")
  def string, do: option({:or, [:string, nil]}, "a string")
  def branch, do: option({:or, [:string, nil]}, "the name of a branch")
  def metadata, do: option({:or, [:map, nil]}, "a map")
  def prompt, do: option({:or, [:string, :list, nil]}, "a string or a list of text parts")
  def input, do: option({:or, [:string, :list, :map, nil]}, "a string, a list of parts or a map")

  def settings do
    words = "a keyword list, a map or an `AshAgent.ChatContext.Config`"
    option({:or, [:keyword_list, :map, nil]}, words)
  end

  def iteration, do: option({:or, [:integer, nil]}, "the number of an iteration")
  def positive, do: option({:or, [:pos_integer, nil]}, "a positive integer")

  def result_bytes do
    words = "an integer of at least #{@least_result_bytes}, or `nil`"
    option({:custom, &__MODULE__.result_bytes?/1}, words)
  end

  def kept_id, do: option({:custom, &__MODULE__.kept_id?/1}, "a string that is not blank")
  def range(check), do: option({:custom, check}, "a range of iterations such as `2..4`")

  def first_counted,
    do: [type: :pos_integer, default: 1, doc: "the number of the first iteration that counts."]

  def asked_model do
    doc = "the model of the request, where answers name none or one without a price."
    string() ++ [doc: doc <> " Defaults to no name."]
  end

  defp option(type, words), do: [type: type, type_doc: words]

  # By its fields, since AshAgent.Context is documented with its options.
  def context?(value), do: is_struct(value) and match?(%{ref: _, current_iteration: _}, value)

  def view?({enhancers, opts}), do: is_list(enhancers) and Keyword.keyword?(opts)
  def view?(view), do: view in [:auto, nil] or is_list(view)

  def text?(text), do: is_nil(text) or name?(text)
  def name?(name), do: is_binary(name) and name != "" and String.valid?(name)
  def share?(share), do: is_nil(share) or (is_number(share) and share >= 0 and share <= 10)
  def index?(share), do: is_number(share) and share >= 0 and share <= 0.1
  def words?(text), do: is_binary(text) and String.valid?(text) and String.trim(text) != ""
  def kept_id?(id), do: is_nil(id) or words?(id)

  def result_bytes?(bytes),
    do: is_nil(bytes) or (is_integer(bytes) and bytes >= @least_result_bytes)

  def range?(nil), do: true
  def range?(%Range{step: 1, first: first, last: last}), do: is_integer(first) and last >= first
  def range?(_other), do: false

  def seed?(range), do: is_nil(range) or (range?(range) and range.first > 0)

  def needs?(needs) when is_struct(needs),
    do: is_struct(needs, MapSet) and needs?(MapSet.to_list(needs))

  def needs?(needs) when is_map(needs), do: needs |> Map.keys() |> Enum.all?(&is_atom/1)

  def needs?(needs) do
    is_list(needs) and not List.improper?(needs) and
      Enum.all?(needs, &(is_atom(&1) or match?({name, _value} when is_atom(name), &1)))
  end
end
