# A tour of the package at a terminal:
#
#     bin/demo --tour [FILE] [--html PATH]
#
# plays a recorded conversation through the public API of AshAgent.Context and lets a scripted agent go on with it. FILE is
# JSON in OpenAI chat format: a list of messages, or an object with that list under "messages". With --html the conversation
# that comes of it is also written as a page for a browser.

for file <- ~w(terminal playback tools agent approval branches requests),
    do: Code.require_file("#{file}.exs", __DIR__)

defmodule AshAgent.Demo do
  @moduledoc false

  import AshAgent.Demo.Terminal

  alias AshAgent.Demo.{Agent, Approval, Branches, Playback, Requests}
  alias AshAgent.Trace

  @default Path.expand("conversation.json", __DIR__)
  @options [html: :string]
  @usage "usage: bin/demo --tour [FILE] [--html PATH]"

  def main(args) do
    case OptionParser.parse(args, strict: @options) do
      {_, _, [{option, nil} | _]} -> stop(wrong_option(option))
      {_, _, [{option, _value} | _]} -> stop("#{option} takes no value; #{@usage}")
      {opts, files, []} -> show(opts[:html], files)
    end
  end

  defp show(page, files) do
    shown = run(files)
    if page, do: write(shown, page)
  end

  defp write(shown, page) do
    headline("A page for a browser")
    html = Trace.to_html(shown, title: "A trip with tools", request: :anthropic)

    case page |> in_folder() |> File.write(html) do
      :ok -> IO.puts("  #{page}: #{bytes(byte_size(html))}")
      {:error, reason} -> stop("#{page} cannot be written: #{:file.format_error(reason)}")
    end
  end

  defp in_folder(file), do: Path.expand(file, System.get_env("DEMO_DIR", "."))

  defp wrong_option(option) do
    if option == "--html",
      do: "#{option} needs a value; #{@usage}",
      else: "unknown option #{option}; #{@usage}"
  end

  defp run([]), do: play(@default)
  defp run([file]), do: file |> in_folder() |> play()
  defp run(_files), do: stop("more than one file; #{@usage}")

  defp play(file) do
    context = file |> Playback.play() |> Agent.go_on()
    Approval.show()
    chat = Branches.show(context)
    Requests.show(context)
    Requests.show_storage(context)
    chat
  end
end

AshAgent.Demo.main(System.argv())
