//! The long texts of a page, each written once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

use crate::value::builder::Json;

/// The longest text that is written in place, in bytes.
const SHORT: usize = 40;

/// The long texts of a trace, in the order of their first use.
#[derive(Default)]
pub(super) struct Texts {
    places: HashMap<Rc<str>, usize>,
    texts: Vec<Rc<str>>,
}

impl Texts {
    /// Writes a text in place, or the number of a long one.
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

    /// Returns the number of a text that is in the list.
    pub fn find(&self, text: &str) -> Option<usize> {
        self.places.get(text).copied()
    }

    /// Writes all texts as a list.
    pub fn finish(self, json: &mut Json) {
        json.list(self.texts, |json, text| json.text(&text));
    }
}
