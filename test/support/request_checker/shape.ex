defmodule AshAgent.TestSupport.RequestChecker.Shape do
  @moduledoc """
  The small vocabulary the checkers are written in.

  A *check* is a function of a value and its path that returns findings; `object/4`, `list/3` and `union/3` put checks together.
  """

  @type path :: [String.t() | non_neg_integer()]
  @type finding :: %{rule: atom(), path: path(), detail: String.t()}
  @type check :: (term(), path() -> [finding()])

  @spec finding(atom(), path(), String.t()) :: finding()
  def finding(rule, path, detail), do: %{rule: rule, path: path, detail: detail}

  ## Compositions

  @doc "An object with all of the `required` keys, none but the `optional` ones besides, and each value as its check wants it."
  @spec object(term(), path(), %{String.t() => check()}, %{String.t() => check()}) :: [finding()]
  def object(value, path, required, optional \\ %{})

  def object(value, path, required, optional) when is_map(value) do
    missing =
      for {key, _} <- required,
          not is_map_key(value, key),
          do: finding(:missing_key, path, "no #{inspect(key)}")

    checks = Map.merge(required, optional)

    Enum.reduce(value, missing, fn {key, part}, findings ->
      case checks do
        %{^key => check} ->
          findings ++ check.(part, path ++ [key])

        _ ->
          findings ++ [finding(:unknown_key, path ++ [key], "#{inspect(key)} is not a key here")]
      end
    end)
  end

  def object(value, path, _required, _optional), do: not_an_object(value, path)

  @doc "A part of one of these `types`, of all that there are, which `check` looks into."
  @spec only([String.t()], [String.t()], check()) :: check()
  def only(types, all, check) do
    fn part, path ->
      case part do
        %{"type" => type} ->
          cond do
            type not in all ->
              [finding(:unknown_block, path, "the part #{show(type)} is unknown")]

            type not in types ->
              [finding(:block_not_allowed, path, "no #{type} part here")]

            true ->
              check.(part, path)
          end

        _other ->
          object(part, path, %{"type" => &any/2})
      end
    end
  end

  @doc "An object with exactly one key, which is one of the `members`."
  @spec union(term(), path(), %{String.t() => check()}) :: [finding()]
  def union(value, path, members) when is_map(value) do
    case Map.to_list(value) do
      [{key, part}] ->
        case members do
          %{^key => check} ->
            check.(part, path ++ [key])

          _ ->
            [
              finding(
                :unknown_block,
                path,
                "#{inspect(key)} is none of #{inspect(Map.keys(members))}"
              )
            ]
        end

      pairs ->
        [
          finding(
            :union_not_single,
            path,
            "exactly one key, not #{inspect(Enum.map(pairs, &elem(&1, 0)))}"
          )
        ]
    end
  end

  def union(value, path, _members), do: not_an_object(value, path)

  @doc "A list, each element as the check wants it."
  @spec list(term(), path(), check()) :: [finding()]
  def list(value, path, check) when is_list(value) do
    value
    |> Enum.with_index()
    |> Enum.flat_map(fn {item, index} -> check.(item, path ++ [index]) end)
  end

  def list(value, path, _check), do: [finding(:not_a_list, path, "a list, not #{show(value)}")]

  @doc "A list as `list/3`, with at least one element; `rule` names what an empty one breaks."
  @spec filled_list(term(), path(), atom(), check()) :: [finding()]
  def filled_list([], path, rule, _check), do: [finding(rule, path, "an empty list")]
  def filled_list(value, path, _rule, check), do: list(value, path, check)

  @doc "Text, or a filled list of parts."
  @spec text_or_parts(term(), path(), check()) :: [finding()]
  def text_or_parts(value, path, _part) when is_binary(value), do: text(value, path)

  def text_or_parts(value, path, part) when is_list(value),
    do: filled_list(value, path, :empty_content, part)

  def text_or_parts(value, path, _part),
    do: [finding(:bad_content, path, "text or a list of parts, not #{show(value)}")]

  ## The same as checks, to be put into others

  @spec object_of(%{String.t() => check()}, %{String.t() => check()}) :: check()
  def object_of(required, optional \\ %{}), do: &object(&1, &2, required, optional)

  @spec union_of(%{String.t() => check()}) :: check()
  def union_of(members), do: &union(&1, &2, members)

  @spec list_of(check()) :: check()
  def list_of(check), do: &list(&1, &2, check)

  @spec filled(atom(), check()) :: check()
  def filled(rule, check), do: &filled_list(&1, &2, rule, check)

  @spec text_or(check()) :: check()
  def text_or(part), do: &text_or_parts(&1, &2, part)

  @spec optional(check()) :: check()
  def optional(check),
    do: fn value, path -> if value == nil, do: [], else: check.(value, path) end

  @spec one_of([term()], atom()) :: check()
  def one_of(allowed, rule \\ :bad_value) do
    fn value, path ->
      if value in allowed,
        do: [],
        else: [finding(rule, path, "one of #{inspect(allowed)}, not #{show(value)}")]
    end
  end

  @spec matching(Regex.t(), atom()) :: check()
  def matching(pattern, rule) do
    fn
      value, path when is_binary(value) ->
        if Regex.match?(pattern, value),
          do: [],
          else: [finding(rule, path, "#{show(value)} does not match #{inspect(pattern)}")]

      value, path ->
        string(value, path)
    end
  end

  @doc "Text of `first..last` characters, of whatever kind."
  @spec sized(Range.t(), atom()) :: check()
  def sized(first..last//_, rule) do
    fn
      value, path when is_binary(value) ->
        size = length(String.codepoints(value))

        if size in first..last,
          do: [],
          else: [
            finding(rule, path, "#{first} to #{last} characters, not #{size}: #{show(value)}")
          ]

      value, path ->
        string(value, path)
    end
  end

  ## Single values

  @spec any(term(), path()) :: [finding()]
  def any(_value, _path), do: []

  @spec string(term(), path()) :: [finding()]
  def string(value, _path) when is_binary(value), do: []
  def string(value, path), do: [finding(:not_a_string, path, "text, not #{show(value)}")]

  @doc "Text a model can read: something besides whitespace."
  @spec text(term(), path()) :: [finding()]
  def text(value, path) when is_binary(value) do
    if blank?(value),
      do: [finding(:blank_text, path, "empty or only whitespace: #{show(value)}")],
      else: []
  end

  def text(value, path), do: string(value, path)

  @doc "An opaque text that is there: a signature, an encrypted content."
  @spec opaque(term(), path()) :: [finding()]
  def opaque(value, path) when is_binary(value) do
    if blank?(value), do: [finding(:blank_signature, path, "an empty opaque value")], else: []
  end

  def opaque(value, path), do: string(value, path)

  @spec boolean(term(), path()) :: [finding()]
  def boolean(value, _path) when is_boolean(value), do: []

  def boolean(value, path),
    do: [finding(:not_a_boolean, path, "true or false, not #{show(value)}")]

  @spec count(term(), path()) :: [finding()]
  def count(value, _path) when is_integer(value) and value >= 0, do: []
  def count(value, path), do: [finding(:not_a_count, path, "a count, not #{show(value)}")]

  @spec map(term(), path()) :: [finding()]
  def map(value, _path) when is_map(value), do: []
  def map(value, path), do: not_an_object(value, path)

  @doc "The arguments of a call where they are an object."
  @spec arguments(term(), path()) :: [finding()]
  def arguments(value, _path) when is_map(value), do: []

  def arguments(value, path),
    do: [finding(:arguments_not_object, path, "an object, not #{show(value)}")]

  @doc "The arguments of a call where they are the JSON text of an object."
  @spec arguments_text(term(), path()) :: [finding()]
  def arguments_text(value, path) when is_binary(value) do
    case AshAgent.TestSupport.JSONText.decode(value) do
      {:ok, arguments} when is_map(arguments) ->
        []

      {:ok, _} ->
        [
          finding(
            :arguments_not_json_object,
            path,
            "the JSON text of an object, not #{show(value)}"
          )
        ]

      {:error, reason} ->
        [finding(:arguments_not_json_object, path, reason)]
    end
  end

  def arguments_text(value, path),
    do: [finding(:arguments_not_text, path, "JSON text, not #{show(value)}")]

  @doc "Standard base64, padded, without a `data:` prefix."
  @spec base64(term(), path()) :: [finding()]
  def base64("data:" <> _ = value, path),
    do: [finding(:data_prefix, path, "bare base64, not #{show(value)}")]

  def base64(value, path) when is_binary(value) do
    case Base.decode64(value) do
      {:ok, <<_, _::binary>>} -> []
      _ -> [finding(:bad_base64, path, "standard base64, not #{show(value)}")]
    end
  end

  def base64(value, path), do: string(value, path)

  @spec url(term(), path()) :: [finding()]
  def url(value, path), do: matching(~r/\Ahttps?:\/\/[^\s\/]\S*\z/, :bad_url).(value, path)

  @doc "A web address or a `data:` URL with base64."
  @spec url_or_data(term(), path()) :: [finding()]
  def url_or_data("data:" <> _ = value, path), do: data_url(value, path)
  def url_or_data(value, path), do: url(value, path)

  @spec data_url(term(), path()) :: [finding()]
  def data_url("data:" <> rest = value, path) do
    with [media_type, data] <- String.split(rest, ";base64,", parts: 2),
         [] <- media_type(media_type, path) do
      base64(data, path)
    else
      _ -> [finding(:bad_url, path, "data:TYPE;base64,DATA, not #{show(value)}")]
    end
  end

  def data_url(value, path), do: matching(~r/\Adata:/, :bad_url).(value, path)

  @spec media_type(term(), path()) :: [finding()]
  def media_type(value, path),
    do:
      matching(
        ~r/\A[a-zA-Z0-9][a-zA-Z0-9!#$&^_.+-]*\/[a-zA-Z0-9][a-zA-Z0-9!#$&^_.+-]*\z/,
        :bad_media_type
      ).(value, path)

  @doc "All of it is what JSON can say: text keys, valid UTF-8, no atom but `nil`, `true` and `false`."
  @spec json(term(), path()) :: [finding()]
  def json(value, path) when is_binary(value) do
    if String.valid?(value),
      do: [],
      else: [finding(:invalid_utf8, path, "text that is not UTF-8: #{show(value)}")]
  end

  def json(value, _path) when is_number(value) or value in [nil, true, false], do: []

  def json(value, path) when is_list(value) do
    if List.improper?(value),
      do: [finding(:not_json, path, "an improper list")],
      else: list(value, path, &json/2)
  end

  def json(value, path) when is_map(value) and not is_struct(value) do
    Enum.flat_map(value, fn
      {key, part} when is_binary(key) -> json(key, path) ++ json(part, path ++ [key])
      {key, _} -> [finding(:not_json, path, "the key #{inspect(key)} is no text")]
    end)
  end

  def json(value, path), do: [finding(:not_json, path, "no JSON value: #{show(value)}")]

  ## Whitespace

  # The Unicode whitespace that String.trim/1 and Rust's trim know, and the four separators Python's strip() takes besides.
  @separators [<<0x1C>>, <<0x1D>>, <<0x1E>>, <<0x1F>>]

  @spec blank?(String.t()) :: boolean()
  def blank?(text) do
    String.valid?(text) and text |> String.replace(@separators, " ") |> String.trim() == ""
  end

  @spec trailing_whitespace?(String.t()) :: boolean()
  def trailing_whitespace?(text) do
    text = if String.valid?(text), do: String.replace(text, @separators, " "), else: ""
    String.trim_trailing(text) != text
  end

  ## Words

  @spec show(term()) :: String.t()
  def show(value), do: inspect(value, limit: 10, printable_limit: 80)

  defp not_an_object(value, path),
    do: [finding(:not_an_object, path, "an object, not #{show(value)}")]
end
