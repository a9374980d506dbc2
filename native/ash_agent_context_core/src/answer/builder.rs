//! Values made of what a lexer reads: each of them that may be an answer, and what was repaired in it.

use std::mem;

use crate::answer::answer_type::AnswerType;
use crate::answer::issue::{Findings, Mend, MendKind};
use crate::answer::lexer::Sink;
use crate::answer::node::Kinds;
use crate::error::{index, Path};
use crate::value::{Map, Value};

enum OpenValue {
    List(Vec<Value>),
    Object(Vec<(Value, Value)>, Value),
}

/// A value that was read.
pub(crate) struct Candidate {
    pub value: Value,
    pub report: Findings,
    /// An object has a key twice.
    pub is_doubled: bool,
}

/// The values of a text.
pub(crate) struct Builder<'t> {
    answer: &'t AnswerType,
    frames: Vec<OpenValue>,
    text: Option<String>,
    value: Option<Value>,
    report: Findings,
    is_meant: bool,
    is_doubled: bool,
    /// Those that may be the answer.
    pub found: Vec<Candidate>,
    /// Something began that may have been the answer, and is not JSON.
    pub is_broken: bool,
}

impl<'t> Builder<'t> {
    pub fn new(answer: &'t AnswerType) -> Self {
        Self {
            answer,
            frames: Vec::new(),
            text: None,
            value: None,
            report: Findings::default(),
            is_meant: answer.is_named(""),
            is_doubled: false,
            found: Vec::new(),
            is_broken: false,
        }
    }

    /// Takes every value for the answer.
    pub fn of_all(answer: &'t AnswerType) -> Self {
        let mut builder = Self::new(answer);
        builder.is_meant = true;
        builder
    }

    /// Returns whether what is open may be the answer.
    pub fn is_meant(&self) -> bool {
        self.is_meant
    }

    fn path(&self) -> Path {
        let step = |frame: &OpenValue| match frame {
            OpenValue::List(items) => index(items.len()),
            OpenValue::Object(_, key) => key.clone(),
        };
        self.frames.iter().map(step).collect()
    }

    fn begin_candidate(&mut self) {
        self.frames.clear();
        self.text = None;
        self.value = None;
        self.report = Findings::default();
        self.is_doubled = false;
        self.is_meant = self.answer.is_named("");
    }
}

impl Sink for Builder<'_> {
    fn begin(&mut self, kind: Kinds, _at: usize) {
        if kind == Kinds::STRING {
            self.text = Some(String::new());
        }
    }

    fn open(&mut self, is_list: bool) {
        self.frames.push(if is_list {
            OpenValue::List(Vec::new())
        } else {
            OpenValue::Object(Vec::new(), Value::Nil)
        });
    }

    fn key(&mut self, key: &str) {
        self.is_meant |= self.frames.len() <= 2 && self.answer.is_named(key);
        if let Some(OpenValue::Object(_, open)) = self.frames.last_mut() {
            *open = Value::text(key);
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

    fn end(&mut self, _at: usize) {
        let scalar = self.value.take();
        let scalar = scalar.or(self.text.take().map(|text| Value::text(&text)));
        let value = scalar.or_else(|| match self.frames.pop()? {
            OpenValue::List(items) => Some(Value::List(items.into())),
            OpenValue::Object(entries, _) => {
                let given = entries.len();
                let map = Map::new(entries);
                self.is_doubled |= map.len() != given;
                Some(Value::Map(map))
            }
        });
        let Some(value) = value else { return };
        match self.frames.last_mut() {
            Some(OpenValue::List(items)) => items.push(value),
            Some(OpenValue::Object(entries, key)) => entries.push((key.clone(), value)),
            None => {
                if self.is_meant {
                    self.found.push(Candidate {
                        value,
                        report: mem::take(&mut self.report),
                        is_doubled: self.is_doubled,
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
        self.is_broken |= self.is_meant && !self.frames.is_empty();
        self.begin_candidate();
    }
}
