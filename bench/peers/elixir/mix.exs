# What bin/peers --install takes from Hex.
defmodule Peers.MixProject do
  use Mix.Project

  @build "../../../_build/peers/elixir"

  def project do
    [
      app: :peers,
      version: "0.1.0",
      build_path: @build,
      deps_path: @build <> "/deps",
      lockfile: @build <> "/mix.lock",
      deps: [{:langchain, "~> 0.9"}]
    ]
  end
end
