//! Requests: the message part of what a provider is sent.
//!
//! Each message's JSON for a provider is made once, on first use, and kept beside it. A request is
//! a list of slices of what is kept. What a message becomes depends on the message and on what
//! came before it, never on what comes behind: so appending changes no byte in front.

mod assembly;

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::context::Context;
use crate::error::Error;
use crate::log::call::ToolCall;
use crate::log::hints::Ttl;
use crate::log::iteration::{Exchange, Iteration};
use crate::log::message::{Message, Role};
use crate::log::once::{Piece, Pieces};
use crate::log::part::{PartKind, Provider};
use crate::log::wire::Wire as Imported;
use crate::value::json::AsJson;
use crate::value::{Map, Size, Value};
use crate::view::look::Look;
use crate::view::{self, Step};

pub use crate::provider::out::Change;
use crate::provider::out::Out;
use crate::value::builder::Json;
use assembly::Assembly;

/// How a request is made.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// Whom it is for.
    pub provider: Provider,
    /// The model it is for, where that matters.
    pub model: Option<&'a str>,
    /// What becomes of thinking that another provider or model gave.
    pub thinking: Thinking,
    /// The role of the system prompt for OpenAI.
    pub system_role: SystemRole,
    /// What a server that speaks OpenAI's chat format makes of reasoning.
    pub dialect: Option<Dialect>,
    /// What the provider keeps of the conversation itself.
    pub known: Known<'a>,
    /// Whether to place cache breakpoints.
    pub cache: bool,
    /// The number of the first iteration to send.
    pub from: Option<u64>,
    /// Bytes of text that a tool result may have, where that is less than the view allows.
    pub max_result_bytes: Option<usize>,
    /// Bytes to encode at most. What is encoded already does not count.
    pub most: usize,
}

/// What becomes of thinking that another provider or model gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Thinking {
    /// It is left out.
    Drop,
    /// It becomes text.
    Text,
}

/// The role of the system prompt for OpenAI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SystemRole {
    /// `"system"`
    System,
    /// `"developer"`, for o1 and newer.
    Developer,
}

/// What a server that speaks OpenAI's chat format makes of reasoning. Without one, what was imported goes
/// back as it came, and no other reasoning goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// It takes none.
    OpenAi,
    /// It wants `reasoning_content` with calls.
    DeepSeek,
    /// It takes `reasoning_details`.
    OpenRouter,
    /// It takes `reasoning` with calls.
    Vllm,
}

impl Dialect {
    /// The dialect of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "openai" => Self::OpenAi,
            "deepseek" => Self::DeepSeek,
            "openrouter" => Self::OpenRouter,
            "vllm" => Self::Vllm,
            _ => return None,
        })
    }
}

/// What OpenAI Responses keeps of the conversation itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Known<'a> {
    /// Nothing: all of it is sent.
    #[default]
    Nothing,
    /// All up to the response with this id.
    Response(&'a str),
    /// All up to the last response in the conversation with this id.
    Conversation(&'a str),
}

impl<'a> Options<'a> {
    /// The defaults for a provider.
    #[must_use]
    pub const fn new(provider: Provider) -> Self {
        Self {
            provider,
            model: None,
            thinking: Thinking::Drop,
            system_role: SystemRole::System,
            dialect: None,
            known: Known::Nothing,
            cache: false,
            from: None,
            max_result_bytes: None,
            most: usize::MAX,
        }
    }

    /// What of the options decides how a message is encoded.
    fn key(&self) -> u64 {
        // SipHash with fixed keys: the same number for the same options.
        let mut hasher = DefaultHasher::new();
        let Self {
            provider,
            model,
            thinking,
            system_role,
            dialect,
            cache,
            known: _, // it decides what is sent, not how
            from: _,
            max_result_bytes: _, // in the look of what it changes
            most: _,
        } = self;
        (provider, model, thinking, system_role, dialect, cache).hash(&mut hasher);
        hasher.finish()
    }
}

/// The rules of one provider.
pub(crate) trait Wire: Sync {
    /// The key of the list of messages.
    fn list(&self) -> &'static str {
        "messages"
    }

    /// The key of the system prompt beside the list, if it stands there.
    fn system_key(&self) -> Option<&'static str> {
        None
    }

    /// Writes the system prompt: the field's value, or the first elements of the list.
    fn system(&self, system: &Message, out: &mut Out<'_>);

    /// Writes the elements that a message adds.
    fn message(&self, message: &Message, out: &mut Out<'_>);

    /// Writes the elements that the results of a message's calls add.
    fn results(&self, message: &Message, exchange: &Exchange, out: &mut Out<'_>);

    /// Whether a list must begin with the user.
    fn user_first(&self) -> bool {
        false
    }

    /// Whether a list must not end with the model.
    fn user_last(&self) -> bool {
        false
    }

    /// Whether neighbours of one role must be one message.
    fn alternates(&self) -> bool {
        false
    }

    /// What makes a cache breakpoint where a piece has its mark.
    fn cache_mark(&self, _ttl: Ttl) -> &'static str {
        ""
    }

    /// A user message where one has to stand and there is none.
    fn stand_in(&self) -> &'static str {
        ",{\"role\":\"user\",\"content\":\"Continue.\"}"
    }
}

fn wire(provider: Provider) -> &'static dyn Wire {
    match provider {
        Provider::Anthropic => &crate::provider::anthropic::write::Anthropic,
        Provider::OpenAiChat => &crate::provider::openai_chat::write::OpenAiChat,
        Provider::OpenAiResponses => &crate::provider::openai_responses::write::OpenAiResponses,
        Provider::Gemini => &crate::provider::gemini::write::Gemini,
        Provider::Bedrock => &crate::provider::bedrock::write::Bedrock,
        Provider::Ollama => &crate::provider::ollama::write::Ollama,
        Provider::Mistral => &crate::provider::mistral::write::Mistral,
    }
}

/// A stretch of a request's bytes.
#[derive(Debug)]
pub enum Segment<'a> {
    /// Part of an encoding that the context keeps.
    Kept(&'a [u8]),
    /// Made for this request.
    Made(Cow<'static, [u8]>),
}

impl Segment<'_> {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Kept(bytes) => bytes,
            Self::Made(bytes) => bytes,
        }
    }
}

impl Context {
    /// The body of a request: the caller's fields and the message part, as one JSON object.
    ///
    /// # Errors
    /// [`Error::PendingToolCalls`]; [`Error::ReservedField`] when a field of the caller would
    /// overwrite the message part; [`Error::UnknownIteration`].
    ///
    /// # Complexity
    /// O(new bytes + messages)
    pub fn encode_request(
        &self,
        options: &Options<'_>,
        body: &Map,
    ) -> Result<Vec<Segment<'_>>, Error> {
        self.check_nothing_pending()?;
        self.check_from(options)?;
        let wire = wire(options.provider);
        let mut head = Json::default();
        head.raw("{");
        let mut seen = HashSet::new();
        for (key, value) in body.iter() {
            let Some(key) = key.as_name().filter(|key| seen.insert(*key)) else {
                continue;
            };
            if key == wire.list() || Some(key) == wire.system_key() {
                return Err(Error::ReservedField { key: key.into() });
            }
            head.value(key);
            head.raw(":");
            head.value(&AsJson(value));
            head.raw(",");
        }
        Assembly::new(self, wire, options).finish(head)
    }

    /// What a projection changes of the conversation, so that the provider takes it.
    ///
    /// # Errors
    /// As [`Context::encode_request`].
    pub fn request_report(&self, options: &Options<'_>) -> Result<Vec<Located>, Error> {
        self.check_nothing_pending()?;
        self.check_from(options)?;
        let wire = wire(options.provider);
        let mut report = Vec::new();
        for step in self.sent(options) {
            match step {
                Step::Iteration(iteration, look) => {
                    let leads = usize::from(self.leads(iteration));
                    for (item, position) in items(iteration, look).zip(leads..) {
                        let changes = item.changes(wire, options);
                        report.extend(changes.into_iter().map(|change| Located {
                            change,
                            iteration: iteration.number,
                            position,
                        }));
                    }
                }
                Step::Cover(first, last, summary, look) => report.push(Located {
                    change: covered(first, last, summary, look),
                    iteration: first,
                    position: 0,
                }),
            }
        }
        Ok(report)
    }

    /// Whether the system prompt is shown as the first message of an iteration.
    fn leads(&self, iteration: &Iteration) -> bool {
        iteration.number == self.first_number() && self.system().is_some()
    }

    fn check_from(&self, options: &Options<'_>) -> Result<(), Error> {
        let (first, last) = (self.first_number(), self.current_iteration());
        match options.from {
            Some(from) if !(first..=last).contains(&from) => Err(Error::UnknownIteration {
                number: i64::try_from(from).unwrap_or(i64::MAX),
                first,
                last,
            }),
            _ => Ok(()),
        }
    }

    /// What is sent of the view.
    fn sent(&self, options: &Options<'_>) -> impl Iterator<Item = Step<'_>> {
        let most = options.max_result_bytes.unwrap_or(usize::MAX);
        self.steps(options.from.unwrap_or(0), u64::MAX)
            .map(move |step| match step {
                Step::Iteration(iteration, look) => Step::Iteration(iteration, look.at_most(most)),
                cover @ Step::Cover(..) => cover,
            })
    }
}

/// Everything of an iteration that adds to the list.
fn items<'a>(iteration: &'a Iteration, look: Look<'a>) -> impl Iterator<Item = Item<'a>> {
    let mut slots = 0;
    iteration.entries().flat_map(move |entry| {
        let look = look.behind(slots);
        slots += entry.message.calls.len();
        let exchange = entry.exchange.as_deref();
        let results = exchange
            .filter(|exchange| exchange.filled() > 0)
            .map(|exchange| Item::Results(&entry.message, exchange, look));
        // Results that are made by the rules have the ids that the rules give their calls.
        let by_rules = exchange
            .is_some_and(|exchange| exchange.wire.is_none() || look.key_of_results(exchange) != 0);
        let anew =
            by_rules && results.is_some() && entry.message.calls.iter().any(ToolCall::is_renamed);
        let message = if anew {
            Item::Remade(&entry.message, look)
        } else {
            Item::Message(&entry.message, look)
        };
        std::iter::once(message).chain(results)
    })
}

/// The change that a cover makes.
fn covered(first: u64, last: u64, summary: Option<&Message>, look: Look<'_>) -> Change {
    let shown = summary.and_then(|summary| look.message(summary));
    let to = shown.as_ref().or(summary).and_then(view::summary_text);
    Change {
        what: match summary {
            Some(_) => "summarized_iterations",
            None => "hidden_iterations",
        },
        from: format!("{first}..{last}"),
        to: to.map(|text| String::from_utf8_lossy(text).into_owned()),
    }
}

/// A change and where it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The change.
    pub change: Change,
    /// The number of the iteration.
    pub iteration: u64,
    /// The 0-based position of the message in it.
    pub position: usize,
}

/// What adds elements to a request's list.
#[derive(Clone, Copy)]
enum Item<'a> {
    Message(&'a Message, Look<'a>),
    /// A message that is not sent as it was imported.
    Remade(&'a Message, Look<'a>),
    Results(&'a Message, &'a Exchange, Look<'a>),
}

impl<'a> Item<'a> {
    fn is_model(self) -> bool {
        matches!(
            self,
            Self::Message(message, _) | Self::Remade(message, _)
                if message.role == Role::Assistant
        )
    }

    fn pieces(self) -> &'a Pieces {
        match self {
            Self::Message(message, _) | Self::Remade(message, _) => &message.pieces,
            Self::Results(_, exchange, _) => &exchange.pieces,
        }
    }

    /// What distinguishes its encodings; 0 when it looks as in the log.
    fn look(self) -> u64 {
        match self {
            Self::Message(_, look) | Self::Remade(_, look) => look.key_of_message(),
            Self::Results(_, exchange, look) => look.key_of_results(exchange),
        }
    }

    /// The elements by the rules.
    fn encode(self, wire: &dyn Wire, options: &Options<'_>) -> Piece {
        let mut out = Out::new(options);
        self.render(wire, &mut out);
        let is_model = self.is_model();
        Piece {
            begins_with_model: is_model,
            ends_with_model: is_model,
            ..out.piece()
        }
    }

    fn size(self) -> Size {
        match self {
            Self::Message(message, _) | Self::Remade(message, _) => message.size(),
            Self::Results(_, exchange, _) => exchange.size(),
        }
    }

    /// The elements that its own provider had, where they are sent.
    fn imported(self, options: &Options<'_>) -> Option<&'a str> {
        // Breakpoints are placed in what the rules make, and so are other words.
        let anew = options.cache || matches!(self, Self::Remade(..)) || self.look() != 0;
        self.elements(options).filter(|_| !anew)
    }

    /// The elements that its own provider had.
    fn elements(self, options: &Options<'_>) -> Option<&'a str> {
        let imported = match self {
            Self::Message(message, _) | Self::Remade(message, _) => message.wire.as_ref(),
            Self::Results(_, exchange, _) => exchange.wire.as_ref(),
        };
        Imported::of(imported, options.provider)
    }

    fn render(self, wire: &dyn Wire, out: &mut Out<'_>) {
        match self {
            Self::Message(message, look) | Self::Remade(message, look) => {
                match look.message(message) {
                    Some(shown) => wire.message(&shown, out),
                    None => wire.message(message, out),
                }
            }
            Self::Results(message, exchange, look) => match look.exchange(exchange) {
                Some(shown) => wire.results(message, &shown, out),
                None => wire.results(message, exchange, out),
            },
        }
    }

    /// What is changed so that the provider takes it, or by its look.
    fn changes(self, wire: &dyn Wire, options: &Options<'_>) -> Vec<Change> {
        let mut changes = match self {
            Self::Message(message, look) | Self::Remade(message, look) => {
                look.changes_of_message(message)
            }
            Self::Results(message, exchange, look) => {
                look.changes_of_results(&message.calls, exchange)
            }
        };
        // What is imported goes back as it came.
        if self.imported(options).is_none() {
            let mut out = Out::reporting(options);
            self.render(wire, &mut out);
            changes.extend(out.changes());
        }
        changes
    }
}

/// The provider that metadata names.
pub(crate) fn provider_of(metadata: Option<&Map>) -> Option<Provider> {
    metadata?
        .get_named("provider")
        .and_then(Value::as_name)
        .and_then(Provider::from_name)
}

/// What stands for an image or a file where only text can be; `None` for other parts.
pub(crate) fn words_of(kind: &PartKind) -> Option<String> {
    crate::provider::media::Media::of(kind).map(|media| media.words())
}
