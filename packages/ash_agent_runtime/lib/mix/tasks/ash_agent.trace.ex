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

  FILE is JSON: a snapshot of `AshAgent.Context.to_snapshot/1` or `AshAgent.ChatContext.to_snapshot/1`, or the body
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

  alias AshAgent.{ChatContext, Context, Trace}
  alias AshAgent.Trace.Stored
  alias Mix.AshAgent.Sources

  @requirements ["app.config"]

  @options for(name <- ~w(store id html prices request from)a, do: {name, :string}) ++
             for(name <- ~w(open children full unmasked)a, do: {name, :boolean}) ++
             [limit: :integer]

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
    shown = Sources.read_file(file, Sources.provider(opts[:from]))

    case page(opts, Path.rootname(file)) do
      nil -> print(shown, opts)
      page -> shown |> Trace.to_html([title: title(shown)] ++ html(opts)) |> write(page, opts)
    end
  end

  defp show_stored(%{store: store, id: id} = opts) do
    store = Sources.open_store(store, "--store ")

    case page(opts, Path.basename(id)) do
      nil ->
        store |> Stored.print(id, print_options(opts)) |> Sources.ok!(id)

      page ->
        shown = Stored.to_html(store, id, [children: opts[:children] == true] ++ html(opts))
        shown |> Sources.ok!(id) |> write(page, opts)
    end
  end

  defp show_stored(%{store: store} = opts) do
    how = [limit: opts[:limit] || 20] ++ Sources.prices(opts[:prices])
    rows = store |> Sources.open_store("--store ") |> Stored.list(how) |> Sources.ok!()
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
    do:
      [request: Sources.provider(opts[:request]), masked: opts[:unmasked] != true] ++
        Sources.prices(opts[:prices])

  defp print_options(opts) do
    limit = opts[:limit] || 50
    if limit < 1, do: Mix.raise("--limit takes a positive number")
    width = if opts[:full], do: [width: :infinity], else: []
    [limit: limit, masked: opts[:unmasked] != true] ++ width
  end

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
end
