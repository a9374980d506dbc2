defmodule AshAgent.Test.Replay do
  @moduledoc false

  # Compares the requests of a stored conversation with those that today's code makes of it: byte by byte as they were
  # rendered, and their parameters with those of today's model, tools, prompt and view. Models are described and tools listed;
  # neither is called.

  alias AshAgent.{Context, LLM, Options, Runtime}
  alias AshAgent.Context.Audit
  alias AshAgent.LLM.Difference
  alias AshAgent.Runtime.{Gate, Output, Run, Shape}
  alias AshAgent.Test.{Pattern, Trajectory}

  @own Options.schema([
         {:llm, :any, [type_doc: "a model"],
          "the model of today. Without one, neither fields and tools nor views are compared, only what the messages became."},
         {:tools, {:or, [:map, :list, {:fun, 0}]},
          [type_doc: "a map, a list, or a function of arity 0", default: %{}],
          "the tools of today, as `AshAgent.Runtime.run/2` takes them. None is called."},
         {:system_prompt, {:or, [:string, :list]}, [type_doc: "a string or a list of parts"],
          "the system prompt of today. Without one, prompts are not compared."},
         {:view, {:custom, &Runtime.Options.view?/1},
          [type_doc: "as in `AshAgent.Runtime.run/2`"],
          "what shapes views today, from the view that the request before had. Without it, views are not compared. It gets the time of then as the " <>
            "need `:at`. A view that was changed by hand shows as a difference."},
         {:stream, :boolean, [default: true], "as in `AshAgent.Runtime.run/2`."}
       ])
  # Further options that decide about the offered tools and the answer.
  @of_runs [:output, :output_mode, :max_retries, :hide_retries] ++
             [:allowed_tools, :permission_rules, :prices]
  @schema @own ++ Keyword.take(Runtime.Options.schema(), @of_runs)

  # requests: how many the conversation has. compared: how many of them can be. different: those that differ.
  @enforce_keys [:requests, :compared, :different]
  defstruct @enforce_keys

  @doc "Returns the schema of the options."
  def options, do: @schema

  @doc "Compares, see `AshAgent.Test.replay/2`."
  def run(context, opts) do
    opts = Options.validate!(opts, @schema)
    rows = Map.new(Context.Audit.replay(context), &{&1.iteration, &1})
    run = prepare(opts)
    now = if opts[:llm], do: describe(run, opts)

    shape = if opts[:llm] && opts[:view], do: Shape.new(run)

    outcomes =
      for number <- Trajectory.numbers(context, nil),
          note = read_note(context, number),
          row = rows[number],
          note || row do
        found =
          compare_note(note, now, opts, context) ++
            compare_row(row, context) ++ compare_view(shape, context, number)

        {number, compared?(note, now, row), found}
      end

    different =
      for {number, _compared?, [_ | _] = found} <- outcomes,
          do: %{iteration: number, differences: found}

    compared = Enum.count(outcomes, &elem(&1, 1))
    %__MODULE__{requests: length(outcomes), compared: compared, different: different}
  end

  defp compared?(note, now, row) do
    (note && now) != nil or (row != nil and row.outcome in [:same, :different, :follows])
  end

  ## The parameters of requests

  # Notes of an iteration stand for its request, and only an iteration with an answer had one.
  defp read_note(context, number) do
    case Context.Audit.get_request(context, number) do
      %{fields: %{} = fields, tools: tools} -> {fields, tools || []}
      _not_noted -> nil
    end
  end

  defp compare_note(note, now, opts, context) when note != nil and now != nil do
    now = if hashed?(note), do: hash(now), else: now

    note
    |> to_body()
    |> put_prompt(Context.system_prompt(context), opts)
    |> Difference.between(now |> to_body() |> put_prompt(opts[:system_prompt], opts))
  end

  defp compare_note(_note, _now, opts, context), do: compare_prompt(context, opts)

  defp compare_prompt(context, opts) do
    was = put_prompt(%{}, Context.system_prompt(context), opts)
    Difference.between(was, put_prompt(%{}, opts[:system_prompt], opts))
  end

  # Some applications keep digests alone, see the option `:keep` of `AshAgent.Context.Audit.put_request/4`.
  defp hashed?({_fields, [tool | _]}),
    do: is_map_key(tool, "digest") and not is_map_key(tool, "description")

  defp hashed?({%{"body" => %{} = body}, []}) when body != %{},
    do:
      Enum.all?(body, fn {_name, value} -> is_binary(value) and value =~ ~r/\A[0-9a-f]{16}\z/ end)

  defp hashed?(_note), do: false

  defp hash({fields, tools}) do
    noted =
      Context.new("Hi")
      |> Context.Audit.put_request(fields, tools, keep: :hashes)
      |> Context.dump()

    [%{"request" => fields, "tools" => tools}] = noted["iterations"]
    {fields, tools}
  end

  # All options are checked as those of a run, with or without a model.
  defp prepare(opts) do
    given = Keyword.take(opts, [:tools, :view | @of_runs])
    Runtime.options([llm: opts[:llm] || fn _context -> {:error, :not_asked} end] ++ given)
  end

  defp describe(run, opts) do
    stream? = opts[:stream] and LLM.streams?(run[:llm])
    {_tools, output, tools} = Run.offer(run, Gate.new(run))
    fields = LLM.describe(run[:llm], if(stream?, do: :stream, else: :chat))
    tools = for tool <- tools, do: Map.new(tool, fn {key, value} -> {to_string(key), value} end)
    {Output.describe(output, fields), tools}
  end

  # The addresses of requests are not part of them. The encoding of messages is.
  defp to_body({fields, tools}) do
    fields = Pattern.normalize(fields)

    fields
    |> Map.take(["model", "provider", "cache", "request", "output"])
    |> Map.merge(fields["body"] || %{})
    |> Map.put("tools", Pattern.normalize(tools))
  end

  defp put_prompt(body, prompt, opts) do
    if opts[:system_prompt], do: Map.put(body, "system", Pattern.normalize(prompt)), else: body
  end

  ## The messages of requests

  defp compare_row(%{outcome: :different, place: place} = row, context) do
    difference = describe_deviation(row, describe_place(place, context))

    if row.change == :dropped_message,
      do: [difference],
      else: [put_words(difference, place, context)]
  end

  defp compare_row(_row, _context), do: []

  @changes_of_log %{
    other: "the conversation has something else than was sent",
    dropped_message: "a message or result that was sent here is gone from the conversation",
    added_message: "the conversation has this, which was not sent"
  }

  defp describe_deviation(%{cause: :log, change: change}, {where, call}),
    do: %Difference{cause: :message, where: "#{where}: #{@changes_of_log[change]}", name: call}

  defp describe_deviation(%{cause: :view}, _place),
    do: %Difference{cause: :view, where: "the view is kept otherwise than it was"}

  defp describe_deviation(%{cause: {:version, version}}, {where, call}) do
    words = "#{where}: version #{version} of the package sent it otherwise"
    %Difference{cause: :version, where: words, name: call}
  end

  # Only digests are kept of requests that were sent: the words are those of the log at this place, if no mask hides them from
  # people.
  defp put_words(%{cause: cause} = difference, place, context)
       when place != nil and cause in [:message, :version] do
    if Context.View.view(context).masks == [],
      do: Difference.put_words(difference, find_words(place, context)),
      else: difference
  end

  defp put_words(difference, _place, _context), do: difference

  defp find_words({iteration, _position, call}, context) when call != nil do
    %{tool_calls: calls} = Context.get_iteration(context, iteration)
    with %{result: {_outcome, result}} <- Enum.find(calls, &(&1.id == call)), do: result
  end

  defp find_words({iteration, position, nil}, context) do
    with {:ok, %{content: content}} <- Context.fetch_message(context, {iteration, position}),
         do: content
  end

  defp describe_place(nil, _context), do: {"how messages are put together", nil}

  defp describe_place({iteration, _position, call}, _context) when call != nil,
    do: {"iteration #{iteration}, tool result of #{call}", call}

  defp describe_place({iteration, position, nil}, context),
    do: {describe_message(context, iteration, position), nil}

  @doc "Returns a message in words, with its number: the system prompt has none, as in a request and on a page."
  def describe_message(context, iteration, position) do
    messages = Context.get_iteration_messages(context, iteration)
    leads = if match?([%{role: :system} | _], messages), do: 1, else: 0
    message = Enum.at(messages, position)
    role = if message, do: " (#{message.role})", else: ""
    number = if position < leads, do: "", else: " #{position + 1 - leads}"
    "iteration #{iteration}, message#{number}#{role}"
  end

  ## Views

  defp compare_view(nil, _context, _number), do: []

  defp compare_view(shape, context, number) do
    with {:ok, base} <- Audit.fetch_asked_before(context, number),
         {:ok, sent} <- Context.Audit.fetch_asked(context, number) do
      case Shape.apply(put_time(shape, context, number), base) do
        {:ok, shaped} ->
          for {cause, iteration} <- Audit.view_changes(sent, shaped),
              do: %Difference{cause: :view, where: describe_change(cause, iteration)}

        {:error, {:view_error, error}} ->
          words = "the view of today cannot be made: " <> Exception.message(error)
          [%Difference{cause: :view, where: words}]
      end
    else
      :error -> []
    end
  end

  defp put_time({enhancers, opts}, context, number) do
    last = length(Context.get_iteration_messages(context, number)) - 1

    asked =
      Enum.find_value(last..0//-1, fn position ->
        {:ok, message} = Context.fetch_message(context, {number, position})
        message[:response][:requested_at]
      end)

    {enhancers, Keyword.update!(opts, :needs, &[{:at, asked} | &1])}
  end

  @changes %{
    hidden: "hides other iterations",
    summarized: "has another summary",
    cleared: "clears other results",
    shortened: "shortens results otherwise",
    block: "has other texts after the system prompt"
  }

  defp describe_change(cause, iteration) do
    from = if iteration, do: ", from iteration #{iteration} on", else: ""
    "the view of today #{Map.fetch!(@changes, cause)}#{from}"
  end
end
