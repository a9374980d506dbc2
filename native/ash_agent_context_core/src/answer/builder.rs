//! Values built from the events of a lexer: each one that may be the answer, with its repairs.

use std::mem;
use std::ops::Range;

use crate::answer::answer_type::AnswerType;
use crate::answer::issue::{Findings, Mend, MendKind};
use crate::answer::lexer::{Lexer, Sink};
use crate::answer::node::Kinds;
use crate::error::{index, Path};
use crate::value::{Map, Value};

/// So many ends within an answer are kept: reading it again up to one of them costs as much again.
pub(crate) const MOST_ENDS: usize = 8;

enum OpenValue {
    List(Vec<Value>),
    /// Its fields, the key of the next one, and where the last one ended.
    Object(Vec<(Value, Value)>, Value, usize),
}

/// A value that was read.
#[derive(Default)]
pub(crate) struct Candidate {
    pub value: Value,
    pub report: Findings,
    /// An object has a key twice.
    pub is_doubled: bool,
    /// The field whose name and colon are before it.
    pub field: Option<String>,
    /// Its bytes in the text.
    pub place: Range<usize>,
    /// The ends of the first objects in it that have more fields after them.
    pub ends: Vec<usize>,
}

/// A value that is being read, with its repairs so far.
#[derive(Default)]
struct OpenCandidate {
    frames: Vec<OpenValue>,
    text: Option<String>,
    scalar: Option<Value>,
    is_meant: bool,
    read: Candidate,
}

/// Reads a text that is cut into parts. Returns the lexer at its end, and the values that may be the answer.
pub(crate) fn build(answer: Option<&AnswerType>, parts: &[&str]) -> (Lexer, Vec<Candidate>) {
    let mut lexer = Lexer::default();
    let mut builder = Builder {
        answer,
        open: OpenCandidate::default(),
        found: Vec::new(),
    };
    for part in parts {
        lexer.feed(part, &mut builder);
    }
    (lexer, builder.found)
}

struct Builder<'t> {
    /// The type whose fields show which value is the answer; `None` takes every value for it.
    answer: Option<&'t AnswerType>,
    open: OpenCandidate,
    found: Vec<Candidate>,
}

impl Builder<'_> {
    fn path(&self) -> Path {
        let step = |frame: &OpenValue| match frame {
            OpenValue::List(items) => Some(index(items.len())),
            // Before its first key, an object has no place inside.
            OpenValue::Object(_, Value::Nil, _) => None,
            OpenValue::Object(_, key, _) => Some(key.clone()),
        };
        self.open.frames.iter().filter_map(step).collect()
    }
}

impl Sink for Builder<'_> {
    fn answer(&self) -> Option<&AnswerType> {
        self.answer
    }

    fn mean(&mut self, field: Option<&str>) {
        self.open.is_meant = true;
        self.open.read.field = field.map(str::to_owned);
    }

    fn begin(&mut self, kind: Kinds, at: usize) {
        if self.open.frames.is_empty() {
            self.open.read.place.start = at;
        }
        if kind == Kinds::STRING {
            self.open.text = Some(String::new());
        }
    }

    fn open(&mut self, is_list: bool) {
        self.open.frames.push(match is_list {
            true => OpenValue::List(Vec::new()),
            false => OpenValue::Object(Vec::new(), Value::Nil, 0),
        });
    }

    fn key(&mut self, key: &str) {
        if let Some(OpenValue::Object(entries, open, end)) = self.open.frames.last_mut() {
            *open = Value::text(key);
            let is_object = matches!(entries.last(), Some((_, Value::Map(_))));
            if is_object && self.open.read.ends.len() < MOST_ENDS {
                self.open.read.ends.push(*end);
            }
        }
    }

    fn text(&mut self, part: &str) {
        if let Some(text) = &mut self.open.text {
            text.push_str(part);
        }
    }

    fn scalar(&mut self, value: Value) {
        self.open.scalar = Some(value);
    }

    fn end(&mut self, at: usize) {
        let scalar = self.open.scalar.take();
        let scalar = scalar.or(self.open.text.take().map(|text| Value::text(&text)));
        let value = scalar.or_else(|| match self.open.frames.pop()? {
            OpenValue::List(items) => Some(Value::List(items.into())),
            OpenValue::Object(entries, ..) => {
                let given = entries.len();
                let map = Map::new(entries);
                self.open.read.is_doubled |= map.len() != given;
                Some(Value::Map(map))
            }
        });
        let Some(value) = value else { return };
        match self.open.frames.last_mut() {
            Some(OpenValue::List(items)) => items.push(value),
            Some(OpenValue::Object(entries, key, end)) => {
                entries.push((key.clone(), value));
                *end = at;
            }
            None => {
                let OpenCandidate { is_meant, read, .. } = mem::take(&mut self.open);
                if is_meant {
                    let place = read.place.start..at;
                    self.found.push(Candidate {
                        value,
                        place,
                        ..read
                    });
                }
            }
        }
    }

    fn mend(&mut self, kind: MendKind) {
        let is_open = !self.open.frames.is_empty() || self.found.is_empty();
        let path = self.path();
        let last = self.found.last_mut().map(|found| &mut found.report);
        let report = match last {
            Some(last) if !is_open => last,
            _ => &mut self.open.read.report,
        };
        let is_same = |mend: &Mend| mend.kind == kind && mend.path == path;
        if kind != MendKind::Prose || !report.mends.iter().any(is_same) {
            report.mend(&path, kind);
        }
    }

    fn abandon(&mut self) {
        self.open = OpenCandidate::default();
    }
}
