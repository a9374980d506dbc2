defmodule AshAgent.Soak.Cluster.Options do
  @moduledoc "The options of the command."

  # A small run, which shows that everything works.
  @defaults %{
    nodes: 3,
    conversations: 1_000,
    prompts: 60,
    seconds: 60,
    think: 2_000,
    lease: 6_000,
    every: 4_000
  }

  @doc "The options as a map; ends the VM with a sentence when they are wrong."
  def parse!(arguments) do
    switches =
      [seed: :integer, markdown: :string] ++ for {name, _} <- @defaults, do: {name, :integer}

    {options, rest, wrong} = OptionParser.parse(arguments, strict: switches)

    for {name, _value} <- wrong,
        do: stop("#{name} is not an option, or its value is of another kind.")

    for argument <- rest, do: stop("There is no place for #{inspect(argument)}.")

    options =
      @defaults
      |> Map.merge(%{seed: :rand.uniform(1_000_000_000), markdown: nil})
      |> Map.merge(Map.new(options))

    for {name, _default} <- @defaults,
        options[name] < 1,
        do: stop("--#{name} wants a number above zero.")

    if options.nodes < 2, do: stop("--nodes wants at least 2.")
    if options.prompts < options.nodes, do: stop("--prompts wants at least one a node.")
    options
  end

  defp stop(sentence) do
    IO.puts(:stderr, sentence)
    System.halt(2)
  end
end
