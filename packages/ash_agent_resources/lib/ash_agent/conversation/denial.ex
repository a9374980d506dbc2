defmodule AshAgent.Conversation.Denial do
  @moduledoc false

  # The functions of `:deny`. Its reason may be left out before options, which a code interface would take for the reason.

  @doc "The code of the functions."
  def functions do
    quote generated: true do
      @doc "Denies the pending call `call_id`, with a reason if there is one. The last argument are options."
      def deny(record, call_id, reason \\ nil, params \\ %{}, opts \\ []) do
        {params, opts} = unquote(__MODULE__).arguments(reason, params, opts)
        deny_call(record, call_id, params, opts)
      end

      @doc "Like `deny/5`, and raises errors."
      def deny!(record, call_id, reason \\ nil, params \\ %{}, opts \\ []) do
        {params, opts} = unquote(__MODULE__).arguments(reason, params, opts)
        deny_call!(record, call_id, params, opts)
      end

      @doc "Returns whether an actor may deny a call, see `Ash.can?/3`."
      def can_deny?(actor, record, call_id, reason \\ nil, params \\ %{}, opts \\ []) do
        {params, opts} = unquote(__MODULE__).arguments(reason, params, opts)
        can_deny_call?(actor, record, call_id, params, opts)
      end
    end
  end

  @doc "The parameters and the options of a call."
  def arguments(given, params, opts) when is_list(given) or is_map(given),
    do: split(%{}, given, params, opts)

  def arguments(nil, params, opts), do: split(%{}, params, %{}, opts)
  def arguments(reason, params, opts), do: split(%{reason: reason}, params, %{}, opts)

  defp split(own, params, more, opts) do
    {maps, lists} = Enum.split_with([params, more, opts], &is_map/1)
    {Enum.reduce(maps, own, &Map.merge(&2, &1)), Enum.concat(lists)}
  end
end
