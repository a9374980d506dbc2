defmodule AshAgent.Conversation.Verifier do
  @moduledoc false

  # Refuses faulty settings at compile time.

  use Spark.Dsl.Verifier

  alias AshAgent.{Conversation, Section}
  alias AshAgent.Conversation.Info
  alias Spark.Dsl.Verifier

  @impl true
  def verify(dsl) do
    checks = [
      {[:attributes], &key/1},
      {[:conversation, :name], &name/1},
      {[:conversation, :store], &store/1},
      {[:conversation, :iterations], &iterations/1},
      {[:conversation, :llm], &llm/1},
      {[:conversation, :title_llm], &title_llm/1},
      {[:conversation, :title], &title/1},
      {[:conversation, :tools], &tools/1},
      {[:conversation, :options], &options/1},
      {[:actions], &changes/1},
      {[:actions], &upserts/1}
    ]

    with :ok <- Section.verify(dsl, checks), do: creates(dsl)
  end

  # Ash calls a change only when it runs.
  defp changes(dsl) do
    changes =
      for action <- Verifier.get_entities(dsl, [:actions]),
          %{change: {Conversation.Change, opts}} <- Map.get(action, :changes, []),
          do: Conversation.Change.init(opts)

    with {:error, words} <- List.keyfind(changes, :error, 0), do: words
  end

  # An upsert may find a record, whose conversation has begun.
  defp upserts(dsl) do
    upserts =
      for %{type: :create, upsert?: true, name: name, changes: changes} <-
            Verifier.get_entities(dsl, [:actions]),
          Enum.any?(changes, &begins?/1),
          do: name

    if upserts != [],
      do:
        "#{inspect(upserts)} are upserts that begin a conversation, which the record that they find has already: leave out `upsert? true`, or " <>
          "the change, and say something with an action that `does: :say`, which begins the conversation of a record without one"
  end

  # A record without a conversation answers nothing.
  defp creates(dsl) do
    allowed = Info.option(dsl, :without_conversation)

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
    if not match?([_one], Ash.Resource.Info.primary_key(dsl)),
      do: "a conversation needs a primary key of one attribute"
  end

  # "a:b" with the key 1 would be "a" with the key "b:1".
  defp name(dsl) do
    name = Info.name(dsl)

    if name == "" or String.contains?(name, ":"),
      do: "expected a name without colons, got: #{inspect(name)}; set one with `name`"
  end

  defp store(dsl) do
    if Info.option(dsl, :store) == nil and not postgres?(dsl),
      do:
        "a conversation without AshPostgres needs a store: name one with `store`, such as the name of an " <>
          "AshAgent.Store.SQLite in your supervision tree"
  end

  defp postgres?(dsl), do: Verifier.get_persisted(dsl, :data_layer) == AshPostgres.DataLayer

  defp iterations(dsl) do
    resource = Info.option(dsl, :iterations)

    cond do
      resource == nil ->
        nil

      Info.option(dsl, :store) != nil or not postgres?(dsl) ->
        "iterations are read with AshPostgres from its own store: leave out `store`"

      Conversation.Iteration not in Spark.extensions(resource) ->
        "#{inspect(resource)} has not the extension AshAgent.Conversation.Iteration"

      true ->
        nil
    end
  end

  defp llm(dsl) do
    if not Section.model?(Info.option(dsl, :llm)), do: "expected a model, see AshAgent.LLM.t()"
  end

  defp title_llm(dsl) do
    llm = Info.option(dsl, :title_llm)
    if llm != nil and not Section.model?(llm), do: "expected a model, see AshAgent.LLM.t()"
  end

  defp title(dsl) do
    name = Info.option(dsl, :title)

    if name != nil and
         not match?(%{type: Ash.Type.String}, Ash.Resource.Info.attribute(dsl, name)),
       do: "expected the name of an attribute of the type :string, got: #{inspect(name)}"
  end

  # The tools that a function returns are looked at when it is called.
  defp tools(dsl) do
    if not is_function(Info.option(dsl, :tools)),
      do: Section.refusal(fn -> Info.tools(dsl, nil) end)
  end

  @own ~w(llm tools approval permission_rules allowed_tools max_iterations max_total_tokens)a

  defp options(dsl) do
    Section.refuse_options(:conversation, Info.option(dsl, :options),
      own: @own,
      decided: [:on_change],
      given: [permission_rules: Info.option(dsl, :permission_rules)]
    )
  end
end
