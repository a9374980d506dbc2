defmodule AshAgent.TraceGuideTest do
  use ExUnit.Case, async: true

  import ExUnit.CaptureIO

  # Runs the cells of the Livebook but for the one that installs packages, in their order, as Livebook would.
  test "the guide's cells run" do
    cells =
      Regex.scan(~r/```elixir\n(.*?)```/s, File.read!("guides/looking.livemd"),
        capture: :all_but_first
      )

    assert [[install] | [_, _, _, _, _, _] = cells] = cells
    assert install =~ "Mix.install"

    printed =
      capture_io(fn ->
        {values, _last} =
          Enum.map_reduce(cells, {[], Code.env_for_eval([])}, fn [code], {binding, env} ->
            quoted = Code.string_to_quoted!(code)
            {value, binding, env} = Code.eval_quoted_with_env(quoted, binding, env)
            {value, {binding, env}}
          end)

        assert [_, _, _, %AshAgent.ChatContext{}, bytes, spans] = values
        assert bytes in 20_000..300_000
        assert spans in 2_000..20_000
      end)

    assert printed =~ "You plan trips. The key is [key]."
    assert printed =~ "call_2: denied: too dear"
  end
end
