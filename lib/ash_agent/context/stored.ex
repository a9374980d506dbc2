defmodule AshAgent.Context.Stored do
  @moduledoc false

  # The common part of the types for Ecto and Ash, for contexts and for chats; it knows neither Ecto nor Ash. A kind is the
  # module of a value: `AshAgent.Context` or `AshAgent.ChatContext`.

  alias AshAgent.{ChatContext, Context, Options}
  alias AshAgent.Context.{Error, Handle, JSON}

  @type kind :: Context | ChatContext

  # Parameters cannot approve anything, and cannot contain structs.
  @parameters [approvals: :drop, structs: :drop]

  @doc "The forms that a kind can take besides its own values."
  def forms(Context), do: [:messages, :dump]
  def forms(ChatContext), do: [:dump, :config]

  @doc "The word for a kind."
  def noun(Context), do: "context"
  def noun(ChatContext), do: "chat"

  @doc "The options of a type, as `AshAgent.Options` and Spark check and document them."
  def schema(kind) do
    Options.schema([
      {:storage, {:in, [:map, :text]}, [default: :map],
       "whether the column holds JSON, or JSON text in a column of text or bytes."},
      {:accept, {:list, {:in, forms(kind)}}, [default: []],
       "the forms of parameters that are accepted besides a #{noun(kind)}."},
      {:max_bytes, :pos_integer, "how long its JSON text may be. Defaults to no limit."},
      {:max_iterations, :pos_integer, "how many iterations it may have. Defaults to no limit."}
    ])
  end

  @doc "A value of a parameter, in a form that the options accept, and within their limits."
  def cast(_kind, nil, _opts), do: {:ok, nil}

  def cast(kind, input, opts) do
    with :ok <- check_size(input, opts),
         {:ok, value} <- read(kind, input, opts[:accept] || []),
         :ok <- check_iterations(value, opts[:max_iterations]),
         :ok <- check_snapshot(kind, value, opts[:max_bytes]),
         do: {:ok, value}
  end

  # A text is not read at all when it is too long.
  defp check_size(text, opts) when is_binary(text), do: check_bytes(text, opts[:max_bytes])
  defp check_size(_other, _opts), do: :ok

  defp check_bytes(text, max) when is_integer(max) and byte_size(text) > max,
    do: invalid("at most #{max} bytes, got #{byte_size(text)}")

  defp check_bytes(_text, _max), do: :ok

  defp check_snapshot(_kind, _value, nil), do: :ok
  defp check_snapshot(kind, value, max), do: value |> kind.to_snapshot() |> check_bytes(max)

  defp check_iterations(_value, nil), do: :ok

  defp check_iterations(value, max) do
    case value |> contexts() |> Enum.map(&Context.count_iterations/1) |> Enum.max() do
      count when count > max -> invalid("at most #{max} iterations, got #{count}")
      _count -> :ok
    end
  end

  defp contexts(%Context{} = context), do: [context]
  defp contexts(%ChatContext{} = chat), do: Enum.map(ChatContext.branches(chat), & &1.context)

  defp read(kind, %kind{} = value, _accept) do
    case handles(value) do
      # A context of another node is only a reference here.
      {:ok, contexts} -> Enum.find_value(contexts, {:ok, value}, &refusal/1)
      :error -> invalid("a #{noun(kind)} that the package's functions made")
    end
  end

  defp read(kind, input, accept) do
    form = form(kind, input)

    cond do
      form in accept -> read_as(kind, form, input, accept)
      form -> not_accepted(kind, form)
      accept == [] -> invalid("a #{noun(kind)}")
      true -> invalid("a #{noun(kind)}, or a map of one")
    end
  end

  defp refusal(context), do: with(:ok <- Handle.check(context), do: nil)

  # Anybody can make a struct that lacks fields.
  defp handles(%Context{ref: _, current_iteration: number} = context) when is_integer(number),
    do: {:ok, [context]}

  defp handles(%ChatContext{branches: %{} = branches, active_branch_name: active})
       when is_map_key(branches, active) do
    contexts = for {_name, %{context: %Context{ref: _} = context}} <- branches, do: context
    if length(contexts) == map_size(branches), do: {:ok, contexts}, else: :error
  end

  defp handles(_value), do: :error

  defp form(_kind, %_{}), do: nil
  defp form(_kind, text) when is_binary(text), do: :dump
  defp form(_kind, %{"version" => _}), do: :dump
  defp form(Context, [_ | _]), do: :messages
  defp form(Context, %{}), do: :messages
  defp form(_kind, _input), do: nil

  defp not_accepted(kind, form) do
    invalid(
      "a #{noun(kind)}; to take this form from parameters, add #{inspect(form)} to the type's option :accept"
    )
  end

  defp read_as(Context, :messages, messages, _accept) when is_list(messages) do
    with {:ok, context, _repairs} <- Context.Import.from_messages(messages), do: {:ok, context}
  end

  # An empty map would replace the stored conversation with an empty one.
  defp read_as(Context, :messages, attributes, _accept) do
    if Enum.any?([:iterations, "iterations"], &match?([_ | _], attributes[&1])),
      do: Context.create(attributes),
      else: invalid("a map with at least one iteration; use nil to remove the conversation")
  end

  defp read_as(Context, :dump, input, _accept), do: from_document(Context, input)

  # Settings decide which tools may run and which commands start servers.
  defp read_as(ChatContext, :dump, input, accept) do
    with {:ok, chat} <- from_document(ChatContext, input) do
      if :config in accept or chat.config == %ChatContext.Config{},
        do: {:ok, chat},
        else:
          invalid(
            "a chat without \"config\"; to take settings from parameters, use accept: [:dump, :config]"
          )
    end
  end

  defp from_document(kind, text) when is_binary(text), do: from_text(kind, text, @parameters)
  defp from_document(kind, document), do: kind.load(document, @parameters)

  @doc "A value from a dump of `dump/3`."
  def load(_kind, nil), do: {:ok, nil}
  def load(kind, %JSON.Fragment{text: text}), do: from_text(kind, text, [])
  def load(kind, text) when is_binary(text), do: from_text(kind, text, [])
  def load(kind, document), do: kind.load(document)

  @doc "The stored form of a value, in a column of text or of JSON."
  def dump(_kind, nil, _storage), do: {:ok, nil}
  def dump(kind, %kind{} = value, :text), do: {:ok, kind.to_snapshot(value)}

  # The fragment is encoded as the core's own text, and no map is built.
  if Code.ensure_loaded?(Jason.Encoder) do
    def dump(kind, %kind{} = value, :map),
      do: {:ok, %JSON.Fragment{text: kind.to_snapshot(value)}}
  else
    def dump(kind, %kind{} = value, :map), do: {:ok, kind.dump(value)}
  end

  def dump(_kind, _other, _storage), do: :error

  @doc "The form of a value within a larger document."
  def dump_map(_kind, nil), do: {:ok, nil}
  def dump_map(kind, %kind{} = value), do: {:ok, kind.dump(value)}
  def dump_map(_kind, _other), do: :error

  @doc "Equal contents; `nil` equals `nil`."
  def equal?(kind, %kind{} = a, %kind{} = b), do: kind.equal?(a, b)
  def equal?(_kind, a, b), do: a == b

  @doc "An order of values: equal ones are equal, and others stay in one order."
  def compare(kind, a, b) do
    cond do
      kind.equal?(a, b) -> :eq
      kind.to_snapshot(a) < kind.to_snapshot(b) -> :lt
      true -> :gt
    end
  end

  defp invalid(expected), do: {:error, %Error{reason: {:invalid, [], expected}}}

  # Two attributes hold a whole conversation: the first iteration also has the fields that are not iterations, under this key.
  @conversation "conversation"

  @doc "The attributes of `AshAgent.Context.Embedded`."
  def to_attributes(%Context{} = context) do
    {[first | rest], conversation} = context |> Context.dump() |> Map.pop!("iterations")

    %{
      iterations: [Map.put(first, @conversation, conversation) | rest],
      current_iteration: context.current_iteration
    }
  end

  @doc "The context for the attributes of `AshAgent.Context.Embedded`, or for iterations as `to_map/1` returns them."
  def from_attributes(%{iterations: iterations, current_iteration: number}, opts \\ []) do
    case iterations do
      [%{@conversation => %{} = conversation} = first | rest] ->
        document = Map.put(conversation, "iterations", [Map.delete(first, @conversation) | rest])
        with {:ok, context} <- Context.load(document, opts), do: reach(context, number)

      _ ->
        Context.create(%{iterations: iterations, current_iteration: number})
    end
  end

  # The attribute may have been set to the next iteration.
  defp reach(%Context{current_iteration: number} = context, number), do: {:ok, context}
  defp reach(context, nil), do: {:ok, context}
  defp reach(context, number), do: Context.update(context, current_iteration: number)

  @doc "The attributes of `AshAgent.Context.Embedded` that those given make, or that they make of an old context's."
  def cast_attributes(given, old) do
    with {:ok, context} <- read_attributes(given, old), do: {:ok, to_attributes(context)}
  end

  defp read_attributes(%{iterations: [%{@conversation => _} | _]} = given, _old),
    do: given |> Map.put_new(:current_iteration, nil) |> from_attributes(@parameters)

  defp read_attributes(given, nil), do: Context.create(given)
  defp read_attributes(given, %Context{} = old), do: Context.update(old, given)

  defp from_text(Context, text, opts), do: Context.load(text, opts)
  defp from_text(kind, text, opts), do: kind.from_snapshot(text, opts)
end
