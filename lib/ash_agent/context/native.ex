defmodule AshAgent.Context.Native do
  @moduledoc false

  # Stubs of the NIFs, and nothing else. Their table is native/ash_agent_context_nif/src/nifs.rs.
  #
  # Each exists twice: `name_normal` does what fits into well under a millisecond on a normal scheduler and otherwise answers
  # `{:error, :dirty}`; then `name_dirty` does it on a dirty scheduler. An empty call costs 0.05 us on a normal scheduler and
  # 11 us on a dirty one.
  #
  # A handle of another VM raises an ArgumentError that names its node.
  #
  # The VM compiles all of this when it loads the module, so each function is as short as can be: `rescue` would double the time.

  alias AshAgent.Context.Error

  @on_load :load

  # Read here so that Mix says when an application's list has changed since the library was built.
  _ = Application.compile_env(:ash_agent_context, :features, [])

  @doc false
  def load do
    path = :filename.join(:code.priv_dir(:ash_agent_context), ~c"native/libash_agent_context_nif")

    case :erlang.load_nif(path, 0) do
      :ok -> :ok
      {:error, {:reload, _}} -> :ok
      {:error, {reason, text}} -> {:error, {reason, text}}
    end
  end

  # Both sides read one table: Cargo as code, and we its lines `name(arguments) Weight = function;`, where an
  # argument may have a Rust type after a colon.
  @table Path.expand("../../../native/ash_agent_context_nif/src/nifs.rs", __DIR__)
  @external_resource @table

  for [_line, name, names, weight] <-
        Regex.scan(~r/^    (\w+)\(([\w, :&]*)\) (\w+) = /m, File.read!(@table)) do
    names = for [name] <- Regex.scan(~r/\b[a-z]\w*/, names), do: String.to_atom(name)
    args = for name <- names, do: Macro.var(name, __MODULE__)
    unused = for _name <- names, do: Macro.var(:_, __MODULE__)

    # The first argument is one in most functions.
    handles =
      for {name, at} <- Enum.with_index(names),
          at == 0 or name in [:other, :response],
          do: Enum.at(args, at)

    [name, normal, dirty] = for ending <- ["", "_normal", "_dirty"], do: :"#{name}#{ending}"

    # The result of a function that takes constant time is a bare fact.
    reply = Macro.var(:reply, __MODULE__)
    result = if weight == "Constant", do: quote(do: elem(unquote(reply), 1)), else: reply

    def unquote(name)(unquote_splicing(args)) do
      case unquote(normal)(unquote_splicing(args)) do
        {:error, :dirty} -> unquote(dirty)(unquote_splicing(args))
        unquote(reply) -> unquote(result)
      end
    catch
      :error, :badarg -> explain!([unquote_splicing(handles)], __STACKTRACE__)
    end

    def unquote(normal)(unquote_splicing(unused)), do: :erlang.nif_error(:nif_not_loaded)
    def unquote(dirty)(unquote_splicing(unused)), do: :erlang.nif_error(:nif_not_loaded)
  end

  # Raises the error for a NIF that refused its arguments, of which these are handles.
  defp explain!(handles, stacktrace) do
    case Enum.find(handles, &foreign?/1) do
      nil ->
        :erlang.raise(:error, :badarg, stacktrace)

      ref ->
        AshAgent.Caller.refuse!(Exception.message(%Error{reason: {:foreign_handle, node(ref)}}))
    end
  end

  @doc false
  # A reference that is neither a context nor a response of this VM.
  def foreign?(ref) when is_reference(ref) do
    not (known?(&context_first_iteration_normal/1, ref) or known?(&response_facts_normal/1, ref))
  end

  def foreign?(_other), do: false

  defp known?(nif, ref) do
    nif.(ref)
    true
  rescue
    ArgumentError -> false
  end
end
