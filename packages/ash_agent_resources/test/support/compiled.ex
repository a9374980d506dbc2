defmodule AshAgent.Integration.Compiled do
  @moduledoc false

  import ExUnit.CaptureIO

  @doc """
  What the compiler says of a resource with an extension, as an exception, a warning or an error that it logs. Options of
  `use Ash.Resource` can be given.
  """
  def said(extension, body, using \\ []) do
    test = self()
    ref = make_ref()
    said = capture_io(:stderr, fn -> send(test, {ref, raised(extension, body, using)}) end)
    receive do: ({^ref, words} -> said <> words)
  end

  defp raised(extension, body, using) do
    Code.eval_string("""
    defmodule AshAgent.Integration.Compiled#{System.unique_integer([:positive])} do
      use Ash.Resource, #{inspect(options(extension, using))}

      #{body}
    end
    """)

    ""
  rescue
    error -> Exception.message(error)
  end

  defp options(extension, using) do
    Keyword.merge(
      [
        domain: nil,
        validate_domain_inclusion?: false,
        data_layer: Ash.DataLayer.Ets,
        extensions: [extension]
      ],
      using
    )
  end
end
