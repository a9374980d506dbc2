defmodule AshAgent.Context.Terms do
  @moduledoc false

  # Maps of any terms that a conversation can hold, as JSON text in the form of snapshots. Stores keep data of a conversation
  # that is not in it this way.

  alias AshAgent.Context.{Native, Reply}

  @doc "Writes a map as JSON text, or raises `AshAgent.Context.Error` for what a conversation cannot hold."
  def encode!(terms) when is_map(terms), do: terms |> Native.terms_encode() |> Reply.ok!()

  @doc "Reads a map from what `encode!/1` wrote, or raises `AshAgent.Context.Error`."
  def decode!(text) when is_binary(text), do: text |> Native.terms_decode() |> Reply.ok!()
end
