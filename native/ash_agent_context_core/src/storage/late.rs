//! What is stored of calls that wait, beside their slots: results that have arrived and have no place yet, and calls that are
//! answered elsewhere or are gone.

use std::collections::HashSet;
use std::sync::Arc;

use crate::context::Context;
use crate::error::{index, Error};
use crate::log::late::{Arrived, CallPlace, Late, Wait};
use crate::log::message::{Outcome, Status};
use crate::log::waits::GoneCall;
use crate::log::Log;
use crate::storage::limits::NESTING;
use crate::storage::read_call::read_result;
use crate::storage::table::*;
use crate::storage::take::{at, fields, wrong, DocumentFields};
use crate::storage::trust::Trust;
use crate::storage::write;
use crate::value::builder::{Json, JsonObject};
use crate::value::node::Node;
use crate::value::{json, Value};

stored!(CallPlace, "the place of a call" {
    iteration: "iteration" Count,
    message: "message" Amount,
    call: "call" Amount,
});

stored!(Wait, "what a call waits for" {
    what: "for" Term,
    handle: "handle" Given<Text>,
    deadline: "deadline" Given<When>,
    question: "question" Given<Term>,
}, extra "one of :for, :handle, :deadline, :question");

stored!(Arrived, "how a result came" {
    at: "at" When,
    from: "from" Term,
    awaited_by: "awaited_by" Given<Text>,
}, extra "one of :at, :from, :awaited_by");

stored!(GoneCall, "a call that is gone" {
    id: "id" Text,
    handle: "handle" Given<Text>,
});

impl Late {
    pub(crate) fn write(&self, json: &mut JsonObject<'_>) {
        Given::<Of>::write(&self.wait, "waiting", json);
        Given::<Of>::write(&self.arrived, "arrived", json);
    }
}

/// A result that has no place yet.
struct StoredArrival(CallPlace, Arc<Outcome>);

/// By hand: its result has the form that a slot has.
impl Stored for StoredArrival {
    const EXPECTED: &'static str = "a result that has arrived";

    fn write(&self, json: &mut JsonObject<'_>) {
        Of::write(&self.0, "call", json);
        json.key("status").text(self.1.status.name());
        json.key("result")
            .object(|json| write::result(json, &self.1));
    }

    fn read(mut fields: DocumentFields<'_>) -> Result<Self, Error> {
        let trust = fields.form.trust();
        let place = Of::read(&mut fields, "call")?;
        let status = Given::<Plain>::read(&mut fields, "status")?;
        let status = status.and_then(|status| Status::from_name(&status));
        let status = status.filter(|status| *status != Status::Waiting);
        let status = status.ok_or_else(|| wrong("status", "how the call ended"))?;
        let outcome = fields.read("result", |node| read_result(status, node, trust))?;
        Ok(Self(place, Arc::new(outcome)))
    }
}

impl Context {
    /// Returns what a document says of calls that wait beside the messages; `None` for nothing.
    #[must_use]
    pub fn late_document(&self) -> Option<Value> {
        let mut json = Json::with_capacity(0);
        json.object(|json| LateHead::write(&self.log, json));
        let document = json::read(&json.into_bytes(), NESTING).ok()?;
        document.as_map()?.get_named("late").cloned()
    }
}

/// What a document says beside the messages.
pub(crate) struct LateHead {
    elsewhere: Vec<CallPlace>,
    arrivals: Vec<StoredArrival>,
    gone: Vec<GoneCall>,
}

impl LateHead {
    pub fn write(log: &Log, json: &mut JsonObject<'_>) {
        let waits = log.waits();
        if !waits.is_told() {
            return;
        }
        let elsewhere = waits.calls().filter(|note| note.is_elsewhere);
        let elsewhere: Vec<_> = elsewhere.map(|note| note.place).collect();
        let arrivals = waits.arrivals();
        let arrivals: Vec<_> = arrivals
            .map(|(place, outcome)| StoredArrival(*place, outcome.clone()))
            .collect();
        let gone: Vec<_> = waits.gone().cloned().collect();
        json.object("late", |json| {
            Each::<Of, false>::write(&elsewhere, "elsewhere", json);
            Each::<Of, false>::write(&arrivals, "arrivals", json);
            Each::<Of, false>::write(&gone, "gone", json);
        });
    }

    /// Reads it from a document in which a call waited.
    pub fn read(
        document: &mut DocumentFields<'_>,
        trust: Trust,
        is_late: bool,
    ) -> Result<Option<Self>, Error> {
        if !is_late && !document.has("late") {
            return Ok(None);
        }
        let late = document.read_given("late", |node: Node<'_>| {
            let mut fields = fields(node, "what is known of late results, a map", trust)?;
            Ok(Self {
                elsewhere: Each::<Of, false>::read(&mut fields, "elsewhere")?,
                arrivals: Each::<Of, false>::read(&mut fields, "arrivals")?,
                gone: Each::<Of, false>::read(&mut fields, "gone")?,
            })
        })?;
        Ok(Some(late.unwrap_or(Self {
            elsewhere: Vec::new(),
            arrivals: Vec::new(),
            gone: Vec::new(),
        })))
    }

    /// Puts it on a conversation whose iterations were read.
    pub fn put_on(self, log: &mut Log) -> Result<(), Error> {
        let mut met = HashSet::with_capacity(self.arrivals.len());
        let elsewhere = self.elsewhere.into_iter().collect::<HashSet<_>>();
        for (position, StoredArrival(place, _)) in self.arrivals.iter().enumerate() {
            if elsewhere.contains(place) || !log.is_unanswered(*place) || !met.insert(*place) {
                let error = Error::expected("a result of a call that waits, once");
                return at("arrivals", Err(error.within(index(position))));
            }
        }
        let arrivals = self.arrivals.into_iter();
        let arrivals = arrivals.map(|StoredArrival(place, outcome)| (place, outcome));
        log.waits_mut()
            .put(&elsewhere, arrivals.collect(), self.gone);
        Ok(())
    }
}
