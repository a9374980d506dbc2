//! Values made of what a lexer reads: each of them that may be an answer, and what was repaired in it.

use std::mem;
use std::ops::Range;

use crate::answer::answer_type::AnswerType;
use crate::answer::issue::{Findings, Mend, MendKind};
use crate::answer::lexer::Sink;
use crate::answer::node::Kinds;
use crate::error::{index, Path};
use crate::value::{Map, Value};

/// Ends within an answer that are kept: to read it without one of them costs as much again.
pub(crate) const MOST_ENDS: usize = 8;

enum OpenValue {
    List(Vec<Value>),
    /// Its fields, the key of the next one, and where the last one ended.
    Object(Vec<(Value, Value)>, Value, usize),
}

/// A value that was read.
pub(crate) struct Candidate {
    pub value: Value,
    pub report: Findings,
    /// An object has a key twice.
    pub is_doubled: bool,
    /// The field whose name and colon are before it.
    pub field: Option<String>,
    /// Where it is in the text.
    pub place: Range<usize>,
    /// Where the first objects in it end that have more fields after them.
    pub ends: Vec<usize>,
}

/// The values of a text.
pub(crate) struct Builder<'t> {
    answer: &'t AnswerType,
    frames: Vec<OpenValue>,
    text: Option<String>,
    value: Option<Value>,
    report: Findings,
    is_meant: bool,
    field: Option<String>,
    takes_all: bool,
    is_doubled: bool,
    start: usize,
    ends: Vec<usize>,
    /// Those that may be the answer.
    pub found: Vec<Candidate>,
}

impl<'t> Builder<'t> {
    pub fn new(answer: &'t AnswerType) -> Self {
        Self {
            answer,
            frames: Vec::new(),
            text: None,
            value: None,
            report: Findings::default(),
            is_meant: false,
            field: None,
            takes_all: false,
            is_doubled: false,
            start: 0,
            ends: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Takes every value for the answer.
    pub fn of_all(answer: &'t AnswerType) -> Self {
        let mut builder = Self::new(answer);
        builder.takes_all = true;
        builder
    }

    fn path(&self) -> Path {
        let step = |frame: &OpenValue| match frame {
            OpenValue::List(items) => Some(index(items.len())),
            // Before its first key, an object has no place inside.
            OpenValue::Object(_, Value::Nil, _) => None,
            OpenValue::Object(_, key, _) => Some(key.clone()),
        };
        self.frames.iter().filter_map(step).collect()
    }

    fn begin_candidate(&mut self) {
        self.frames.clear();
        self.text = None;
        self.value = None;
        self.report = Findings::default();
        self.is_doubled = false;
        self.ends.clear();
        self.is_meant = false;
    }
}

impl Sink for Builder<'_> {
    fn answer(&self) -> Option<&AnswerType> {
        (!self.takes_all).then_some(self.answer)
    }

    fn mean(&mut self, field: Option<&str>) {
        self.is_meant = true;
        self.field = field.map(str::to_owned);
    }

    fn begin(&mut self, kind: Kinds, at: usize) {
        if self.frames.is_empty() {
            self.start = at;
        }
        if kind == Kinds::STRING {
            self.text = Some(String::new());
        }
    }

    fn open(&mut self, is_list: bool) {
        self.frames.push(if is_list {
            OpenValue::List(Vec::new())
        } else {
            OpenValue::Object(Vec::new(), Value::Nil, 0)
        });
    }

    fn key(&mut self, key: &str) {
        if let Some(OpenValue::Object(entries, open, end)) = self.frames.last_mut() {
            *open = Value::text(key);
            let is_object = matches!(entries.last(), Some((_, Value::Map(_))));
            if is_object && self.ends.len() < MOST_ENDS {
                self.ends.push(*end);
            }
        }
    }

    fn text(&mut self, part: &str) {
        if let Some(text) = &mut self.text {
            text.push_str(part);
        }
    }

    fn scalar(&mut self, value: Value) {
        self.value = Some(value);
    }

    fn end(&mut self, at: usize) {
        let scalar = self.value.take();
        let scalar = scalar.or(self.text.take().map(|text| Value::text(&text)));
        let value = scalar.or_else(|| match self.frames.pop()? {
            OpenValue::List(items) => Some(Value::List(items.into())),
            OpenValue::Object(entries, ..) => {
                let given = entries.len();
                let map = Map::new(entries);
                self.is_doubled |= map.len() != given;
                Some(Value::Map(map))
            }
        });
        let Some(value) = value else { return };
        match self.frames.last_mut() {
            Some(OpenValue::List(items)) => items.push(value),
            Some(OpenValue::Object(entries, key, end)) => {
                entries.push((key.clone(), value));
                *end = at;
            }
            None => {
                if self.is_meant {
                    self.found.push(Candidate {
                        value,
                        report: mem::take(&mut self.report),
                        is_doubled: self.is_doubled,
                        field: self.field.take(),
                        place: self.start..at,
                        ends: mem::take(&mut self.ends),
                    });
                }
                self.begin_candidate();
            }
        }
    }

    fn mend(&mut self, kind: MendKind) {
        let is_open = !self.frames.is_empty() || self.found.is_empty();
        let path = self.path();
        let last = self.found.last_mut().map(|found| &mut found.report);
        let report = match last {
            Some(last) if !is_open => last,
            _ => &mut self.report,
        };
        let is_told = kind == MendKind::Prose
            && report.mends.contains(&Mend {
                path: path.clone(),
                kind,
            });
        if !is_told {
            report.mend(&path, kind);
        }
    }

    fn abandon(&mut self) {
        self.begin_candidate();
    }
}
