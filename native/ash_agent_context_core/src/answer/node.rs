//! A place of a compiled schema, with the rules for its values.

use std::collections::HashMap;

use regex::Regex;

use crate::answer::formats::TextFormat;
use crate::value::{Map, Value};

/// The number of a node in its schema.
pub(crate) type NodeId = usize;

/// Kinds of JSON values, as a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kinds(u8);

impl Kinds {
    pub const NULL: Self = Self(1);
    pub const BOOLEAN: Self = Self(2);
    pub const INTEGER: Self = Self(4);
    /// Every integer is a number.
    pub const NUMBER: Self = Self(4 | 8);
    /// Numbers that are not integers.
    pub const FRACTION: Self = Self(8);
    pub const STRING: Self = Self(16);
    pub const ARRAY: Self = Self(32);
    pub const OBJECT: Self = Self(64);
    pub const NONE: Self = Self(0);
    /// All that have nothing inside.
    pub const PLAIN: Self = Self(31);
    pub const ANY: Self = Self(127);

    const NAMED: [(&'static str, Self, &'static str); 7] = [
        ("null", Self::NULL, "null"),
        ("boolean", Self::BOOLEAN, "true or false"),
        ("number", Self::NUMBER, "a number"),
        ("integer", Self::INTEGER, "an integer"),
        ("string", Self::STRING, "a string"),
        ("array", Self::ARRAY, "a list"),
        ("object", Self::OBJECT, "an object"),
    ];

    /// Returns the kinds of a name in a schema.
    pub fn from_name(name: &str) -> Option<Self> {
        let found = Self::NAMED.iter().find(|(known, _, _)| *known == name);
        found.map(|(_, kinds, _)| *kinds)
    }

    /// Returns the kind of a value. A float without a fraction is an integer, since JSON does not tell them apart.
    pub fn of(value: &Value) -> Self {
        match value {
            Value::Nil => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Int(_) | Value::BigInt(_) => Self::INTEGER,
            Value::Float(float) if float.fract() == 0.0 => Self::INTEGER,
            Value::Float(_) => Self::FRACTION,
            Value::List(_) | Value::Tuple(_) => Self::ARRAY,
            Value::Map(_) => Self::OBJECT,
            Value::Binary(_) | Value::Atom(_) => Self::STRING,
        }
    }

    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns their names in a schema. Numbers without integers have no name of their own.
    pub fn names(self) -> Vec<&'static str> {
        let all = match self.has(Self::FRACTION) {
            true => self.with(Self::NUMBER),
            false => self,
        };
        all.named().map(|(name, _)| name).collect()
    }

    /// Returns words for them that a model reads.
    pub fn words(self) -> String {
        let words: Vec<_> = self.named().map(|(_, word)| word).collect();
        match words.is_empty() {
            true => "a number".to_owned(),
            false => words.join(" or "),
        }
    }

    fn named(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let mut rest = self.0;
        Self::NAMED
            .into_iter()
            .filter_map(move |(name, kinds, word)| {
                let is_there = kinds.0 & rest == kinds.0;
                rest &= !(if is_there { kinds.0 } else { 0 });
                is_there.then_some((name, word))
            })
    }
}

/// Properties that an object may have besides those that its schema names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Others {
    #[default]
    Allowed,
    Refused,
    Of(NodeId),
}

/// A named property.
#[derive(Debug)]
pub(crate) struct Property {
    pub name: Box<str>,
    pub node: NodeId,
    pub is_required: bool,
}

/// The least and the greatest length of a text, a list or an object.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lengths {
    pub least: Option<usize>,
    pub most: Option<usize>,
}

/// The rules of a place.
#[derive(Debug, Default)]
pub(crate) struct SchemaNode {
    pub kinds: Option<Kinds>,
    pub choices: Option<Box<[Value]>>,
    pub properties: Vec<Property>,
    /// The positions of properties by their names.
    pub places: HashMap<Box<str>, usize>,
    /// The positions of properties by their names without case and separators; `None` where several share one.
    pub styles: HashMap<Box<str>, Option<usize>>,
    /// Required names that have no schema of their own.
    pub unnamed: Vec<Box<str>>,
    pub others: Others,
    pub items: Option<NodeId>,
    pub first_items: Vec<NodeId>,
    pub all_of: Vec<NodeId>,
    pub any_of: Vec<NodeId>,
    pub one_of: Vec<NodeId>,
    pub text: Lengths,
    pub list: Lengths,
    pub object: Lengths,
    pub is_unique: bool,
    pub pattern: Option<(Box<str>, Regex)>,
    pub format: Option<TextFormat>,
    pub minimum: Option<Value>,
    pub maximum: Option<Value>,
    pub above: Option<Value>,
    pub below: Option<Value>,
    pub multiple_of: Option<Value>,
}

impl SchemaNode {
    /// Returns the property of a name.
    pub fn property(&self, name: &str) -> Option<&Property> {
        self.places
            .get(name)
            .and_then(|at| self.properties.get(*at))
    }

    /// Returns the property whose name differs from this one in style alone.
    pub fn property_in_style(&self, name: &str) -> Option<&Property> {
        let at = self.styles.get(&*without_style(name)).copied().flatten()?;
        self.properties.get(at)
    }

    /// Returns the schemas that hold for the same value.
    pub fn in_place(&self) -> impl Iterator<Item = NodeId> + '_ {
        let all = self.all_of.iter().chain(&self.any_of).chain(&self.one_of);
        all.copied()
    }

    /// Returns true if an object or a list may be here.
    pub fn has_inside(&self) -> bool {
        let inside = Kinds::OBJECT.with(Kinds::ARRAY);
        self.kinds.is_none_or(|kinds| kinds.has(inside)) && self.choices.is_none()
    }

    /// Returns true if an object with a field of any name may be here.
    pub fn is_open(&self) -> bool {
        let may_be_object = self.kinds.is_none_or(|kinds| kinds.has(Kinds::OBJECT));
        let is_alone = self.in_place().next().is_none() && self.choices.is_none();
        may_be_object && is_alone && self.others != Others::Refused
    }

    /// Returns the schema of the element at a position.
    pub fn item(&self, at: usize) -> Option<NodeId> {
        self.first_items.get(at).copied().or(self.items)
    }
}

/// Returns whether a word is one of several, which have spaces between them.
pub(crate) fn has_word(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|known| known == word)
}

/// Returns a word without case and separators.
pub(crate) fn without_style(word: &str) -> String {
    word.chars()
        .filter(|letter| !matches!(letter, '_' | '-' | ' ' | '.'))
        .flat_map(char::to_lowercase)
        .collect()
}

/// Returns a value in which numbers that are equal in JSON are equal.
pub(crate) fn canonical(value: &Value) -> Value {
    match value {
        Value::Float(float) if float.fract() == 0.0 && float.abs() < 9.2e18 =>
        {
            #[allow(clippy::cast_possible_truncation)]
            Value::Int(*float as i64)
        }
        Value::List(items) => Value::List(items.iter().map(canonical).collect()),
        Value::Map(map) => {
            let entry = |(key, value): &(Value, Value)| (key.clone(), canonical(value));
            Value::Map(Map::new(map.iter().map(entry).collect()))
        }
        other => other.clone(),
    }
}
