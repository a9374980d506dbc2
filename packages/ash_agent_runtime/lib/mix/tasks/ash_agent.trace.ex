defmodule Mix.Tasks.AshAgent.Trace do
  @shortdoc "Shows a stored conversation"

  @moduledoc """
  Shows a stored conversation at the terminal, or as an HTML page.

      mix ash_agent.trace FILE
      mix ash_agent.trace FILE --html page.html
      mix ash_agent.trace FILE --open
      mix ash_agent.trace --store agents.db
      mix ash_agent.trace --store agents.db --id user-17 --open
      mix ash_agent.trace --store MyApp.Repo --id user-17 --prices prices.json --html page.html

  FILE is JSON: a snapshot of `AshAgent.Context.to_snapshot/1` or `AshAgent.ChatContext.to_snapshot/1`, a trajectory in ATIF, or the body
  of a request to OpenAI's chat or Anthropic (to other providers with `--from`).

  STORE is the file of an `AshAgent.Store.SQLite`, the address of a PostgreSQL database, `postgres://user:password@host/database`, which
  needs Postgrex, the name of a repository, or `Module.function` of a function that returns a store. For the last two the application is
  started. Without `--id`, the store's conversations are listed, those that changed last. In a release, use `AshAgent.Trace.Stored`.

  ## Options

    * `--store STORE`, `--id ID` - shows a conversation of a store.
    * `--html PATH` - writes the page to this file.
    * `--open` - writes the page, next to FILE unless `--html` names another file, and opens it in a browser.
    * `--children` - shows the stored conversations of sub-agents on the page as well.
    * `--prices FILE` - a file that `AshAgent.Prices.read/2` reads: the page and the list have what answers cost.
    * `--request PROVIDER` - shows the request that would be sent to this provider now.
    * `--from PROVIDER` - FILE is the body of a request to this provider.
    * `--limit NUMBER` - how many of the newest messages to print, or conversations to list. Defaults to 50, and to 20.
    * `--full` - prints whole texts instead of one line of each.
    * `--unmasked` - shows the texts that the conversation's view masks.
  """

  use Mix.Task

  alias AshAgent.{ChatContext, Context, Prices, Store, Trace}
  alias AshAgent.Trace.Stored

  @requirements ["app.config"]

  @options [
    store: :string,
    id: :string,
    html: :string,
    open: :boolean,
    children: :boolean,
    prices: :string,
    request: :string,
    from: :string,
    limit: :integer,
    full: :boolean,
    unmasked: :boolean
  ]

  @usage "usage: mix ash_agent.trace FILE or --store STORE [--id ID], with [--html PATH] [--open] [--children] [--prices FILE] " <>
           "[--request PROVIDER] [--from PROVIDER] [--limit NUMBER] [--full] [--unmasked]"

  @impl true
  def run(args) do
    case OptionParser.parse(args, strict: @options) do
      {opts, [], []} when opts != [] -> show_stored(Map.new(opts))
      {opts, [file], []} -> show_file(file, Map.new(opts))
      {_opts, _files, [{option, _value} | _]} -> Mix.raise("wrong option #{option}; #{@usage}")
      {_opts, _files, []} -> Mix.raise("expected one file; #{@usage}")
    end
  end

  defp show_file(_file, %{store: _}), do: Mix.raise("expected FILE or --store; #{@usage}")

  defp show_file(file, opts) do
    shown = read(file, opts)

    case page(opts, Path.rootname(file)) do
      nil -> print(shown, opts)
      page -> shown |> Trace.to_html([title: title(shown)] ++ html(opts)) |> write(page, opts)
    end
  end

  defp show_stored(%{store: store, id: id} = opts) do
    store = open_store(store)

    case page(opts, Path.basename(id)) do
      nil ->
        store |> Stored.print(id, print_options(opts)) |> ok!(id)

      page ->
        children = [children: opts[:children] == true]
        store |> Stored.to_html(id, children ++ html(opts)) |> ok!(id) |> write(page, opts)
    end
  end

  defp show_stored(%{store: store} = opts) do
    limit = opts[:limit] || 20
    rows = store |> open_store() |> Stored.list([limit: limit] ++ prices(opts)) |> ok!(nil)
    for row <- rows, do: Mix.shell().info(line(row))
  end

  defp show_stored(_opts), do: Mix.raise("expected one file; #{@usage}")

  defp line(row) do
    at = row.updated_at |> DateTime.truncate(:second) |> DateTime.to_iso8601()
    failures = if row.failures > 0, do: ", #{row.failures} failed requests", else: ""

    cost = if row.cost, do: ", " <> Stored.format_cost(row.cost), else: ""

    "#{at}  #{row.status}  #{row.id}  #{row.iterations} iterations#{failures}#{cost}"
  end

  defp page(%{html: page}, _name), do: page
  defp page(%{open: true}, name), do: name <> ".html"
  defp page(_opts, _name), do: nil

  defp html(opts),
    do: [request: provider(opts[:request]), masked: opts[:unmasked] != true] ++ prices(opts)

  defp prices(%{prices: file}) do
    case Prices.read(file) do
      {:ok, prices} -> [prices: prices]
      {:error, error} -> Mix.raise(Exception.message(error))
    end
  end

  defp prices(_opts), do: []

  defp print_options(opts) do
    limit = opts[:limit] || 50
    if limit < 1, do: Mix.raise("--limit takes a positive number")
    width = if opts[:full], do: [width: :infinity], else: []
    [limit: limit, masked: opts[:unmasked] != true] ++ width
  end

  ## Stores

  defp open_store(text) do
    cond do
      text =~ ~r{\Apostgres(ql)?://} -> open_postgres(URI.parse(text))
      text =~ ~r/\A[A-Z][\w.]*\z/ -> open_module(text)
      File.regular?(text) -> ok!(Store.SQLite.open(text), nil)
      true -> Mix.raise("--store #{text}: there is no such file, repository or function")
    end
  end

  # The address has a password, and is never shown.
  defp open_postgres(uri) do
    unless Code.ensure_loaded?(Postgrex),
      do:
        Mix.raise(
          "an address of PostgreSQL needs Postgrex; name a repository of your application instead"
        )

    {:ok, _apps} = Application.ensure_all_started(:postgrex)
    [user | password] = String.split(uri.userinfo || "postgres", ":", parts: 2)

    opts = [
      hostname: uri.host,
      port: uri.port || 5432,
      username: URI.decode(user),
      password: password |> List.first() |> then(&(&1 && URI.decode(&1))),
      database: String.trim_leading(uri.path || "", "/")
    ]

    {:ok, connection} = apply(Postgrex, :start_link, [opts])
    Store.Postgres.new({Postgrex, connection})
  end

  # A repository, or a function that returns a store. Neither makes an atom of a name that does not exist.
  defp open_module(text) do
    Mix.Task.run("app.start")
    parts = String.split(text, ".")

    if module = module(parts), do: Store.Postgres.new(module), else: open_function(parts)
  end

  defp open_function(parts) do
    {names, [function]} = Enum.split(parts, -1)
    module = module(names)

    if module && function in for({name, 0} <- module.module_info(:exports), do: to_string(name)),
      do: apply(module, String.to_existing_atom(function), []),
      else: Mix.raise("--store #{Enum.join(parts, ".")}: there is no such repository or function")
  end

  defp module(names) do
    module = Module.safe_concat(names)
    if Code.ensure_loaded?(module), do: module
  rescue
    ArgumentError -> nil
  end

  defp ok!(:ok, _id), do: :ok
  defp ok!({:ok, value}, _id), do: value

  defp ok!({:error, :not_found}, id),
    do: Mix.raise("the store has no conversation #{inspect(id)}")

  defp ok!({:error, error}, _id), do: Mix.raise(Exception.message(error))

  ## Pages

  defp write(html, page, opts) do
    case File.write(page, html) do
      :ok -> Mix.shell().info("#{page}: #{byte_size(html)} bytes")
      {:error, reason} -> Mix.raise("#{page} cannot be written: #{:file.format_error(reason)}")
    end

    if opts[:open], do: open(Path.expand(page))
  end

  defp title(%ChatContext{id: id}), do: "Chat #{id}"
  defp title(%Context{} = context), do: "Conversation #{context[:id]}"

  defp provider(nil), do: nil

  defp provider(name) do
    Enum.find(Context.Requests.providers(), &(Atom.to_string(&1) == name)) ||
      Mix.raise("a provider is one of #{Enum.join(Context.Requests.providers(), ", ")}")
  end

  defp print(%ChatContext{} = chat, opts), do: print(ChatContext.active(chat).context, opts)

  defp print(%Context{} = context, opts), do: Context.print(context, print_options(opts))

  # The default browser.
  defp open(page) do
    commands = [{"xdg-open", []}, {"open", []}, {"cmd", ["/c", "start", ""]}]

    case Enum.find(commands, fn {command, _args} -> System.find_executable(command) end) do
      nil -> Mix.raise("found no command that opens a browser; open #{page} yourself")
      {command, args} -> System.cmd(command, args ++ [page], stderr_to_stdout: true)
    end
  end

  ## Files

  defp read(file, opts) do
    with {:ok, text} <- File.read(file),
         {:ok, document} <- Context.JSON.decode(text),
         {:ok, shown} <- load(document, provider(opts[:from])) do
      shown
    else
      {:error, reason} when is_atom(reason) ->
        Mix.raise("#{file} cannot be read: #{:file.format_error(reason)}")

      {:error, error} ->
        Mix.raise("#{file} is not a stored conversation: #{Exception.message(error)}")
    end
  end

  defp load(document, nil), do: load(document)

  defp load(document, provider) do
    with {:ok, context, _report} <- Context.from_request(document, provider), do: {:ok, context}
  end

  defp load(%{"branches" => _} = document), do: ChatContext.load(document)

  defp load(%{"schema_version" => _} = document) do
    with {:ok, context, _report} <- Trace.from_atif(document), do: {:ok, context}
  end

  defp load(%{"messages" => messages} = document) when is_list(messages) do
    anthropic? = is_map_key(document, "system") or Enum.any?(messages, &anthropic?/1)
    load(document, if(anthropic?, do: :anthropic, else: :openai_chat))
  end

  defp load(document), do: Context.load(document)

  # Both say "messages"; calls and results of Anthropic are parts.
  defp anthropic?(%{"content" => parts}) when is_list(parts),
    do: Enum.any?(parts, &match?(%{"type" => type} when type in ["tool_use", "tool_result"], &1))

  defp anthropic?(_message), do: false
end
