//! The laws.

use ash_agent_context_core::{
    json, Context, Error, Iteration, Map, MessageRef, Options, Prompt, Provider, Size, Stamp,
    SystemRole, Thinking, Value, NESTING,
};

use super::at;

/// Checks a context from every side.
///
/// # Panics
/// When a law is broken.
pub fn check(context: &Context) {
    counts(context);
    let reloaded = snapshot(context);
    deltas(context);
    let settled = requests(context, &reloaded);
    goes_on(&settled);
}

/// Counters say what counting says.
pub fn counts(context: &Context) {
    assert_eq!(context.count_all_messages(), context.all_messages().count());
    assert_eq!(context.count_messages(), context.messages().count());
    context.messages().for_each(|shown| drop(shown.see()));
    assert_eq!(context.count_iterations(), context.iterations().count());
    assert_eq!(context.current(), context.iterations().last().unwrap());
    let mut size = context.metadata().size();
    size = size.plus(context.system().map_or(Size::default(), |m| m.size()));
    let current = context.current_iteration();
    for (number, iteration) in (context.first_number()..).zip(context.iterations()) {
        assert_eq!(iteration.number, number);
        let signed = i64::try_from(number).unwrap();
        assert_eq!(context.iteration(signed), Some(iteration));
        assert_at_most(recount(iteration), iteration.size());
        size = size.plus(iteration.size());

        let pending = iteration.calls().filter(|(_, found)| found.is_none());
        let pending: Vec<_> = pending.map(|(call, _)| call.id.clone()).collect();
        assert_eq!(pending, iteration.pending_ids());
        assert_eq!(pending.len(), iteration.count_pending());
        assert!(pending.is_empty() || number == current);

        assert_eq!(iteration.count_messages(), iteration.messages().count());
        let messages: Vec<_> = context.messages_of(iteration).collect();
        for (position, message) in messages.iter().enumerate() {
            let found = context.message(signed, position).unwrap();
            assert!(is_same(found, *message), "{number} {position}");
        }
        assert!(context.message(signed, messages.len()).is_none());
    }
    // Fields of a snapshot that are not known count too.
    assert_at_most(size, context.size());
    assert!(context.iteration(0).is_none());
    assert!(context.iteration(i64::MIN).is_none());
}

/// How large an iteration is, counted anew.
fn recount(iteration: &Iteration) -> Size {
    let start = iteration.metadata.size().plus(Size::new(8, 0));
    iteration
        .messages()
        .fold(start, |sum, message| match message {
            MessageRef::Added(message) => sum.plus(message.size()),
            MessageRef::Results(_, exchange) => {
                let notes = exchange.metadata.as_ref();
                let outcomes = exchange.slots().flatten();
                let sum = notes.map_or(sum, |notes| sum.plus(notes.size()));
                outcomes.fold(sum, |sum, outcome| sum.plus(outcome.size()))
            }
        })
}

/// A context tells how large it is at most.
fn assert_at_most(size: Size, most: Size) {
    let fits = size.terms <= most.terms && size.bytes <= most.bytes;
    assert!(fits, "{size:?} is more than {most:?}");
}

fn is_same(one: MessageRef<'_>, other: MessageRef<'_>) -> bool {
    match (one, other) {
        (MessageRef::Added(one), MessageRef::Added(other)) => std::ptr::eq(one, other),
        (MessageRef::Results(_, one), MessageRef::Results(_, other)) => std::ptr::eq(one, other),
        _ => false,
    }
}

/// What is written is read, and written again.
fn snapshot(context: &Context) -> Context {
    let text = context.to_snapshot();
    super::check_json(&text);
    let again = Context::from_snapshot(&text)
        .unwrap_or_else(|error| panic!("{error} in {}", String::from_utf8_lossy(&text)));
    assert!(again == *context, "{context:?}\n{again:?}");
    assert_eq!(again.count_messages(), context.count_messages());
    assert_at_most(again.size(), context.size());
    assert_eq!(again.usage(), context.usage());
    assert_eq!(again.count_tokens(None), context.count_tokens(None));
    let method = ash_agent_context_core::Method::Estimate;
    assert_eq!(again.tokens(method), context.tokens(method));
    assert_eq!(again.to_snapshot(), text);
    again
}

/// A delta onto what it was made from changes nothing.
fn deltas(context: &Context) {
    let (first, last) = (context.first_number(), context.current_iteration());
    for since in [first, first + (last - first) / 2, last] {
        let since = i64::try_from(since).unwrap();
        delta(context, context, since);
    }
}

/// What has changed since an iteration, loaded onto an older context, gives the newer one.
pub fn delta(older: &Context, newer: &Context, since: i64) {
    let delta = newer.delta(since).unwrap();
    let loaded = older
        .load_delta(json::read(&delta, NESTING).unwrap())
        .unwrap_or_else(|error| panic!("{error} in {}", String::from_utf8_lossy(&delta)));
    assert!(loaded == *newer, "{newer:?}\n{loaded:?}");
    assert_eq!(loaded.count_messages(), newer.count_messages());
    counts(&loaded);
    assert_eq!(sent_default(&loaded), sent_default(newer));
}

fn sent_default(context: &Context) -> Option<Vec<u8>> {
    sent(context, &Options::new(Provider::Mistral)).ok()
}

/// The body of a request.
///
/// # Errors
/// Those of the request.
pub fn sent(context: &Context, options: &Options<'_>) -> Result<Vec<u8>, Error> {
    let segments = context.encode_request(options, &Map::default())?;
    Ok(segments
        .iter()
        .flat_map(|segment| segment.bytes())
        .copied()
        .collect())
}

/// The body of a request of a conversation in which nothing is pending, checked. None has a number that no float can
/// hold: then there is no body.
///
/// # Panics
/// When it cannot be made for another reason, or is wrong.
pub fn sent_well(context: &Context, options: &Options<'_>) -> Option<Vec<u8>> {
    match sent(context, options) {
        Err(Error::Invalid { expected, .. }) if expected == "a number that a float can hold" => {
            None
        }
        Err(error) => panic!("{error}"),
        Ok(body) => {
            super::check_sent(&body);
            Some(body)
        }
    }
}

/// The options that make a difference, of each provider.
fn all_options() -> impl Iterator<Item = Options<'static>> {
    Provider::ALL.into_iter().flat_map(|provider| {
        let plain = Options::new(provider);
        let other = Options {
            model: Some("gemini-2.5-pro"),
            thinking: Thinking::Text,
            system_role: SystemRole::Developer,
            cache: true,
            ..plain.clone()
        };
        [plain, other]
    })
}

/// Requests are JSON, and the same from a context that has nothing encoded yet. Gives a context
/// whose calls have results.
fn requests(context: &Context, reloaded: &Context) -> Context {
    let settle = |context: &Context| context.interrupt(&Value::text("stop"), Stamp::at(at(1)));
    if context.current().count_pending() > 0 {
        for options in all_options() {
            let error = sent(context, &options).unwrap_err();
            assert!(matches!(error, Error::PendingToolCalls { .. }), "{error}");
        }
    }
    let (settled, fresh) = (settle(context), settle(reloaded));
    assert_eq!(settled.current().count_pending(), 0);
    for options in all_options() {
        let body = sent_well(&settled, &options);
        assert_eq!(body, sent_well(&settled, &options));
        assert_eq!(body, sent_well(&fresh, &options));
        settled.request_report(&options).unwrap();
    }
    let beyond = Options {
        from: Some(settled.current_iteration() + 1),
        ..Options::new(Provider::Anthropic)
    };
    let error = sent(&settled, &beyond).unwrap_err();
    assert!(matches!(error, Error::UnknownIteration { .. }), "{error}");
    for from in [settled.first_number(), settled.current_iteration()] {
        for options in all_options() {
            let options = Options {
                from: Some(from),
                ..options
            };
            sent_well(&settled, &options);
        }
    }
    for how in [Prompt::Full, Prompt::Continuation, Prompt::Message] {
        let _ = settled.to_prompt(how);
    }
    settled
}

/// The conversation can go on, and the context it goes on from stays as it was.
fn goes_on(context: &Context) {
    let before = context.to_snapshot();
    let since = i64::try_from(context.current_iteration()).unwrap();
    let asked = context
        .add_user_message(Value::text("And?"), Stamp::at(at(2)))
        .unwrap();
    let call = Map::new(vec![(Value::text("name"), Value::text("get"))]);
    let calls = Value::List(Box::new([Value::Map(call)]));
    let called = asked
        .add_assistant_message(Value::Nil, calls, Stamp::at(at(3)))
        .unwrap();
    assert_eq!(called.current().count_pending(), 1);
    let answered = called.interrupt(&Value::Nil, Stamp::at(at(4)));
    for next in [&asked, &called, &answered] {
        counts(next);
        delta(context, next, since);
        assert_eq!(
            next.interrupt(&Value::Nil, Stamp::at(at(5)))
                .current()
                .count_pending(),
            0
        );
    }
    for provider in Provider::ALL {
        sent_well(&asked, &Options::new(provider));
        sent_well(&answered, &Options::new(provider));
    }
    assert_eq!(context.to_snapshot(), before);
}
