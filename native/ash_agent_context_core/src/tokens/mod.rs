//! Counting tokens: once a message, and for a conversation only what is new.

mod media;
mod text;

use std::sync::Arc;

pub use text::Method;

use crate::context::Context;
use crate::log::call::ToolCall;
use crate::log::iteration::{Entry, Exchange, Iteration};
use crate::log::message::{Message, Output, Role};
use crate::log::once::Once;
use crate::log::part::{Content, Part, PartKind};
use crate::value::json;
use crate::value::{Size, Value};
use crate::view::look::Look;
use crate::view::{Step, View};

/// Tokens around a message: its role and the marks of its beginning and end, as OpenAI's models have
/// them (<https://github.com/openai/openai-cookbook/blob/main/examples/How_to_count_tokens_with_tiktoken.ipynb>).
const AROUND_MESSAGE: u64 = 4;

/// Tokens around the name and the arguments of a tool call, and around a result.
const AROUND_CALL: u64 = 8;

/// Base64 text of reasoning that only its provider reads, for a token of that reasoning.
const HIDDEN_BYTES_PER_TOKEN: u64 = 6;

/// Tokens by what they are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tokens {
    /// The system prompt.
    pub system: u64,
    /// What users said.
    pub user: u64,
    /// What the model said.
    pub assistant: u64,
    /// What the model thought.
    pub thinking: u64,
    /// Names and arguments of tool calls.
    pub tool_calls: u64,
    /// What tools gave, images among it.
    pub tool_results: u64,
    /// Images and files in messages.
    pub media: u64,
    /// Summaries that stand for iterations.
    pub summaries: u64,
}

impl Tokens {
    /// All together.
    #[must_use]
    pub fn total(self) -> u64 {
        self.fields()
            .into_iter()
            .fold(0, |sum, field| sum.saturating_add(*field))
    }

    fn fields(&self) -> [&u64; 8] {
        let Self {
            system,
            user,
            assistant,
            thinking,
            tool_calls,
            tool_results,
            media,
            summaries,
        } = self;
        [
            system,
            user,
            assistant,
            thinking,
            tool_calls,
            tool_results,
            media,
            summaries,
        ]
    }

    fn with(mut self, other: Self, change: impl Fn(u64, u64) -> u64) -> Self {
        self.system = change(self.system, other.system);
        self.user = change(self.user, other.user);
        self.assistant = change(self.assistant, other.assistant);
        self.thinking = change(self.thinking, other.thinking);
        self.tool_calls = change(self.tool_calls, other.tool_calls);
        self.tool_results = change(self.tool_results, other.tool_results);
        self.media = change(self.media, other.media);
        self.summaries = change(self.summaries, other.summaries);
        self
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// What is left without a part.
    #[must_use]
    pub fn minus(self, part: Self) -> Self {
        self.with(part, u64::saturating_sub)
    }
}

/// Tokens of the first few of a list whose first few do not change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tally {
    /// How many.
    pub len: usize,
    pub tokens: Tokens,
}

/// Tallies of a list, one a method. A list that grew out of another one goes on from its tallies.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    base: Option<Arc<[Option<Tally>; 3]>>,
    own: Once<Tally>,
}

impl Tallies {
    /// The tally of a method, if there is one.
    pub fn get(&self, method: Method) -> Option<&Tally> {
        let base = self.base.as_deref();
        self.own
            .get(key(method, 0))
            .or_else(|| base?.get(method.index())?.as_ref())
    }

    /// Goes on from what is known, and keeps it.
    fn count(&self, method: Method, len: usize, add: impl Fn(Tally) -> Tokens) -> Tokens {
        if let Some(tally) = self.get(method).filter(|tally| tally.len == len) {
            return tally.tokens;
        }
        let known = self.get(method).filter(|tally| tally.len < len);
        let start = known.copied().unwrap_or(Tally {
            len: 0,
            tokens: Tokens::default(),
        });
        let make = || Tally {
            len,
            tokens: add(start),
        };
        match self.own.get_or_make(key(method, 0), make) {
            Ok(tally) => tally.tokens,
            Err(tally) => tally.tokens,
        }
    }

    /// The tallies that are of so many at most.
    pub fn up_to(&self, len: usize) -> Self {
        self.change(|tally| (tally.len <= len).then_some(tally))
    }

    /// The tallies, each changed or dropped.
    pub fn change(&self, change: impl Fn(Tally) -> Option<Tally>) -> Self {
        let all = Method::ALL.map(|method| change(*self.get(method)?));
        Self {
            base: all.iter().any(Option::is_some).then(|| Arc::new(all)),
            own: Once::default(),
        }
    }
}

impl Clone for Tallies {
    /// For a list that grows.
    fn clone(&self) -> Self {
        if self.own.iter().next().is_none() {
            return Self {
                base: self.base.clone(),
                own: Once::default(),
            };
        }
        self.change(Some)
    }
}

/// What a count is kept under.
fn key(method: Method, look: u64) -> u64 {
    look ^ method.index() as u64
}

impl Context {
    /// Tokens of the view, by kind.
    ///
    /// # Complexity
    /// O(what was not counted yet)
    #[must_use]
    pub fn tokens(&self, method: Method) -> Tokens {
        let system = self.shown_system().map(|system| {
            let look = self.look(u64::MAX);
            system.tokens(method, look)
        });
        let current = match self.hides(self.current_iteration()) {
            true => Tokens::default(),
            false => {
                let look = self.look(self.current_iteration());
                self.current.tokens(method, look)
            }
        };
        let done = self.tallies.count(method, self.done.len(), |start| {
            let from = self.first_number().saturating_add(start.len as u64);
            let to = self.current_iteration().saturating_sub(1);
            self.steps(from, to)
                .fold(start.tokens, |sum, step| sum.plus(step.tokens(method)))
        });
        done.plus(current).plus(system.unwrap_or_default())
    }

    /// Tokens of a range of the view for each method that has a tally.
    pub(crate) fn range_tokens(&self, first: u64, last: u64) -> [Option<Tokens>; 3] {
        Method::ALL.map(|method| {
            let tally = self.tallies.get(method)?;
            let counted = self.first_number().saturating_add(tally.len as u64);
            (last < counted).then(|| self.view_tokens(method, first, last))
        })
    }

    /// Tokens of a range of the view.
    #[must_use]
    pub fn view_tokens(&self, method: Method, first: u64, last: u64) -> Tokens {
        self.steps(first, last)
            .fold(Tokens::default(), |sum, step| sum.plus(step.tokens(method)))
    }

    /// Brings the tallies up to date after a range of the view changed that had these tokens.
    pub(crate) fn retally(&mut self, first: u64, last: u64, before: [Option<Tokens>; 3]) {
        let after = Method::ALL.map(|method| {
            let known = before.get(method.index()).is_some_and(Option::is_some);
            known.then(|| self.view_tokens(method, first, last))
        });
        let changed = Method::ALL.map(|method| {
            let tally = self.tallies.get(method)?;
            let before = (*before.get(method.index())?)?;
            let after = (*after.get(method.index())?)?;
            Some(Tally {
                len: tally.len,
                tokens: tally.tokens.minus(before).plus(after),
            })
        });
        self.tallies = Tallies {
            base: Some(Arc::new(changed)),
            own: Once::default(),
        };
    }

    /// What a count has to read at most: text that was not counted yet.
    #[must_use]
    pub fn count_size(&self, method: Method) -> Size {
        /// Iterations that are looked at one by one.
        const FEW: usize = 256;
        let counted = self.tallies.get(method).map_or(0, |tally| tally.len);
        if self.done.len() - counted.min(self.done.len()) > FEW {
            return self.size();
        }
        // What looks different may have to be counted anew.
        let anew = self.view().is_some_and(View::changes_looks);
        let system = self.shown_system().map(|system| match anew {
            true => system.size(),
            false => system.uncounted(method),
        });
        let new = (counted..self.done.len()).filter_map(|index| self.done.get(index));
        new.chain(std::iter::once(&*self.current))
            .map(|iteration| match anew {
                true => iteration.size(),
                false => iteration.uncounted(method),
            })
            .chain(system)
            .fold(Size::default(), |sum, size| sum.plus(size))
    }
}

impl Step<'_> {
    fn tokens(&self, method: Method) -> Tokens {
        match self {
            Self::Iteration(iteration, look) => iteration.tokens(method, *look),
            Self::Cover(_, _, None, _) => Tokens::default(),
            Self::Cover(_, _, Some(summary), look) => Tokens {
                summaries: summary.tokens(method, *look).total(),
                ..Tokens::default()
            },
        }
    }
}

impl Iteration {
    /// Tokens of its messages as they look.
    pub(crate) fn tokens(&self, method: Method, look: Look<'_>) -> Tokens {
        if look.key_of_iteration(self) != 0 {
            return self.add_tokens(method, look, 0, Tokens::default());
        }
        // The results of the last message may still change.
        let closed = self.entries().len().saturating_sub(1);
        let before = self.tallies.count(method, closed, |start| {
            self.entries_from(start.len, closed)
                .fold(start.tokens, |sum, entry| {
                    sum.plus(entry.tokens(method, look))
                })
        });
        self.last()
            .map_or(before, |last| before.plus(last.tokens(method, look)))
    }

    fn add_tokens(
        &self,
        method: Method,
        look: Look<'_>,
        mut slots: usize,
        mut sum: Tokens,
    ) -> Tokens {
        for entry in self.entries() {
            sum = sum.plus(entry.tokens(method, look.behind(slots)));
            slots += entry.message.calls.len();
        }
        sum
    }

    /// What a count has to read.
    fn uncounted(&self, method: Method) -> Size {
        let counted = self.tallies.get(method).map_or(0, |tally| tally.len);
        if counted == 0 && self.entries().len() > 1 {
            return self.size();
        }
        let few = Size::new(self.entries().len() - counted, 0);
        self.last().map_or(few, |last| {
            let size = last.message.uncounted(method);
            let exchange = last.exchange.as_deref();
            let exchange = exchange.map(|exchange| exchange.uncounted(method));
            few.plus(size).plus(exchange.unwrap_or_default())
        })
    }
}

impl Entry {
    fn tokens(&self, method: Method, look: Look<'_>) -> Tokens {
        let message = self.message.tokens(method, look);
        let Some(exchange) = &self.exchange else {
            return message;
        };
        let results = exchange.tokens(method, look);
        message.plus(Tokens {
            tool_results: results,
            ..Tokens::default()
        })
    }
}

impl Message {
    /// Tokens of the message as it looks.
    pub(crate) fn tokens(&self, method: Method, look: Look<'_>) -> Tokens {
        let key = key(method, look.key_of_message());
        let count = || match look.message(self) {
            Some(shown) => shown.count(method),
            None => self.count(method),
        };
        match self.counts.get_or_make(key, count) {
            Ok(tokens) => *tokens,
            Err(tokens) => tokens,
        }
    }

    fn uncounted(&self, method: Method) -> Size {
        match self.counts.get(key(method, 0)) {
            Some(_) => Size::default(),
            None => self.size(),
        }
    }

    fn count(&self, method: Method) -> Tokens {
        let mut tokens = Tokens::default();
        let mut said = AROUND_MESSAGE;
        match &self.content {
            Content::None => {}
            Content::Text(text) => said += method.text(text),
            Content::Parts(parts) => {
                for part in parts {
                    match &part.kind {
                        PartKind::Text(text) => said += method.text(text),
                        PartKind::Thinking(text) => tokens.thinking += method.text(text),
                        PartKind::RedactedThinking(data) => {
                            tokens.thinking += data.len() as u64 / HIDDEN_BYTES_PER_TOKEN;
                        }
                        PartKind::ProviderBlock { data, .. } => {
                            said += method.text(json::write(&Value::Map(data.clone())).as_bytes());
                        }
                        PartKind::Image { .. }
                        | PartKind::Audio { .. }
                        | PartKind::Video { .. }
                        | PartKind::File { .. } => {
                            tokens.media += media_tokens(part);
                        }
                    }
                }
            }
        }
        tokens.tool_calls = self.calls.iter().map(|call| call.tokens(method)).sum();
        match self.role {
            Role::System => tokens.system = said,
            Role::User => tokens.user = said,
            Role::Assistant => tokens.assistant = said,
        }
        tokens
    }
}

impl ToolCall {
    fn tokens(&self, method: Method) -> u64 {
        let arguments = match &self.arguments.json {
            Some(json) => method.text(json.as_bytes()),
            None => method.text(json::write(&self.arguments.value).as_bytes()),
        };
        AROUND_CALL + method.text(self.name.as_str().as_bytes()) + arguments
    }
}

impl Exchange {
    /// Tokens of the results as they look.
    pub(crate) fn tokens(&self, method: Method, look: Look<'_>) -> u64 {
        let key = key(method, look.key_of_results(self));
        let count = || match look.exchange(self) {
            Some(shown) => shown.count(method),
            None => self.count(method),
        };
        match self.counts.get_or_make(key, count) {
            Ok(tokens) => *tokens,
            Err(tokens) => tokens,
        }
    }

    fn uncounted(&self, method: Method) -> Size {
        match self.counts.get(key(method, 0)) {
            Some(_) => Size::default(),
            None => self.size(),
        }
    }

    fn count(&self, method: Method) -> u64 {
        let results = self.slots().flatten().map(|outcome| match &outcome.output {
            Output::Parts(parts) => parts.iter().map(|part| part_tokens(method, part)).sum(),
            Output::Value(_) => method.text(outcome.text().unwrap_or_default()),
        });
        results.map(|tokens: u64| tokens + AROUND_CALL).sum()
    }
}

fn part_tokens(method: Method, part: &Part) -> u64 {
    match &part.kind {
        PartKind::Text(text) => method.text(text),
        _ => media_tokens(part),
    }
}

fn media_tokens(part: &Part) -> u64 {
    match &part.kind {
        PartKind::Image { media_type, source } => media::image(media_type.as_deref(), source),
        PartKind::File {
            media_type,
            source,
            filename,
        } => media::file(media_type.as_deref(), source, filename.as_deref()),
        PartKind::Audio { media_type, source } | PartKind::Video { media_type, source } => {
            media::file(media_type.as_deref(), source, None)
        }
        _ => 0,
    }
}
