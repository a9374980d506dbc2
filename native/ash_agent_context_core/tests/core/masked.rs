//! What a mask hides is shown nowhere: neither by what was cut from the texts before it was put, nor in pieces.

use crate::make::{conversation, reload};
use std::collections::HashSet;

use ash_agent_context_core::{
    json, time, AnswerTimes, Check, Content, Context, Conventions, Excerpt, Map, Masks, MessageRef,
    Options, OtlpOptions, PageOptions, Pin, Pressure, Prices, Printed, Prompt, Provider, Reading,
    Rent, Response, Shortened, ShownConversation, Stamp, Time, Trace, Value,
};
use proptest::prelude::*;
use regex::Regex;

/// What stands before a secret, the secret, and the pattern for both.
const SECRETS: [[&str; 3]; 7] = [
    ["password: ", "hunter2horse9", r"password: \S+"],
    ["card ", "4111-2222-3333-4444", r"card [0-9-]+"],
    ["write to ", "zorblatt@hidequx.example", r"write to \S+"],
    ["kept in ", "/vaultqx/omegazz/planzz.txt", r"kept in \S+"],
    ["KeyError: ", "xyzzyplugh42", r"KeyError: \w+"],
    ["the code is ", "93714650", r"code is [0-9]+"],
    ["phrase 'quorvex blimpto zandery", "'", r"phrase '[^']*'"],
];

/// Facts and words that nobody hides.
const WORDS: [&str; 8] = [
    "lib/agent.ex",
    "17 files",
    "QX7R2M",
    "error: no such table",
    "and so on and on,",
    "exit code 3",
    "\n",
    "they went home; then they came back with more of it",
];

/// Letters of a piece that tells a secret.
const PIECE: usize = 6;

/// What a text is made of: words, a secret after what gives it away, or a secret alone.
#[derive(Debug, Clone, Copy)]
enum Word {
    Plain(usize),
    Secret(usize),
    Bare(usize),
}

impl Word {
    fn text(self) -> String {
        match self {
            Self::Plain(word) => WORDS[word].to_owned(),
            Self::Secret(secret) => SECRETS[secret][..2].concat(),
            Self::Bare(secret) => bare(secret).to_owned(),
        }
    }
}

/// A secret by which nothing says that it is one.
fn bare(secret: usize) -> &'static str {
    let [before, after, _] = SECRETS[secret];
    match before.split_once('\'') {
        Some((_, words)) => words,
        None => after,
    }
}

type Words = Vec<Word>;

fn text(words: &Words) -> String {
    let words: Vec<String> = words.iter().map(|word| word.text()).collect();
    words.join(" ")
}

fn words(most: usize) -> impl Strategy<Value = Words> {
    let word = prop_oneof![
        8 => (0..WORDS.len()).prop_map(Word::Plain),
        4 => (0..SECRETS.len()).prop_map(Word::Secret),
        // Of the others nobody says more than a mask hides.
        1 => (0..2_usize).prop_map(Word::Bare),
    ];
    prop::collection::vec(word, 1..most)
}

#[derive(Debug, Clone)]
enum Step {
    Say(Words),
    Answer(Words),
    /// A call with these arguments and a result.
    Work(Words, Words),
    Mask(u8),
    /// Masks that an older version put without looking at what was there, in a document.
    Inject(u8),
    Hide(u64),
    Summarize(u64, u64, Words, usize),
    Recall(bool),
    Index(usize),
    PinFact(usize),
    PinIteration(u64),
    Clear(usize),
    Most(Option<usize>),
    /// A text after the system prompt, also of secrets that are said later.
    Block(Words),
    Shorten,
    Expand(u64),
    Rewind(u64),
    Store,
}

fn step() -> impl Strategy<Value = Step> {
    let masks = || prop_oneof![1 => Just(0), 2 => Just(u8::MAX), 3 => any::<u8>()];
    let words_of_summary = || {
        let word = prop_oneof![
            2 => (0..WORDS.len()).prop_map(Word::Plain),
            1 => (0..SECRETS.len()).prop_map(Word::Secret),
            3 => (0..SECRETS.len()).prop_map(Word::Bare),
        ];
        prop::collection::vec(word, 1..6)
    };
    let summary = words_of_summary();
    prop_oneof![
        3 => words(12).prop_map(Step::Say),
        3 => words(30).prop_map(Step::Answer),
        3 => (words(4), words(60)).prop_map(|(one, other)| Step::Work(one, other)),
        3 => masks().prop_map(Step::Mask),
        1 => masks().prop_map(Step::Inject),
        3 => (1..3_u64).prop_map(Step::Hide),
        5 => (1..4_u64, 0..4_u64, summary, 0..3_usize)
            .prop_map(|(first, more, words, check)| Step::Summarize(first, first + more, words, check)),
        2 => any::<bool>().prop_map(Step::Recall),
        2 => (0..400_usize).prop_map(Step::Index),
        2 => (0..SECRETS.len()).prop_map(Step::PinFact),
        1 => (1..6_u64).prop_map(Step::PinIteration),
        1 => (0..3_usize).prop_map(Step::Clear),
        1 => prop::option::of(80..300_usize).prop_map(Step::Most),
        2 => words_of_summary().prop_map(Step::Block),
        1 => Just(Step::Shorten),
        1 => (1..6_u64).prop_map(Step::Expand),
        1 => (1..3_u64).prop_map(Step::Rewind),
        2 => Just(Step::Store),
    ]
}

fn at() -> Time {
    time::from_micros(1_000_000).unwrap()
}

fn stamp() -> Stamp {
    Stamp::at(at())
}

fn pairs(chosen: u8) -> Vec<[String; 2]> {
    let chosen = (0..SECRETS.len()).filter(|secret| chosen & (1 << secret) != 0);
    chosen
        .map(|secret| [SECRETS[secret][2].to_owned(), "[x]".to_owned()])
        .collect()
}

/// An answer of a model to a request that is known.
fn answer(context: &Context, text: &str, call: Option<(&str, &str)>) -> Option<Context> {
    let mut content = vec![serde_json::json!({"type": "text", "text": text})];
    if let Some((id, arguments)) = call {
        content.push(serde_json::json!({
            "type": "tool_use", "id": id, "name": "look", "input": {"query": arguments}
        }));
    }
    let body = serde_json::json!({"type": "message", "role": "assistant", "content": content});
    let body = body.to_string();
    let response = Response::decode(body.as_bytes(), &Reading::of(Provider::Anthropic)).unwrap();
    let times = AnswerTimes {
        requested_at: Some(at()),
        first_chunk_at: None,
    };
    context.add_answer(&response, times, stamp()).ok()
}

/// The conversation after a step, or nothing where it does not fit.
fn change(context: &Context, step: &Step) -> Option<Context> {
    match step {
        Step::Say(words) => context
            .add_user_message(Value::text(&text(words)), stamp())
            .ok(),
        Step::Answer(words) => answer(context, &text(words), None),
        Step::Work(arguments, result) => {
            let id = format!("c{}", context.count_all_messages());
            let asked = answer(context, "I look.", Some((&id, &text(arguments))))?;
            let result = Value::Tuple([Value::atom("ok"), Value::text(&text(result))].into());
            let given = Value::Tuple([Value::text(&id), result].into());
            asked
                .add_tool_results(Value::List([given].into()), stamp())
                .ok()
        }
        Step::Mask(chosen) => {
            let pairs = pairs(*chosen).into_iter();
            let masks = Masks::new(pairs.map(|[one, other]| (one.into(), other.into())));
            Some(context.put_masks(masks.unwrap(), at()))
        }
        Step::Inject(chosen) => Some(inject(context, *chosen)),
        Step::Hide(keep) => Some(context.keep_last_iterations(*keep, at())),
        Step::Summarize(first, last, words, check) => {
            let words = said_of(context, words);
            let check = [Check::Nothing, Check::Append, Check::Refuse][*check];
            let summarized = context
                .summarize_checked(*first, *last, &text(&words), check, at())
                .ok()?;
            Some(summarized.context)
        }
        Step::Recall(is_on) => Some(context.put_recall(*is_on, at())),
        Step::Index(share) => Some(context.put_index(Some(*share), None, at())),
        Step::PinFact(secret) => context.pin(Pin::Fact(bare(*secret).into()), at()).ok(),
        Step::PinIteration(number) => context.pin(Pin::Iteration(*number), at()).ok(),
        Step::Clear(keep) => Some(context.clear_tool_results(*keep, "-", at())),
        Step::Most(most) => Some(context.put_max_result_bytes(*most, at())),
        Step::Block(words) => Some(context.put_prompt_block("known", Some(&text(words)), at())),
        Step::Shorten => {
            let rent = Rent {
                keep: 1,
                share: Some(0),
                prices: None,
                model: None,
                window: None,
            };
            match context.shorten(Pressure::Overflow, &rent, at()) {
                Shortened::Shorter(next, _) => Some(*next),
                _ => None,
            }
        }
        Step::Expand(number) => Some(context.expand(*number, *number, at())),
        Step::Rewind(back) => {
            let to = context.current_iteration().checked_sub(*back)?;
            context.rewind(i64::try_from(to).unwrap()).ok()
        }
        Step::Store => Some(store(context)),
    }
}

/// A summary says what was said.
fn said_of(context: &Context, words: &Words) -> Words {
    let said = leaves(context).join("\n");
    let was_said = |word: &&Word| match word {
        Word::Plain(_) => true,
        Word::Secret(secret) | Word::Bare(secret) => said.contains(bare(*secret)),
    };
    words.iter().filter(was_said).copied().collect()
}

fn store(context: &Context) -> Context {
    reload(context)
}

fn inject(context: &Context, chosen: u8) -> Context {
    let mut document: serde_json::Value = serde_json::from_slice(&context.to_snapshot()).unwrap();
    let Some(view) = document.get_mut("view") else {
        return context.clone();
    };
    let masks = pairs(chosen).into_iter();
    let masks: Vec<_> = masks
        .map(|[pattern, replacement]| {
            serde_json::json!({"pattern": pattern, "replacement": replacement})
        })
        .collect();
    view["masks"] = masks.into();
    Context::from_snapshot(document.to_string().as_bytes()).unwrap()
}

/// All texts of the log.
fn leaves(context: &Context) -> Vec<String> {
    let mut texts = Vec::new();
    let utf8 = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let add = |content: &Content, texts: &mut Vec<String>| match content {
        Content::None => {}
        Content::Text(text) => texts.push(utf8(text)),
        Content::Parts(parts) => {
            for part in parts {
                if let ash_agent_context_core::PartKind::Text(text) = &part.kind {
                    texts.push(utf8(text));
                }
            }
        }
    };
    for message in context.all_messages() {
        match message {
            MessageRef::Added(message) => {
                add(&message.content, &mut texts);
                for call in &message.calls {
                    if let Value::Map(map) = &call.arguments.value {
                        texts.extend(
                            map.iter()
                                .filter_map(|(_, of)| of.as_str().map(str::to_owned)),
                        );
                    }
                }
            }
            MessageRef::Results(_, exchange) => {
                let outcomes = exchange.slots().flatten();
                texts.extend(outcomes.filter_map(|outcome| outcome.text()).map(utf8));
            }
        }
    }
    texts
}

fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let starts = text.char_indices().map(|(at, _)| at);
    let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    starts
        .zip(ends.skip(PIECE))
        .map(|(start, end)| &text[start..end])
}

/// The masks of a view.
fn masks(context: &Context) -> Option<&Masks> {
    context.view()?.masks()
}

/// The pieces of secrets that stand nowhere but under masks.
fn hidden(context: &Context, masks: Option<&Masks>) -> HashSet<String> {
    let masks: Vec<Regex> = masks
        .into_iter()
        .flat_map(|masks| masks.iter())
        .map(|(pattern, _)| Regex::new(pattern).unwrap())
        .collect();
    let mut hidden = HashSet::new();
    let mut shown = HashSet::new();
    for text in leaves(context) {
        let mut seen = text.clone();
        for mask in &masks {
            for found in mask.find_iter(&text) {
                let secrets = (0..SECRETS.len()).filter(|one| found.as_str().contains(bare(*one)));
                let secrets = secrets.flat_map(|one| pieces(bare(one)));
                hidden.extend(secrets.map(str::to_owned));
            }
            seen = mask.replace_all(&seen, "[x]").into_owned();
        }
        shown.extend(pieces(&seen).map(str::to_owned));
    }
    hidden.difference(&shown).cloned().collect()
}

/// The messages of the view as text.
fn messages(context: &Context) -> String {
    let shown = context.messages();
    let texts = shown.map(|shown| format!("{:?}", Readable(shown.see().message())));
    texts.collect::<Vec<_>>().join("\n")
}

/// All that is shown of a conversation, each with what tells it.
fn shown(context: &Context) -> Vec<(String, String)> {
    let mut shown = Vec::new();
    let mut tell = |who: &str, what: String| shown.push((who.to_owned(), what));
    tell("the view", messages(context));
    for iteration in context.iterations() {
        let asked = context.as_asked(iteration, false);
        if let Some(asked) = asked.filter(|asked| masks(asked) == masks(context)) {
            // The block said what nobody had masked yet.
            let asked = asked.put_prompt_block("known", None, at());
            tell("an earlier view", messages(&asked));
        }
    }
    tell("the prompt", context.to_prompt(Prompt::Full));
    let waiting = context.without_pending();
    let sent = waiting.as_ref().unwrap_or(context);
    for provider in Provider::ALL {
        let options = Options::new(provider);
        if let Ok(segments) = sent.encode_request(&options, &Map::default()) {
            let body: Vec<u8> = segments.iter().flat_map(|of| of.bytes()).copied().collect();
            tell(provider.name(), String::from_utf8(body).unwrap());
        }
        if let Ok(report) = sent.request_report(&options) {
            tell("a report", format!("{report:?}"));
        }
    }
    let whole = Excerpt {
        from: 1,
        lines: usize::MAX,
        pattern: None,
        most: usize::MAX,
    };
    tell("the receipt", facts(context.receipt(usize::MAX)));
    for number in 1..=context.current_iteration() {
        if let Some(receipt) = context.receipt_of_request(number, usize::MAX) {
            tell("a request's receipt", facts(receipt));
        }
        if let Some((_, cover)) = context.cover(number) {
            tell("a verdict", format!("{:?}", cover.verdict));
        }
        if let Some(text) = context.summary(number) {
            tell("a summary", String::from_utf8_lossy(&text).into_owned());
        }
    }
    for secret in 0..SECRETS.len() {
        for hit in context.search(bare(secret), 10) {
            tell("a hit", hit.text);
            tell(
                "a recall",
                context.recall(&hit.handle.to_string(), &whole).unwrap(),
            );
        }
    }
    shown.extend(traced(context, None));
    shown
}

/// What a trace tells of a conversation, which may have another one's masks.
fn traced(context: &Context, other: Option<&Context>) -> Vec<(String, String)> {
    let mut shown = Vec::new();
    let mut tell = |who: &str, what: String| shown.push((who.to_owned(), what));
    let prices = Prices::default();
    let both = [Some((context, true)), other.map(|other| (other, false))];
    let both = both
        .into_iter()
        .flatten()
        .map(|(context, is_active)| ShownConversation {
            name: "a",
            id: "a",
            parent: None,
            origin: None,
            is_active,
            context,
        });
    let trace = Trace::new(both.collect(), true).unwrap();
    tell(
        "the page",
        trace.to_html(&PageOptions {
            title: None,
            request: Some(Options::new(Provider::Anthropic)),
            prices: &prices,
            fragment: false,
        }),
    );
    for conventions in [Conventions::V1_41, Conventions::Next] {
        let otlp = trace.to_otlp(&OtlpOptions {
            agent: "a",
            conventions,
            is_json: true,
            messages: true,
            prices: Some(&prices),
            ..OtlpOptions::default()
        });
        tell("OTLP", String::from_utf8(otlp.unwrap()).unwrap());
    }
    tell(
        "the terminal",
        trace.print(Printed {
            most: usize::MAX,
            width: None,
            color: false,
            mark: None,
        }),
    );
    shown
}

fn facts(receipt: ash_agent_context_core::Receipt) -> String {
    let facts: Vec<&str> = receipt.facts.iter().map(|fact| &*fact.text).collect();
    facts.join("\n")
}

/// A message with its texts as such, not as bytes.
struct Readable<'a>(MessageRef<'a>);

impl std::fmt::Debug for Readable<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let utf8 = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self.0 {
            MessageRef::Added(message) => {
                if let Content::Text(text) = &message.content {
                    f.write_str(&utf8(text))?;
                }
                for call in &message.calls {
                    f.write_str(&json::write(&call.arguments.value))?;
                }
            }
            MessageRef::Results(_, exchange) => {
                for outcome in exchange.slots().flatten() {
                    f.write_str(&utf8(outcome.text().unwrap_or_default()))?;
                }
            }
        }
        Ok(())
    }
}

/// The first of what is shown that tells something hidden, with what stands around it.
fn find(shown: &[(String, String)], hidden: &HashSet<String>) -> Option<String> {
    shown.iter().find_map(|(who, what)| {
        let found = pieces(what).find(|piece| hidden.contains(*piece))?;
        let at = what.find(found)?;
        let from = what.floor_char_boundary(at.saturating_sub(200));
        let to = what.ceil_char_boundary((at + 100).min(what.len()));
        Some(format!("{who} tells {found:?}: {}", &what[from..to]))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_tells_what_a_mask_hides(
        turns in prop::collection::vec((words(12), words(4), words(80), words(20)), 1..5),
        steps in prop::collection::vec(step(), 1..30),
    ) {
        let mut context = conversation("Go");
        let turns = turns.into_iter().flat_map(|(said, arguments, result, answer)| {
            [Step::Say(said), Step::Work(arguments, result), Step::Answer(answer)]
        });
        for step in turns.chain([Step::Say(vec![Word::Plain(0)])]).chain(steps) {
            let Some(next) = change(&context, &step) else {
                continue;
            };
            context = next;
            // To rendering at everything takes a while, and a message more changes little of it.
            let is_said = matches!(step, Step::Say(_) | Step::Answer(_) | Step::Work(..));
            prop_assert_eq!(messages(&context), messages(&store(&context)), "after {:?}", step);
            let hidden = hidden(&context, masks(&context));
            if !is_said && !hidden.is_empty() {
                let found = find(&shown(&context), &hidden);
                prop_assert!(found.is_none(), "after {step:?} {}", found.unwrap_or_default());
            }
        }
        let other = change(&Context::empty("d", at()), &Step::Mask(u8::MAX)).unwrap();
        let hidden = hidden(&context, masks(&other));
        let found = find(&traced(&context, Some(&other)), &hidden);
        prop_assert!(found.is_none(), "beside masks {}", found.unwrap_or_default());
    }
}

#[test]
fn views_of_earlier_requests_do_not_tell_it() {
    let said: Words = (0..60)
        .map(|word| Word::Plain(word % 8))
        .chain([Word::Secret(0)])
        .collect();
    let steps = [
        Step::Mask(2),
        Step::Answer(said),
        Step::Say(vec![Word::Plain(1)]),
        Step::Summarize(1, 1, vec![Word::Plain(2), Word::Bare(0)], 0),
        Step::Answer(vec![Word::Plain(3)]),
        Step::Say(vec![Word::Plain(4)]),
        Step::Expand(1),
        Step::Answer(vec![Word::Plain(5)]),
        Step::Mask(1),
    ];
    let start = conversation("Go");
    let context = steps
        .iter()
        .fold(start, |context, step| change(&context, step).unwrap());
    let hidden = hidden(&context, masks(&context));
    assert!(!hidden.is_empty());
    // Earlier releases did not store the masks of a request, so that those of today hold for it.
    let text = String::from_utf8(context.to_snapshot()).unwrap();
    let text = text.replace("\"asked_masks\"", "\"other\"");
    for (context, who) in [
        (
            Context::from_snapshot(text.as_bytes()).unwrap(),
            ["an earlier view", "the page", "OTLP"].as_slice(),
        ),
        (store(&context), &["the page", "OTLP"]),
        (context, &["the page", "OTLP"]),
    ] {
        let shown = shown(&context);
        for who in who {
            let says = |(one, what): &&(String, String)| one == *who && what.contains("[masked]");
            assert!(shown.iter().any(|one| says(&one)), "{who}");
        }
        assert_eq!(find(&shown, &hidden), None);
    }
}

/// The ways in which texts come into a conversation after a block and a mask.
#[test]
fn a_block_is_compared_with_each_text_that_comes() {
    let [before, secret, _] = SECRETS[0];
    let told = [before, secret].concat();
    let block = format!("known {secret}");
    let start = change(&conversation("Go"), &Step::Mask(1)).unwrap();
    let start = start.put_prompt_block("known", Some(&block), at());
    let call = |context: &Context, arguments: &str| {
        let asked = answer(context, "I look.", Some(("c1", arguments))).unwrap();
        asked.ask_about_tool_call("c1", None, at()).unwrap()
    };
    let list = |items: Vec<Value>| Value::List(items.into());
    let fill = |context: &Context, text: &str| {
        let result = Value::Tuple([Value::atom("ok"), Value::text(text)].into());
        let given = Value::Tuple([Value::text("c1"), result].into());
        context
            .add_tool_results(list(vec![given]), stamp())
            .unwrap()
    };
    let edited = Map::new(vec![(Value::text("query"), Value::text(&told))]);
    let approved = call(&start, "-")
        .approve_edited("c1", None, Some(Value::Map(edited)), Value::Nil, at())
        .unwrap();
    let said = start.add_user_message(Value::text(&told), stamp()).unwrap();
    let answered = answer(&said, "Yes.", None).unwrap();
    let shown = answered
        .add_user_message(Value::text(&format!("It is {secret}")), stamp())
        .unwrap();
    let again = answer(&shown, "Yes.", None).unwrap();
    let denied = call(&start, "-");
    let reason = Value::text(&told);
    for (context, is_told, way) in [
        (start.clone(), true, "nothing"),
        (said.clone(), false, "a message of the user"),
        (
            start
                .add_assistant_message(Value::text(&told), Value::Nil, stamp())
                .unwrap(),
            false,
            "a message",
        ),
        (answer(&start, &told, None).unwrap(), false, "an answer"),
        (call(&start, &told), false, "a call"),
        (fill(&call(&start, "-"), &told), false, "a result"),
        (approved.clone(), false, "arguments of a person"),
        (approved.ask_again(at()), true, "a decision that is gone"),
        (approved.fork("f", at()), true, "a fork without it"),
        (
            denied
                .deny_tool_call("c1", None, reason, Value::Nil, at())
                .unwrap(),
            false,
            "a reason",
        ),
        (shown.clone(), true, "the same without a mask"),
        (again.rewind(1).unwrap(), false, "a rewind to before it"),
        (
            said.put_prompt_block("known", Some(&block), at()),
            false,
            "the same block",
        ),
        (
            said.put_masks(Masks::new(std::iter::empty()).unwrap(), at()),
            true,
            "no mask",
        ),
    ] {
        let system = |context: &Context| context.to_prompt(Prompt::Full);
        let prompt = system(&context);
        let prompt = prompt.split("[User]").next().unwrap_or_default();
        assert_eq!(prompt.contains(secret), is_told, "{way}: {prompt}");
        assert_eq!(system(&context), system(&store(&context)), "{way}");
    }
}

/// A part of a message: a text, or thinking with a signature.
fn part((text, is_thought): &(String, bool)) -> Value {
    let field = |name: &str, value: Value| (Value::atom(name), value);
    let signed = Map::new(vec![
        field("provider", Value::text("gemini")),
        field("signature", Value::text("c2ln")),
    ]);
    let mut fields = vec![
        field(
            "type",
            Value::text(if *is_thought { "thinking" } else { "text" }),
        ),
        field("text", Value::text(text)),
    ];
    fields.extend(is_thought.then(|| field("provider_metadata", Value::Map(signed))));
    Value::Map(Map::new(fields))
}

/// Cuts a text into parts.
fn cut(text: &str, cuts: &[(prop::sample::Index, bool)], thoughts: bool) -> Value {
    let mut places: Vec<(usize, bool)> = cuts
        .iter()
        .map(|(at, is_thought)| {
            (
                text.floor_char_boundary(at.index(text.len() + 1)),
                *is_thought,
            )
        })
        .collect();
    places.sort_unstable();
    places.push((text.len(), false));
    let mut start = 0;
    let parts = places.into_iter().map(|(end, is_thought)| {
        let piece = (text[start..end].to_owned(), is_thought && thoughts);
        start = end;
        part(&piece)
    });
    Value::List(parts.collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_secret_is_masked_however_it_is_cut_into_parts(
        said in words(20), cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..12),
        chosen in 1..=u8::MAX, before in any::<bool>(), place in 0..3_usize,
    ) {
        let said = text(&said);
        let mask = |context: &Context| change(context, &Step::Mask(chosen)).unwrap();
        let start = conversation("Go");
        let start = if before { mask(&start) } else { start };
        let parts = |thoughts| cut(&said, &cuts, thoughts);
        let context = match place {
            0 => start.add_assistant_message(parts(true), Value::Nil, stamp()).unwrap(),
            1 => start.add_assistant_message(Value::text("Yes?"), Value::Nil, stamp()).unwrap()
                .add_user_message(parts(false), stamp()).unwrap(),
            _ => {
                let asked = answer(&start, "I look.", Some(("c1", "-"))).unwrap();
                let result = Value::Tuple([Value::atom("ok"), parts(false)].into());
                let given = Value::Tuple([Value::text("c1"), result].into());
                asked.add_tool_results(Value::List([given].into()), stamp()).unwrap()
            }
        };
        let context = mask(&context);
        let shown: String = context.messages().flat_map(|shown| match shown.see().message() {
            MessageRef::Added(message) => texts(&message.content),
            MessageRef::Results(_, exchange) => {
                let outcomes = exchange.slots().flatten();
                outcomes.flat_map(|outcome| match &outcome.output {
                    ash_agent_context_core::Output::Parts(parts) => texts(&Content::Parts(parts.clone())),
                    ash_agent_context_core::Output::Value(_) => Vec::new(),
                }).collect()
            }
        }).collect();
        for [pattern, _] in pairs(chosen) {
            let secret = Regex::new(&pattern).unwrap();
            for found in secret.find_iter(&said) {
                let found = found.as_str();
                prop_assert!(!shown.contains(found), "{found} is in {shown}");
            }
        }
        let other = store(&context);
        prop_assert_eq!(messages(&context), messages(&other));
    }
}

fn texts(content: &Content) -> Vec<String> {
    use ash_agent_context_core::PartKind;
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match content {
        Content::None => Vec::new(),
        Content::Text(text) => vec![words(text)],
        Content::Parts(parts) => parts
            .iter()
            .filter_map(|part| match &part.kind {
                PartKind::Text(text) | PartKind::Thinking(text) => Some(words(text)),
                _ => None,
            })
            .collect(),
    }
}

/// A replacement stands where the text began, and the signature of changed thinking goes.
#[test]
fn a_text_over_two_parts_gives_way_to_one_replacement() {
    let parts = [
        ("I keep sec", true),
        ("ret4", true),
        ("711 and secret5", false),
        ("", false),
    ];
    let parts = parts.map(|(text, is_thought)| part(&(text.into(), is_thought)));
    let said = Value::List(parts.to_vec().into());
    let context = conversation("Go")
        .add_assistant_message(said, Value::Nil, stamp())
        .unwrap();
    let masked = Masks::new([("secret[0-9]+".into(), "[x]".into())]).unwrap();
    let masked = context.put_masks(masked, at());
    let shown = masked.messages().last().unwrap().see();
    let MessageRef::Added(message) = shown.message() else {
        unreachable!("it is the answer")
    };
    assert_eq!(texts(&message.content), ["I keep [x]", "", " and [x]", ""]);
    let Content::Parts(parts) = &message.content else {
        unreachable!("it has parts")
    };
    assert!(parts.iter().all(|part| part.provider_metadata.is_none()));
}
