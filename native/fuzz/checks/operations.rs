//! Operations on a context and on its model.
//!
//! A new operation is one more variant of [`Op`] and one more arm of [`take`]. The arm gives what the
//! core did, what the model says, and the first iteration that may be another one. An operation that
//! the model does not know in full reads its model from the context ([`Step::read_back`]): the laws
//! are checked all the same.

use std::borrow::Cow;

use arbitrary::{Arbitrary, Result as Read, Unstructured};
use ash_agent_context_core::{
    Context, Error, Fit, Map, Masks, Options, Provider, Stamp, Status, Value, MAX_DEPTH,
};
use num_bigint::BigInt;

use super::model::{Answer, Model, Said};
use super::{at, defaults, laws};

/// What an application can do.
#[derive(Debug, Clone, Arbitrary)]
pub enum Op {
    /// Begins another conversation.
    New(Content, Content),
    /// Adds a user message.
    User(Content, Option<Note>),
    /// Adds a message of the model.
    Assistant(Content, Vec<Call>, Option<Note>),
    /// Adds results.
    Results(Vec<Given>, Option<Note>),
    /// Adds a result for each pending call.
    AllResults(Term),
    /// Ends pending calls.
    Interrupt(Term),
    /// Calls off pending calls.
    Cancel(Term),
    /// Approves a call, or denies it.
    Decide(Whose, bool, Term),
    /// Puts another system prompt.
    PutSystemPrompt(Content),
    /// Goes back by so many iterations.
    Rewind(i8),
    /// Keeps what a provider counted.
    Usage(Vec<(u8, Term)>),
    /// Hides all but the last iterations.
    KeepLast(u8),
    /// Hides all but some iterations.
    Range(u8, u8),
    /// Hides some.
    Drop(u8, u8),
    /// Has a text stand for some.
    Summarize(u8, u8, String),
    /// Hides the oldest until the rest fits.
    Fit(u16, u8, u8, u8),
    /// Shows iterations again.
    Expand(u8, u8),
    /// Blanks results.
    ClearResults(u8, String),
    /// Limits results.
    LimitResults(Option<u8>),
    /// Masks what a pattern matches.
    Mask(u8, String),
    /// Puts a text behind the system prompt.
    PutPromptBlock(u8, Option<String>),
    /// Puts metadata on the conversation.
    PutMetadata(Term, Term),
    /// Puts metadata on an iteration.
    PutIterationMetadata(i8, Term, Term),
    /// Many short turns.
    Turns(u8),
    /// Many messages in one iteration.
    Messages(u8),
    /// Makes a context of attributes.
    Create(Attributes),
    /// Changes attributes.
    Update(Attributes),
    /// Encodes a request, which the context then keeps.
    Request(Whom),
    /// Goes on with what a provider was sent.
    Import(Whom),
    /// Goes on with what was stored.
    Reload,
    /// Goes on from an older context.
    Fork(u8),
}

impl Op {
    /// The function of the package that does the same, with what it takes beside the conversation; `None` where its types do not
    /// take this.
    #[must_use]
    pub fn to_call(&self, context: &Context) -> Option<(&'static str, Vec<Value>)> {
        let model = Model::of(context);
        let note = |note: &Option<Note>| Note::map(note).map_or(Value::Nil, Value::Map);
        let key = |key: &Term| matches!(key.0, Value::Atom(_)) || key.0.as_str().is_some();
        let back = |back: i8| Value::Int(context.current_iteration() as i64 - i64::from(back));
        Some(match self {
            Self::User(content, beside) => {
                let input = content.value();
                let is_input = matches!(input, Value::Binary(_) | Value::List(_) | Value::Map(_));
                is_input.then_some(("add_user_message", vec![input, note(beside)]))?
            }
            Self::Assistant(content, calls, beside) => {
                let calls = list(calls.iter().map(Call::value));
                let said = content.value();
                let is_said = matches!(said, Value::Binary(_) | Value::List(_) | Value::Nil);
                is_said.then_some(("add_assistant_message", vec![said, calls, note(beside)]))?
            }
            Self::Results(given, beside) => {
                let value = |given: &Given| given.value(&given.whose.id(&model));
                let results = list(given.iter().map(value));
                ("add_tool_results", vec![results, note(beside)])
            }
            Self::AllResults(reason) => {
                let pending = model.pending();
                let result = |id| result_value(id, false, reason.0.clone(), false);
                let results = list(pending.iter().map(|id| result(id)));
                ("add_tool_results", vec![results, Value::Nil])
            }
            Self::Interrupt(reason) => ("interrupt", vec![reason.0.clone()]),
            Self::Decide(whose, true, why) => {
                let id = Value::text(&whose.id(&model));
                ("approve_tool_call", vec![id, why.0.clone()])
            }
            Self::Decide(whose, false, why) => {
                let id = Value::text(&whose.id(&model));
                ("deny_tool_call", vec![id, why.0.clone()])
            }
            Self::PutSystemPrompt(content) => {
                let prompt = content.value();
                let is_prompt = matches!(prompt, Value::Binary(_) | Value::List(_) | Value::Nil);
                is_prompt.then_some(("put_system_prompt", vec![prompt]))?
            }
            Self::Rewind(by) => ("rewind", vec![back(*by)]),
            Self::PutMetadata(name, value) if key(name) => {
                ("put_metadata", vec![name.0.clone(), value.0.clone()])
            }
            Self::PutIterationMetadata(by, name, value) if key(name) => (
                "put_iteration_metadata",
                vec![back(*by), name.0.clone(), value.0.clone()],
            ),
            Self::Reload => ("reload", Vec::new()),
            _ => None?,
        })
    }
}

/// A term of the application.
#[derive(Debug, Clone)]
pub struct Term(Value);

impl<'a> Arbitrary<'a> for Term {
    fn arbitrary(u: &mut Unstructured<'a>) -> Read<Self> {
        // Terms stand a few levels below what is limited.
        value(u, MAX_DEPTH - 8).map(Self)
    }
}

const WORDS: [&str; 16] = [
    "id",
    "type",
    "text",
    "image",
    "file",
    "data",
    "url",
    "media_type",
    "message",
    "ok",
    "error",
    "__struct__",
    "$atom",
    "provider",
    "output",
    "",
];

fn word<'a>(u: &mut Unstructured<'a>) -> Read<Cow<'a, str>> {
    Ok(match u.arbitrary::<bool>()? {
        true => Cow::Borrowed(*u.choose(&WORDS)?),
        false => Cow::Borrowed(u.arbitrary()?),
    })
}

fn value(u: &mut Unstructured<'_>, depth: usize) -> Read<Value> {
    let kind = u.int_in_range(0..=12u8)?;
    if depth == 0 && kind > 8 {
        return Ok(Value::Nil);
    }
    let items = |u: &mut Unstructured<'_>| -> Read<Box<[Value]>> {
        let count = u.int_in_range(0..=6)?;
        (0..count).map(|_| value(u, depth - 1)).collect()
    };
    Ok(match kind {
        0 => Value::Nil,
        1 => Value::Bool(u.arbitrary()?),
        2 => Value::Int(u.arbitrary()?),
        3 => Value::integer(BigInt::from(u.arbitrary::<i128>()?) << u.int_in_range(0..=200u8)?),
        4 => {
            let float: f64 = u.arbitrary()?;
            Value::Float(if float.is_finite() { float } else { -0.0 })
        }
        5 => Value::atom(&word(u)?),
        6 | 7 => Value::text(&word(u)?),
        8 => Value::Binary(u.arbitrary::<&[u8]>()?.into()),
        9 => Value::List(items(u)?),
        10 => Value::Tuple(items(u)?),
        11 => {
            let count = u.int_in_range(0..=6)?;
            let entry = |_| Ok((value(u, depth - 1)?, value(u, depth - 1)?));
            Value::Map(Map::new((0..count).map(entry).collect::<Read<_>>()?))
        }
        // As deep as terms can be.
        _ => {
            let levels = usize::from(u.arbitrary::<u8>()?).min(depth);
            let inner = value(u, depth - levels)?;
            let in_list = u.arbitrary::<bool>()?;
            (0..levels).fold(inner, |inner, _| match in_list {
                true => Value::List(Box::new([inner])),
                false => map([("a", inner)]),
            })
        }
    })
}

fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    let entries = entries.into_iter();
    Value::Map(Map::new(
        entries
            .map(|(key, value)| (Value::atom(key), value))
            .collect(),
    ))
}

fn list(items: impl IntoIterator<Item = Value>) -> Value {
    Value::List(items.into_iter().collect())
}

fn tuple<const N: usize>(items: [Value; N]) -> Value {
    Value::Tuple(Box::new(items))
}

/// A note beside a message.
#[derive(Debug, Clone, Arbitrary)]
pub struct Note(Term, Term);

impl Note {
    fn map(note: &Option<Self>) -> Option<Map> {
        let Self(key, value) = note.as_ref()?;
        Some(Map::new(vec![(key.0.clone(), value.0.clone())]))
    }
}

/// Whom a request is for.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub struct Whom(u8);

impl Whom {
    fn provider(self) -> Provider {
        Provider::ALL[usize::from(self.0) % Provider::ALL.len()]
    }

    fn name(self) -> Value {
        Value::atom(self.provider().name())
    }
}

/// What a message says.
#[derive(Debug, Clone, Arbitrary)]
pub enum Content {
    /// Nothing.
    Nothing,
    /// Text.
    Text(String),
    /// Text, or something else.
    Bytes(Vec<u8>),
    /// Parts, which may be wrong for the place.
    Parts(Vec<Part>),
    /// Anything.
    Term(Term),
}

/// A content part.
#[derive(Debug, Clone, Arbitrary)]
pub struct Part {
    kind: PartKind,
    seen_again: Option<Seen>,
}

/// What a provider wants to see again.
#[derive(Debug, Clone, Arbitrary)]
struct Seen {
    whose: Whom,
    signature: Option<String>,
    /// Of few, so that some are the same.
    id: Option<u8>,
}

#[derive(Debug, Clone, Arbitrary)]
enum PartKind {
    Text(String),
    Bytes(Vec<u8>),
    Thinking(String),
    Redacted(String),
    Image(Media),
    File(Media, Option<String>),
    Block(Whom, Vec<(Term, Term)>),
}

#[derive(Debug, Clone, Arbitrary)]
enum Media {
    Data(u8, u8),
    Url(u8, String),
}

impl Media {
    fn fields(&self) -> Vec<(&'static str, Value)> {
        const TYPES: [&str; 6] = [
            "image/png",
            "application/pdf",
            "text/csv",
            "text/plain",
            "audio/wav",
            "",
        ];
        let media_type = |n: u8| Value::text(TYPES[usize::from(n) % TYPES.len()]);
        match self {
            Self::Data(kind, size) => vec![
                ("media_type", media_type(*kind)),
                (
                    "data",
                    Value::text(&"AAAA".repeat(1 + usize::from(*size % 4))),
                ),
            ],
            Self::Url(kind, url) if kind % 2 == 0 => vec![("url", Value::text(url))],
            Self::Url(kind, url) => {
                vec![("url", Value::text(url)), ("media_type", media_type(*kind))]
            }
        }
    }
}

impl Seen {
    fn value(&self) -> Value {
        let mut entries = vec![(Value::atom("provider"), self.whose.name())];
        if let Some(signature) = &self.signature {
            entries.push((Value::text("signature"), Value::text(signature)));
        }
        if let Some(id) = self.id {
            entries.push((Value::atom("id"), Value::text(&format!("rs_{}", id % 4))));
        }
        Value::Map(Map::new(entries))
    }
}

impl Part {
    fn value(&self) -> Value {
        let text = |text: &String| Value::text(text);
        let (name, mut fields) = match &self.kind {
            PartKind::Text(words) => ("text", vec![("text", text(words))]),
            PartKind::Bytes(bytes) => (
                "text",
                vec![("text", Value::Binary(bytes.as_slice().into()))],
            ),
            PartKind::Thinking(words) => ("thinking", vec![("text", text(words))]),
            PartKind::Redacted(data) => ("redacted_thinking", vec![("data", text(data))]),
            PartKind::Image(media) => ("image", media.fields()),
            PartKind::File(media, name) => {
                let mut fields = media.fields();
                fields.extend(name.iter().map(|name| ("filename", text(name))));
                ("file", fields)
            }
            PartKind::Block(whose, entries) => {
                let entries = entries.iter().map(|(k, v)| (k.0.clone(), v.0.clone()));
                let data = Value::Map(Map::new(entries.collect()));
                let provider = whose.name();
                (
                    "provider_block",
                    vec![("provider", provider), ("data", data)],
                )
            }
        };
        fields.push(("type", Value::atom(name)));
        fields.extend(
            self.seen_again
                .iter()
                .map(|s| ("provider_metadata", s.value())),
        );
        let fields = fields.into_iter();
        Value::Map(Map::new(
            fields
                .map(|(key, value)| (Value::atom(key), value))
                .collect(),
        ))
    }
}

impl Content {
    fn value(&self) -> Value {
        match self {
            Self::Nothing => Value::Nil,
            Self::Text(text) => Value::text(text),
            Self::Bytes(bytes) => Value::Binary(bytes.as_slice().into()),
            Self::Parts(parts) => list(parts.iter().map(Part::value)),
            Self::Term(term) => term.0.clone(),
        }
    }

    /// What the model is sure of.
    fn said(&self) -> Option<Said> {
        match self {
            Self::Nothing => Some(Said::Nothing),
            Self::Text(text) => Some(Said::Text(text.clone().into_bytes())),
            Self::Bytes(bytes) => Some(Said::Text(bytes.clone())),
            Self::Parts(parts) => Some(Said::Parts(parts.len())),
            Self::Term(_) => None,
        }
    }

    /// Whether it may be refused for what it is.
    fn is_wild(&self) -> bool {
        matches!(self, Self::Parts(_) | Self::Term(_))
    }
}

/// A tool call.
#[derive(Debug, Clone, Arbitrary)]
pub struct Call {
    id: Id,
    name: String,
    has_atom: bool,
    arguments: Arguments,
    seen_again: Option<Seen>,
}

#[derive(Debug, Clone, Arbitrary)]
enum Id {
    None,
    Usual(u8),
    /// One that not every provider takes.
    Odd(u8),
    Any(String),
}

#[derive(Debug, Clone, Arbitrary)]
enum Arguments {
    None,
    Map(Vec<(Term, Term)>),
    Json(String),
    One(Term),
}

impl Call {
    fn id(&self) -> Option<String> {
        match &self.id {
            Id::None => None,
            Id::Usual(n) => Some(format!("call_{}", n % 16)),
            Id::Odd(n) => Some(format!("a {}", n % 4)),
            Id::Any(id) => Some(id.clone()).filter(|id| !id.is_empty()),
        }
    }

    fn value(&self) -> Value {
        let name = match self.has_atom {
            // `nil` is no name.
            true => Value::atom(&format!("t_{}", self.name)),
            false => Value::text(&self.name),
        };
        let arguments = match &self.arguments {
            Arguments::None => Value::Nil,
            Arguments::Map(entries) => {
                let entries = entries.iter().map(|(k, v)| (k.0.clone(), v.0.clone()));
                Value::Map(Map::new(entries.collect()))
            }
            Arguments::Json(text) => Value::text(text),
            Arguments::One(term) => map([("x", term.0.clone())]),
        };
        map([
            ("id", self.id().map_or(Value::Nil, |id| Value::text(&id))),
            ("name", name),
            ("arguments", arguments),
            (
                "provider_metadata",
                self.seen_again.as_ref().map_or(Value::Nil, Seen::value),
            ),
        ])
    }
}

/// A result for one of the calls, or for none of them.
#[derive(Debug, Clone, Arbitrary)]
pub struct Given {
    whose: Whose,
    is_ok: bool,
    in_map: bool,
    output: Content,
}

/// Whose a result is, or a decision.
#[derive(Debug, Clone, Arbitrary)]
pub enum Whose {
    /// One of the pending calls.
    Pending(u8),
    /// One of the last calls.
    Any(u8),
    /// No call.
    Nobody,
}

impl Whose {
    fn id(&self, model: &Model) -> String {
        let (pending, all) = (model.pending(), model.last_calls());
        match *self {
            Self::Pending(n) if !pending.is_empty() => {
                pending[usize::from(n) % pending.len()].to_string()
            }
            Self::Any(n) if !all.is_empty() => all[usize::from(n) % all.len()].id.clone(),
            Self::Pending(_) | Self::Any(_) | Self::Nobody => "nobody".to_owned(),
        }
    }
}

impl Given {
    fn value(&self, id: &str) -> Value {
        result_value(id, self.is_ok, self.output.value(), self.in_map)
    }

    fn answer(&self) -> Answer {
        let status = if self.is_ok {
            Status::Ok
        } else {
            Status::Error
        };
        match &self.output {
            Content::Parts(parts) if !parts.is_empty() => Answer::Parts(parts.len()),
            other => Answer::Value(status, other.value()),
        }
    }

    /// Whether it may be refused, or be something else than the model says.
    fn is_wild(&self) -> bool {
        self.output.is_wild()
    }
}

fn result_value(id: &str, is_ok: bool, value: Value, in_map: bool) -> Value {
    let status = Value::atom(if is_ok { "ok" } else { "error" });
    let (id, result) = (Value::text(id), tuple([status, value]));
    match in_map {
        true => map([("id", id), ("result", result)]),
        false => tuple([id, result]),
    }
}

/// Attributes, most of them right.
#[derive(Debug, Clone, Arbitrary)]
pub struct Attributes {
    has_text_keys: bool,
    id: Option<u8>,
    iterations: Option<Vec<Iteration>>,
    /// How far the current iteration is from the last.
    current: Option<u8>,
    note: Option<Note>,
    other: Option<(Term, Term)>,
}

#[derive(Debug, Clone, Arbitrary)]
struct Iteration {
    messages: Vec<Message>,
    has_number: bool,
    note: Option<Note>,
}

#[derive(Debug, Clone, Arbitrary)]
struct Message {
    role: u8,
    content: Content,
    calls: Vec<(Call, Option<Term>)>,
    /// Results in a message of their own.
    projected: bool,
    note: Option<Note>,
}

impl Attributes {
    fn value(&self) -> Value {
        let mut fields = Vec::new();
        if let Some(id) = self.id {
            fields.push(self.field("id", Value::text(&format!("c{id}"))));
        }
        if let Some(iterations) = &self.iterations {
            let last = iterations.len();
            let one = |(number, iteration)| self.iteration(number, number == last, iteration);
            let values = list((1..).zip(iterations).map(one));
            fields.push(self.field("iterations", values));
            if let Some(ahead) = self.current {
                let number = last.max(1) + usize::from(ahead % 3);
                fields.push(self.field("current_iteration", Value::Int(number as i64)));
            }
        }
        if let Some(note) = Note::map(&self.note) {
            fields.push(self.field("metadata", Value::Map(note)));
        }
        if let Some((key, value)) = &self.other {
            fields.push((key.0.clone(), value.0.clone()));
        }
        Value::Map(Map::new(fields))
    }

    fn field(&self, key: &str, value: Value) -> (Value, Value) {
        match self.has_text_keys {
            true => (Value::text(key), value),
            false => (Value::atom(key), value),
        }
    }

    fn map<const N: usize>(&self, fields: [(&str, Value); N]) -> Value {
        let fields = fields.into_iter();
        Value::Map(Map::new(
            fields.map(|(key, value)| self.field(key, value)).collect(),
        ))
    }

    fn iteration(&self, number: usize, is_last: bool, iteration: &Iteration) -> Value {
        let (mut messages, mut results) = (Vec::new(), Vec::new());
        for message in &iteration.messages {
            let role = ["user", "assistant", "system"][usize::from(message.role % 3)];
            let mut answers = Vec::new();
            let calls = if role == "assistant" {
                &*message.calls
            } else {
                &[]
            };
            for (index, (_, answer)) in calls.iter().enumerate() {
                let id = Value::text(&format!("i{number}_{}_{index}", messages.len()));
                let answer = answer.as_ref().map(|term| term.0.clone());
                let answer = answer.or((!is_last).then(|| Value::text("done")));
                if let (true, Some(answer)) = (message.projected, &answer) {
                    answers.push(self.map([
                        ("type", Value::atom("tool_result")),
                        ("tool_use_id", id),
                        ("content", answer.clone()),
                    ]));
                } else {
                    let pair = answer.map(|answer| tuple([Value::atom("ok"), answer]));
                    let result = pair.unwrap_or(Value::Nil);
                    results.push(self.map([("id", id), ("result", result)]));
                }
            }
            let with_id = |(index, (call, _)): (usize, &(Call, _))| {
                let id = Value::text(&format!("i{number}_{}_{index}", messages.len()));
                self.map([("id", id), ("name", Value::text(&call.name))])
            };
            let calls = list(calls.iter().enumerate().map(with_id));
            let mut fields = vec![
                self.field("role", Value::atom(role)),
                self.field("content", message.content.value()),
            ];
            if role == "assistant" {
                fields.push(self.field("tool_calls", calls));
            }
            if let Some(note) = Note::map(&message.note) {
                fields.push(self.field("metadata", Value::Map(note)));
            }
            messages.push(Value::Map(Map::new(fields)));
            if !answers.is_empty() {
                let content = list(answers);
                messages.push(self.map([("role", Value::atom("user")), ("content", content)]));
            }
        }
        let mut fields = vec![
            self.field("messages", list(messages)),
            self.field("tool_calls", list(results)),
        ];
        if iteration.has_number {
            fields.push(self.field("number", Value::Int(number as i64)));
        }
        if let Some(note) = Note::map(&iteration.note) {
            fields.push(self.field("metadata", Value::Map(note)));
        }
        Value::Map(Map::new(fields))
    }
}

/// What an operation gave.
struct Step {
    found: Result<Context, Error>,
    expected: Result<Model, Error>,
    /// Whether the arguments may be refused for what they are.
    is_wild: bool,
    /// The first iteration that may be another one; nothing when it may be another conversation.
    since: Option<u64>,
}

impl Step {
    /// The log stays as it was, whatever the view is.
    fn of_view(found: Result<Context, Error>, model: Model, since: u64) -> Self {
        let expected = found.as_ref().map(|_| model).map_err(Clone::clone);
        Self {
            found,
            expected,
            is_wild: false,
            since: Some(since),
        }
    }

    /// The model is what the context says, or stays as it was.
    fn read_back(found: Result<Context, Error>, since: Option<u64>) -> Self {
        let expected = found.as_ref().map(Model::of).map_err(Clone::clone);
        Self {
            found,
            expected,
            is_wild: true,
            since,
        }
    }
}

/// Two iterations of a context, mostly.
fn range(context: &Context, from: u8, to: u8) -> (u64, u64) {
    let first = context.first_number();
    (first + u64::from(from), first + u64::from(to))
}

/// A context, its model, and its snapshot when it was made.
struct Kept {
    context: Context,
    model: Model,
    snapshot: Vec<u8>,
}

impl Kept {
    fn new(context: Context, model: Model) -> Self {
        let snapshot = context.to_snapshot();
        let kept = Self {
            context,
            model,
            snapshot,
        };
        kept.check();
        kept
    }

    fn check(&self) {
        assert_eq!(Model::of(&self.context), self.model);
        assert_eq!(
            self.context.count_all_messages(),
            self.model.count_messages()
        );
        assert_eq!(self.context.current().pending_ids(), self.model.pending());
        assert_eq!(self.context.current_iteration(), self.model.number());
        laws::counts(&self.context);
    }
}

/// Operations beyond these are left out.
const MOST: usize = 40;

/// Messages beyond these are not multiplied any more.
const MANY: usize = 1_000;

/// What happened to a conversation, for those who do the same elsewhere.
pub enum Event<'a> {
    /// It goes on from the context that was made so many operations after the first one.
    Fork(usize),
    /// An operation gave another context, or was refused.
    Step {
        /// What was done.
        op: &'a Op,
        /// To which context.
        before: &'a Context,
        /// The microsecond at which it was done, see [`at`].
        now: i64,
        /// What came of it.
        found: &'a Result<Context, Error>,
    },
}

/// Does the operations one by one, and checks what comes of each.
///
/// # Panics
/// When a context is not what its model is, or an older context has changed.
pub fn run(ops: &[Op]) {
    run_and_tell(ops, |_| ());
}

/// The same, telling what happens.
///
/// # Panics
/// As [`run`].
pub fn run_and_tell(ops: &[Op], mut tell: impl FnMut(Event<'_>)) {
    let empty = Context::empty("c", at(0));
    let model = Model::of(&empty);
    let mut history = vec![Kept::new(empty, model)];
    let mut current = 0;
    for (now, op) in (1..).zip(ops.iter().take(MOST)) {
        if let Op::Fork(n) = op {
            current = usize::from(*n) % history.len();
            tell(Event::Fork(current));
            continue;
        }
        let before = &history[current];
        let step = take(op, &before.context, &before.model, now);
        tell(Event::Step {
            op,
            before: &before.context,
            now,
            found: &step.found,
        });
        match (step.found, step.expected) {
            (Ok(context), Ok(model)) => {
                if let Some(since) = step.since {
                    laws::delta(&before.context, &context, i64::try_from(since).unwrap());
                }
                history.push(Kept::new(context, model));
                current = history.len() - 1;
            }
            (Err(error), _) if step.is_wild && is_of_shape(&error) => {}
            (found, expected) => {
                assert_eq!(found.err(), expected.err(), "{op:?}");
            }
        }
    }
    laws::check(&history[current].context);
    for kept in &history {
        kept.check();
        assert!(kept.context.to_snapshot() == kept.snapshot);
    }
}

/// Whether an error is one of arguments, whatever the conversation is.
fn is_of_shape(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidPart { .. }
            | Error::InvalidToolCall { .. }
            | Error::InvalidToolResult { .. }
            | Error::Invalid { .. }
            | Error::TooDeep { .. }
    )
}

/// Whether nothing is added to the current iteration any more.
fn is_closed(context: &Context) -> bool {
    let current = context.current();
    current.completed_at.is_some() || context.cover(current.number).is_some()
}

/// What the last message says, where the model cannot know it.
fn said(known: Option<Said>, found: &Result<Context, Error>) -> Said {
    let read = || {
        let mut model = Model::of(found.as_ref().ok()?);
        Some(model.current().messages.pop()?.said)
    };
    known.or_else(read).unwrap_or(Said::Nothing)
}

fn take(op: &Op, context: &Context, model: &Model, now: i64) -> Step {
    let now = at(now);
    let stamp = |note: &Option<Note>| Stamp {
        at: now,
        metadata: Note::map(note),
    };
    let last = context.current_iteration();
    let model = model.clone();
    let is_closed = is_closed(context);
    match op {
        Op::Fork(_) => unreachable!("it makes no context"),
        Op::New(system, input) => Step::read_back(
            Context::new("c", input.value(), system.value(), stamp(&None)),
            None,
        ),
        Op::User(content, note) => {
            let found = context.add_user_message(content.value(), stamp(note));
            let said = said(content.said(), &found);
            Step {
                found,
                expected: model.user(said, Note::map(note), is_closed),
                is_wild: content.is_wild(),
                since: Some(last),
            }
        }
        Op::Assistant(content, calls, note) => {
            let values = list(calls.iter().map(Call::value));
            let found = context.add_assistant_message(content.value(), values, stamp(note));
            let said = said(content.said(), &found);
            let ids: Vec<_> = calls.iter().map(Call::id).collect();
            Step {
                found,
                expected: model.assistant(said, &ids, Note::map(note), is_closed),
                is_wild: content.is_wild(),
                since: Some(last),
            }
        }
        Op::Results(given, note) => {
            let ids: Vec<String> = given.iter().map(|given| given.whose.id(&model)).collect();
            let values = given.iter().zip(&ids).map(|(given, id)| given.value(id));
            let found = context.add_tool_results(list(values), stamp(note));
            if given.iter().any(Given::is_wild) {
                return Step::read_back(found, Some(last));
            }
            let answers = given.iter().map(Given::answer);
            let results: Vec<_> = ids.into_iter().zip(answers).collect();
            Step {
                found,
                expected: model.results(&results, Note::map(note)),
                is_wild: false,
                since: Some(last),
            }
        }
        Op::AllResults(reason) => {
            let pending = model.pending();
            let values = pending.iter();
            let values = values.map(|id| result_value(id, false, reason.0.clone(), false));
            let found = context.add_tool_results(list(values), stamp(&None));
            let answer = Answer::Value(Status::Error, reason.0.clone());
            let ids = model.pending().into_iter();
            let results: Vec<_> = ids.map(|id| (id.to_string(), answer.clone())).collect();
            Step {
                found,
                expected: model.results(&results, None),
                is_wild: false,
                since: Some(last),
            }
        }
        Op::Interrupt(reason) => Step {
            found: Ok(context.interrupt(&reason.0, stamp(&None))),
            expected: Ok(model.end_pending(Status::Interrupted, &reason.0)),
            is_wild: false,
            since: Some(last),
        },
        Op::Cancel(reason) => Step {
            found: Ok(context.cancel(&reason.0, stamp(&None))),
            expected: Ok(model.end_pending(Status::Cancelled, &reason.0)),
            is_wild: false,
            since: Some(last),
        },
        Op::Decide(whose, is_approved, why) => {
            let id = whose.id(&model);
            let (by, reason) = (Value::Nil, why.0.clone());
            let found = match is_approved {
                true => context.approve_tool_call(&id, None, reason, now),
                false => context.deny_tool_call(&id, None, reason, by, now),
            };
            Step::read_back(found, Some(last))
        }
        Op::PutSystemPrompt(content) => {
            let found = context.put_system_prompt(content.value(), now);
            Step::read_back(found, Some(last))
        }
        Op::Rewind(back) => {
            let number = last as i64 - i64::from(*back);
            Step {
                found: context.rewind(number),
                expected: model.rewind(number),
                is_wild: false,
                since: u64::try_from(number).ok(),
            }
        }
        Op::Usage(counts) => {
            const KEYS: [&str; 6] = [
                "input_tokens",
                "output_tokens",
                "total_tokens",
                "cache_read_input_tokens",
                "prompt_tokens_details",
                "usage",
            ];
            let count = |(key, value): &(u8, Term)| {
                let key = KEYS[usize::from(*key) % KEYS.len()];
                (Value::text(key), value.0.clone())
            };
            let report = Value::Map(Map::new(counts.iter().map(count).collect()));
            let found = context.add_token_usage(report, now);
            // The message that it is noted with may be of any iteration.
            Step::of_view(found, model, context.first_number())
        }
        Op::KeepLast(count) => {
            let found = context.keep_last_iterations((*count).into(), now);
            Step::of_view(Ok(found), model, last)
        }
        Op::Range(from, to) => {
            let (from, to) = range(context, *from, *to);
            Step::of_view(context.iteration_range(from, to, now), model, last)
        }
        Op::Drop(from, to) => {
            let asked = Some(range(context, *from, *to));
            let found = match context.compactable(asked, 0, 0) {
                Ok(Some((from, to))) => Ok(context.drop_range(from, to, now)),
                Ok(None) => Ok(context.clone()),
                Err(error) => Err(error),
            };
            Step::of_view(found, model, last)
        }
        Op::Summarize(from, to, text) => {
            let (from, to) = range(context, *from, *to);
            Step::of_view(context.summarize(from, to, text, now), model, last)
        }
        Op::Fit(budget, keep_first, keep_last, step) => {
            let fit = Fit {
                budget: (*budget).into(),
                reserve: 10,
                keep_first: (*keep_first).into(),
                keep_last: (*keep_last).into(),
                step: (*step).into(),
                method: None,
            };
            let found = context.fit(&fit, now).map(|(found, _)| found);
            Step::of_view(found, model, last)
        }
        Op::Expand(from, to) => {
            let (from, to) = range(context, *from, *to);
            Step::of_view(Ok(context.expand(from, to, now)), model, last)
        }
        Op::ClearResults(keep, text) => {
            let found = context.clear_tool_results((*keep).into(), text, now);
            Step::of_view(Ok(found), model, last)
        }
        Op::LimitResults(most) => {
            let found = context.put_max_result_bytes(most.map(Into::into), now);
            Step::of_view(Ok(found), model, last)
        }
        Op::Mask(pattern, text) => {
            const PATTERNS: [&str; 6] = ["a", "", "[0-9]+", "(?s).*", "\\bcall_", "(a)(b)?"];
            let pattern = PATTERNS[usize::from(*pattern) % PATTERNS.len()];
            let masks = Masks::new([(pattern.into(), text.as_str().into())]);
            let found = masks.map(|masks| context.put_masks(masks, now));
            Step::of_view(found, model, last)
        }
        Op::PutPromptBlock(name, text) => {
            let name = format!("block {}", name % 4);
            let found = context.put_prompt_block(&name, text.as_deref(), now);
            Step::of_view(Ok(found), model, last)
        }
        Op::PutMetadata(key, value) => {
            let mut model = model;
            model.notes.insert(key.0.clone(), value.0.clone());
            Step {
                found: Ok(context.put_metadata(key.0.clone(), value.0.clone(), now)),
                expected: Ok(model),
                is_wild: false,
                since: Some(last),
            }
        }
        Op::PutIterationMetadata(back, key, value) => {
            let number = last as i64 - i64::from(*back);
            let found = context.put_iteration_metadata(number, key.0.clone(), value.0.clone(), now);
            Step {
                found,
                expected: model.note(number, key.0.clone(), value.0.clone()),
                is_wild: false,
                since: u64::try_from(number).ok(),
            }
        }
        Op::Turns(count) => repeat(context, model, *count, |context, model| {
            let is_closed = self::is_closed(context);
            let context = context.add_user_message(Value::text("u"), stamp(&None))?;
            let context =
                context.add_assistant_message(Value::text("a"), Value::Nil, stamp(&None))?;
            let text = |text: &str| Said::Text(text.into());
            let model = model.user(text("u"), None, is_closed)?;
            Ok((context, model.assistant(text("a"), &[], None, false)?))
        }),
        Op::Messages(count) => repeat(context, model, *count, |context, model| {
            let is_closed = self::is_closed(context);
            let context = context.add_assistant_message(Value::Nil, Value::Nil, stamp(&None))?;
            Ok((
                context,
                model.assistant(Said::Nothing, &[], None, is_closed)?,
            ))
        }),
        Op::Create(attributes) => {
            let found = Context::from_attributes(attributes.value(), defaults());
            Step::read_back(found, None)
        }
        Op::Update(attributes) => {
            let found = context.update_attributes(attributes.value(), now);
            // A delta needs the id of the conversation, and an iteration that is there.
            let since = found.as_ref().ok().and_then(|found| {
                let first = found.first_number();
                (found.id() == context.id() && first == context.first_number()).then_some(first)
            });
            Step::read_back(found, since)
        }
        Op::Request(whom) => {
            let options = Options::new(whom.provider());
            // Only for what the context keeps of it.
            let _ = laws::sent(context, &options);
            Step {
                found: Ok(context.clone()),
                expected: Ok(model),
                is_wild: false,
                since: Some(last),
            }
        }
        Op::Import(whom) => {
            let options = Options::new(whom.provider());
            let body = laws::sent(context, &options);
            let found = body.map(|body| {
                let body = Value::Binary(body.into());
                let imported = Context::from_request(body, whom.provider(), defaults()).unwrap();
                assert_eq!(imported.repairs, []);
                imported.context
            });
            Step::read_back(found, None)
        }
        Op::Reload => Step {
            found: Context::from_snapshot(&context.to_snapshot()),
            expected: Ok(model),
            is_wild: false,
            since: Some(last),
        },
    }
}

/// The same some times over.
fn repeat(
    context: &Context,
    model: Model,
    count: u8,
    one: impl Fn(&Context, Model) -> Result<(Context, Model), Error>,
) -> Step {
    let since = Some(context.current_iteration());
    let count = if context.count_all_messages() > MANY {
        1
    } else {
        count.clamp(1, 80)
    };
    let mut both = Ok((context.clone(), model));
    for _ in 0..count {
        both = both.and_then(|(context, model)| one(&context, model));
    }
    let (found, expected) = match both {
        Ok((context, model)) => (Ok(context), Ok(model)),
        Err(error) => (Err(error.clone()), Err(error)),
    };
    Step {
        found,
        expected,
        is_wild: false,
        since,
    }
}
