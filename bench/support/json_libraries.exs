defmodule AshAgent.Bench.JSONLibraries do
  @moduledoc "The JSON libraries that are there, to compare with: jiffy, Jason, Elixir's JSON (1.18), OTP's json (27)."

  @doc "As `[%{name: name, encode: fun, decode: fun}]`; raises when there is none."
  def all do
    libraries = for library <- known(), Code.ensure_loaded?(library.module), do: library

    if libraries == [],
      do: raise("no JSON library is there to compare with: apt-get install erlang-jiffy")

    libraries
  end

  defp known do
    [
      library(:jiffy, "jiffy", :encode, [], :decode, [[:return_maps]]),
      library(Jason, "Jason", :encode_to_iodata!, [], :decode!, []),
      library(JSON, "Elixir's JSON", :encode_to_iodata!, [], :decode!, []),
      library(:json, "OTP's json", :encode, [], :decode, [])
    ]
  end

  # By apply/3: the compiler does not know which of them are there.
  defp library(module, name, encode, encode_opts, decode, decode_opts) do
    %{
      module: module,
      name: name,
      encode: fn term -> apply(module, encode, [term | encode_opts]) end,
      decode: fn text -> apply(module, decode, [text | decode_opts]) end
    }
  end
end
