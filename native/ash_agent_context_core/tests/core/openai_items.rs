//! The items of OpenAI Responses go back as they came, whether an answer or an imported request had them.

use crate::make::{at, conversation, defaults, import, json_sent, parts, reload};
use crate::recorded;

use ash_agent_context_core::{
    Content, Context, Error, Fault, Finish, Masks, Options, Part, PartKind, Provider, Reading,
    Response, Stamp, State, Thinking, Value,
};
use recorded::frame;
use serde_json::{json, Value as Json};

const PROVIDER: Provider = Provider::OpenAiResponses;

/// A complete answer, from which fields are taken by `null`.
fn answer(output: &[Json], more: &Json) -> Json {
    let mut answer = json!({"object": "response", "id": "resp_1", "model": "m", "status": "completed",
        "store": true, "output": output});
    for (key, value) in more.as_object().unwrap() {
        answer[key] = value.clone();
    }
    answer
}

fn reading(model: Option<&str>) -> Reading<'_> {
    Reading {
        model,
        ..Reading::of(PROVIDER)
    }
}

fn decode(answer: &Json) -> Result<Response, Fault> {
    Response::decode(answer.to_string().as_bytes(), &reading(None))
}

/// The same answer as a stream, up to its last events.
fn feed(answer: &Json, left_out: usize) -> Response {
    let mut events = vec![
        json!({"type": "response.created", "response": {"id": answer["id"], "store": answer["store"], "status": "in_progress"}}),
    ];
    for (index, item) in answer["output"].as_array().unwrap().iter().enumerate() {
        events.push(
            json!({"type": "response.output_item.done", "output_index": index, "item": item}),
        );
    }
    events.push(json!({"type": "response.completed", "response": answer}));
    events.truncate(events.len() - left_out);
    let lines: Vec<String> = events.iter().map(Json::to_string).collect();
    let response = Response::new(&reading(None));
    response
        .feed(&frame(PROVIDER, &lines), usize::MAX)
        .unwrap()
        .0
}

fn input(context: &Context, options: &Options<'_>) -> Vec<Json> {
    json_sent(context, options)["input"]
        .as_array()
        .unwrap()
        .clone()
}

/// What the next request has of an answer: its calls are answered, and a user goes on.
fn sent_with(response: &Response, options: &Options<'_>) -> Vec<Json> {
    let context = conversation("?")
        .add_response(response, Stamp::at(at(1)))
        .unwrap();
    let context = context.interrupt(&Value::text("stop"), Stamp::at(at(2)));
    let next = context.add_user_message(Value::text("go on"), Stamp::at(at(3)));
    of_model(&input(&next.unwrap(), options))
}

fn of_model(items: &[Json]) -> Vec<Json> {
    let is_its = |item: &&Json| item["role"] != "user" && item["type"] != "function_call_output";
    items.iter().filter(is_its).cloned().collect()
}

fn sent(response: &Response) -> Vec<Json> {
    sent_with(response, &Options::new(PROVIDER))
}

/// The same of a request that is not sent as it was.
fn resent(items: &[Json], store: bool) -> Vec<Json> {
    let mut body = json!({"store": store, "input": [{"role": "user", "content": "?"}]});
    let input_items = body["input"].as_array_mut().unwrap();
    input_items.extend(items.iter().cloned());
    for call in items.iter().filter(|item| item["type"] == "function_call") {
        let id = &call["call_id"];
        input_items.push(json!({"type": "function_call_output", "call_id": id, "output": "1"}));
    }
    input_items.push(json!({"role": "user", "content": "go on"}));
    let body = Value::Binary(body.to_string().into_bytes().into());
    let imported = Context::from_request(body, PROVIDER, defaults()).unwrap();
    assert_eq!(imported.repairs, []);
    let masks = Masks::new([("nowhere".into(), "x".into())]).unwrap();
    let context = imported.context.put_masks(masks, at(1));
    of_model(&input(&context, &Options::new(PROVIDER)))
}

fn check(items: &[Json], store: bool) {
    let answer = answer(items, &json!({"store": store}));
    assert_eq!(sent(&decode(&answer).unwrap()), items, "whole");
    assert_eq!(sent(&feed(&answer, 0)), items, "a stream");
    assert_eq!(resent(items, store), items, "a request");
}

fn text(words: &str) -> Json {
    json!({"type": "output_text", "text": words, "annotations": []})
}

fn said(id: &str, content: &[Json]) -> Json {
    json!({"type": "message", "id": id, "role": "assistant", "status": "completed", "content": content})
}

fn reasoning(id: &str, more: &Json) -> Json {
    let mut item = json!({"type": "reasoning", "id": id, "summary": []});
    for (key, value) in more.as_object().unwrap() {
        item[key] = value.clone();
    }
    item
}

#[test]
fn reasoning_that_the_api_keeps_goes_back_by_its_id() {
    let summary = json!({"summary": [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}]});
    let call = json!({"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"});
    let items = [
        reasoning("rs_1", &summary),
        said("msg_1", &[text("Hello")]),
        call.clone(),
    ];
    check(&items, true);
    // Nobody keeps it: then it cannot be named, nor what it led to.
    let bare = [
        json!({"role": "assistant", "content": "Hello"}),
        json!({"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}),
    ];
    for store in [json!(false), json!(null)] {
        let answer = answer(&items, &json!({"store": store}));
        assert_eq!(sent(&decode(&answer).unwrap()), bare);
    }
    assert_eq!(resent(&items, false), bare);
    // Nor does it know what it never completed.
    let broken = feed(&answer(&items, &json!({})), 1).interrupt(Value::text("cut"));
    assert_eq!(sent(&broken), bare);
}

#[test]
fn summaries_and_thoughts_stay_apart_until_they_are_changed() {
    let open = json!({"content": [{"type": "reasoning_text", "text": "one"}, {"type": "reasoning_text", "text": "two"}]});
    let both = json!({"summary": [{"type": "summary_text", "text": "short"}], "encrypted_content": "e",
        "content": [{"type": "reasoning_text", "text": "long"}]});
    for more in [&open, &both] {
        // Open models need nobody to keep it.
        check(
            &[reasoning("rs_1", more), said("msg_1", &[text("Hi")])],
            false,
        );
    }
    let items = [reasoning("rs_1", &both), said("msg_1", &[text("Hi")])];
    let response = decode(&answer(&items, &json!({}))).unwrap();
    let context = conversation("?")
        .add_response(&response, Stamp::at(at(1)))
        .unwrap();
    let masks = Masks::new([("short".into(), "***".into())]).unwrap();
    let masked = input(&context.put_masks(masks, at(2)), &Options::new(PROVIDER));
    assert!(!format!("{masked:?}").contains("long"), "{masked:?}");
}

#[test]
fn encrypted_reasoning_goes_back_whatever_its_id() {
    let encrypted = json!({"encrypted_content": "e"});
    // DeepSeek.
    let uuid = "a07c1ce1-5f6d-4b6c-9f0e-0a8f2f1f7d11";
    check(
        &[
            reasoning("84cf774d-60a1-4e20-85e3-4cf73ee18cd5", &encrypted),
            said(uuid, &[text("Hi")]),
            json!({"type": "function_call", "id": "8fc0", "call_id": "c1", "name": "f", "arguments": "{}"}),
        ],
        false,
    );
    // xAI, where several follow each other and two have one id.
    let long = format!("tco_{}_call-{}-0", "f".repeat(36), "3".repeat(36));
    let search =
        json!({"type": "web_search_call", "id": format!("ws_{long}"), "status": "completed"});
    let items = [
        reasoning("rs_1", &encrypted),
        search,
        reasoning(&long, &encrypted),
        reasoning("rs_1", &json!({"encrypted_content": "f"})),
        said("msg_1", &[text("Found")]),
    ];
    let response = decode(&answer(&items, &json!({"store": false}))).unwrap();
    assert_eq!(sent(&response), items);
    // OpenAI refuses the first of two that it gave in a row.
    let items = [
        reasoning("rs_1", &encrypted),
        reasoning("rs_2", &encrypted),
        said("msg_1", &[text("Hi")]),
    ];
    let response = decode(&answer(&items, &json!({"store": false}))).unwrap();
    assert_eq!(sent(&response), items[1..]);
    // In front of nothing, and in front of what goes without an id, the API refuses it.
    let items = [said("msg_1", &[text("Hi")]), reasoning("rs_1", &encrypted)];
    let response = decode(&answer(&items, &json!({"store": false}))).unwrap();
    assert_eq!(sent(&response), items[..1]);
    let response = decode(&answer(&items[1..], &json!({}))).unwrap();
    assert_eq!(sent(&response), Vec::<Json>::new());
    let foreign = [reasoning("rs_1", &encrypted), said("other", &[text("Hi")])];
    let response = decode(&answer(&foreign, &json!({}))).unwrap();
    assert_eq!(
        sent(&response),
        [json!({"role": "assistant", "content": "Hi"})]
    );
}

#[test]
fn a_message_is_one_item_with_all_that_it_had() {
    let cited = json!({"type": "output_text", "text": "Cited", "annotations": [
        {"type": "url_citation", "url": "https://a.example", "title": "A", "start_index": 0, "end_index": 5}]});
    let mut likely = text("Likely");
    likely["logprobs"] =
        json!([{"token": "Likely", "logprob": -0.1, "bytes": [76], "top_logprobs": []}]);
    let refusal = json!({"type": "refusal", "refusal": "No."});
    let content = [cited.clone(), likely, refusal.clone()];
    let mut item = said("msg_1", &content);
    item["status"] = json!("incomplete");
    item["phase"] = json!("commentary");
    check(&[item, said("msg_2", &[text("Next")])], false);
    // An empty one too, which follows images.
    check(&[said("msg_1", &[text("")])], false);
    // Its id does not go back: what it says does.
    let unnamed = [
        reasoning("rs_1", &json!({})),
        said("msg_1", &[cited.clone(), refusal.clone()]),
        said("msg_2", &[text("Plain")]),
    ];
    let response = decode(&answer(&unnamed, &json!({"store": false}))).unwrap();
    assert_eq!(response.finish_reason(), Some(Finish::Refusal));
    assert_eq!(
        sent(&response),
        [
            json!({"role": "assistant", "content": [cited, refusal]}),
            json!({"role": "assistant", "content": "Plain"})
        ]
    );
    // Another model's are words.
    let body = answer(&unnamed, &json!({})).to_string();
    let response = Response::decode(body.as_bytes(), &reading(Some("a"))).unwrap();
    let other = Options {
        model: Some("b"),
        thinking: Thinking::Drop,
        ..Options::new(PROVIDER)
    };
    let words = ["Cited", "No.", "Plain"];
    assert_eq!(
        sent_with(&response, &other),
        words.map(|words| json!({"role": "assistant", "content": words}))
    );
}

#[test]
fn items_of_every_type_go_back() {
    let items = [
        json!({"type": "file_search_call", "id": "fs_1", "queries": ["q"], "status": "completed", "results": null}),
        json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}),
        json!({"type": "program", "id": "cm_1", "call_id": "p1", "code": "f()", "fingerprint": "x"}),
        json!({"type": "program_output", "id": "cmo_1", "call_id": "p1", "result": "1", "status": "completed"}),
        json!({"type": "tool_search_call", "id": "tsc_1", "execution": "server", "call_id": null, "status": "completed", "arguments": {}}),
        json!({"type": "tool_search_output", "id": "tso_1", "execution": "server", "call_id": null, "status": "completed", "tools": []}),
        json!({"type": "additional_tools", "id": "at_1", "role": "developer", "tools": []}),
        json!({"type": "compaction", "id": "cmp_1", "encrypted_content": "e"}),
        json!({"type": "image_generation_call", "id": "ig_1", "result": "aGk=", "status": "completed"}),
        json!({"type": "code_interpreter_call", "id": "ci_1", "code": "1", "container_id": "cntr_1", "outputs": null, "status": "completed"}),
        json!({"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": []}),
        json!({"type": "mcp_call", "id": "mcp_1", "name": "f", "server_label": "s", "arguments": "{}", "output": "1", "error": null}),
        json!({"type": "shell_call", "id": "sh_1", "call_id": "s1", "status": "completed", "action": {"commands": ["ls"]},
            "environment": {"type": "container_reference", "container_id": "cntr_1"}}),
        json!({"type": "shell_call_output", "id": "sho_1", "call_id": "s1", "status": "completed", "output": [
            {"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]}),
        // xAI's own.
        json!({"type": "x_search_call", "id": "fc_0", "call_id": "", "name": "x_semantic_search", "arguments": "{}", "status": "completed"}),
        json!({"type": "custom_tool_call", "id": "ctc_1_xs_call_1", "call_id": "xs_call_1", "name": "x_keyword_search", "input": "{}", "status": "completed"}),
        json!({"type": "item_of_tomorrow", "id": "x_1", "anything": {"at": ["all"]}}),
    ];
    let response = decode(&answer(&items, &json!({}))).unwrap();
    let sent_back: Vec<Json> = all(&response);
    assert_eq!(sent_back, items);
    // Who made an item is told and not taken.
    let mut signed = items.to_vec();
    for item in &mut signed {
        item["created_by"] = json!("somebody");
    }
    signed[13]["output"][0]["created_by"] = json!("somebody");
    let response = decode(&answer(&signed, &json!({}))).unwrap();
    assert_eq!(all(&response), items);
}

/// Everything between the question and what the user says next.
fn all(response: &Response) -> Vec<Json> {
    let context = conversation("?")
        .add_response(response, Stamp::at(at(1)))
        .unwrap();
    let next = context.add_user_message(Value::text("go on"), Stamp::at(at(3)));
    let items = input(&next.unwrap(), &Options::new(PROVIDER));
    items[1..items.len() - 1].to_vec()
}

#[test]
fn an_answer_in_the_background_is_asked_for_again() {
    for status in ["queued", "in_progress"] {
        let half = said("msg_1", &[text("Hal")]);
        let answer = answer(&[half], &json!({"status": status, "background": true}));
        let response = decode(&answer).unwrap();
        assert_eq!(*response.state(), State::Queued);
        assert_eq!(
            (response.id(), response.model()),
            (Some("resp_1"), Some("m"))
        );
        assert_eq!(response.message().0.content, Content::None);
        let error = conversation("?").add_response(&response, Stamp::at(at(1)));
        assert_eq!(error.unwrap_err(), Error::Response(Fault::Queued));
        // Nothing more comes here.
        let (same, events) = response.feed(b"{}", usize::MAX).unwrap();
        assert_eq!((same.state(), events.len()), (&State::Queued, 0));
        let broken = same.finish(usize::MAX).unwrap().0.interrupt(Value::Nil);
        assert_eq!(broken.state().name(), "interrupted");
    }
}

#[test]
fn a_whole_answer_is_complete_unless_it_says_otherwise() {
    let hello = [said("msg_1", &[text("Hi")])];
    for status in [json!(null), json!(""), json!("completed")] {
        let response = decode(&answer(&hello, &json!({"status": status}))).unwrap();
        assert_eq!(response.finish_reason(), Some(Finish::Stop));
        assert_eq!(*response.state(), State::Complete);
    }
    // The closing event counts, whatever the snapshot in it says.
    let response = feed(&answer(&hello, &json!({"status": "in_progress"})), 0);
    assert_eq!(*response.state(), State::Complete);
    let response = decode(&json!({"object": "response", "status": "completed", "output": null}));
    assert_eq!(response.unwrap().message().0.content, Content::None);
}

#[test]
fn a_call_that_broke_off_is_not_complete_in_a_whole_answer_either() {
    let cut = json!({"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}", "status": "incomplete"});
    let more =
        json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}});
    for response in [
        decode(&answer(std::slice::from_ref(&cut), &more)).unwrap(),
        feed(&answer(std::slice::from_ref(&cut), &more), 0),
    ] {
        assert_eq!(response.finish_reason(), Some(Finish::Length));
        let (message, half) = response.message();
        assert_eq!((message.calls.len(), half.len()), (0, 1));
        let context = conversation("?")
            .add_response(&response, Stamp::at(at(1)))
            .unwrap();
        assert_eq!(context.current().count_pending(), 0);
    }
}

#[test]
fn indexes_with_gaps_double_nothing() {
    let (first, second) = (said("msg_1", &[text("one")]), said("msg_2", &[text("two")]));
    let late = json!({"type": "web_search_call", "id": "ws_1", "status": "completed"});
    let mut renamed = first.clone();
    renamed["id"] = json!("msg_0");
    let done = |index: u64, item: &Json| json!({"type": "response.output_item.done", "output_index": index, "item": item});
    let lines = [
        done(0, &first),
        done(2, &second),
        // Ids may be others, and an item that was never said to be done comes with the last event.
        json!({"type": "response.completed", "response": answer(&[renamed, second, late], &json!({}))}),
    ];
    let lines = lines.map(|line| line.to_string());
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let response = Response::new(&reading(None));
    let (response, _) = response.feed(&frame(PROVIDER, &lines), usize::MAX).unwrap();
    let message = response.message().0;
    let parts = parts(&message.content);
    let words = |part: &Part| match &part.kind {
        PartKind::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
        other => other.name().to_owned(),
    };
    let words: Vec<String> = parts.iter().map(words).collect();
    assert_eq!(words, ["one", "two", "provider_block"]);
}

/// What a program left null is refused by OpenAI ("expected an array of objects, but got null instead"), and so is an empty list.
#[test]
fn a_message_without_calls_goes_back_without_the_field() {
    for provider in [Provider::OpenAiChat, Provider::Mistral] {
        for none in [json!(null), json!([])] {
            let said = json!({"role": "assistant", "content": "Hi", "tool_calls": none});
            let body = json!({"messages": [{"role": "user", "content": "?"}, said]});
            let context = import(&body.to_string(), provider);
            for context in [reload(&context), context] {
                let sent = json_sent(&context, &Options::new(provider));
                let back = &sent["messages"][1];
                assert_eq!(back["content"], "Hi");
                let is_kept = provider == Provider::Mistral;
                assert_eq!(back.get("tool_calls").is_some(), is_kept, "{back}");
            }
        }
    }
}

/// Outputs of commands that a program made by hand follow the API's form.
#[test]
fn the_output_of_commands_is_a_list_of_what_each_wrote() {
    let call = json!({"type": "shell_call", "call_id": "c1", "action": {"commands": ["ls"]}});
    let end = json!({"type": "exit", "exit_code": 0});
    let own = json!([{"stdout": "a", "stderr": "", "outcome": end}]);
    for output in [
        json!("a"),
        json!({"stdout": "a"}),
        json!([{"stdout": "a"}]),
        own.clone(),
    ] {
        let answer = json!({"type": "shell_call_output", "call_id": "c1", "output": output});
        let user = json!({"role": "user", "content": "?"});
        let body = json!({"input": [user, call, answer]});
        let context = import(&body.to_string(), Provider::OpenAiResponses);
        for context in [reload(&context), context] {
            let sent = json_sent(&context, &Options::new(Provider::OpenAiResponses));
            assert_eq!(sent["input"][2]["output"], own, "{output}");
        }
    }
}
