//! The spans of a conversation: turns, and within them answers and calls side by side.

use std::cell::OnceCell;
use std::collections::HashMap;

use prost::Message as _;

use crate::context::Context;
use crate::error::Error;
use crate::log::iteration::Iteration;
use crate::trace::cache::CacheAccount;
use crate::trace::otlp::attributes::SpanAttributes;
use crate::trace::otlp::messages;
use crate::trace::otlp::options::{OtlpOptions, Turns};
use crate::trace::otlp::proto::{Code, Span, SpanKind, SpanStatus};
use crate::trace::otlp::unread::{Read, Unread};
use crate::trace::shown::Trace;
use crate::value::time::Time;
use crate::value::Value;
use crate::view::veil::Veil;

/// The trace and the span around another span.
#[derive(Clone, Copy)]
pub(super) struct SpanPlace {
    pub trace: [u8; 16],
    pub span: Option<[u8; 8]>,
}

/// The call that a sub-agent's conversation was made for.
pub(super) struct Caller<'c> {
    /// The span of the call.
    pub within: SpanPlace,
    /// The conversation with the user.
    pub conversation: &'c str,
    /// The tool by which the sub-agent is called.
    pub tool: &'c str,
    pub depth: usize,
}

/// The values that all spans of a conversation share.
pub(super) struct Conversation<'c, 'a> {
    pub at: usize,
    pub id: String,
    pub context: &'a Context,
    pub caller: Option<&'c Caller<'c>>,
    /// True if it is the conversation that was asked for.
    pub is_main: bool,
    /// The system prompt, in the form of the attribute.
    pub system: Option<String>,
    /// The last iteration of the first summary.
    pub compacted: Option<u64>,
    /// The account of its requests at the prompt cache.
    pub account: CacheAccount,
    /// The pieces that its summaries must not show, once a summary is written: they cost a walk over the log.
    pub veil: OnceCell<Veil>,
}

impl Conversation<'_, '_> {
    /// Returns the id of the conversation with the user.
    pub fn user_id(&self) -> &str {
        let id = || self.context.id();
        self.caller.map_or_else(id, |caller| caller.conversation)
    }
}

pub(super) struct SpanWriter<'t, 'a> {
    pub trace: &'t Trace<'a>,
    pub options: &'t OtlpOptions<'t>,
    /// The conversations of sub-agents, by the conversation, the iteration and the call that they were made for.
    pub children: HashMap<(usize, u64, &'a str), Vec<usize>>,
    tools: Option<String>,
    pub spans: Vec<Span>,
    bytes: usize,
    most: usize,
}

impl<'t, 'a> SpanWriter<'t, 'a> {
    pub fn new(trace: &'t Trace<'a>, options: &'t OtlpOptions<'t>, most: usize) -> Self {
        Self {
            trace,
            options,
            children: HashMap::new(),
            tools: options.tools.as_ref().map(messages::definitions),
            spans: Vec::new(),
            bytes: 0,
            most,
        }
    }

    pub fn write(mut self) -> Result<Vec<Span>, Error> {
        let trace = self.trace;
        let shown = &trace.conversations;
        let mut apart = Vec::new();
        for (child, within) in trace.within().into_iter().enumerate() {
            let place = within.zip(shown.get(child)).and_then(|(within, child)| {
                let parent = shown.get(within.conversation)?;
                let call = within.call?;
                let number = find_origin(parent.context, call, child.context.created_at())?;
                Some((within.conversation, number, call))
            });
            match place {
                Some(place) => self.children.entry(place).or_default().push(child),
                None if shown.get(child).is_some_and(|shown| shown.is_active) => {}
                None => apart.push(child),
            }
        }
        self.conversation(trace.active_at(), self.options.turns, None)?;
        if self.options.turns == Turns::All {
            for child in apart {
                self.conversation(child, Turns::All, None)?;
            }
        }
        Ok(self.spans)
    }

    pub fn conversation(
        &mut self,
        at: usize,
        turns: Turns,
        caller: Option<&Caller<'_>>,
    ) -> Result<(), Error> {
        let Some(shown) = self.trace.conversations.get(at) else {
            return Ok(());
        };
        let context = shown.context;
        let numbers = numbers(context, turns)?;
        let system = context.shown_system().filter(|_| self.options.messages);
        let summaries = context
            .covers()
            .filter(|(_, cover)| cover.summary.is_some());
        // Most conversations have no blocks, and then need no walk over their texts for it.
        let blocks = context.view().map_or(0, |view| view.prompt_texts().len());
        let veil = OnceCell::new();
        let of = Conversation {
            at,
            id: self.trace.document_id(at),
            context,
            caller,
            is_main: shown.is_active,
            system: system.map(|system| {
                let rendering = self.trace.rendering().message(system);
                let system = rendering.as_ref().unwrap_or(system);
                let masks = self.trace.masks.as_deref().filter(|_| blocks > 0);
                let veiled = masks.and_then(|masks| {
                    let veil = veil.get_or_init(|| context.veil(Some(masks)));
                    veil.message(system)
                });
                messages::instructions(veiled.as_ref().unwrap_or(system))
            }),
            compacted: summaries.map(|(_, cover)| cover.last).min(),
            account: CacheAccount::since(numbers.0, context, self.options.prices),
            veil,
        };
        let mut turn: Vec<&Iteration> = Vec::new();
        let mut unread = None;
        for iteration in context.log.between(numbers.0, numbers.1) {
            let unread = unread.get_or_insert_with(|| Unread::at(context, iteration));
            let is_other = |first: &&Iteration| first.turn != iteration.turn;
            if turn.first().is_some_and(is_other) {
                self.turn(&of, &turn, unread, false)?;
                turn.clear();
            }
            turn.push(iteration);
        }
        match unread {
            Some(mut unread) => self.turn(&of, &turn, &mut unread, true),
            None => Ok(()),
        }
    }

    pub fn attributes(&self, of: &Conversation<'_, '_>, operation: &str) -> SpanAttributes {
        let mut attributes = SpanAttributes::default();
        attributes.text("gen_ai.operation.name", operation);
        attributes.text("gen_ai.conversation.id", of.user_id());
        attributes.text("ash_agent.context.id", of.context.id());
        attributes
    }

    pub fn input(&self, of: &Conversation<'_, '_>, read: &[Read<'_>]) -> String {
        let veil = || of.context.veil(self.trace.masks.as_deref());
        let veil = || of.veil.get_or_init(veil);
        messages::input(self.trace, self.options.conventions, read, veil)
    }

    /// Adds the system prompt and the tools, which all answers share.
    pub fn put_setting(
        &self,
        of: &Conversation<'_, '_>,
        attributes: &mut SpanAttributes,
        noted: Option<&Value>,
    ) {
        attributes.add_known("gen_ai.system_instructions", of.system.clone());
        // These are the agent's tools; a sub-agent has others.
        let tools = self.tools.clone().filter(|_| of.is_main);
        let noted = noted.map(|tools| messages::definitions(&self.trace.mask_value(tools)));
        let tools = tools.or(noted);
        attributes.add_known("gen_ai.tool.definitions", tools);
    }

    pub fn push(
        &mut self,
        within: SpanPlace,
        id: [u8; 8],
        (name, kind): (String, SpanKind),
        (from, to): (Time, Time),
        mut attributes: SpanAttributes,
        failed: Option<(&str, String)>,
    ) -> Result<(), Error> {
        attributes.add_known("error.type", failed.as_ref().map(|(kind, _)| *kind));
        let nanos = |at: Time| {
            let micros = u64::try_from(at.timestamp_micros()).unwrap_or(0);
            micros.saturating_mul(1_000)
        };
        let span = Span {
            trace_id: within.trace.to_vec(),
            span_id: id.to_vec(),
            parent_span_id: within.span.map_or(Vec::new(), |id| id.to_vec()),
            name,
            kind: kind.into(),
            start_time_unix_nano: nanos(from),
            end_time_unix_nano: nanos(to.max(from)),
            attributes: attributes.0,
            links: Vec::new(),
            status: failed.map(|(_, message)| SpanStatus {
                message,
                code: Code::Error.into(),
            }),
        };
        self.bytes = self.bytes.saturating_add(span.encoded_len());
        if self.bytes > self.most {
            return Err(Error::TraceTooLarge { most: self.most });
        }
        self.spans.push(span);
        Ok(())
    }
}

/// Returns the iteration with the call for which a conversation was made at a time. The time matters, since an id may be used
/// again.
fn find_origin(parent: &Context, call: &str, at: Time) -> Option<u64> {
    let mut with_call = parent
        .iterations()
        .filter(|iteration| iteration.calls().any(|(one, _)| &*one.id == call));
    let first = with_call.next()?;
    let later = with_call.take_while(|iteration| iteration.started_at <= at);
    Some(later.last().unwrap_or(first).number)
}

/// Returns the numbers of the first and the last iteration of the turns.
fn numbers(context: &Context, turns: Turns) -> Result<(u64, u64), Error> {
    let (first, last) = (context.first_number(), context.current_iteration());
    let turn = |number: u64| match context.log.get_numbered(number) {
        Some(iteration) => Ok(iteration.turn),
        None => Err(context.log.unknown_number(number)),
    };
    Ok(match turns {
        Turns::All => (first, last),
        Turns::Last => (context.turn(), last),
        Turns::Between(from, to) => {
            let (from, to) = (turn(from)?, turn(to)?);
            let mut next = context.log.between(to, last);
            let next = next.find(|iteration| iteration.turn > to);
            let last = next.map_or(last, |next| next.number.saturating_sub(1));
            (from, last)
        }
    })
}
