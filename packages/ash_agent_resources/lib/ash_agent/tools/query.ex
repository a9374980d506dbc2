defmodule AshAgent.Tools.Query do
  @moduledoc false

  # The choices of a model for a read: fields to filter and to sort by, and the page.

  alias AshAgent.Collect
  alias AshAgent.Tools.{Schema, Shown}

  @equal [{"eq", :eq}, {"not_eq", :not_eq}]
  @order [
    {"less_than", :less_than},
    {"less_than_or_equal", :less_than_or_equal},
    {"greater_than", :greater_than},
    {"greater_than_or_equal", :greater_than_or_equal}
  ]

  # Limits for a list of values in a filter and for an offset: both only cost.
  @most_values 100
  @most_offset 100_000

  @doc "Returns the choices that a tool offers. Raises `ArgumentError` for fields that are not public."
  def new!(resource, %{get?: get?} = action, opts) do
    pagination = action.pagination || nil
    own = Enum.map(action.arguments, &to_string(&1.name))

    for {option, [_ | _]} <- [filter: opts.filter, sort: opts.sort], to_string(option) in own do
      raise ArgumentError,
            "the action #{inspect(action.name)} has an argument #{inspect(option)}; leave out the option #{inspect(option)}"
    end

    %{
      get?: get?,
      fields: Enum.map(opts.filter, &field!(resource, &1, :filter)),
      sorts: Enum.map(opts.sort, &field!(resource, &1, :sort).name),
      limit: most(opts.limit, pagination),
      pages?: not get? and pages?(pagination),
      paginated?: pagination != nil and pagination.required? != false,
      own: own
    }
  end

  defp most(limit, %{max_page_size: max}) when is_integer(max), do: min(limit, max)
  defp most(limit, _pagination), do: limit

  defp pages?(%{required?: true, offset?: offset?}), do: offset?
  defp pages?(_pagination), do: true

  defp field!(resource, name, option) do
    case Ash.Resource.Info.public_field(resource, name) do
      %Ash.Resource.Attribute{} = field ->
        type_field(name, field.type, field.constraints, field.allow_nil?)

      %Ash.Resource.Calculation{arguments: []} = field ->
        type_field(name, field.type, field.constraints, true)

      %Ash.Resource.Aggregate{} = field ->
        {:ok, type} = Ash.Resource.Info.aggregate_type(resource, field)
        type_field(name, type, field.constraints || [], true)

      _other ->
        raise ArgumentError,
              "#{inspect(resource)} has no public attribute, calculation without arguments or aggregate #{inspect(name)} for " <>
                "the option #{inspect(option)}"
    end
    |> schema!(resource, option)
  end

  defp type_field(name, type, constraints, allow_nil?),
    do: %{name: name, type: type, constraints: constraints, allow_nil?: allow_nil?}

  defp schema!(field, _resource, :sort), do: field

  defp schema!(field, resource, :filter) do
    case Schema.of(field.type, field.constraints) do
      {:ok, schema} ->
        Map.merge(field, %{schema: schema, operators: operators(field)})

      {:error, _reason} ->
        raise ArgumentError,
              "a model cannot write values of the type of #{inspect(field.name)} of #{inspect(resource)}; leave it out of :filter"
    end
  end

  defp operators(%{type: type}) do
    order = if Schema.ordered?(type), do: @order, else: []
    text = if Schema.text?(type), do: [{"contains", :contains}], else: []
    @equal ++ [{"in", :in}] ++ order ++ text
  end

  @doc "The public attributes that a model could filter and sort by, where nobody has named some."
  def choosable(resource) do
    for %{sensitive?: false} = attribute <- Ash.Resource.Info.public_attributes(resource),
        attribute.filterable? != false and attribute.sortable? != false,
        match?({:ok, _schema}, Schema.of(attribute.type, attribute.constraints)),
        do: attribute.name
  end

  @doc "The properties of a tool's schema, as `AshAgent.Tools.Schema.object/1` takes them."
  def properties(query) do
    filter =
      if query.fields != [],
        do: [{"filter", Schema.object(Enum.map(query.fields, &condition/1))}],
        else: []

    sort = if query.sorts != [] and not query.get?, do: [{"sort", sort_schema(query)}], else: []
    pages = Enum.reject(page_schemas(query), fn {name, _schema} -> name in query.own end)
    for {name, schema} <- filter ++ sort ++ pages, do: {name, schema, false}
  end

  # A value stands for all that are equal to it.
  defp condition(field) do
    list = %{"type" => "array", "items" => field.schema, "maxItems" => @most_values}

    operators =
      for {word, operator} <- field.operators,
          do: {word, if(operator == :in, do: list, else: field.schema), false}

    nothing = if field.allow_nil?, do: [{"is_nil", %{"type" => "boolean"}, false}], else: []
    {field.name, %{"anyOf" => [field.schema, Schema.object(operators ++ nothing)]}, false}
  end

  defp sort_schema(query) do
    %{
      "type" => "array",
      "items" => %{"type" => "string", "enum" => Map.keys(sorts(query))},
      "description" => "the first counts most; a minus sign sorts in descending order"
    }
  end

  defp sorts(query) do
    for name <- query.sorts, {sign, order} <- [{"", :asc}, {"-", :desc}], into: %{} do
      {sign <> to_string(name), {name, order}}
    end
  end

  defp page_schemas(%{get?: true}), do: []

  defp page_schemas(query) do
    most = query.limit
    limit = %{"type" => "integer", "minimum" => 1, "maximum" => most, "default" => most}
    offset = %{"type" => "integer", "minimum" => 0, "maximum" => @most_offset}
    [{"limit", limit}] ++ if query.pages?, do: [{"offset", offset}], else: []
  end

  @doc "The choices of a call, from its arguments, or words that say what is wrong."
  def parse(nil, _arguments), do: {:ok, nil}

  def parse(query, arguments) do
    chosen = Map.drop(arguments, query.own)

    with {:ok, filter} <- filter(query, chosen["filter"]),
         {:ok, sort} <- sort(query, chosen["sort"]),
         {:ok, limit} <- number(chosen["limit"] || query.limit, "limit", 1),
         {:ok, offset} <- number(chosen["offset"] || 0, "offset", 0) do
      limit = min(limit, query.limit)
      {:ok, %{filter: filter, sort: sort, limit: limit, offset: min(offset, @most_offset)}}
    end
  end

  defp number(value, _name, least) when is_integer(value) and value >= least, do: {:ok, value}

  defp number(_other, name, least),
    do: {:error, "#{name} must be an integer of at least #{least}"}

  defp sort(_query, nil), do: {:ok, []}

  defp sort(query, given) do
    sorts = sorts(query)
    given = List.wrap(given)

    if length(given) <= map_size(sorts) and Enum.all?(given, &is_map_key(sorts, &1)),
      do: {:ok, given |> Enum.map(&sorts[&1]) |> Enum.uniq_by(&elem(&1, 0))},
      else: {:error, "sort must be a list of: " <> Enum.join(Map.keys(sorts), ", ")}
  end

  defp filter(_query, nil), do: {:ok, %{}}

  defp filter(query, %{} = given) do
    known = Map.new(query.fields, &{to_string(&1.name), &1})

    conditions =
      Collect.map(given, fn {name, wanted} ->
        with %{} = field <- known[name] || unknown(known),
             {:ok, condition} <- condition(field, wanted),
             do: {:ok, {field.name, condition}}
      end)

    with {:ok, filter} <- conditions, do: {:ok, Map.new(filter)}
  end

  defp filter(_query, _other), do: {:error, "filter must be an object"}

  defp unknown(known),
    do: {:error, "filter has an unknown field; known are: " <> Enum.join(Map.keys(known), ", ")}

  defp condition(field, %{} = given) do
    words = Map.new(field.operators)

    Collect.map(given, fn {word, value} -> operand(field, word, words[word], value) end)
  end

  defp condition(field, value),
    do: with({:ok, condition} <- operand(field, "eq", :eq, value), do: {:ok, [condition]})

  defp operand(%{allow_nil?: true}, "is_nil", _operator, value) when is_boolean(value),
    do: {:ok, {:is_nil, value}}

  defp operand(_field, _word, :eq, nil), do: {:ok, {:is_nil, true}}
  defp operand(_field, _word, :not_eq, nil), do: {:ok, {:is_nil, false}}

  defp operand(field, word, operator, value) do
    case cast(field, operator, value) do
      {:ok, value} -> {:ok, {operator, value}}
      :error -> wrong(field, word)
    end
  end

  defp wrong(field, word) do
    if Enum.any?(field.operators, &(elem(&1, 0) == word)) or word == "is_nil" do
      {:error, "filter.#{field.name}.#{word} has a value that is invalid"}
    else
      words = Enum.map_join(field.operators, ", ", &elem(&1, 0))
      {:error, "filter.#{field.name} has an unknown operator; known are: #{words}, is_nil"}
    end
  end

  defp cast(field, :in, values) when is_list(values) and length(values) <= @most_values,
    do: Collect.map(values, &cast(field, :eq, &1))

  defp cast(_field, operator, _value) when operator in [nil, :in], do: :error

  defp cast(field, _operator, value) do
    with false <- is_nil(value),
         false <- Schema.huge?(value, field.type),
         {:ok, cast} when not is_nil(cast) <-
           Ash.Type.cast_input(field.type, value, field.constraints) do
      {:ok, cast}
    else
      _other -> :error
    end
  end

  @doc "Reads with these choices."
  def read(query, ash, chosen, shape, opts) do
    ash = apply_choice(ash, chosen)
    ash = ash |> Ash.Query.select(Shown.select(shape)) |> Ash.Query.load(Shown.load(shape))
    read_shown(query, ash, chosen, shape, opts)
  end

  defp read_shown(%{get?: true}, ash, _chosen, shape, opts) do
    case Ash.read_one(ash, opts) do
      {:ok, nil} -> {:error, Ash.Error.Query.NotFound.exception([])}
      {:ok, record} -> {:ok, Shown.record(record, shape)}
      {:error, error} -> {:error, error}
    end
  end

  defp read_shown(%{paginated?: true} = query, ash, chosen, shape, opts) do
    page = [limit: chosen.limit] ++ if query.pages?, do: [offset: chosen.offset], else: []

    with {:ok, page} <- Ash.read(ash, [page: page] ++ opts),
         do: {:ok, list_records(page.results, page.more?, shape)}
  end

  defp read_shown(_query, ash, chosen, shape, opts) do
    ash = ash |> Ash.Query.limit(chosen.limit + 1) |> Ash.Query.offset(chosen.offset)

    with {:ok, records} <- Ash.read(ash, opts) do
      {records, rest} = Enum.split(records, chosen.limit)
      {:ok, list_records(records, rest != [], shape)}
    end
  end

  # As the input of a stranger: private fields cannot be reached, and field policies apply.
  defp apply_choice(query, %{filter: filter, sort: sort}) do
    query = if filter == %{}, do: query, else: Ash.Query.filter_input(query, filter)
    if sort == [], do: query, else: Ash.Query.sort_input(query, sort)
  end

  defp list_records(records, more?, shape) do
    shown = %{"records" => Enum.map(records, &Shown.record(&1, shape))}
    if more?, do: Map.put(shown, "more", true), else: shown
  end
end
