defmodule AshAgent.MCP.Listing do
  @moduledoc false

  # Reads the tools that a server lists. All of it comes from outside: names are made acceptable, and no server takes those of
  # another; a tool whose schema a provider could refuse, or that is too large, is left out, so that one tool of one server
  # never spoils a request.

  alias AshAgent.Context.JSON

  @name_bytes 64
  @description_bytes 4_096
  @schema_terms 5_000
  @schema_bytes 64_000
  @depth 24

  @max_tools 256

  @doc """
  Returns the tools that can be offered, and why others cannot. A tool has its `name`, its name on the server as `remote`, `description`,
  `parameters` and `repeat`.
  """
  def read(listed, prefix, trust?) do
    {listed, rest} = Enum.split(listed, @max_tools)
    read = Enum.map(listed, &entry(&1, prefix, trust?))
    entries = for({:ok, entry} <- read, do: entry) |> Enum.uniq_by(& &1.name)
    reasons = for {:error, reason} <- read, do: reason
    {entries, if(rest == [], do: reasons, else: ["more than #{@max_tools} tools" | reasons])}
  end

  @doc "Returns true if pages have more tools than are read."
  def too_many?(pages), do: pages |> Enum.map(&length/1) |> Enum.sum() > @max_tools

  defp entry(%{"name" => remote} = tool, prefix, trust?) when is_binary(remote) do
    with :ok <-
           fit(remote != "" and byte_size(remote) <= 1_000, "a name that is too long or empty"),
         :ok <- fit(String.valid?(remote), "a name that is not valid UTF-8"),
         {:ok, parameters} <- parameters(Map.get(tool, "inputSchema", %{})) do
      {:ok,
       %{
         name: name(prefix, remote),
         remote: remote,
         description: description(tool["description"]),
         parameters: parameters,
         repeat: if(trust?, do: repeat(tool["annotations"]), else: :never)
       }}
    end
  end

  defp entry(_other, _prefix, _trust?), do: {:error, "a tool without a name"}

  defp fit(true, _reason), do: :ok
  defp fit(false, reason), do: {:error, reason}

  # Prefixes contain no two underscores in a row, so no server can take a name of another. A name that had to be changed
  # gets a hash of the original one.
  @doc "A name that every provider accepts."
  def name(prefix, remote) do
    plain = for <<byte <- remote>>, into: "", do: if(plain?(byte), do: <<byte>>, else: "_")
    room = @name_bytes - byte_size(prefix) - 2

    if plain == remote and byte_size(plain) <= room do
      prefix <> "__" <> plain
    else
      hash = :crypto.hash(:sha256, remote) |> binary_part(0, 4) |> Base.encode16(case: :lower)
      prefix <> "__" <> binary_part(plain, 0, min(byte_size(plain), room - 9)) <> "_" <> hash
    end
  end

  defp plain?(byte), do: byte in ?a..?z or byte in ?A..?Z or byte in ?0..?9 or byte in [?_, ?-]

  defp description(text) when is_binary(text) do
    text = cut(text)
    # A part of a binary keeps all of it in memory.
    if String.trim(text) == "", do: nil, else: :binary.copy(text)
  end

  defp description(_none), do: nil

  defp cut(text),
    do: text |> binary_part(0, min(byte_size(text), @description_bytes)) |> readable()

  @doc "Words for a person, as long as a description, in which nothing controls a terminal."
  def words(text), do: text |> cut() |> String.replace(~r/[\p{Cc}\p{Cf}]/u, " ") |> :binary.copy()

  @doc "The schema of a form, as one of a tool's parameters: `{:ok, schema}` or an error in words."
  def form(schema), do: parameters(schema)

  @doc "A server's words, 2,000 bytes at most."
  def shorten(words),
    do: words |> binary_part(0, min(byte_size(words), 2_000)) |> readable()

  @doc "Valid UTF-8, with a sign for what is not."
  def readable(text) do
    if String.valid?(text), do: text, else: text |> JSON.encode() |> JSON.decode!()
  end

  # These are claims of the server.
  defp repeat(%{} = hints),
    do: if(true in [hints["readOnlyHint"], hints["idempotentHint"]], do: :safe, else: :never)

  defp repeat(_other), do: :never

  ## Schemas

  # Providers accept no alternatives at the top; the server checks arguments anyway.
  @refused_at_top ["$schema", "oneOf", "anyOf", "allOf", "not", "enum"]

  defp parameters(%{} = schema) when not is_struct(schema) do
    with {_terms, _bytes} <- weigh(schema, {@schema_terms, @schema_bytes}, @depth),
         :ok <-
           fit(Map.get(schema, "type", "object") == "object", "a schema that is not an object's"),
         schema = schema |> Map.drop(@refused_at_top) |> Map.put("type", "object"),
         {:ok, schema} <- properties(schema) do
      {:ok, check_required(schema)}
    else
      {:error, reason} -> {:error, reason}
      :over -> {:error, "a schema that is too large or too deep"}
      :wrong -> {:error, "a schema that is not JSON"}
    end
  end

  defp parameters(_other), do: {:error, "a schema that is not an object's"}

  defp properties(%{"properties" => %{} = properties} = schema) do
    key? = fn key -> byte_size(key) in 1..64 and Enum.all?(String.to_charlist(key), &key?/1) end

    cond do
      not Enum.all?(Map.keys(properties), key?) ->
        {:error, "a parameter whose name providers do not accept"}

      not Enum.all?(Map.values(properties), &(is_map(&1) or is_boolean(&1))) ->
        {:error, "a parameter without a schema"}

      true ->
        {:ok, schema}
    end
  end

  defp properties(schema), do: {:ok, Map.put(schema, "properties", %{})}

  defp key?(character), do: plain?(character) or character == ?.

  defp check_required(%{"required" => names} = schema) do
    if is_list(names) and Enum.all?(names, &is_binary/1),
      do: schema,
      else: Map.delete(schema, "required")
  end

  defp check_required(schema), do: schema

  # Returns the terms and bytes that are left for a schema: it ends with the first that is too many.
  defp weigh(_term, {terms, _bytes}, depth) when terms <= 0 or depth == 0, do: :over

  defp weigh(text, {_terms, bytes}, _depth) when is_binary(text) and byte_size(text) > bytes,
    do: :over

  defp weigh(text, {terms, bytes}, _depth) when is_binary(text) do
    if String.valid?(text), do: {terms - 1, bytes - byte_size(text)}, else: :wrong
  end

  defp weigh(term, {terms, bytes}, _depth)
       when is_number(term) or is_boolean(term) or is_nil(term),
       do: {terms - 1, bytes}

  defp weigh(list, left, depth) when is_list(list), do: weigh_all(list, one_less(left), depth - 1)

  defp weigh(%{} = map, left, depth) when not is_struct(map) do
    if Enum.all?(Map.keys(map), &is_binary/1),
      do: map |> Enum.flat_map(&Tuple.to_list/1) |> weigh_all(one_less(left), depth - 1),
      else: :wrong
  end

  defp weigh(_other, _left, _depth), do: :wrong

  defp one_less({terms, bytes}), do: {terms - 1, bytes}

  defp weigh_all([], left, _depth), do: left

  defp weigh_all([term | rest], left, depth) do
    with {_, _} = left <- weigh(term, left, depth), do: weigh_all(rest, left, depth)
  end

  defp weigh_all(_improper, _left, _depth), do: :wrong
end
