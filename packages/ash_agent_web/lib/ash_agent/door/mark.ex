defmodule AshAgent.Door.Mark do
  @moduledoc false

  # Where in a turn a client is: the life of the session, the turn, the number of the change, and the place in what became of it. A change has
  # the same mark for everybody. What became of a snapshot depends on when it was taken, so its mark has the tag of the feed that took it.
  #
  # As the id of an event it is `life.turn.number.place` or `life.turn.number-tag.place`.

  @doc "The name of a life of a conversation's session, or of a feed."
  def name(term) do
    <<hash::binary-size(5), _::binary>> = :crypto.hash(:sha256, :erlang.term_to_binary(term))
    Base.encode16(hash, case: :lower)
  end

  @doc "The id of an event at a place."
  def id({life, turn, number, nil}, place), do: "#{life}.#{turn}.#{number}.#{place}"
  def id({life, turn, number, tag}, place), do: "#{life}.#{turn}.#{number}-#{tag}.#{place}"

  @id ~r/\A([0-9a-f]{10})\.(\d{1,9})\.(\d{1,12})(?:-([0-9a-f]{10}))?\.(\d{1,9})\z/

  @doc "Reads an id: `{mark, place}`, or `nil`."
  def parse(id) when is_binary(id) and byte_size(id) <= 100 do
    with [_, life, turn, number, tag, place] <- Regex.run(@id, id) do
      [turn, number, place] = Enum.map([turn, number, place], &String.to_integer/1)
      {{life, turn, number, if(tag != "", do: tag)}, place}
    end
  end

  def parse(_other), do: nil
end
