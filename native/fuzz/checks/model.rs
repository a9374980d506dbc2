//! A conversation in plain vectors, and what operations make of it.

use std::collections::BTreeMap;

use ash_agent_context_core::{
    Content, Context, Error, Map, MessageRef, Metadata, Output, Role, Status, Value,
};

/// A conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// The number of the first iteration.
    pub first: u64,
    /// The system prompt.
    pub system: Said,
    /// The application's notes.
    pub notes: BTreeMap<Value, Value>,
    /// From the first to the current.
    pub iterations: Vec<Iteration>,
}

/// An iteration.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Iteration {
    /// The application's notes.
    pub notes: BTreeMap<Value, Value>,
    /// Messages that were added.
    pub messages: Vec<Message>,
}

/// A message.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Whose it is.
    pub role: Role,
    /// What it says.
    pub said: Said,
    /// Metadata on it.
    pub notes: Option<Map>,
    /// Its calls.
    pub calls: Vec<Call>,
    /// Metadata on their results.
    pub result_notes: BTreeMap<Value, Value>,
}

/// Content.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// None.
    Nothing,
    /// Text.
    Text(Vec<u8>),
    /// So many parts.
    Parts(usize),
}

/// A tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Its id.
    pub id: String,
    /// Its result.
    pub answer: Option<Answer>,
}

/// A result.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Any term.
    Value(Status, Value),
    /// So many parts.
    Parts(usize),
}

/// Metadata, by their keys.
pub fn entries(map: Option<Map>) -> impl Iterator<Item = (Value, Value)> {
    map.into_iter().flat_map(Map::into_entries)
}

impl Said {
    fn of(content: &Content) -> Self {
        match content {
            Content::None => Self::Nothing,
            Content::Text(text) => Self::Text(text.to_vec()),
            Content::Parts(parts) => Self::Parts(parts.len()),
        }
    }
}

impl Answer {
    fn of(status: Status, output: &Output) -> Self {
        match output {
            Output::Value(value) => Self::Value(status, value.clone()),
            Output::Parts(parts) => Self::Parts(parts.len()),
        }
    }
}

impl Model {
    /// What a context says of itself.
    #[must_use]
    pub fn of(context: &Context) -> Self {
        let notes = |notes: &Metadata| {
            let entries = notes.iter();
            entries.map(|(k, v)| (k.clone(), v.clone())).collect()
        };
        let one = |iteration: &ash_agent_context_core::Iteration| {
            let mut messages: Vec<Message> = Vec::new();
            for message in iteration.messages() {
                match (message, messages.last_mut()) {
                    (MessageRef::Added(message), _) => messages.push(Message {
                        role: message.role,
                        said: Said::of(&message.content),
                        notes: message.metadata.clone(),
                        calls: message
                            .calls
                            .iter()
                            .map(|call| Call {
                                id: call.id.to_string(),
                                answer: None,
                            })
                            .collect(),
                        result_notes: BTreeMap::new(),
                    }),
                    (MessageRef::Results(calls, exchange), Some(last)) => {
                        last.result_notes = entries(exchange.metadata.clone()).collect();
                        let slots = calls.iter().zip(exchange.slots());
                        for ((call, outcome), found) in slots.zip(&mut last.calls) {
                            assert_eq!(*call.id, *found.id);
                            found.answer = outcome.map(|o| Answer::of(o.status, &o.output));
                        }
                    }
                    (MessageRef::Results(..), None) => panic!("results without a message"),
                }
            }
            Iteration {
                notes: notes(&iteration.metadata),
                messages,
            }
        };
        Self {
            first: context.first_number(),
            system: context
                .system()
                .map_or(Said::Nothing, |system| Said::of(&system.content)),
            notes: notes(context.metadata()),
            iterations: context.iterations().map(one).collect(),
        }
    }

    /// The current iteration.
    pub fn current(&mut self) -> &mut Iteration {
        self.iterations.last_mut().unwrap()
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.first + self.iterations.len() as u64 - 1
    }

    /// The calls of the last message.
    #[must_use]
    pub fn last_calls(&self) -> &[Call] {
        let last = self.iterations.last().and_then(|i| i.messages.last());
        last.map_or(&[], |message| &message.calls)
    }

    /// The ids that wait for a result.
    #[must_use]
    pub fn pending(&self) -> Vec<Box<str>> {
        let calls = self.last_calls().iter();
        calls
            .filter(|call| call.answer.is_none())
            .map(|call| call.id.as_str().into())
            .collect()
    }

    fn check_nothing_pending(&self) -> Result<(), Error> {
        match self.pending() {
            ids if ids.is_empty() => Ok(()),
            ids => Err(Error::PendingToolCalls { ids }),
        }
    }

    /// Number of messages that are seen.
    fn count(messages: &[Message]) -> usize {
        let answered = |m: &&Message| m.calls.iter().any(|call| call.answer.is_some());
        messages.len() + messages.iter().filter(answered).count()
    }

    /// Number of all messages that are seen.
    #[must_use]
    pub fn count_messages(&self) -> usize {
        let counts = self.iterations.iter().map(|i| Self::count(&i.messages));
        counts.sum::<usize>() + usize::from(self.system != Said::Nothing)
    }

    /// A user message; whether the current iteration is closed is the context's to say.
    ///
    /// # Errors
    /// As those of the context.
    pub fn user(mut self, said: Said, notes: Option<Map>, is_closed: bool) -> Result<Self, Error> {
        self.check_nothing_pending()?;
        let messages = &self.current().messages;
        if is_closed || messages.iter().any(|m| m.role == Role::Assistant) {
            self.iterations.push(Iteration::default());
        }
        self.add(Role::User, said, notes, Vec::new());
        Ok(self)
    }

    fn add(&mut self, role: Role, said: Said, notes: Option<Map>, calls: Vec<Call>) {
        self.current().messages.push(Message {
            role,
            said,
            notes,
            calls,
            result_notes: BTreeMap::new(),
        });
    }

    /// A message of the model, with calls of these ids; `None` is for one that gets its id.
    ///
    /// # Errors
    /// As those of the context.
    pub fn assistant(
        mut self,
        said: Said,
        ids: &[Option<String>],
        notes: Option<Map>,
        is_closed: bool,
    ) -> Result<Self, Error> {
        self.check_nothing_pending()?;
        if is_closed {
            self.iterations.push(Iteration::default());
        }
        let leads = self.iterations.len() == 1 && self.system != Said::Nothing;
        let number = self.number();
        let position = Self::count(&self.current().messages) + usize::from(leads);
        let mut calls: Vec<Call> = Vec::new();
        for (index, id) in ids.iter().enumerate() {
            let id = id.clone().unwrap_or_else(|| {
                let mut id = format!("call_{number}_{position}_{index}");
                while ids.contains(&Some(id.clone())) {
                    id.push('_');
                }
                id
            });
            if calls.iter().any(|call| call.id == id) {
                return Err(Error::DuplicateToolCall { id: id.into() });
            }
            calls.push(Call { id, answer: None });
        }
        self.add(Role::Assistant, said, notes, calls);
        Ok(self)
    }

    /// Results of calls.
    ///
    /// # Errors
    /// As those of the context.
    pub fn results(
        mut self,
        results: &[(String, Answer)],
        notes: Option<Map>,
    ) -> Result<Self, Error> {
        let pending = self.pending();
        if results.is_empty() {
            return Err(Error::NoToolResults { pending });
        }
        if pending.is_empty() {
            let given = results.iter().map(|(id, _)| id.as_str().into()).collect();
            return Err(Error::NoPendingToolCalls { given });
        }
        let last = self.current().messages.last_mut().unwrap();
        for (position, (id, answer)) in results.iter().enumerate() {
            let id: Box<str> = id.as_str().into();
            let Some(call) = last.calls.iter_mut().find(|call| *call.id == *id) else {
                return Err(Error::UnknownToolCall { id, pending });
            };
            if results[..position].iter().any(|(other, _)| **other == *id) {
                return Err(Error::DuplicateToolResult { id });
            }
            if call.answer.is_some() {
                return Err(Error::ToolCallAlreadyAnswered { id, pending });
            }
            call.answer = Some(answer.clone());
        }
        last.result_notes.extend(entries(notes));
        if self.pending().is_empty() {
            self.iterations.push(Iteration::default());
        }
        Ok(self)
    }

    /// An error for every pending call.
    #[must_use]
    pub fn end_pending(self, status: Status, reason: &Value) -> Self {
        let answer = Answer::Value(status, reason.clone());
        let ids = self.pending().into_iter();
        let results: Vec<_> = ids.map(|id| (id.to_string(), answer.clone())).collect();
        match results.is_empty() {
            true => self,
            false => self.results(&results, None).unwrap(),
        }
    }

    fn index(&self, number: i64) -> Result<usize, Error> {
        let index = u64::try_from(number).ok();
        let index = index.and_then(|number| number.checked_sub(self.first));
        let index = index.and_then(|index| usize::try_from(index).ok());
        index
            .filter(|index| *index < self.iterations.len())
            .ok_or(Error::UnknownIteration {
                number,
                range: (self.first, self.number()),
            })
    }

    /// The iterations up to one.
    ///
    /// # Errors
    /// As those of the context.
    pub fn rewind(mut self, number: i64) -> Result<Self, Error> {
        let index = self.index(number)?;
        self.iterations.truncate(index + 1);
        Ok(self)
    }

    /// A note on an iteration.
    ///
    /// # Errors
    /// As those of the context.
    pub fn note(mut self, number: i64, key: Value, value: Value) -> Result<Self, Error> {
        let index = self.index(number)?;
        self.iterations[index].notes.insert(key, value);
        Ok(self)
    }
}
