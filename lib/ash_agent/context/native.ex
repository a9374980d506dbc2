defmodule AshAgent.Context.Native do
  @moduledoc false

  # Stubs of the NIFs, and nothing else.
  #
  # Work that grows with its data exists twice: the NIF `name` for normal schedulers does what fits into well under a
  # millisecond and otherwise answers `{:error, :dirty}`; then `name_dirty` does it on a dirty scheduler. An empty call
  # costs 0.05 us on a normal scheduler and 11 us on a dirty one. Functions that take constant time have only the first.
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

  on_both_schedulers = [
    context_new: 5,
    context_add_user_message: 4,
    context_add_assistant_message: 5,
    context_add_tool_results: 4,
    context_interrupt: 5,
    context_fork: 3,
    context_put_metadata: 4,
    context_put_iteration_metadata: 5,
    context_create: 2,
    context_update: 3,
    context_to_messages: 2,
    context_rewind: 2,
    context_put_system_prompt: 3,
    context_system_prompt: 1,
    context_last_common: 2,
    context_ask: 4,
    context_approve: 5,
    context_is_approved: 3,
    context_undecided_calls: 2,
    context_deny: 5,
    context_call_status: 2,
    context_call_decision: 2,
    context_call_times: 2,
    context_add_usage: 3,
    context_add_failure: 3,
    context_failures: 1,
    context_note_request: 4,
    context_note_sent: 2,
    context_replay: 1,
    context_as_asked_before: 2,
    context_view_changes: 2,
    context_request_note: 2,
    context_as_asked: 2,
    context_response_id: 1,
    context_add_response: 5,
    response_feed: 2,
    response_push: 2,
    response_finish: 1,
    response_interrupt: 2,
    response_decode: 2,
    response_read_refusal: 3,
    response_from_message: 1,
    response_message: 1,
    response_facts: 1,
    response_details: 1,
    response_reason: 1,
    context_count_tokens: 2,
    context_token_breakdown: 2,
    context_find_turn: 3,
    context_spent: 4,
    context_account: 4,
    context_forecast: 4,
    price_known: 2,
    prices_list: 1,
    prices_file: 2,
    context_fit: 3,
    context_keep_last: 3,
    context_remove_old: 3,
    context_range: 4,
    context_hide: 4,
    context_compactable: 5,
    context_messages_between: 3,
    context_drop_range: 4,
    context_summarize: 5,
    context_summary_of: 2,
    context_verdict: 2,
    context_forget: 4,
    context_expand: 4,
    context_clear_results: 4,
    context_clear_when_due: 3,
    context_shorten: 4,
    context_undo: 4,
    context_reveal: 4,
    context_note_summarized: 4,
    context_shortenings: 1,
    context_max_result_bytes: 3,
    context_masks: 3,
    context_prompt_block: 4,
    context_view: 1,
    context_put_recall: 3,
    context_has_recall: 1,
    context_recall: 3,
    context_search: 3,
    context_receipt: 3,
    context_pin: 3,
    context_unpin: 3,
    context_pins: 1,
    context_place_of_call: 2,
    context_put_index: 4,
    context_diff_views: 3,
    context_unready: 1,
    context_iteration: 2,
    context_iteration_messages: 2,
    context_iterations: 1,
    context_tool_calls: 1,
    context_pending_tool_calls: 1,
    context_message: 3,
    context_metadata: 1,
    context_to_map: 1,
    context_equal: 2,
    context_encode_request: 3,
    context_request: 2,
    context_request_report: 2,
    context_to_prompt: 2,
    import_request: 4,
    import_messages: 3,
    snapshot_dump: 2,
    snapshot_dump_beside: 2,
    snapshot_load: 2,
    snapshot_load_delta: 3,
    snapshot_encode: 1,
    snapshot_changes: 2,
    snapshot_changes_from: 2,
    chat_dump: 4,
    chat_encode: 4,
    chat_load: 3,
    chat_seed: 5,
    snapshot_decode: 2,
    trace_html: 3,
    trace_otlp: 3,
    trace_print: 3,
    answer_type: 1,
    answer_read: 3,
    answer_check: 3,
    answer_partial: 3,
    answer_follow: 4,
    answer_constrain: 5,
    answer_schema: 1,
    json_decode: 1,
    json_encode: 1,
    terms_encode: 1,
    terms_decode: 1
  ]

  # Handles come first, in most functions one.
  handles = fn name, args ->
    two? =
      name in [
        :context_equal,
        :context_last_common,
        :context_diff_views,
        :snapshot_dump_beside,
        :snapshot_changes_from,
        :context_add_response
      ]

    Enum.take(args, if(two?, do: 2, else: 1))
  end

  for {name, arity} <- on_both_schedulers do
    args = Macro.generate_arguments(arity, __MODULE__)
    stub = List.duplicate({:_, [], __MODULE__}, arity)
    handles = handles.(name, args)
    normal = :"#{name}_normal"
    dirty = :"#{name}_dirty"

    def unquote(name)(unquote_splicing(args)) do
      case unquote(normal)(unquote_splicing(args)) do
        {:error, :dirty} -> unquote(dirty)(unquote_splicing(args))
        reply -> reply
      end
    catch
      :error, :badarg -> explain!([unquote_splicing(handles)], __STACKTRACE__)
    end

    def unquote(normal)(unquote_splicing(stub)), do: :erlang.nif_error(:nif_not_loaded)
    def unquote(dirty)(unquote_splicing(stub)), do: :erlang.nif_error(:nif_not_loaded)
  end

  constant = [
    context_summary: 1,
    context_first_iteration: 1,
    context_count_iterations: 1,
    context_count_messages: 1,
    context_turn: 1,
    context_usage: 1,
    context_iteration_usage: 2,
    response_new: 1,
    answer_follow_new: 0
  ]

  for {name, arity} <- constant do
    args = Macro.generate_arguments(arity, __MODULE__)
    stub = List.duplicate({:_, [], __MODULE__}, arity)
    handles = handles.(name, args)
    normal = :"#{name}_normal"

    def unquote(name)(unquote_splicing(args)) do
      unquote(normal)(unquote_splicing(args))
    catch
      :error, :badarg -> explain!([unquote_splicing(handles)], __STACKTRACE__)
    end

    def unquote(normal)(unquote_splicing(stub)), do: :erlang.nif_error(:nif_not_loaded)
  end

  # Raises what is to be raised for a NIF that refused its arguments, of which these are handles.
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

  @doc false
  def live_contexts, do: :erlang.nif_error(:nif_not_loaded, [])
  def live_responses, do: :erlang.nif_error(:nif_not_loaded, [])
end
