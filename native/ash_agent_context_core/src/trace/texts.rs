//! Texts that are written once, however often they are said.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

use crate::value::builder::Json;

/// Texts up to here stand where they are said.
const SHORT: usize = 40;

/// The long texts of a trace, in the order in which they are met.
#[derive(Default)]
pub(super) struct Texts {
    places: HashMap<Rc<str>, usize>,
    texts: Vec<Rc<str>>,
}

impl Texts {
    /// Writes a text: itself, or the number of a long one.
    pub fn write(&mut self, json: &mut Json, text: Cow<'_, str>) {
        match self.number(&text) {
            None => json.text(&text),
            Some(number) => json.value(&number),
        }
    }

    fn number(&mut self, text: &str) -> Option<usize> {
        if text.len() <= SHORT {
            return None;
        }
        if let Some(number) = self.find(text) {
            return Some(number);
        }
        let text: Rc<str> = text.into();
        self.places.insert(text.clone(), self.texts.len());
        self.texts.push(text);
        Some(self.texts.len() - 1)
    }

    /// The number of a text that was met.
    pub fn find(&self, text: &str) -> Option<usize> {
        self.places.get(text).copied()
    }

    /// All of them as a list.
    pub fn finish(self, json: &mut Json) {
        json.list(self.texts, |json, text| json.text(&text));
    }
}
