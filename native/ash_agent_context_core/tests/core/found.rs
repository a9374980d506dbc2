//! What fuzzing found.

use crate::make::{defaults, import, reload, sent};
use ash_agent_context_core::{
    json, time, Context, Error, Provider, RepairKind, Stamp, Value, NESTING,
};

/// A thought was thinking in a user message, which no snapshot may have.
#[test]
fn what_is_imported_can_be_stored_and_loaded() {
    let body =
        r#"{"contents":[{"parts":[{"text":"t","thought":true},{"text":"Hi"}],"role":"user"}]}"#;
    let context = import(body, Provider::Gemini);
    let loaded = reload(&context);
    assert!(loaded == context);
    assert_eq!(sent(&loaded, Provider::Gemini), body);
    assert_eq!(
        sent(&loaded, Provider::Mistral),
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]}]}"#
    );
}

/// Fields that are another type's were read as if they were the part's own, and written as if they were not.
#[test]
fn fields_of_parts_of_another_type_are_kept_as_they_came() {
    let part = r#"{"type":"thinking","text":"t","data":{"$$x":{"$atom":"a"}},"filename":{"$bytes":"//4="}}"#;
    let document = format!(
        r#"{{"version":1,"id":"c","created_at":"2026-01-01T10:00:00.000000Z","updated_at":"2026-01-01T10:00:00.000000Z",
        "iterations":[{{"number":1,"started_at":"2026-01-01T10:00:00.000000Z","completed_at":null,"metadata":{{}},
        "messages":[{{"role":"assistant","content":[{part}]}}]}}],"metadata":{{}}}}"#
    );
    let context = Context::from_snapshot(document.as_bytes()).unwrap();
    let written = json::read(&context.to_snapshot(), NESTING).unwrap();
    assert_eq!(written, json::read(document.as_bytes(), NESTING).unwrap());
    let again = reload(&context);
    assert!(again == context);
}

/// Looking for covers in an empty range was a panic.
#[test]
fn an_empty_range_is_nothing_to_expand() {
    let at = time::from_micros(0).unwrap();
    let context = Context::empty("c", at).put_max_result_bytes(Some(9), at);
    assert!(context.expand(3, 2, at) == context);
    assert!(context.expand(u64::MAX, 0, at) == context);
}

/// A range behind the current iteration hid it with its pending calls, and no snapshot of that was read.
#[test]
fn a_range_behind_the_current_iteration_leaves_pending_calls_alone() {
    let at = time::from_micros(0).unwrap();
    let calls = json::read(br#"[{"id":"a","name":"get"}]"#, 2).unwrap();
    let context = Context::empty("c", at)
        .add_assistant_message(Value::Nil, calls, Stamp::at(at))
        .unwrap();
    for range in [(2, 2), (2, u64::MAX), (0, 0)] {
        let error = context.iteration_range(range.0, range.1, at).unwrap_err();
        assert!(matches!(error, Error::PendingToolCalls { .. }), "{error}");
    }
    assert!(context.iteration_range(1, 9, at).is_ok());
}

/// A part of a message stood among the items once its message was made anew, here for the calls' ids.
#[test]
fn parts_without_a_type_are_no_items() {
    let call = r#"{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}"#;
    let said = r#"{"role":"assistant","content":[{"x":1},{"type":"output_text","text":"t"}]}"#;
    let body = format!(r#"{{"input":[{said},{call},{call}]}}"#);
    let provider = Provider::OpenAiResponses;
    let at = time::from_micros(0).unwrap();
    let imported = Context::from_request(Value::text(&body), provider, defaults()).unwrap();
    let context = imported.context.interrupt(&Value::Nil, Stamp::at(at));
    let sent = sent(&context, provider);
    assert!(sent.contains("function_call_output") && !sent.contains("\"x\""));
    let again = Context::from_request(Value::text(&sent), provider, defaults()).unwrap();
    assert_eq!(again.repairs, []);

    let item = r#"{"input":[{"role":"assistant","content":[{"type":"reasoning"}]}]}"#;
    let error = Context::from_request(Value::text(item), provider, defaults());
    assert!(matches!(error, Err(Error::Invalid { .. })));
}

/// What calls got in the place of their ids was another thing after a delta than before.
#[test]
fn calls_of_a_delta_get_the_ids_they_had() {
    let call = r#"{"type":"function_call","call_id":"a","name":"f"}"#;
    let other = r#"{"type":"other_output"}"#;
    let body = format!(r#"{{"input":[{call},{other},{call},{call},{call},{other},{call}]}}"#);
    let provider = Provider::OpenAiResponses;
    let imported = Context::from_request(Value::text(&body), provider, defaults()).unwrap();
    let context = imported.context;
    for since in 1..=i64::try_from(context.current_iteration()).unwrap() {
        let delta = json::read(&context.delta(since).unwrap(), NESTING).unwrap();
        assert!(
            context.load_delta(delta).unwrap() == context,
            "since {since}"
        );
    }
}

/// Results that go back as they came were counted with three terms too few.
#[test]
fn imported_results_have_the_size_of_what_they_hold() {
    let body = r#"{"messages":[{"role":"user","content":"Hi"},
        {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"n","input":{}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"ok"}]}]}"#;
    let imported = import(body, Provider::Anthropic);
    let list = r#"[{"role":"user","content":"Hi"},
        {"role":"assistant","tool_calls":[{"id":"t","type":"function","function":{"name":"n","arguments":"{}"}}]},
        {"role":"tool","tool_call_id":"t","content":"ok"}]"#;
    let list = json::read(list.as_bytes(), NESTING).unwrap();
    let built = Context::from_messages(list, defaults());
    let size = |context: &Context| context.iteration(1).unwrap().size().terms;
    assert!(size(&imported) > size(&built.unwrap().context));
}

/// An item of a type that nobody knows, in the place of a call's output, made the next output with that id one of the
/// API's own: so the result that was put in its place was not the call's when it was read again.
#[test]
fn what_was_repaired_is_written_repaired() {
    let body = r#"{"instructions":"S","input":[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"u","detail":"auto"},{"type":"input_file","file_data":"data:application/pdf;base64,AAAA","filename":"f"}]},{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"t"}],"encrypted_content":"e"},{"type":"function_call","id":"fc_1","call_id":"a","name":"f","arguments":"{}","status":"completed"},{"type":"fcnuiotn_call_output","call_id":"a","output":"1"},{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"b","annotations":[]},{"type":"refusal","refusal":"no"}]},{"type":"web_search_call","id":"ws_2","status":"completed"},{"type":"item_reference","id":"x"}]}"#;
    let provider = Provider::OpenAiResponses;
    let imported = Context::from_request(Value::text(body), provider, defaults()).unwrap();
    let kinds: Vec<_> = imported.repairs.iter().map(|repair| repair.kind).collect();
    assert_eq!(kinds, [RepairKind::SynthesisedResult]);
    let repaired = sent(&imported.context, provider);
    assert_eq!(sent(&import(&repaired, provider), provider), repaired);

    // Its place beside the call makes no difference.
    let items = r#"{"type":"odd_output","call_id":"a","output":"1"}"#;
    let call = r#"{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}"#;
    let output = r#"{"type":"function_call_output","call_id":"a","output":"2"}"#;
    for input in [[items, call, output], [call, items, output]] {
        let body = format!(r#"{{"input":[{}]}}"#, input.join(","));
        assert_eq!(sent(&import(&body, provider), provider), body);
    }
}

/// A message of an unknown role was sent although an item before it has its id, as long as no other item stood beside it.
#[test]
fn an_item_of_a_role_that_nobody_knows_is_sent_once() {
    let item = |role: &str| format!(r#"{{"id":"i","role":"{role}","type":"message"}}"#);
    let output = r#"{"type":"function_call_output","call_id":"a","output":"1"}"#;
    let body = format!(
        r#"{{"input":[{},{output},{},{output}]}}"#,
        item("x"),
        item("y")
    );
    let provider = Provider::OpenAiResponses;
    let imported = Context::from_request(Value::text(&body), provider, defaults()).unwrap();
    let repaired = sent(&imported.context, provider);
    assert_eq!(repaired, format!(r#"{{"input":[{}]}}"#, item("x")));
    assert_eq!(sent(&import(&repaired, provider), provider), repaired);
}

/// Bedrock takes `a.b`, and others get `a_b` for it, so that the id `a_b` of the next call was another one in its result.
#[test]
fn a_result_has_the_id_that_its_call_was_imported_with() {
    let call =
        |id: &str| format!(r#"{{"toolUse":{{"toolUseId":"{id}","name":"get","input":{{}}}}}}"#);
    let result =
        |id: &str| format!(r#"{{"toolResult":{{"toolUseId":"{id}","content":[{{"text":"1"}}]}}}}"#);
    let history = format!(
        r#"{{"messages":[{{"role":"user","content":[{{"text":"Hi"}}]}},{{"role":"assistant","content":[{},{}]}},{{"role":"user","content":[{},{}]"#,
        call("a.b"),
        call("a_b"),
        result("a.b"),
        result("a_b")
    );
    let provider = Provider::Bedrock;
    let context = import(&format!("{history}}}]}}"), provider);
    let stamp = Stamp::at(time::from_micros(0).unwrap());
    let context = context
        .add_user_message(Value::text("And?"), stamp)
        .unwrap();
    let going_on = history.strip_suffix(']').unwrap();
    assert_eq!(
        sent(&context, provider),
        format!(r#"{going_on},{{"text":"And?"}}]}}]}}"#)
    );
}

/// The output of an item of an unknown kind stayed where the item was left out, and answered nothing.
#[test]
fn an_output_goes_with_the_item_that_it_answers() {
    let body = r#"{"input":[
        {"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]},
        {"type":"new_call","id":"nc_1","call_id":"a"},{"type":"function_call_output","call_id":"a","output":"1"},
        {"type":"message","role":"user","content":[{"type":"input_text","text":"Again"}]},
        {"type":"new_call","id":"nc_1","call_id":"b"},{"type":"function_call_output","call_id":"b","output":"2"},
        {"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Done","annotations":[]}]}]}"#;
    let context = import(body, Provider::OpenAiResponses);
    let body = sent(&context, Provider::OpenAiResponses);
    assert!(body.contains(r#""call_id":"a","output":"1""#), "{body}");
    assert!(!body.contains(r#""call_id":"b""#), "{body}");
    assert_eq!(
        sent(
            &import(&body, Provider::OpenAiResponses),
            Provider::OpenAiResponses
        ),
        body
    );
}

/// The same where the item came once and has no output: the API itself says what it does.
#[test]
fn an_item_that_names_a_call_needs_no_output() {
    let body = r#"{"input":[{"role":"user","content":"Hi"},{"type":"new_call","call_id":"a"},{"type":"new_progress","call_id":"a"},{"role":"user","content":"So?"}]}"#;
    let context = import(body, Provider::OpenAiResponses);
    assert_eq!(sent(&context, Provider::OpenAiResponses), body);
}

/// Items in the content of a message counted as items when they were written, and not when they were read.
#[test]
fn items_in_a_message_are_refused() {
    for part in [
        r#"{"type":"new_call","call_id":"a"}"#,
        r#"{"type":"reasoning","id":"rs_1","summary":[]}"#,
    ] {
        for role in ["user", "developer", "assistant"] {
            let body = format!(r#"{{"input":[{{"role":"{role}","content":[{part}]}}]}}"#);
            let read =
                Context::from_request(Value::text(&body), Provider::OpenAiResponses, defaults());
            let error = read.unwrap_err().to_string();
            assert!(
                error.contains("a part of a message, not an item"),
                "{error}"
            );
        }
    }
}

/// A part of the user's with a role was sent as a message of its own, which said nothing when it was read.
#[test]
fn a_part_with_a_role_is_no_message() {
    for role in ["assistant", "system", "user"] {
        let part = format!(r#"{{"id":"m","role":"{role}","words":"c"}}"#);
        let body = format!(r#"{{"messages":[{{"role":"user","content":[{part}]}}]}}"#);
        for provider in [Provider::OpenAiChat, Provider::Mistral] {
            assert_eq!(sent(&import(&body, provider), provider), body);
        }
    }
    let row = r#"{"messages":[{"role":"narrator","words":"c"},{"role":"user","content":"Hi"}]}"#;
    assert_eq!(
        sent(&import(row, Provider::OpenAiChat), Provider::OpenAiChat),
        row
    );
}

/// A message of the system's that is sent as the user's was followed by another one of the user's, until its iteration was
/// encoded as a whole.
#[test]
fn a_system_message_that_is_sent_as_the_users_stands_for_one() {
    let time = r#""started_at":"2026-01-01T10:00:00.000000Z","completed_at":"2026-01-01T10:00:00.000000Z","metadata":{}"#;
    let document = format!(
        r#"{{"version":1,"id":"c","created_at":"2026-01-01T10:00:00.000000Z","updated_at":"2026-01-01T10:00:00.000000Z",
        "iterations":[{{"number":1,{time},"messages":[{{"role":"assistant","content":null}},{{"role":"system","content":"x"}}]}},
        {{"number":2,{time},"messages":[]}}],"metadata":{{}}}}"#
    );
    let body = r#"{"messages":[{"role":"user","content":"x"}]}"#;
    let whole = Context::from_snapshot(document.as_bytes()).unwrap();
    assert_eq!(sent(&whole, Provider::Mistral), body);
    let current = whole.rewind(1).unwrap();
    assert_eq!(sent(&current, Provider::Mistral), body);
    let loaded = reload(&current);
    assert_eq!(sent(&loaded, Provider::Mistral), body);
}
