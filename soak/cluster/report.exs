defmodule AshAgent.Soak.Cluster.Report do
  @moduledoc "Prints what came of it, also as Markdown for `bench/results`."

  alias AshAgent.Soak.Cluster

  def print(report, state) do
    text = text(report, state)
    IO.puts(text)

    if file = state.options.markdown,
      do: File.write!(Path.expand(file, System.get_env("SOAK_DIR", File.cwd!())), text <> "\n")

    report.settled.clients? and report.settled.nothing? and
      Enum.all?(report.failures, &(elem(&1, 1) == 0))
  end

  defp text(report, state) do
    %{options: options} = state

    """
    ## Several nodes

    `bin/soak-cluster --nodes #{options.nodes} --conversations #{options.conversations} --prompts #{options.prompts} --seconds #{options.seconds} --think #{options.think} --lease #{options.lease} --every #{options.every} --seed #{options.seed}`

    #{options.nodes} VMs and one PostgreSQL on one machine of #{System.schedulers_online()} cores, loopback, #{options.conversations} stored conversations,
    #{Cluster.clients(options) * options.nodes} clients that each have a prompt under way, a lease of #{options.lease / 1_000} s.

    | | |
    |---|---:|
    | seconds | #{round(state.seconds)} |
    | faults | #{faults(state.done)} |
    | prompts asked | #{report.asked} |
    | answered | #{report.answered} |
    | refused with a reason | #{report.refused |> Map.values() |> Enum.sum()} |
    | of clients that were killed | #{report.asked - report.answered - Enum.sum(Map.values(report.refused))} |
    | confirmed before they were answered | #{report.confirmed} |
    | turns stored | #{report.turns}, in #{report.conversations} conversations |
    | effects of tools | #{report.effects} |
    #{takeovers(state.takeovers, :kill, "a killed node's runs taken over")}
    #{takeovers(state.takeovers, :stop, "a stopped node's runs taken over")}
    #{percentiles(state.drains, "drained")}

    | each is to be 0 | |
    |---|---:|
    #{Enum.map_join(report.failures, "\n", fn {what, count} -> "| #{what} | #{count} |" end)}

    Refusals: #{report.refused |> Enum.sort_by(&(-elem(&1, 1))) |> Enum.map_join(", ", fn {reason, count} -> "`#{reason}` #{count}" end)}.

    | table | rows before | bytes, with indexes |
    |---|---:|---:|
    #{Enum.map_join(report.sizes, "\n", fn {table, rows, bytes} -> "| `#{table}` | #{rows} | #{bytes} |" end)}
    """
  end

  defp faults(done) do
    done
    |> Enum.frequencies()
    |> Enum.sort()
    |> Enum.map_join(", ", fn {fault, count} -> "#{fault} #{count}" end)
  end

  defp takeovers(all, fault, words), do: percentiles(for({^fault, time} <- all, do: time), words)

  defp percentiles([], words), do: "| #{words} | none |"

  defp percentiles(times, words) do
    sorted = Enum.sort(times)

    at = fn share ->
      Enum.at(sorted, min(trunc(length(sorted) * share), length(sorted) - 1)) / 1_000
    end

    "| #{words}: number, p50, p99, longest | #{length(sorted)}, #{at.(0.5)} s, #{at.(0.99)} s, #{List.last(sorted) / 1_000} s |"
  end
end
