defmodule AshAgent.ChatContext.Document do
  @moduledoc false

  # A chat as a document of JSON data, and back. Terms are written as contexts write their metadata, the conversations
  # as contexts dump themselves; fields that this release does not know are kept as they are.

  alias AshAgent.ChatContext
  alias AshAgent.ChatContext.{Bases, Branch, Config, Terms}
  alias AshAgent.Context
  alias AshAgent.Context.{Error, JSON}

  @version 1
  @keys ~w(id parent_id config active_branch)
  @branch_keys ~w(name base)

  @spec dump(ChatContext.t()) :: map()
  def dump(chat) do
    found = chat |> ChatContext.branches() |> Bases.find()

    head =
      filled(%{
        "id" => chat.id,
        "parent_id" => chat.parent_id,
        "config" => Config.to_terms(chat.config),
        "active_branch" => chat.active_branch_name,
        "branches" => Enum.map(found, &names/1)
      })

    head
    |> Terms.encode()
    |> Map.update("config", chat.config.extra, &Map.merge(chat.config.extra, &1))
    |> filled()
    |> Map.update!(
      "branches",
      &Enum.zip_with(&1, found, fn names, found -> branch(names, found) end)
    )
    |> Map.put("version", @version)
    |> then(&Map.merge(chat.extra, &1))
  end

  defp filled(map), do: Map.reject(map, fn {_key, value} -> value in [nil, %{}] end)

  defp names({branch, nil}), do: %{"name" => branch.name}
  defp names({branch, base}), do: %{"name" => branch.name, "base" => base.name}

  defp branch(names, {branch, base}),
    do: branch.extra |> Map.merge(names) |> Map.put("context", context(branch, base))

  defp context(branch, nil), do: Context.dump(branch.context)
  defp context(branch, base), do: Context.dump(branch.context, beside: base.context)

  @doc "`opts` are those of `AshAgent.Context.load/1`."
  @spec load(term(), keyword()) :: {:ok, ChatContext.t()} | {:error, Error.t()}
  def load(document, opts) do
    with :ok <- check_version(document),
         {:ok, given} <- given_branches(document),
         {:ok, head} <- head(document, given, opts),
         {:ok, config} <- config(head, document),
         :ok <- check_texts(head),
         {:ok, branches} <- load_branches(head["branches"], given, opts),
         :ok <- check_active(head["active_branch"], branches) do
      {:ok,
       %ChatContext{
         id: head["id"],
         parent_id: head["parent_id"],
         config: config,
         branches: branches,
         active_branch_name: head["active_branch"],
         made: map_size(branches),
         extra: Map.drop(document, ["version", "branches" | @keys])
       }}
    end
  end

  defp check_version(%{"version" => @version}), do: :ok

  defp check_version(%{"version" => newer}) when is_integer(newer) and newer > @version do
    invalid(
      ["version"],
      "a format of version #{@version} at most: a newer release of ash_agent_context wrote this"
    )
  end

  defp check_version(document) when is_map(document) and not is_struct(document),
    do: invalid(["version"], "the version of the format, #{@version}")

  defp check_version(_document), do: invalid([], "a chat: a map with string keys")

  defp given_branches(%{"branches" => [_ | _] = branches}) do
    wrong = not List.improper?(branches) && Enum.find_index(branches, &(not plain_map?(&1)))

    cond do
      List.improper?(branches) -> invalid(["branches"], "a list")
      wrong -> invalid(["branches", wrong], "a branch")
      too_much_shared?(branches) -> invalid(["branches"], "branches that share less")
      true -> {:ok, branches}
    end
  end

  defp given_branches(_document), do: invalid(["branches"], "a list of at least one branch")

  # Messages of an iteration in the middle of which branches part. They are few, but each branch names their number, and
  # loading takes that much time.
  @most_shared 1_000_000

  defp too_much_shared?(branches) do
    shared =
      for %{"context" => %{"shared" => shared}} when is_integer(shared) <- branches, do: shared

    Enum.sum(shared) > @most_shared
  end

  defp plain_map?(map), do: is_map(map) and not is_struct(map)

  # Everything but the conversations. What is not known is JSON data, or nothing is loaded.
  defp head(document, given, opts) do
    config = document["config"]
    config? = plain_map?(config)

    known =
      document
      |> Map.take(@keys)
      |> Map.put("branches", Enum.map(given, &Map.take(&1, @branch_keys)))

    unknown =
      document
      |> Map.drop(["version", "branches" | @keys])
      |> Map.put("branches", Enum.map(given, &unknown_of_branch/1))

    if config? do
      known = Map.put(known, "config", Map.take(config, Config.keys()))
      Terms.decode(known, Map.put(unknown, "config", unknown_of_config(config)), opts)
    else
      Terms.decode(known, unknown, opts)
    end
  end

  defp unknown_of_branch(branch), do: Map.drop(branch, ["context" | @branch_keys])
  defp unknown_of_config(config), do: Map.drop(config, Config.keys())

  defp config(%{"config" => nil}, _document), do: {:ok, %Config{}}

  defp config(%{"config" => terms}, %{"config" => config})
       when is_map(terms) and is_map(config) do
    with {:error, path, expected} <- Config.from_terms(terms, unknown_of_config(config)),
         do: invalid(["config" | path], expected)
  end

  defp config(%{"config" => _other}, _document), do: invalid(["config"], "a map")
  defp config(_head, _document), do: {:ok, %Config{}}

  defp check_texts(head) do
    cond do
      not name?(head["id"]) ->
        invalid(["id"], "non-empty text")

      not (is_nil(head["parent_id"]) or name?(head["parent_id"])) ->
        invalid(["parent_id"], "non-empty text")

      not name?(head["active_branch"]) ->
        invalid(["active_branch"], "non-empty text")

      true ->
        :ok
    end
  end

  defp name?(text), do: is_binary(text) and text != "" and String.valid?(text)

  # Each branch's base stands before it, so that there is no cycle to be found.
  defp load_branches(named, given, opts) do
    [named, given]
    |> Enum.zip()
    |> Enum.with_index(1)
    |> Enum.reduce_while({:ok, %{}}, fn {{names, given}, number}, {:ok, branches} ->
      case load_branch(names, given, number, branches, opts) do
        {:ok, branch} -> {:cont, {:ok, Map.put(branches, branch.name, branch)}}
        {:error, error} -> {:halt, {:error, within(error, ["branches", number - 1])}}
      end
    end)
  end

  defp load_branch(names, given, number, branches, opts) do
    with {:ok, name} <- new_name(names["name"], branches),
         {:ok, base} <- base(names["base"], branches),
         {:ok, context} <- load_context(base, given, opts) do
      fields = [number: number, origin: base && base.number, extra: unknown_of_branch(given)]
      {:ok, Branch.new(name, context, fields)}
    end
  end

  defp new_name(name, branches) do
    if name?(name) and not is_map_key(branches, name),
      do: {:ok, name},
      else: invalid(["name"], "non-empty text that no branch before it has as its name")
  end

  defp base(nil, _branches), do: {:ok, nil}

  defp base(name, branches) do
    with :error <- Map.fetch(branches, name),
         do: invalid(["base"], "the name of a branch before this one")
  end

  defp load_context(base, given, opts) do
    document = Map.get(given, "context")

    loaded =
      if base,
        do: Context.load(base.context, document, opts),
        else: Context.load(document, opts)

    with {:error, error} <- loaded, do: {:error, within(error, ["context"])}
  end

  defp check_active(name, branches) do
    if is_map_key(branches, name),
      do: :ok,
      else: invalid(["active_branch"], "the name of one of the branches")
  end

  defp invalid(path, expected), do: {:error, %Error{reason: {:invalid, path, expected}}}

  defp within(%Error{reason: {:invalid, path, expected}}, outer),
    do: %Error{reason: {:invalid, outer ++ path, expected}}

  defp within(%Error{reason: {:unsupported_term, kind, path}}, outer),
    do: %Error{reason: {:unsupported_term, kind, outer ++ path}}

  defp within(error, _outer), do: error

  @doc "JSON text of a document."
  @spec to_text(term()) :: binary()
  def to_text(data), do: data |> text() |> IO.iodata_to_binary()

  # The writer takes 256 levels, and terms of that depth are deeper as JSON data.
  defp text(data) do
    JSON.encode(data)
  rescue
    error in Error ->
      if match?({:too_deep, _}, error.reason),
        do: outer(data),
        else: reraise(error, __STACKTRACE__)
  end

  defp outer(map) when is_map(map),
    do: [
      ?{,
      map
      |> Enum.map(fn {key, value} -> [JSON.encode(key), ?:, text(value)] end)
      |> Enum.intersperse(?,),
      ?}
    ]

  defp outer(list), do: [?[, list |> Enum.map(&text/1) |> Enum.intersperse(?,), ?]]
end
