defmodule AshAgent.Soak.Options do
  @moduledoc "The options of the command."

  @switches [
    minutes: :float,
    seed: :integer,
    workers: :integer,
    sessions: :integer,
    markdown: :string,
    inject: :string
  ]

  @faults ~w(leak bytes hold log change)

  @doc "The options as a map; ends the VM with a sentence when they are wrong."
  def parse!(arguments) do
    {options, rest, wrong} = OptionParser.parse(arguments, strict: @switches)

    for {name, _value} <- wrong,
        do: stop("#{name} is no option, or its value is of another kind.")

    for argument <- rest, do: stop("There is no place for #{inspect(argument)}.")

    options =
      Enum.into(options, %{
        minutes: 5.0,
        seed: :rand.uniform(1_000_000_000),
        workers: 4 * System.schedulers_online(),
        sessions: 10_000,
        markdown: nil,
        inject: nil
      })

    if options.minutes <= 0, do: stop("--minutes wants a number above zero.")
    if options.workers < 1, do: stop("--workers wants a number above zero.")
    if options.sessions < options.workers, do: stop("--sessions wants at least one a worker.")
    %{options | inject: fault(options.inject), markdown: file(options.markdown)}
  end

  defp fault(nil), do: nil
  defp fault(name) when name in @faults, do: String.to_atom(name)
  defp fault(_name), do: stop("--inject wants one of #{Enum.join(@faults, ", ")}.")

  defp file(nil), do: nil
  defp file(name), do: Path.expand(name, System.get_env("SOAK_DIR", File.cwd!()))

  defp stop(sentence) do
    IO.puts(:stderr, sentence)
    System.halt(2)
  end
end
