//! Builds arguments that come as values for paths, such as `$.steps[2].name`.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::fault::Fault;
use crate::provider::block::ArgumentPiece;
use crate::provider::node::DEPTH;
use crate::value::json::AsJson;
use crate::value::letters;
use crate::value::Value;

/// A value that is being built.
#[derive(Debug, Default)]
enum Tree<'p> {
    #[default]
    Nothing,
    Text(Vec<u8>),
    Value(Value),
    List(Vec<Tree<'p>>),
    Keys(OrderedKeys<'p>),
}

/// The keys of an object, in the order in which they came.
#[derive(Debug, Default)]
struct OrderedKeys<'p> {
    entries: Vec<(&'p str, Tree<'p>)>,
    places: HashMap<&'p str, usize>,
}

/// A step of a path.
#[derive(Debug, PartialEq)]
enum Hop<'a> {
    Key(&'a str),
    Index(usize),
}

/// Returns the JSON text of the arguments that the pieces make. Texts for one path are joined; an index beyond the end of its
/// list means the end.
///
/// # Errors
/// [`Fault::TooDeep`], [`Fault::Unreadable`] for something that is not a path.
///
/// # Complexity
/// O(n), times the depth of the paths
pub(super) fn assemble(pieces: &[Arc<ArgumentPiece>]) -> Result<String, Fault> {
    let mut root = Tree::Keys(OrderedKeys::default());
    for piece in pieces {
        let mut place = &mut root;
        for step in steps(&piece.path)? {
            place = place.at(&step)?;
        }
        place.put(&piece.value);
    }
    Ok(crate::value::json::to_string(&root))
}

impl<'p> Tree<'p> {
    fn at(&mut self, step: &Hop<'p>) -> Result<&mut Self, Fault> {
        if matches!(self, Self::Nothing) {
            *self = match step {
                Hop::Key(_) => Self::Keys(OrderedKeys::default()),
                Hop::Index(_) => Self::List(Vec::new()),
            };
        }
        let place = match (self, step) {
            (Self::Keys(object), Hop::Key(key)) => {
                let next = object.entries.len();
                let place = *object.places.entry(key).or_insert(next);
                if place == next {
                    object.entries.push((key, Self::Nothing));
                }
                object.entries.get_mut(place).map(|(_, value)| value)
            }
            (Self::List(items), Hop::Index(index)) => {
                if *index >= items.len() {
                    items.push(Self::Nothing);
                }
                let last = items.len().saturating_sub(1);
                items.get_mut((*index).min(last))
            }
            (_, Hop::Key(_)) => return Err(Fault::unreadable("a key of what is not an object")),
            (_, Hop::Index(_)) => return Err(Fault::unreadable("an index of what is not a list")),
        };
        place.ok_or_else(|| Fault::unreadable("a place that is not there"))
    }

    fn put(&mut self, value: &Value) {
        match (self, value) {
            (Self::Text(text), Value::Binary(more)) => text.extend_from_slice(more),
            (place, Value::Binary(text)) => *place = Self::Text(text.to_vec()),
            (place, other) => *place = Self::Value(other.clone()),
        }
    }
}

/// Splits `$.a["b"][0]` into its steps.
fn steps(path: &str) -> Result<Vec<Hop<'_>>, Fault> {
    let wrong = || Fault::unreadable("the path of an argument");
    let mut rest = path.strip_prefix('$').ok_or_else(wrong)?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if steps.len() >= DEPTH {
            return Err(Fault::TooDeep { limit: DEPTH });
        }
        let step = if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (key, after) = after.split_at(end);
            rest = after;
            Hop::Key(key)
        } else {
            let after = rest.strip_prefix('[').ok_or_else(wrong)?;
            let quote = after
                .chars()
                .next()
                .filter(|quote| matches!(quote, '\'' | '"'));
            if let Some(quote) = quote {
                let (key, after) = after
                    .get(1..)
                    .and_then(|after| after.split_once(quote))
                    .ok_or_else(wrong)?;
                rest = after.strip_prefix(']').ok_or_else(wrong)?;
                Hop::Key(key)
            } else {
                let (index, after) = after.split_once(']').ok_or_else(wrong)?;
                rest = after;
                Hop::Index(index.parse().map_err(|_| wrong())?)
            }
        };
        steps.push(step);
    }
    Ok(steps)
}

impl Serialize for Tree<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nothing => serializer.serialize_unit(),
            Self::Text(text) => serializer.serialize_str(&letters::utf8(text)),
            Self::Value(value) => AsJson(value).serialize(serializer),
            Self::List(items) => serializer.collect_seq(items),
            Self::Keys(object) => {
                serializer.collect_map(object.entries.iter().map(|(key, value)| (key, value)))
            }
        }
    }
}
