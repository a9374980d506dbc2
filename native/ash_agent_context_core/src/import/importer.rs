//! Reads the messages of a foreign history, repairs them and groups them into iterations.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::context::Context;
use crate::context::INTERRUPTED;
use crate::import::defaults::Defaults;
use crate::log::call::ToolCall;
use crate::log::exchange::{Entry, Exchange};
use crate::log::ids::file_names;
use crate::log::iteration::Iteration;
use crate::log::late::{Arrived, CallPlace, Late, Wait};
use crate::log::media::Media;
use crate::log::message::{Message, Outcome, Output, Role, Status};
use crate::log::original::Original;
use crate::log::part::{first_of_items, Content, Part};
use crate::log::provider::Provider;
use crate::log::waits::PLACEHOLDER;
use crate::value::{Map, Value};

use crate::import::elements::Elements;
use crate::import::fits;
use crate::import::repair::{Imported, Repair, RepairKind};
use crate::import::written::Written;
use crate::provider::dialect::facts::CHAT;
use crate::provider::facts::{Facts, Rule};
use crate::provider::foreign::{declined_call, into_parts, plain_content};
use crate::provider::late::{self, stays_open};
use crate::provider::listener::{Listen, ReadResult};
use crate::value::time::Time;
use crate::view::checking::Checking;

#[derive(Debug, Default)]
pub struct Importer {
    provider: Option<Provider>,
    prompt: Option<(Content, Option<Original>)>,
    elements: Elements,
    /// The position of the element that is being read.
    element: usize,
    entries: Vec<ReadMessage>,
    by_id: HashMap<Box<str>, SameId>,
    latest: Latest,
    /// The number of the last message with words.
    spoken: usize,
    /// The number of the last entry but for late results that a call waited for.
    last: usize,
    repairs: Vec<Repair>,
    /// The texts of the list's elements, if the list was text.
    written: Written,
    /// The blocks that a provider takes only once.
    blocks: HashSet<String>,
}

impl Importer {
    /// A history in a request for this provider, or for none. `written`: the texts of the request.
    pub fn of(provider: Option<Provider>, written: Written) -> Self {
        Self {
            provider,
            elements: Elements::of(provider),
            written,
            ..Self::default()
        }
    }

    /// Returns whether content repeats a block of an earlier message.
    fn repeats(&mut self, content: &Content) -> bool {
        let ids = first_of_items(content.parts()).flat_map(Part::once_ids);
        // All of them are added, so this does not stop at the first.
        let repeats = ids.filter(|id| !self.blocks.insert(id.clone())).count() > 0;
        self.repeats_file(content.parts()) || repeats
    }

    /// Returns whether a file has the name of an earlier one, and the provider takes each name once.
    fn repeats_file(&mut self, parts: &[Part]) -> bool {
        if self.facts().document_name.is_none() {
            return false;
        }
        let names = parts.iter().flat_map(file_names);
        names
            .filter(|name| !self.blocks.insert(name.clone()))
            .count()
            > 0
    }

    /// Returns whether the provider does not take this, if there is a provider.
    fn refuses(&self, takes: impl FnOnce(Provider) -> bool) -> bool {
        self.provider.is_some_and(|provider| !takes(provider))
    }

    /// Notes a repair that changes the element that is being read, or leaves it out.
    fn repair(&mut self, kind: RepairKind, id: Option<&str>) {
        self.elements.change_element(self.element);
        self.repairs.push(Repair {
            kind,
            message: self.element,
            id: id.map(Into::into),
            to: None,
        });
    }

    /// Tells of media whose bytes are of another type than is said: that is what is sent of them.
    fn tell_types(&mut self, element: usize, parts: &[Part]) {
        let media = parts.iter().filter_map(|part| Media::of(&part.kind));
        for media in media.filter(|media| media.is_corrected) {
            self.elements.change_element(element);
            self.repairs.push(Repair {
                kind: RepairKind::CorrectedType,
                message: element,
                id: None,
                to: media.media_type.as_deref().map(Into::into),
            });
        }
    }

    fn push(&mut self, role: Role, content: Content, metadata: Option<Map>) {
        self.tell_types(self.element, content.parts());
        let number = message_number(self.entries.len());
        self.elements.claim(number, self.element);
        let is_refused = self.refuses(|of| fits::message(of, &content, &[]));
        if self.repeats(&content) || is_refused {
            self.elements.change(number);
        }
        self.spoken = self.entries.len();
        self.last = self.entries.len();
        self.entries.push(ReadMessage::Other {
            role,
            content,
            metadata,
        });
    }

    /// Adds calls to the last message. Those with an id that it has already get another one.
    fn join(&mut self, entry: usize, calls: Vec<ToolCall>) {
        let rules = self.facts();
        let Some(ReadMessage::Assistant(last)) = self.entries.get_mut(entry) else {
            return;
        };
        for call in &calls {
            last.uses.entry(call.id.clone()).or_default();
        }
        for mut call in calls {
            let slot = last.calls.len();
            last.slots.push(None);
            let name = call.name.as_str().into();
            self.latest.by_name.entry(name).or_default().push_back(slot);
            self.latest.in_order.push_back(slot);
            if !call.id.is_empty() {
                let is_known = self.by_id.contains_key(&call.id);
                let open = self.by_id.entry(call.id.clone()).or_default();
                if is_known && rules.has(Rule::HasItems) {
                    // An id may occur once in a conversation.
                    self.elements.change(message_number(entry));
                }
                if open.entry != entry {
                    *open = SameId {
                        entry,
                        slots: VecDeque::new(),
                    };
                }
                open.slots.push_back(slot);
                let mut uses = last.uses.get(&call.id).copied().unwrap_or_default() + 1;
                let mut to = call.id.clone();
                if uses > 1 {
                    let another = |uses: usize| Box::from(format!("{}_{uses}", call.id));
                    to = another(uses);
                    while last.uses.contains_key(&to) {
                        uses += 1;
                        to = another(uses);
                    }
                    last.uses.insert(to.clone(), 1);
                }
                last.uses.insert(call.id.clone(), uses);
                if to != call.id {
                    self.elements.change(message_number(entry));
                    self.repairs.push(Repair {
                        kind: RepairKind::RenamedCall,
                        message: last.element,
                        id: Some(std::mem::replace(&mut call.id, to.clone())),
                        to: Some(to),
                    });
                }
            }
            last.calls.push(call);
        }
    }

    /// Returns the first call without a result, of this name if there is one. A result with an id answers only calls that have
    /// none.
    fn find_unnamed(&mut self, has_id: bool, name: Option<&str>) -> Option<(usize, usize)> {
        let entry = self.latest.entry;
        let Some(ReadMessage::Assistant(exchanged)) = self.entries.get(entry) else {
            return None;
        };
        let waiting = match name {
            Some(name) => self.latest.by_name.get_mut(name)?,
            None => &mut self.latest.in_order,
        };
        let slot = exchanged.first_waiting(waiting)?;
        let call = exchanged.calls.get(slot)?;
        (!has_id || call.id.is_empty()).then_some((entry, slot))
    }

    /// Returns whether other messages may stand between a call and its result.
    fn may_be_late(&self, entry: usize, slot: usize) -> bool {
        let Some(ReadMessage::Assistant(exchanged)) = self.entries.get(entry) else {
            return false;
        };
        exchanged.calls.get(slot).is_some_and(ToolCall::is_async)
    }

    /// Returns whether a call may be without a result in the middle of a history.
    fn stays_open(&self, call: &ToolCall) -> bool {
        self.provider.is_some_and(|of| stays_open(call, of))
    }

    /// Takes a result that came later than other messages. Returns false if the call has to have it at once.
    fn push_late(&mut self, entry: usize, slot: usize, answer: &mut ReadResult) -> bool {
        let Some(ReadMessage::Assistant(exchanged)) = self.entries.get(entry) else {
            return false;
        };
        let Some(call) = exchanged
            .calls
            .get(slot)
            .filter(|call| self.stays_open(call))
        else {
            return false;
        };
        let id = call.id.clone();
        let output = std::mem::replace(&mut answer.output, Output::Value(Value::Nil));
        self.tell_types(self.element, output.parts());
        let number = results_number(self.entries.len());
        let is_error = answer.status != Status::Ok;
        if self.refuses(|of| fits::result(of, &output, is_error)) {
            self.elements.change(number);
        }
        // The output of a call that waited for it is still to come.
        let waiting = (self.latest.entry > entry).then(|| self.waiting_call());
        let awaited_by = waiting.flatten().filter(|id| !id.is_empty());
        self.latest.ahead += usize::from(awaited_by.is_some());
        self.add_late(
            entry,
            slot,
            ReadLate {
                entry,
                id,
                outcome: Outcome::new(answer.status, output),
                awaited_by,
            },
        );
        true
    }

    /// Takes a user's text that is the frame of a late result, as this package makes it. Returns false for all others: the call has
    /// to be there, and our placeholder in its slot.
    fn push_frame(&mut self, text: &[u8]) -> bool {
        let frame = std::str::from_utf8(text).ok().and_then(late::read_frame);
        let Some(frame) = frame.filter(|_| self.provider.is_some()) else {
            return false;
        };
        let entry = self.by_id.get(frame.call).map(|same| same.entry);
        let read = entry.and_then(|entry| Some((entry, self.entries.get(entry)?)));
        let Some((entry, ReadMessage::Assistant(exchanged))) = read else {
            return false;
        };
        let slot = exchanged
            .calls
            .iter()
            .position(|call| &*call.id == frame.call && frame.names(call.name.as_str()));
        let Some(slot) = slot.filter(|slot| {
            let answer = exchanged.slots.get(*slot).and_then(Option::as_ref);
            answer.is_some_and(|answer| is_placeholder(&answer.output))
        }) else {
            return false;
        };
        let text = Output::Value(Value::text(frame.text));
        self.add_late(
            entry,
            slot,
            ReadLate {
                entry,
                id: frame.call.into(),
                outcome: Outcome::new(frame.status, text),
                awaited_by: None,
            },
        );
        true
    }

    /// Returns the first call of the last message with calls whose result has to be among those that come next.
    fn waiting_call(&mut self) -> Option<Box<str>> {
        let Some(ReadMessage::Assistant(latest)) = self.entries.get(self.latest.entry) else {
            return None;
        };
        let slots = latest.calls.iter().zip(&latest.slots).enumerate();
        let mut slots = slots.skip(self.latest.waiting);
        let found = slots.find(|(_, (call, slot))| slot.is_none() && !self.stays_open(call));
        let id = found.map(|(_, (call, _))| call.id.clone());
        self.latest.waiting = found.map_or(latest.calls.len(), |(slot, _)| slot);
        id
    }

    /// Late results that stand in front of the output of a call that could have stayed open were waited for by that call.
    fn settle_ahead(&mut self, entry: usize, slot: usize) {
        if entry != self.latest.entry {
            return;
        }
        let ahead = std::mem::take(&mut self.latest.ahead);
        let Some(ReadMessage::Assistant(latest)) = self.entries.get(entry) else {
            return;
        };
        let call = latest.calls.get(slot).filter(|call| self.stays_open(call));
        let Some(id) = call.map(|call| call.id.clone()).filter(|id| !id.is_empty()) else {
            return;
        };
        for late in self.entries.iter_mut().rev().take(ahead) {
            if let ReadMessage::Late(late) = late {
                late.awaited_by = Some(id.clone());
            }
        }
    }

    fn add_late(&mut self, entry: usize, slot: usize, late: ReadLate) {
        let number = self.entries.len();
        self.elements.claim(results_number(number), self.element);
        if let Some(ReadMessage::Assistant(exchanged)) = self.entries.get_mut(entry) {
            if let Some(place) = exchanged.slots.get_mut(slot) {
                *place = Some(open_slot());
            }
        }
        if late.awaited_by.is_none() {
            self.last = number;
        }
        self.entries.push(ReadMessage::Late(late));
    }

    /// Calls that are all open have no results to send, so what was joined over them does not go back as it came.
    fn tell_open(&mut self, entries: &[ReadMessage]) {
        for (entry, message) in entries.iter().enumerate() {
            let number = results_number(entry);
            if matches!(message, ReadMessage::Assistant(of) if of.filled == 0 && !of.calls.is_empty())
                && self.elements.is_joined(number)
            {
                self.elements.change(number);
            }
        }
    }

    /// Returns the conversation, with its repairs and the `rest` of the request.
    pub fn finish(mut self, rest: Map, defaults: Defaults<'_>) -> Imported {
        let mut context = Context::empty(defaults.id, defaults.at);
        if let Some((content, original)) = self.prompt.take() {
            context.log.system = Some(system(content, original));
        }
        let mut entries = std::mem::take(&mut self.entries);
        self.tell_open(&entries);
        let mut originals = self.originals(&entries);
        for entry in &mut entries {
            if let ReadMessage::Assistant(exchanged) = entry {
                exchanged.set_declined_aside();
            }
        }
        let kept = originals.iter().step_by(2).map(Option::is_some);
        let calls = entries.iter_mut().zip(kept).filter_map(|(entry, is_kept)| {
            let ReadMessage::Assistant(exchanged) = entry else {
                return None;
            };
            Some((exchanged.calls.as_mut_slice(), is_kept))
        });
        if self.refuses(|of| !fits::meet_kept_ids(of, calls.collect())) {
            originals.clear();
        }
        let mut originals = originals.into_iter();
        let last = entries.len().saturating_sub(1);
        let mut places = Places::new();
        let mut entries = entries.into_iter().enumerate().peekable();
        while let Some((at, entry)) = entries.next() {
            let original = originals.next().flatten();
            let of_results = originals.next().flatten();
            match entry {
                ReadMessage::Other {
                    role: Role::System,
                    content,
                    metadata: None,
                } if at == 0 && context.log.system.is_none() => {
                    context.log.system = Some(system(content, original));
                }
                ReadMessage::Other {
                    role,
                    content,
                    metadata,
                } => {
                    if context.log.current.has_assistant() {
                        context.log.complete(defaults.at);
                    }
                    let message = Message::new(role, content, Box::default(), metadata);
                    context.log.append(message.with_original(original));
                }
                ReadMessage::Assistant(exchanged) => {
                    let is_last = at == last;
                    let has_calls = !exchanged.calls.is_empty();
                    let here = context.current();
                    let (iteration, message) = (here.number, here.entries().len());
                    let slots = exchanged.slots.iter().zip(&exchanged.calls).enumerate();
                    for (slot, (answer, call)) in slots {
                        if matches!(answer, Some(answer) if answer.status == Status::Waiting) {
                            let place = CallPlace {
                                iteration,
                                message,
                                call: slot,
                            };
                            places.insert((at, call.id.clone()), place);
                        }
                    }
                    self.append(&mut context, exchanged, is_last, original, of_results);
                    let is_awaited = |(_, next): &(usize, ReadMessage)| matches!(next, ReadMessage::Late(late) if late.awaited_by.is_some());
                    while let Some((_, late)) = entries.next_if(is_awaited) {
                        let original = originals.next().and(originals.next()).flatten();
                        append_late(&mut context, late, &places, original, defaults.at);
                    }
                    if has_calls && context.current().count_pending() == 0 {
                        context.log.complete(defaults.at);
                    }
                }
                late @ ReadMessage::Late(_) => {
                    if context.log.current.has_assistant() {
                        context.log.complete(defaults.at);
                    }
                    append_late(&mut context, late, &places, of_results, defaults.at);
                }
            }
        }
        let model = rest.get_named("model");
        if let Some(model) = model.filter(|model| model.as_str().is_some()) {
            note_model(&mut context, model);
        }
        let thinks = |entry: &Entry| entry.is_model() && Checking::any(&entry.message);
        let mut iterations = context.log.iterations();
        let first = iterations.find(|iteration| iteration.entries().any(thinks));
        let first = first.map(|iteration| iteration.number);
        drop(iterations);
        if let Some(number) = first {
            context.note_made_on(number);
        }
        self.repairs.sort_by_key(|repair| repair.message);
        Imported {
            context,
            repairs: self.repairs,
            rest,
        }
    }

    /// Returns the elements that each message and its results keep, in turn.
    fn originals(&mut self, entries: &[ReadMessage]) -> Vec<Option<Original>> {
        let mut elements = std::mem::take(&mut self.elements);
        let mut pairs = Vec::new();
        for (entry, exchanged) in entries.iter().enumerate() {
            let exchanged = match exchanged {
                ReadMessage::Assistant(exchanged) => exchanged,
                ReadMessage::Late(_) => continue,
                ReadMessage::Other { role, .. } => {
                    let is_last = entry + 1 == entries.len() && *role == Role::System;
                    if is_last && self.facts().has(Rule::SystemAfterUser) {
                        elements.change(message_number(entry));
                    }
                    continue;
                }
            };
            let (message, results) = (message_number(entry), results_number(entry));
            let lacks = |(call, slot): (&ToolCall, &Option<ReadResult>)| {
                slot.is_none() && !self.stays_open(call)
            };
            if exchanged.calls.iter().zip(&exchanged.slots).any(lacks) {
                elements.change(message);
                elements.change(results);
            }
            if !exchanged.calls.is_empty() {
                pairs.push((message, results));
            }
        }
        elements.finish(&pairs)
    }

    fn append(
        &mut self,
        context: &mut Context,
        mut exchanged: Exchanged,
        is_last: bool,
        original: Option<Original>,
        of_results: Option<Original>,
    ) {
        exchanged.name_calls(context);
        if !exchanged.more.is_empty() {
            let mut parts = into_parts(exchanged.content);
            parts.append(&mut exchanged.more);
            exchanged.content = Content::Parts(parts.into_boxed_slice());
        }
        let mut exchange = Exchange::new(exchanged.calls.len());
        let slots = exchanged.slots.into_iter().zip(&exchanged.calls);
        for (slot, (answer, call)) in slots.enumerate() {
            let outcome = match answer {
                Some(answer) if answer.status == Status::Waiting => {
                    Outcome::waiting(Wait::default())
                }
                Some(answer) => Outcome::new(answer.status, answer.output),
                None if self.stays_open(call) => Outcome::waiting(Wait::default()),
                None if is_last => continue,
                None => {
                    self.repairs.push(Repair {
                        kind: RepairKind::SynthesisedResult,
                        message: exchanged.element,
                        id: Some(call.id.clone()),
                        to: None,
                    });
                    let reason = Output::Value(Value::text(INTERRUPTED));
                    Outcome::new(Status::Interrupted, reason)
                }
            };
            exchange.fill(slot, outcome);
        }
        if !exchanged.notes.is_empty() {
            let notes = exchanged.notes.into_iter().flat_map(Map::into_entries);
            exchange.add_metadata(Some(Map::new(notes.collect())));
        }
        exchange.original = of_results;
        let (content, metadata) = (exchanged.content, exchanged.metadata);
        let calls = exchanged.calls.into_boxed_slice();
        let message = Message::new(Role::Assistant, content, calls, metadata);
        let message = message.with_original(original);
        context.log.append_answered(message, exchange);
    }
}

impl Listen for Importer {
    fn facts(&self) -> &'static Facts {
        self.provider.map_or(&CHAT, Provider::facts)
    }

    fn begin(&mut self, position: usize, element: &Value) {
        self.element = position;
        let written = self.written.elements.get_mut(position);
        let written = written.and_then(Option::take);
        self.elements.push(element, written);
        if fits::has_half(element) {
            self.mark_refused();
        }
    }

    fn prompt(&mut self, content: Content, json: Box<str>) {
        let written = self.written.prompt.take();
        let json = written.map_or(json, String::into_boxed_str);
        let original = self.provider.map(|provider| Original { provider, json });
        self.prompt = Some((content, original));
    }

    fn mark_cleaned(&mut self, position: usize) {
        if let Some(written) = self.written.elements.get_mut(position) {
            *written = None;
        }
    }

    fn mark_refused(&mut self) {
        self.elements.change_element(self.element);
    }

    /// The position of the element that is being read.
    fn element(&self) -> usize {
        self.element
    }

    /// Takes a system message. If it is the first of all messages, it is the system prompt.
    fn system(&mut self, content: Content, metadata: Option<Map>) {
        let rules = self.facts();
        let is_late = rules.has(Rule::SystemFirst) && !self.entries.is_empty();
        let follows_model = matches!(self.entries.last(), Some(ReadMessage::Assistant(_)));
        let is_refused = is_late || (rules.has(Rule::SystemAfterUser) && follows_model);
        if is_refused {
            self.mark_refused();
        }
        self.push(Role::System, content, metadata);
    }

    fn user(&mut self, content: Content, metadata: Option<Map>) {
        if content.count_parts() == 0 {
            return self.repair(RepairKind::DroppedEmptyMessage, None);
        }
        match content {
            Content::Text(text) if self.push_frame(&text) => {}
            Content::Parts(parts) if parts.iter().any(is_frame) => {
                let mut others = Vec::new();
                for part in parts {
                    if is_frame(&part) && !others.is_empty() {
                        let before = Content::Parts(std::mem::take(&mut others).into());
                        self.push(Role::User, before, metadata.clone());
                    }
                    match part.kind.text().filter(|_| is_frame(&part)) {
                        Some(text) if self.push_frame(text) => {}
                        _ => others.push(part),
                    }
                }
                if !others.is_empty() {
                    self.push(Role::User, Content::Parts(others.into()), metadata);
                }
            }
            content => self.push(Role::User, content, metadata),
        }
    }

    /// Takes a message with results and the user's other parts.
    fn user_turn(&mut self, answers: Vec<ReadResult>, parts: Vec<Part>) {
        let answered = !answers.is_empty();
        if answered && !parts.is_empty() && self.facts().has(Rule::ResultsStandAlone) {
            self.mark_refused();
        }
        for answer in answers {
            self.answer(answer);
        }
        if !parts.is_empty() || !answered {
            let content = if self.facts().has(Rule::ListsOnly) {
                plain_content(parts)
            } else {
                Content::Parts(parts.into_boxed_slice())
            };
            self.user(content, None);
        }
    }

    /// Takes a message of the model that these elements make.
    fn assistant_of(
        &mut self,
        elements: &[usize],
        content: Content,
        mut calls: Vec<ToolCall>,
        metadata: Option<Map>,
    ) {
        if calls.is_empty() && says_nothing(&content) {
            return self.repair(RepairKind::DroppedEmptyMessage, None);
        }
        let element = elements.first().copied().unwrap_or(self.element);
        self.tell_types(element, content.parts());
        let speaks = matches!(content, Content::Text(_))
            || content.parts().iter().any(|part| part.kind.is_text());
        let is_refused = self.refuses(|of| fits::message(of, &content, &calls));
        let repeats = self.repeats(&content);
        let rules = self.facts();
        let before = self.entries.len();
        match self.entries.last_mut() {
            // A second message of the turn whose calls wait: the results are for both messages.
            Some(ReadMessage::Assistant(last))
                if rules.has(Rule::MergesNeighbours)
                    && last.filled == 0
                    && !last.calls.is_empty() =>
            {
                let mut parts = into_parts(content);
                let known = last.content.count_parts() + last.more.len();
                if let (Some(provider), false) = (self.provider, parts.is_empty()) {
                    for call in &mut last.calls {
                        call.stand_at(call.parts_before().min(known), provider);
                    }
                    for call in &mut calls {
                        let before = call.parts_before();
                        if before < parts.len() {
                            call.stand_at(known + before, provider);
                        }
                    }
                }
                last.more.append(&mut parts);
            }
            _ => {
                if !calls.is_empty() {
                    self.latest = Latest {
                        entry: self.entries.len(),
                        ..Latest::default()
                    };
                }
                self.last = before;
                self.entries.push(ReadMessage::Assistant(Exchanged {
                    element,
                    content,
                    metadata,
                    ..Exchanged::default()
                }));
            }
        }
        let is_second = self.entries.len() == before;
        let entry = self.entries.len().saturating_sub(1);
        if rules.has(Rule::HasItems) && speaks {
            self.spoken = entry;
        }
        for element in elements {
            self.elements.claim(message_number(entry), *element);
        }
        if is_refused || repeats || (is_second && rules.has(Rule::RemakesMerged)) {
            self.elements.change(message_number(entry));
        }
        self.join(entry, calls);
    }

    /// Puts a result into the slot of its call: the last one before it that has its id.
    fn answer(&mut self, mut answer: ReadResult) {
        let id = answer.id.take().filter(|id| !id.is_empty());
        let known = id.as_ref().is_some_and(|id| self.by_id.contains_key(id));
        let found = match id.as_ref().and_then(|id| self.by_id.get_mut(id)) {
            Some(open) => open.next(&self.entries),
            None => self.find_unnamed(id.is_some(), answer.name.as_deref()),
        };
        let Some((entry, slot)) = found else {
            let kind = match known {
                true => RepairKind::DroppedDuplicateResult,
                false => RepairKind::DroppedOrphanResult,
            };
            return self.repair(kind, id.as_deref());
        };
        if entry < self.last && self.push_late(entry, slot, &mut answer) {
            return;
        }
        let last = self.last;
        let has_items = self.facts().has(Rule::HasItems);
        if has_items && entry < last && (entry >= self.spoken || self.may_be_late(entry, slot)) {
            // Calls of the model in between do not matter.
            let (from, to) = (results_number(entry), results_number(last));
            self.elements.join_range(from, to);
        } else if answer.moved || entry < last {
            self.repair(RepairKind::MovedResult, id.as_deref());
            self.elements.change(results_number(entry));
        }
        self.settle_ahead(entry, slot);
        self.elements.claim(results_number(entry), self.element);
        self.tell_types(self.element, answer.output.parts());
        let is_error = answer.status != Status::Ok;
        let is_refused = self.refuses(|of| fits::result(of, &answer.output, is_error))
            || self.repeats_file(answer.output.parts());
        let rules = self.facts();
        if let Some(ReadMessage::Assistant(exchanged)) = self.entries.get_mut(entry) {
            let in_one = *exchanged.answered.get_or_insert(self.element) == self.element;
            if is_refused || (rules.has(Rule::ResultsStandTogether) && !in_one) {
                self.elements.change(results_number(entry));
            }
            exchanged.notes.extend(answer.metadata.take());
            if let Some(place) = exchanged.slots.get_mut(slot) {
                *place = Some(answer);
                exchanged.filled += 1;
            }
        }
    }
}

/// Notes the model of a body with the requests that led to its answers. No later model is known.
fn note_model(context: &mut Context, model: &Value) {
    let answered = |iteration: &&Iteration| iteration.has_assistant();
    let number = context
        .log
        .iterations_back()
        .find(answered)
        .map(|last| last.number);
    let Some(number) = number else {
        return;
    };
    let model = (Value::text("model"), model.clone());
    let is_last = number == context.current_iteration();
    let fields = &mut context.inputs_mut().fields;
    fields.note(1, Value::Map(Map::new(vec![model])));
    if !is_last {
        fields.note(number.saturating_add(1), Value::Map(Map::default()));
    }
    context.weigh_view();
}

fn system(content: Content, original: Option<Original>) -> Arc<Message> {
    let message = Message::new(Role::System, content, Box::default(), None);
    Arc::new(message.with_original(original))
}

/// Returns whether a part has nothing but the frame of a late result.
fn is_frame(part: &Part) -> bool {
    let text = part
        .kind
        .text()
        .and_then(|text| std::str::from_utf8(text).ok());
    part.provider_metadata.is_none() && text.and_then(late::read_frame).is_some()
}

fn is_placeholder(output: &Output) -> bool {
    // Words about arguments that a person changed come before it.
    let is_said = |text: &[u8]| text.ends_with(PLACEHOLDER.as_bytes());
    match output {
        Output::Value(Value::Binary(text)) => is_said(text),
        Output::Value(_) => false,
        Output::Parts(parts) => match &**parts {
            [part] => part.kind.text().is_some_and(|text| is_said(text)),
            _ => false,
        },
    }
}

fn says_nothing(content: &Content) -> bool {
    let is_empty = |part: &Part| {
        part.kind.text().is_some_and(|text| text.is_empty()) && part.provider_metadata.is_none()
    };
    match content {
        Content::Text(text) => text.is_empty(),
        content => content.parts().iter().all(is_empty),
    }
}

#[derive(Debug)]
enum ReadMessage {
    Other {
        role: Role,
        content: Content,
        metadata: Option<Map>,
    },
    Assistant(Exchanged),
    Late(ReadLate),
}

/// A result that came later than other messages, for a call that waited.
#[derive(Debug)]
struct ReadLate {
    /// The entry and the id of the call.
    entry: usize,
    id: Box<str>,
    outcome: Outcome,
    /// The id of the call between which and whose own result it stands.
    awaited_by: Option<Box<str>>,
}

/// The places of calls whose results come late, by the entries and the ids.
type Places = HashMap<(usize, Box<str>), CallPlace>;

/// What stands in the slot of a call whose result comes late.
fn open_slot() -> ReadResult {
    ReadResult::new(None, None, Status::Waiting, Output::Value(Value::Nil))
}

/// Adds a late result behind what was said.
fn append_late(
    context: &mut Context,
    late: ReadMessage,
    places: &Places,
    original: Option<Original>,
    at: Time,
) {
    let ReadMessage::Late(late) = late else {
        return;
    };
    if let Some(place) = places.get(&(late.entry, late.id)) {
        let arrived = Arrived::new(at, Value::Nil, late.awaited_by);
        let outcome = late.outcome.with_late(Some(Late {
            wait: None,
            arrived: Some(arrived),
        }));
        context.log.append_arrival(*place, outcome.into(), original);
    }
}

/// A message of the model, with the results of its calls.
#[derive(Debug, Default)]
struct Exchanged {
    /// The first element of the message.
    element: usize,
    content: Content,
    /// Parts of later messages that are one turn with this one.
    more: Vec<Part>,
    metadata: Option<Map>,
    calls: Vec<ToolCall>,
    /// The number of calls with each id.
    uses: HashMap<Box<str>, usize>,
    slots: Vec<Option<ReadResult>>,
    filled: usize,
    /// The element of its first result.
    answered: Option<usize>,
    notes: Vec<Map>,
}

/// The calls with one id in the last message that has any.
#[derive(Debug, Default)]
struct SameId {
    entry: usize,
    slots: VecDeque<usize>,
}

impl SameId {
    /// Returns the first of the calls that has no result yet.
    fn next(&mut self, entries: &[ReadMessage]) -> Option<(usize, usize)> {
        let Some(ReadMessage::Assistant(exchanged)) = entries.get(self.entry) else {
            return None;
        };
        let slot = exchanged.first_waiting(&mut self.slots)?;
        Some((self.entry, slot))
    }
}

/// The calls without results of the last message that has any, for results without an id.
#[derive(Debug, Default)]
struct Latest {
    entry: usize,
    by_name: HashMap<Box<str>, VecDeque<usize>>,
    in_order: VecDeque<usize>,
    /// All calls before this slot have their result, or stay open.
    waiting: usize,
    /// Late results that were read behind the last result of one of its calls.
    ahead: usize,
}

impl Exchanged {
    /// Turns the calls of a model that declined into blocks, if they have no result: they are not run.
    fn set_declined_aside(&mut self) {
        let parts = self.content.parts().iter().chain(&self.more);
        let fallbacks = parts.enumerate().filter(|(_, part)| part.is_fallback());
        let Some((last, _)) = fallbacks.last() else {
            return;
        };
        let mut said = into_parts(std::mem::replace(&mut self.content, Content::None));
        said.append(&mut self.more);
        let calls = std::mem::take(&mut self.calls).into_iter();
        let mut calls = calls.zip(std::mem::take(&mut self.slots)).peekable();
        let (mut parts, mut aside) = (Vec::with_capacity(said.len()), Vec::new());
        for (index, part) in said.into_iter().enumerate() {
            while let Some((mut call, slot)) =
                calls.next_if(|(call, _)| call.parts_before() <= index)
            {
                if slot.is_none() && index <= last {
                    aside.push(declined_call(call));
                    continue;
                }
                call.put_parts_before(parts.len());
                self.calls.push(call);
                self.slots.push(slot);
            }
            if part.is_fallback() {
                parts.append(&mut aside);
            }
            parts.push(part);
        }
        for (mut call, slot) in calls {
            if call.parts_before() < usize::MAX {
                call.put_parts_before(parts.len());
            }
            self.calls.push(call);
            self.slots.push(slot);
        }
        self.content = Content::Parts(parts.into_boxed_slice());
    }

    /// Returns the first of these slots that has no result, and forgets those before it.
    fn first_waiting(&self, slots: &mut VecDeque<usize>) -> Option<usize> {
        let is_filled = |slot: &usize| !self.slots.get(*slot).is_some_and(Option::is_none);
        while slots.front().is_some_and(is_filled) {
            slots.pop_front();
        }
        slots.front().copied()
    }

    /// Gives ids to the calls that have none, as a context does.
    fn name_calls(&mut self, context: &Context) {
        let lead = context.log.system.is_some() && context.count_iterations() == 1;
        let place = context.log.current.count_messages() + usize::from(lead);
        let number = context.current_iteration();
        for (position, call) in self.calls.iter_mut().enumerate() {
            if call.id.is_empty() {
                let mut id = format!("call_{number}_{place}_{position}");
                while self.uses.contains_key(&*id) {
                    id.push('_');
                }
                call.id = id.into();
            }
        }
    }
}

/// Returns the number of a message. Its exchange has the next one.
const fn message_number(entry: usize) -> usize {
    2 * entry
}

const fn results_number(entry: usize) -> usize {
    2 * entry + 1
}
