# Shows what this package does, at a terminal:
#
#     bin/demo [FILE] [--html PATH]
#     bin/demo --url URL --model NAME [--key ENV_VAR]
#
# The first plays a recorded conversation through the public API of AshAgent.Context and lets a scripted agent go on with
# it. FILE is JSON in OpenAI chat format: a list of messages, or an object with that list under "messages". The second
# gives the agent's tools to a model on a server that speaks OpenAI's /chat/completions, such as Ollama, with the key
# that the environment variable ENV_VAR holds. With --html the conversation that comes of it is also written as a page for
# a browser.

for file <- ~w(terminal playback tools agent approval branches requests),
    do: Code.require_file("#{file}.exs", __DIR__)

defmodule AshAgent.Demo do
  @moduledoc false

  import AshAgent.Demo.Terminal

  alias AshAgent.Demo.{Agent, Approval, Branches, Playback, Requests}
  alias AshAgent.LLM.OpenAICompatible
  alias AshAgent.Trace

  @default Path.expand("conversation.json", __DIR__)
  @options [url: :string, model: :string, key: :string, html: :string, help: :boolean]
  @usage "usage: bin/demo [FILE] [--html PATH] or bin/demo --url URL --model NAME [--key ENV_VAR] [--html PATH]"

  def main(args) do
    case OptionParser.parse(args, strict: @options) do
      {_, _, [{option, nil} | _]} -> stop(wrong_option(option))
      {_, _, [{option, _value} | _]} -> stop("#{option} takes no value; #{@usage}")
      {opts, files, []} -> opts |> Map.new() |> Map.pop(:html) |> run(files)
    end
  end

  defp run({page, opts}, files) do
    shown = run(opts, files)
    if page && shown != :ok, do: write(shown, page)
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
    if option in ~w(--url --model --key --html),
      do: "#{option} needs a value; #{@usage}",
      else: "unknown option #{option}; #{@usage}"
  end

  defp run(%{help: true}, _files), do: IO.puts(@usage)
  defp run(opts, []) when opts == %{}, do: play(@default)

  defp run(opts, [file]) when opts == %{},
    do: file |> in_folder() |> play()

  defp run(%{url: url, model: model} = opts, []) do
    llm = llm(base_url: url, model: model, api_key: key(opts))
    context = Agent.ask(llm, url, Playback.context(@default))
    Requests.show(context)
    context
  end

  defp run(opts, []) when not is_map_key(opts, :url), do: stop("--url is missing; #{@usage}")
  defp run(_opts, []), do: stop("--model is missing: it names the model to ask; #{@usage}")

  defp run(opts, [_file]) when opts != %{},
    do: stop("a file and a server are one too many; #{@usage}")

  defp run(_opts, _files), do: stop("more than one file; #{@usage}")

  defp play(file) do
    context = file |> Playback.play() |> Agent.go_on()
    Approval.show()
    chat = Branches.show(context)
    Requests.show(context)
    Requests.show_storage(context)
    chat
  end

  # Read once, so that a missing one is told before anything begins. The name is not repeated: it may be the key itself.
  defp key(%{key: variable}) do
    case System.get_env(variable) do
      empty when empty in [nil, ""] ->
        stop(
          "--key takes the name of an environment variable that holds the key, and this one is not set"
        )

      key ->
        key
    end
  end

  defp key(_opts), do: nil

  defp llm(opts) do
    OpenAICompatible.new(opts)
  rescue
    error in ArgumentError -> stop(words(Exception.message(error)))
  end

  defp words(message) do
    cond do
      message =~ ":base_url" ->
        "--url takes an http or https URL such as http://127.0.0.1:11434/v1"

      message =~ ":api_key" ->
        "the key in the variable that --key names is not printable text"

      message =~ ":model" ->
        "--model takes the name of a model"

      true ->
        message
    end
  end
end

AshAgent.Demo.main(System.argv())
