defmodule Mix.Tasks.AshAgent.Trace do
  @shortdoc "Shows a stored conversation"

  @moduledoc """
  Shows a stored conversation at the terminal, or as an HTML page.

      mix ash_agent.trace FILE
      mix ash_agent.trace FILE --html page.html
      mix ash_agent.trace FILE --open

  FILE is JSON: a snapshot of `AshAgent.Context.to_snapshot/1` or `AshAgent.ChatContext.to_snapshot/1`, or a trajectory in ATIF.

  ## Options

    * `--html PATH` - writes the page to this file.
    * `--open` - writes the page, next to FILE unless `--html` names another file, and opens it in a browser.
    * `--request PROVIDER` - shows the request that would be sent to this provider now.
    * `--limit NUMBER` - how many of the newest messages to print. Defaults to 50.
    * `--full` - prints whole texts instead of one line of each.
    * `--unmasked` - shows the texts that the conversation's view masks.
  """

  use Mix.Task

  alias AshAgent.{ChatContext, Context, Trace}

  @requirements ["app.config"]

  @options [
    html: :string,
    open: :boolean,
    request: :string,
    limit: :integer,
    full: :boolean,
    unmasked: :boolean
  ]

  @usage "usage: mix ash_agent.trace FILE [--html PATH] [--open] [--request PROVIDER] [--limit NUMBER] [--full] [--unmasked]"

  @impl true
  def run(args) do
    case OptionParser.parse(args, strict: @options) do
      {opts, [file], []} -> show(read(file), file, Map.new(opts))
      {_opts, _files, [{option, _value} | _]} -> Mix.raise("wrong option #{option}; #{@usage}")
      {_opts, _files, []} -> Mix.raise("expected one file; #{@usage}")
    end
  end

  defp show(shown, file, opts) do
    case opts do
      %{html: page} -> write(shown, page, opts)
      %{open: true} -> write(shown, Path.rootname(file) <> ".html", opts)
      _terminal -> print(shown, opts)
    end
  end

  defp write(shown, page, opts) do
    request = provider(opts[:request])

    html =
      Trace.to_html(shown, title: title(shown), request: request, masked: opts[:unmasked] != true)

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
      Mix.raise("--request takes one of #{Enum.join(Context.Requests.providers(), ", ")}")
  end

  defp print(%ChatContext{} = chat, opts), do: print(ChatContext.active(chat).context, opts)

  defp print(%Context{} = context, opts) do
    limit = opts[:limit] || 50
    if limit < 1, do: Mix.raise("--limit takes a positive number")
    width = if opts[:full], do: [width: :infinity], else: []
    Context.print(context, [limit: limit, masked: opts[:unmasked] != true] ++ width)
  end

  # The default browser.
  defp open(page) do
    commands = [{"xdg-open", []}, {"open", []}, {"cmd", ["/c", "start", ""]}]

    case Enum.find(commands, fn {command, _args} -> System.find_executable(command) end) do
      nil -> Mix.raise("found no command that opens a browser; open #{page} yourself")
      {command, args} -> System.cmd(command, args ++ [page], stderr_to_stdout: true)
    end
  end

  ## Files

  defp read(file) do
    with {:ok, text} <- File.read(file),
         {:ok, document} <- Context.JSON.decode(text),
         {:ok, shown} <- load(document) do
      shown
    else
      {:error, reason} when is_atom(reason) ->
        Mix.raise("#{file} cannot be read: #{:file.format_error(reason)}")

      {:error, error} ->
        Mix.raise("#{file} is not a stored conversation: #{Exception.message(error)}")
    end
  end

  defp load(%{"branches" => _} = document), do: ChatContext.load(document)

  defp load(%{"schema_version" => _} = document) do
    with {:ok, context, _report} <- Trace.from_atif(document), do: {:ok, context}
  end

  defp load(document), do: Context.load(document)
end
