defmodule Mix.AshAgent.Sources do
  @moduledoc false

  # The conversations and functions that the arguments of this package's tasks name: in stores, in files, and in an
  # application.

  alias AshAgent.{ChatContext, Context, Prices, Store}

  @doc "Returns the value of `{:ok, value}`, and `:ok`. An error ends the task with its words."
  def ok!(result, id \\ nil)
  def ok!(:ok, _id), do: :ok
  def ok!({:ok, value}, _id), do: value

  def ok!({:error, :not_found}, id),
    do: Mix.raise("the store has no conversation #{inspect(id)}")

  def ok!({:error, error}, _id), do: Mix.raise(Exception.message(error))

  @doc "The option of `AshAgent.Prices` for a file of prices, if one is named."
  def prices(nil), do: []
  def prices(file), do: [prices: ok!(Prices.read(file))]

  ## Stores

  @doc "Opens the store of an argument. `option` is what the argument is called."
  def open_store(text, option) do
    cond do
      text =~ ~r{\Apostgres(ql)?://} -> open_postgres(URI.parse(text))
      text =~ ~r/\A[A-Z][\w.]*\z/ -> open_module(text, option)
      File.regular?(text) -> ok!(Store.SQLite.open(text))
      true -> Mix.raise("#{option}#{text}: there is no such file, repository or function")
    end
  end

  @doc "Returns whether an argument names a store, and not the file of a conversation."
  def store?(text),
    do: text =~ ~r{\Apostgres(ql)?://} or text =~ ~r/\A[A-Z][\w.]*\z/ or sqlite?(text)

  @sqlite "SQLite format 3\0"

  defp sqlite?(path) do
    case File.open(path, [:read, :binary], &IO.binread(&1, byte_size(@sqlite))) do
      {:ok, bytes} -> bytes == @sqlite
      {:error, _reason} -> false
    end
  end

  # The address has a password, and is never shown.
  defp open_postgres(uri) do
    needs =
      "an address of PostgreSQL needs Postgrex; name a repository of your application instead"

    unless Code.ensure_loaded?(Postgrex), do: Mix.raise(needs)
    {:ok, _apps} = Application.ensure_all_started(:postgrex)
    [user | password] = String.split(uri.userinfo || "postgres", ":", parts: 2)

    password = with [word] <- password, do: URI.decode(word), else: ([] -> nil)
    place = [hostname: uri.host, port: uri.port || 5432, username: URI.decode(user)]
    opts = place ++ [password: password, database: String.trim_leading(uri.path || "", "/")]

    {:ok, connection} = apply(Postgrex, :start_link, [opts])
    Store.Postgres.new({Postgrex, connection})
  end

  # A repository, or a function that returns a store.
  defp open_module(text, option) do
    Mix.Task.run("app.start")

    if module = module(String.split(text, ".")),
      do: Store.Postgres.new(module),
      else: find_function(text, [0], option).()
  end

  @doc "Returns the function of an application that an argument names, with one of these arities. The application is started."
  def find_function(text, arities, option) do
    Mix.Task.run("app.start")
    {names, [name]} = text |> String.split(".") |> Enum.split(-1)
    module = module(names)

    found =
      for {function, arity} <- (module && module.module_info(:exports)) || [],
          arity in arities and Atom.to_string(function) == name,
          do: Function.capture(module, function, arity)

    List.first(found) ||
      Mix.raise("#{option}#{text}: there is no such repository or function")
  end

  # No atom is made of a name that does not exist.
  defp module(names) do
    module = Module.safe_concat(names)
    if Code.ensure_loaded?(module), do: module
  rescue
    ArgumentError -> nil
  end

  ## Files

  @doc "Reads the conversation in a file: a snapshot or the body of a request to `provider`."
  def read_file(file, provider \\ nil), do: file |> load_file(provider) |> ok!()

  @doc "Like `read_file/2`, but returns `{:ok, conversation}` or `{:error, error}`."
  def load_file(file, provider \\ nil) do
    with {:ok, text} <- File.read(file),
         {:ok, document} <- Context.JSON.decode(text),
         {:ok, shown} <- load(document, provider) do
      {:ok, shown}
    else
      {:error, reason} when is_atom(reason) ->
        refuse("#{file} cannot be read: #{:file.format_error(reason)}")

      {:error, error} ->
        refuse("#{file} is not a stored conversation: #{Exception.message(error)}")
    end
  end

  defp refuse(words), do: {:error, %Mix.Error{message: words}}

  defp load(document, nil), do: load(document)

  defp load(document, provider) do
    with {:ok, context, _report} <- Context.Import.from_request(document, provider),
         do: {:ok, context}
  end

  defp load(%{"branches" => _} = document), do: ChatContext.load(document)

  defp load(%{"messages" => messages} = document) when is_list(messages) do
    anthropic? = is_map_key(document, "system") or Enum.any?(messages, &anthropic?/1)
    load(document, if(anthropic?, do: :anthropic, else: :openai_chat))
  end

  defp load(document), do: Context.load(document)

  # Both have "messages"; calls and results of Anthropic are parts.
  defp anthropic?(%{"content" => parts}) when is_list(parts),
    do: Enum.any?(parts, &match?(%{"type" => type} when type in ["tool_use", "tool_result"], &1))

  defp anthropic?(_message), do: false

  @doc "Returns the provider of this name."
  def provider(nil), do: nil

  def provider(name) do
    Enum.find(Context.Requests.providers(), &(Atom.to_string(&1) == name)) ||
      Mix.raise("a provider is one of #{Enum.join(Context.Requests.providers(), ", ")}")
  end
end
