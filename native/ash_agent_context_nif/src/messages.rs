//! The neutral form: iterations and messages as Elixir sees them.

use ash_agent_context_core::{
    Content, Context, Exchange, Iteration, LateCall, Map, Message, MessageRef, Metadata, Name,
    Outcome, Output, Part, PartKind, Role, Seen, Shown, Source, Status, ToolCall, Value, Wait,
};
use rustler::types::atom::{self, Atom};
use rustler::{Encoder as _, Term};

use crate::atoms;
use crate::encode::{self, Encoder, FieldTerms};
use crate::to_term::{map, Maybe, ToTerm};
use crate::words::Word;

impl<'r, 'e> Encoder<'r, 'e> {
    /// Encodes all messages.
    pub fn messages(&self, messages: impl Iterator<Item = MessageRef<'r>>) -> Term<'e> {
        self.list(messages.map(|message| self.message(message)))
    }

    /// Encodes messages of the view.
    pub fn encode_shown(&self, messages: impl Iterator<Item = Shown<'r>>) -> Term<'e> {
        self.list(messages.map(|shown| match shown.see() {
            Seen::Same(message) => self.message(message),
            other => Encoder::new(self.env(), None).message(other.message()),
        }))
    }

    /// Encodes one message.
    pub fn message(&self, message: MessageRef<'r>) -> Term<'e> {
        match message {
            MessageRef::Added(message) => self.encode_added(message),
            MessageRef::Results(calls, exchange) => self.results(calls, exchange),
        }
    }

    fn encode_added(&self, message: &'r Message) -> Term<'e> {
        let content = self.content(&message.content);
        let is_plain = message.metadata.is_none() && !message.is_interrupted();
        if is_plain && message.calls.is_empty() {
            return self.plain(message.role, content);
        }
        let calls = (!message.calls.is_empty()).then(|| self.calls(message.calls.iter()));
        if let (true, Some(calls)) = (is_plain, calls) {
            let keys = [atoms::role(), atoms::content(), atoms::tool_calls()];
            let role = message.role.to_term(self.env());
            return self.fields(keys, [role, content, calls]);
        }
        map!(
            self.env(),
            message {
                role,
                content: content,
                tool_calls: Maybe(calls),
                metadata: Maybe(message.metadata.as_ref().map(|of| self.map(of))),
                state: Maybe(message.is_interrupted().then(atoms::interrupted)),
            }
        )
    }

    /// Encodes one message with its source.
    pub fn message_with_reply(&self, message: MessageRef<'r>) -> Term<'e> {
        let shown = self.message(message);
        let reply = match message {
            MessageRef::Added(message) => message.reply.as_ref(),
            MessageRef::Results(..) => None,
        };
        let reply = reply.map(|reply| (atoms::response(), self.reply(reply)));
        encode::with(shown, reply.into_iter())
    }

    fn results(&self, calls: &'r [ToolCall], exchange: &'r Exchange) -> Term<'e> {
        let results = calls.iter().zip(exchange.slots());
        let results = results.filter_map(|(call, outcome)| Some(self.result(call, outcome?)));
        let message = self.plain(Role::User, self.list(results));
        let metadata = exchange.metadata.as_ref();
        let metadata = metadata.map(|of| (atoms::metadata(), self.map(of)));
        let late = exchange.arrival.zip(calls.first().zip(exchange.slot(0)));
        let late = late.map(|(place, (call, outcome))| {
            let mut fields = FieldTerms::new(self.env());
            fields.put(atoms::id(), self.text(&call.id));
            fields.put(atoms::iteration(), place.iteration);
            self.put_arrived(&mut fields, outcome);
            let arrived = outcome.arrived();
            if let Some(id) = arrived.and_then(|arrived| arrived.awaited_by.as_deref()) {
                fields.put(atoms::awaited_by(), self.text(id));
            }
            (atoms::arrival(), fields.end())
        });
        encode::with(message, metadata.into_iter().chain(late))
    }

    fn put_arrived(&self, fields: &mut FieldTerms<'e>, outcome: &'r Outcome) {
        if let Some(arrived) = outcome.arrived() {
            fields.put(atoms::at(), arrived.at);
            fields.put(atoms::from(), self.value(&arrived.from));
        }
    }

    /// Encodes a message with nothing but its content.
    fn plain(&self, role: Role, content: Term<'e>) -> Term<'e> {
        let role = role.atom();
        let kind = (atoms::role(), role);
        self.like(kind, atoms::content(), content, |nothing| {
            let keys = [atoms::role(), atoms::content()];
            self.fields(keys, [role.to_term(self.env()), nothing])
        })
    }

    fn result(&self, call: &'r ToolCall, outcome: &'r Outcome) -> Term<'e> {
        let content = match (&outcome.output, outcome.text()) {
            (Output::Parts(parts), _) => self.parts(parts),
            (_, text) => self.binary(text.unwrap_or_default()),
        };
        let is_error = match outcome.is_error() {
            true => atom::true_(),
            false => atom::false_(),
        };
        let kind = (atoms::is_error(), is_error);
        let result = self.like(kind, atoms::content(), content, |nothing| {
            let [kind, id] = [atoms::type_(), atoms::tool_use_id()];
            let keys = [kind, id, atoms::content(), atoms::is_error()];
            let kind = atoms::tool_result().to_term(self.env());
            let is_error = is_error.to_term(self.env());
            self.fields(keys, [kind, nothing, nothing, is_error])
        });
        let id = self.text(&call.id);
        let result_with = result.map_update(atoms::tool_use_id(), id);
        result_with.unwrap_or(result)
    }

    /// Encodes the content of a message.
    pub fn content(&self, content: &'r Content) -> Term<'e> {
        match content {
            Content::None => atoms::nil().to_term(self.env()),
            Content::Text(text) => self.binary(text),
            Content::Parts(parts) => self.parts(parts),
        }
    }

    fn parts(&self, parts: &'r [Part]) -> Term<'e> {
        self.list(parts.iter().map(|part| self.part(part)))
    }

    /// Encodes a part.
    pub fn part(&self, part: &'r Part) -> Term<'e> {
        let mut fields = FieldTerms::new(self.env());
        let text = |text: &'r Option<Box<str>>| text.as_deref().map(|text| self.text(text));
        let kind = match &part.kind {
            PartKind::Text(text) => {
                fields.put(atoms::text(), self.binary(text));
                atoms::text()
            }
            PartKind::Thinking(text) => {
                fields.put(atoms::text(), self.binary(text));
                atoms::thinking()
            }
            PartKind::Media(media) => {
                fields.put_given(atoms::media_type(), text(&media.media_type));
                fields.put_given(atoms::filename(), text(&media.filename));
                self.put_source(&mut fields, &media.source);
                media.class.atom()
            }
            PartKind::RedactedThinking(data) => {
                fields.put(atoms::data(), self.text(data));
                atoms::redacted_thinking()
            }
            PartKind::ProviderBlock { provider, data } => {
                fields.put(atoms::provider(), provider.atom());
                fields.put(atoms::data(), self.map(data));
                atoms::provider_block()
            }
        };
        fields.put(atoms::type_(), kind);
        for (key, value) in part.hints.iter().flat_map(Map::iter) {
            fields.put_term(self.value(key), self.value(value));
        }
        let metadata = part.provider_metadata.as_ref().map(|of| self.map(of));
        fields.put_given(atoms::provider_metadata(), metadata);
        fields.end()
    }

    fn put_source(&self, fields: &mut FieldTerms<'e>, source: &'r Source) {
        match source {
            Source::Data(data) => fields.put(atoms::data(), self.text(data)),
            Source::Url(url) => fields.put(atoms::url(), self.text(url)),
            Source::Stored { provider, id } => {
                fields.put(atoms::file_id(), self.text(id));
                fields.put(atoms::provider(), provider.atom());
            }
        }
    }

    /// Encodes calls as a message shows them.
    pub fn calls(&self, calls: impl Iterator<Item = &'r ToolCall>) -> Term<'e> {
        self.calls_with(calls.map(|call| (call, &call.arguments.value)), |_| {
            Default::default()
        })
    }

    /// Encodes calls with other arguments than their own, a key that is true for them, and their next attempt.
    pub fn calls_with(
        &self,
        calls: impl Iterator<Item = (&'r ToolCall, &'r Value)>,
        marks: impl Fn(&ToolCall) -> (Option<Atom>, Option<i64>),
    ) -> Term<'e> {
        self.list(calls.map(|(call, arguments)| {
            let (mark, attempt) = marks(call);
            if mark.is_some() || attempt.is_some() {
                let mut fields = self.call_with(call, arguments);
                if let Some(mark) = mark {
                    fields.put(mark, true);
                }
                fields.put_given(
                    atoms::attempt(),
                    attempt.map(|number| number.to_term(self.env())),
                );
                return fields.end();
            }
            let has_more = call.provider_metadata.is_some() || call.extra.is_some();
            if has_more || call.id.is_empty() || !call.kind.is_function() {
                return self.call_with(call, arguments).end();
            }
            let keys = [atoms::id(), atoms::name(), atoms::arguments()];
            let (id, name) = (self.text(&call.id), self.name(&call.name));
            self.fields(keys, [id, name, self.value(arguments)])
        }))
    }

    fn name(&self, name: &'r Name) -> Term<'e> {
        match name {
            Name::Atom(name) => self.atom(name),
            Name::Text(name) => self.text(name),
        }
    }

    /// Encodes a call; it has no id until it is part of a conversation, if its provider gives none.
    pub fn call(&self, call: &'r ToolCall) -> FieldTerms<'e> {
        self.call_with(call, &call.arguments.value)
    }

    fn call_with(&self, call: &'r ToolCall, arguments: &'r Value) -> FieldTerms<'e> {
        let mut fields = FieldTerms::new(self.env());
        let id = (!call.id.is_empty()).then(|| self.text(&call.id));
        fields.put_given(atoms::id(), id);
        fields.put(atoms::name(), self.name(&call.name));
        let kind = (!call.kind.is_function()).then(|| call.kind.to_term(self.env()));
        fields.put_given(atoms::kind(), kind);
        fields.put(atoms::arguments(), self.value(arguments));
        let metadata = call.provider_metadata.as_ref().map(|of| self.map(of));
        fields.put_given(atoms::provider_metadata(), metadata);
        for (key, value) in call.extra.iter().flat_map(Map::iter) {
            fields.put_term(self.value(key), self.value(value));
        }
        fields
    }

    /// Encodes one iteration with its messages and calls.
    pub fn iteration(&self, context: &'r Context, iteration: &'r Iteration) -> Term<'e> {
        let calls = iteration.entries().flat_map(|entry| {
            let arrival = entry.exchange.as_deref().and_then(|of| of.arrival);
            entry
                .calls()
                .map(move |(call, outcome)| (arrival, call, outcome))
        });
        let calls = calls.map(|(arrival, call, outcome)| {
            let mut fields = self.call(call);
            let result = outcome.map(|outcome| self.outcome(outcome));
            fields.put(atoms::result(), result);
            if let Some(outcome) = outcome.filter(|outcome| outcome.arrived().is_some()) {
                let mut arrived = FieldTerms::new(self.env());
                self.put_arrived(&mut arrived, outcome);
                if let Some(place) = arrival {
                    arrived.put(atoms::iteration(), place.iteration);
                }
                fields.put(atoms::arrived(), arrived.end());
            }
            fields.end()
        });
        map!(
            self.env(),
            iteration {
                number,
                messages: self.messages(context.messages_of(iteration)),
                tool_calls: self.list(calls),
                started_at,
                completed_at,
                metadata: self.notes(&iteration.metadata),
            }
        )
    }

    /// Encodes all iterations.
    pub fn iterations(&self, context: &'r Context) -> Term<'e> {
        let iterations = context.iterations();
        self.list(iterations.map(|iteration| self.iteration(context, iteration)))
    }

    fn outcome(&self, outcome: &'r Outcome) -> Term<'e> {
        let tag = match outcome.is_error() {
            true => atoms::error(),
            false => atoms::ok(),
        };
        if let (Status::Waiting, Some(wait)) = (outcome.status, outcome.wait()) {
            return (atoms::waiting(), self.wait(wait).end()).encode(self.env());
        }
        let output = match &outcome.output {
            Output::Value(value) => self.value(value),
            Output::Parts(parts) => self.parts(parts),
        };
        (tag, output).encode(self.env())
    }

    fn wait(&self, wait: &'r Wait) -> FieldTerms<'e> {
        let mut fields = FieldTerms::new(self.env());
        fields.put(atoms::for_(), self.value(&wait.what));
        let handle = wait.handle.as_deref().map(|handle| self.text(handle));
        fields.put(atoms::handle(), handle);
        fields.put(atoms::deadline(), wait.deadline);
        if let Some(question) = &wait.question {
            fields.put(atoms::question(), self.value(question));
        }
        fields
    }

    /// Encodes a call that waits or waited.
    pub fn late_call(&self, late: &LateCall<'r>) -> Term<'e> {
        let mut fields = self.wait(late.wait);
        fields.put(atoms::id(), self.text(&late.call.id));
        fields.put(atoms::name(), self.name(&late.call.name));
        fields.put(atoms::arguments(), self.value(late.arguments));
        fields.put(atoms::iteration(), late.iteration);
        fields.put(atoms::state(), late.state);
        if let Some(outcome) = late.outcome {
            fields.put(atoms::result(), self.outcome(outcome));
            self.put_arrived(&mut fields, outcome);
        }
        if let Some(placed) = late.placed {
            fields.put(atoms::placed(), placed);
        }
        fields.end()
    }

    /// Encodes metadata.
    pub fn notes(&self, notes: &'r Metadata) -> Term<'e> {
        self.entries(notes.iter())
    }
}
