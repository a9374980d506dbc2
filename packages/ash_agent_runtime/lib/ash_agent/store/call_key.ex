defmodule AshAgent.Store.CallKey do
  @moduledoc false

  # The keys of calls: the same for the same call of the same line of a conversation, on every node.

  alias AshAgent.Context

  @doc "Returns a function from a call's id to its key. For many calls, the iteration is looked at once."
  def keys(context, branch \\ "main") do
    number = context.current_iteration

    started =
      context
      |> Context.get_iteration(number)
      |> Map.fetch!(:started_at)
      |> DateTime.to_unix(:microsecond)

    place = [context[:id], branch, Integer.to_string(number), Integer.to_string(started)]
    place = place ++ [digest_said(context)]

    fn call_id ->
      # Each with its length, so that no two lists give one text.
      text = for part <- place ++ [call_id], do: [Integer.to_string(byte_size(part)), ?:, part]
      :sha256 |> :crypto.hash(text) |> Base.url_encode64(padding: false)
    end
  end

  @doc "Returns the key under which the result of an attempt arrives that is answered later. It can stand in an address."
  def arrival(key, attempt), do: "#{key}.#{attempt}"

  @doc "Returns the key and the attempt of what `arrival/2` returned, and `nil` for any other text."
  def of_arrival(text) do
    with [key, digits] <- String.split(text, "."),
         {attempt, ""} when attempt in 1..0x7FFF_FFFF_FFFF_FFFF <- Integer.parse(digits),
         ^text <- arrival(key, attempt),
         do: {key, attempt},
         else: (_other -> nil)
  end

  # Lines that begin at the same time, as in an application that sets times, differ in their messages.
  defp digest_said(context) do
    messages = Context.get_iteration_messages(context, Context.turn_start(context))
    texts = for %{role: :user, content: content} <- messages, do: text(content)
    texts |> IO.iodata_to_binary() |> then(&:crypto.hash(:sha256, &1))
  end

  defp text(content) when is_binary(content), do: content
  defp text(parts) when is_list(parts), do: for(%{type: :text, text: text} <- parts, do: text)
  defp text(nil), do: ""
end
