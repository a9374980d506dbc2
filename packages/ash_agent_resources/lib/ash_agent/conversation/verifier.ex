defmodule AshAgent.Conversation.Verifier do
  @moduledoc false

  # Refuses at compile time what cannot work.

  use Spark.Dsl.Verifier

  import AshAgent.Section, only: [error: 3]

  alias AshAgent.{Conversation, Section}
  alias Spark.Dsl.Verifier

  @impl true
  def verify(dsl) do
    with :ok <- key(dsl),
         :ok <- name(dsl),
         :ok <- store(dsl),
         :ok <- iterations(dsl),
         :ok <- llm(dsl),
         :ok <- tools(dsl),
         :ok <- options(dsl),
         :ok <- changes(dsl),
         do: creates(dsl)
  end

  # Ash asks a change only when it runs.
  defp changes(dsl) do
    for(
      %{changes: changes} <- Verifier.get_entities(dsl, [:actions]),
      %{change: {Conversation.Change, opts}} <- changes,
      {:error, words} <- [Conversation.Change.init(opts)],
      do: words
    )
    |> case do
      [] -> :ok
      [words | _] -> error(dsl, [:actions], words)
    end
  end

  # A record without a conversation answers nothing.
  defp creates(dsl) do
    allowed = Conversation.Info.option(dsl, :without_conversation)

    bare =
      for %{type: :create, name: name, changes: changes} <-
            Verifier.get_entities(dsl, [:actions]),
          name not in allowed,
          not Enum.any?(changes, &begins?/1),
          do: name

    case bare do
      [] ->
        :ok

      [name | _] ->
        {:warn,
         "the create action #{inspect(name)} of #{inspect(Verifier.get_persisted(dsl, :module))} makes records without a conversation: add " <>
           "`change {AshAgent.Conversation.Change, does: :start}` to it, or `without_conversation #{inspect(bare)}` to the section conversation"}
    end
  end

  defp begins?(%{change: {Conversation.Change, does: name}}), do: name in [:start, :fork]
  defp begins?(_other), do: false

  defp key(dsl) do
    case Ash.Resource.Info.primary_key(dsl) do
      [_one] -> :ok
      _other -> error(dsl, [:attributes], "a conversation needs a primary key of one attribute")
    end
  end

  # "a:b" with the key 1 would be "a" with the key "b:1".
  defp name(dsl) do
    name = Conversation.Info.name(dsl)

    if name != "" and not String.contains?(name, ":"),
      do: :ok,
      else:
        error(
          dsl,
          [:conversation, :name],
          "expected a name without colons, got: #{inspect(name)}; set one with `name`"
        )
  end

  defp store(dsl) do
    case {Conversation.Info.option(dsl, :store), Verifier.get_persisted(dsl, :data_layer)} do
      {nil, data_layer} when data_layer != AshPostgres.DataLayer ->
        error(
          dsl,
          [:conversation, :store],
          "a conversation without AshPostgres needs a store: name one with `store`, such as the name of an " <>
            "AshAgent.Store.SQLite in your supervision tree"
        )

      _other ->
        :ok
    end
  end

  defp iterations(dsl) do
    resource = Conversation.Info.option(dsl, :iterations)
    path = [:conversation, :iterations]

    cond do
      resource == nil ->
        :ok

      Conversation.Info.option(dsl, :store) != nil or
          Verifier.get_persisted(dsl, :data_layer) != AshPostgres.DataLayer ->
        error(
          dsl,
          path,
          "iterations are read with AshPostgres from its own store: leave out `store`"
        )

      Conversation.Iteration not in Spark.extensions(resource) ->
        error(
          dsl,
          path,
          "#{inspect(resource)} has not the extension AshAgent.Conversation.Iteration"
        )

      true ->
        :ok
    end
  end

  defp llm(dsl) do
    if Section.model?(Conversation.Info.option(dsl, :llm)),
      do: :ok,
      else: error(dsl, [:conversation, :llm], "expected a model, see AshAgent.LLM.t()")
  end

  # The tools that a function returns are looked at when it is called.
  defp tools(dsl) do
    if not is_function(Conversation.Info.option(dsl, :tools)),
      do: Conversation.Info.tools(dsl, nil)

    :ok
  rescue
    error in ArgumentError -> error(dsl, [:conversation, :tools], Exception.message(error))
  end

  @own [
    :llm,
    :tools,
    :approval,
    :permission_rules,
    :allowed_tools,
    :max_iterations,
    :max_total_tokens
  ]

  defp options(dsl) do
    Section.verify_options(
      dsl,
      [:conversation, :options],
      Conversation.Info.option(dsl, :options),
      own: @own,
      decided: [:on_change],
      given: [permission_rules: Conversation.Info.option(dsl, :permission_rules)]
    )
  end
end
