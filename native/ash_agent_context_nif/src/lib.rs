//! NIFs over `ash_agent_context_core`: terms in, core calls, terms out.

mod answers;
mod argument;
mod big;
mod clock;
mod context;
mod decode;
mod encode;
mod enif;
mod error;
mod messages;
mod nifs;
mod otlp;
mod prices;
mod request;
mod resource;
mod response;
mod scheduler;
mod storage;
mod to_term;
mod tokens;
mod trace;
mod view;
mod weight;
mod words;

mod atoms {
    //! All atoms that leave the core under a fixed name, but for those of errors (`error.rs`).
    rustler::atoms! {
        fits, misfits, cut, none, value,
        waiting, late, arrived, arrival, awaited_by, elsewhere, placed, deadline, escaped_frame, for_ = "for",
        arguments, asked, assistant, bad_time, calendar, completed_at, content, created_at, current_iteration, data, day,
        same, unnoted, other_prompt, other_masks, follows, different, outcome, view, version, log, place,
        dirty, error, file, filename, first, hour, id, image,
        interrupted, invalid, is_error, iterations, last, media_type,
        message, messages, metadata, microsecond, minute, month, name, nil,
        number, ok, pending, pending_tool_calls, provider, provider_block, provider_metadata, redacted_thinking, result, role,
        second, started_at, std_offset, step, struct_ = "__struct__", system, text, thinking, time_zone,
        tool_calls, tool_result, tool_use_id, type_ = "type",
        updated_at, url, user, utc_offset, year, zone_abbr,
        change, from, to, iteration, position, renamed_id, renamed_tool, wrapped_arguments, thinking_to_text, paid, cold, broken, window, exhausted, context_overflow, avoidable, breaks, bytes, cause, fresh = "new", other, read, same_bytes, most_cost, tokens, written, block, compacted, cost, expired, fields, hit, idle, output, predicted, system_prompt, tools, unexplained, verdict, unasked, cache_minimum, diagnosis, look_back, rewound,
        dropped_thinking, dropped_part, dropped_blank_text, replaced_bytes, moved_part, part_to_text, dropped_message, call_to_function, added_message,
        repair, dropped_empty_message, dropped_duplicate_result, dropped_orphan_result, moved_call, moved_result, renamed_call,
        synthesised_result,
        audio, video, file_id, kind, function, custom, shell, local_shell, apply_patch, computer, mcp_approval, tool_search,
        anthropic, openai_chat, openai_responses, gemini, bedrock, ollama, mistral,
        answered, approved, approval, attempt, details, assistant_last = "last_message_from_assistant", blocks, by, cached_tokens, cache_write_tokens, requested_at, first_chunk_at, received_at, ended_at, calls, auto, cancelled, drop,
        cl100k_base, cleared, cleared_result, continuation, covers, decision, denied, edited, estimate, full, hidden,
        hidden_iterations, input_tokens, masked_text, masks,
        max_result_bytes, handle, score, media, no_messages, o200k_base, origin, output_tokens,
        placeholder, question, at, range_key = "range", reason, reasoning_tokens, shortened_result, summaries, summarized_iterations, summary,
        tool_results, total_tokens,
        range = "Elixir.Range", iterations_range = "range", calendar_iso = "Elixir.Calendar.ISO", date_time = "Elixir.DateTime",
        aws_event_stream, complete, content_filter, failed, finish, finish_reason, finish_word,
        json, length, model, ndjson, open, part, pause, queued, refusal, response, sse, state, stop, tool_call,
        tool_call_arguments, tool_call_started, unfinished_tool_calls, usage,
        address, append, appended, call, counts, fact, hide, kept, missing, nothing, refuse, wrong, exit_code, facts, gone, kinds, look, masked, path, recall, shortened, summarized,
        uses, visible, was, whole,
        unknown, unknown_atom = "Elixir.AshAgent.Context.UnknownAtom",
        budget, reserve, keep_first, keep_last, keep, share, prices, lines, pattern, max_bytes, limit, width, color,
        mark, title, request, fragment, method, agent, next, turns, resource, attributes, caller, conversation,
        dialect, previous_response_id, system_role, interrupt, since, cache, framing, content_type,
        // Keys of provider metadata that responses bring, which may be the first to use these words.
        #[allow(dead_code)] annotations,
        #[allow(dead_code)] async_ = "async",
        #[allow(dead_code)] audio_data,
        #[allow(dead_code)] audio_expires_at,
        #[allow(dead_code)] audio_id,
        #[allow(dead_code)] citations,
        #[allow(dead_code)] closed,
        #[allow(dead_code)] encrypted_content,
        #[allow(dead_code)] environment,
        #[allow(dead_code)] extra_content,
        #[allow(dead_code)] logprobs,
        #[allow(dead_code)] namespace,
        #[allow(dead_code)] pending_safety_checks,
        #[allow(dead_code)] phase,
        #[allow(dead_code)] reasoning_details,
        #[allow(dead_code)] references,
        #[allow(dead_code)] server_label,
        #[allow(dead_code)] signature,
        #[allow(dead_code)] status,
        #[allow(dead_code)] store,
        #[allow(dead_code)] toolset_name,
    }
}

/// An append makes some thirty small blocks and frees as many. With ten messages, it takes 10 times as long as that of plain
/// maps with this allocator, 12 with glibc's and 17 with the VM's own (`bench/context.exs`).
// A sanitizer watches the system's allocator only (`bin/sanitize`).
#[cfg(not(system_allocator))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

rustler::init!("Elixir.AshAgent.Context.Native");
