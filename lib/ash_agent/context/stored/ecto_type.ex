defmodule AshAgent.Context.Stored.EctoType do
  @moduledoc false

  # The functions of an `Ecto.Type` for a kind of value, with the options of `AshAgent.Context.Stored`.

  defmacro __using__(opts) do
    quote bind_quoted: [opts: opts] do
      {kind, opts} = Keyword.pop!(opts, :of)
      @kind kind
      @options AshAgent.Options.validate!(opts, AshAgent.Context.Stored.schema(kind))
      @storage @options[:storage]
      @type_name inspect(__MODULE__)
      @new "#{inspect(kind)}.new(#{if kind == AshAgent.Context, do: ~s("Hello!")})"
      @noun AshAgent.Context.Stored.noun(kind)

      @doc """
      Returns the type of the column.

      ## Examples

          iex> #{@type_name}.type()
          #{if @storage == :map, do: ":map", else: ":string"}
      """
      @doc since: "0.1.0"
      @spec type() :: :map | :string
      def type, do: unquote(if @storage == :text, do: :string, else: :map)

      @doc """
      Casts a parameter to a #{@noun}; the changeset shows the error's message.

      A #{@noun} from parameters loses its approvals of tool calls and its structs.

      ## Examples

          iex> #{@type_name}.cast(nil)
          {:ok, nil}
          iex> {:error, message: message} = #{@type_name}.cast(7)
          iex> message =~ "expected a #{@noun}"
          true
      """
      @doc since: "0.1.0"
      @spec cast(term()) :: {:ok, unquote(kind).t() | nil} | {:error, keyword()}
      def cast(input) do
        with {:error, error} <- AshAgent.Context.Stored.cast(@kind, input, @options),
             do: {:error, message: Exception.message(error)}
      end

      @doc """
      Loads a #{@noun} from the column, with everything that was stored, or returns `:error`.

      ## Examples

          iex> #{@type_name}.load(%{"version" => 1})
          :error
      """
      @doc since: "0.1.0"
      @spec load(term()) :: {:ok, unquote(kind).t() | nil} | :error
      def load(stored) do
        with {:error, _error} <- AshAgent.Context.Stored.load(@kind, stored), do: :error
      end

      @doc """
      Dumps a #{@noun} for the column: as a map, or as JSON text if the column is text. With Jason, the map is a fragment that
      Jason writes as it is.

      ## Examples

          iex> {:ok, stored} = #{@type_name}.dump(#{@new})
          iex> {:ok, %#{inspect(kind)}{}} = #{@type_name}.load(stored)
      """
      @doc since: "0.1.0"
      @spec dump(term()) ::
              {:ok, map() | AshAgent.Context.JSON.Fragment.t() | binary() | nil} | :error
      def dump(value), do: AshAgent.Context.Stored.dump(@kind, value, @storage)

      @doc """
      Returns `:dump`: an embedded schema stores a #{@noun} as its dump.

      ## Examples

          iex> #{@type_name}.embed_as(:json)
          :dump
      """
      @doc since: "0.1.0"
      @spec embed_as(atom()) :: :dump
      def embed_as(_format), do: :dump

      @doc """
      Returns whether two values have equal contents, so that a changeset contains only real changes.

      ## Examples

          iex> #{@noun} = #{@new}
          iex> copy = #{inspect(kind)}.load!(#{inspect(kind)}.dump(#{@noun}))
          iex> #{@type_name}.equal?(#{@noun}, copy)
          true
      """
      @doc since: "0.1.0"
      @spec equal?(term(), term()) :: boolean()
      def equal?(a, b), do: AshAgent.Context.Stored.equal?(@kind, a, b)
    end
  end
end
