//! Any BEAM value that can outlive its process.

pub mod builder;
pub mod cost;
pub(crate) mod difference;
pub(crate) mod digest;
pub mod escape;
pub mod fields;
pub mod json;
pub(crate) mod keys;
pub mod letters;
pub mod node;
pub mod numbers;
pub mod scan;
pub mod steps;
pub mod structs;
pub mod time;
pub mod unescape;
pub mod word;
pub mod wording;

use std::cmp::Ordering;
use std::iter::Sum;
use std::sync::Arc;

use num_bigint::BigInt;
use sha2::{Digest as _, Sha256};

/// Levels of nesting a [`Value`] may have. Readers of values from outside refuse more, so that
/// walks, comparisons and drops may recurse with the data.
pub const MAX_DEPTH: usize = 256;

/// The bytes of a BEAM binary: mostly UTF-8 text, but nobody promises that.
pub type Bytes = Box<[u8]>;

/// One term, owned.
///
/// `nil`, `true` and `false` have variants of their own; [`Value::Atom`] is every other atom.
/// Integers that fit 64 bits are always [`Value::Int`].
#[derive(Debug, Clone, Default)]
// With the variant's number in a word of its own, a value is moved in whole words. Otherwise it is moved from its second byte
// on, where a `bool` would stand, and the processor waits for each word to be written before it can be read so.
#[repr(u64)]
pub enum Value {
    /// The atom `nil`.
    #[default]
    Nil,
    /// The atoms `true` and `false`.
    Bool(bool),
    /// An integer of at most 64 bits.
    Int(i64),
    /// An integer beyond 64 bits.
    BigInt(Box<BigInt>),
    /// A float; `-0.0` and `0.0` are different values.
    Float(f64),
    /// An atom by its name; names are shared, because the same few stand everywhere.
    Atom(Arc<str>),
    /// A binary, UTF-8 or not.
    Binary(Bytes),
    /// A proper list.
    List(Box<[Value]>),
    /// A tuple.
    Tuple(Box<[Value]>),
    /// A map; structs are maps with the key `:__struct__`.
    Map(Map),
}

impl Value {
    /// Makes an atom; `nil`, `true` and `false` become their own variants.
    #[must_use]
    pub fn atom(name: &str) -> Self {
        match name {
            "nil" => Self::Nil,
            "true" => Self::Bool(true),
            "false" => Self::Bool(false),
            _ => Self::Atom(name.into()),
        }
    }

    /// Makes a binary of this text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::Binary(text.as_bytes().into())
    }

    /// Makes an integer, in the variant for its size.
    #[must_use]
    pub fn integer(integer: BigInt) -> Self {
        match i64::try_from(&integer) {
            Ok(small) => Self::Int(small),
            Err(_) => Self::BigInt(Box::new(integer)),
        }
    }

    /// Returns the name of an atom (also of `nil`, `true` and `false`), or the text of a UTF-8 binary.
    #[must_use]
    pub fn as_name(&self) -> Option<&str> {
        match self {
            Self::Nil => Some("nil"),
            Self::Bool(true) => Some("true"),
            Self::Bool(false) => Some("false"),
            Self::Atom(name) => Some(name),
            other => other.as_str(),
        }
    }

    /// Returns the text of a UTF-8 binary.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Binary(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    pub(crate) fn as_map(&self) -> Option<&Map> {
        match self {
            Self::Map(map) => Some(map),
            _ => None,
        }
    }

    pub(crate) fn as_list(&self) -> Option<&[Value]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// Returns an integer of 64 bits that is not negative.
    pub(crate) fn as_count(&self) -> Option<u64> {
        match self {
            Self::Int(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// Returns how much there is to walk and to copy.
    #[must_use]
    pub fn size(&self) -> Size {
        match self {
            Self::Binary(bytes) => Size::new(1, bytes.len()),
            Self::Atom(name) => Size::new(1, name.len()),
            // Copying one takes as long as copying a term for each 64 bytes.
            Self::BigInt(integer) => {
                let bytes = (integer.bits() / 8) as usize;
                Size::new(1 + bytes / 64, bytes)
            }
            Self::List(items) | Self::Tuple(items) => items
                .iter()
                .fold(Size::new(1, 0), |sum, item| sum.plus(item.size())),
            Self::Map(map) => map.size(),
            Self::Nil | Self::Bool(_) | Self::Int(_) | Self::Float(_) => Size::new(1, 0),
        }
    }

    /// Feeds a digest: the same bytes for equal values, others for all others. Digests are stored, so these bytes never
    /// change.
    pub(crate) fn feed(&self, digest: &mut Sha256) {
        // Containers are distinguished by their sizes.
        let mut put = |length: usize, bytes: &[u8]| {
            digest.update([self.rank()]);
            digest.update((length as u64).to_le_bytes());
            digest.update(bytes);
        };
        match self {
            Self::Nil => put(0, &[]),
            Self::Bool(flag) => put(usize::from(*flag), &[]),
            Self::Int(integer) => put(0, &integer.to_le_bytes()),
            Self::Float(float) => put(0, &float.to_bits().to_le_bytes()),
            Self::BigInt(integer) => {
                let bytes = integer.to_signed_bytes_le();
                put(bytes.len(), &bytes);
            }
            Self::Atom(name) => put(name.len(), name.as_bytes()),
            Self::Binary(bytes) => put(bytes.len(), bytes),
            Self::List(items) | Self::Tuple(items) => {
                put(items.len(), &[]);
                items.iter().for_each(|item| item.feed(digest));
            }
            Self::Map(map) => {
                put(map.len(), &[]);
                for (key, value) in map.iter() {
                    key.feed(digest);
                    value.feed(digest);
                }
            }
        }
    }

    /// Returns true if the value has more levels of lists, tuples and maps than this.
    #[must_use]
    pub fn is_deeper_than(&self, levels: usize) -> bool {
        let is_container = matches!(self, Self::List(_) | Self::Tuple(_) | Self::Map(_));
        let Some(levels) = levels.checked_sub(usize::from(is_container)) else {
            return true;
        };
        match self {
            Self::List(items) | Self::Tuple(items) => {
                items.iter().any(|item| item.is_deeper_than(levels))
            }
            Self::Map(map) => map
                .iter()
                .any(|(key, value)| key.is_deeper_than(levels) || value.is_deeper_than(levels)),
            _ => false,
        }
    }

    const ATOM: u8 = 5;
    const BINARY: u8 = 6;

    const fn rank(&self) -> u8 {
        match self {
            Self::Nil => 0,
            Self::Bool(_) => 1,
            Self::Int(_) => 2,
            Self::BigInt(_) => 3,
            Self::Float(_) => 4,
            Self::Atom(_) => Self::ATOM,
            Self::Binary(_) => Self::BINARY,
            Self::Tuple(_) => 7,
            Self::List(_) => 8,
            Self::Map(_) => 9,
        }
    }
}

impl Ord for Value {
    /// An order of our own, the same on every node and in every release: the BEAM's order of
    /// atom keys is not.
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            (Self::BigInt(a), Self::BigInt(b)) => a.cmp(b),
            (Self::Float(a), Self::Float(b)) => a.total_cmp(b),
            (Self::Atom(a), Self::Atom(b)) => a.cmp(b),
            (Self::Binary(a), Self::Binary(b)) => a.cmp(b),
            (Self::List(a), Self::List(b)) | (Self::Tuple(a), Self::Tuple(b)) => a.cmp(b),
            (Self::Map(a), Self::Map(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Value {}

/// A map, its entries sorted by key.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Map(Box<[(Value, Value)]>);

impl Map {
    /// Sorts the entries; of several with one key the last one counts.
    ///
    /// # Complexity
    /// O(n log n), O(n) when they are sorted already.
    #[must_use]
    pub fn new(mut entries: Vec<(Value, Value)>) -> Self {
        steps::count(entries.len());
        let is_sorted = entries
            .windows(2)
            .all(|pair| matches!(pair, [a, b] if a.0 < b.0));
        if !is_sorted {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            entries.reverse();
            entries.dedup_by(|later, earlier| later.0 == earlier.0);
            entries.reverse();
        }
        Self(entries.into_boxed_slice())
    }

    /// Returns the entries in the order of their keys.
    pub fn iter(&self) -> std::slice::Iter<'_, (Value, Value)> {
        self.0.iter()
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if it has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of a key.
    ///
    /// # Complexity
    /// O(log n)
    #[must_use]
    pub fn get(&self, key: &Value) -> Option<&Value> {
        let found = self.0.binary_search_by(|entry| entry.0.cmp(key)).ok()?;
        self.0.get(found).map(|entry| &entry.1)
    }

    /// Returns the value of a key that may be an atom or a string of this name; the atom goes first.
    #[must_use]
    pub fn get_named(&self, name: &str) -> Option<&Value> {
        self.get_atom(name).or_else(|| {
            self.search(|key| match key {
                Value::Binary(text) => (**text).cmp(name.as_bytes()),
                other => other.rank().cmp(&Value::BINARY),
            })
        })
    }

    fn search(&self, order: impl Fn(&Value) -> Ordering) -> Option<&Value> {
        let found = self.0.binary_search_by(|entry| order(&entry.0)).ok()?;
        self.0.get(found).map(|entry| &entry.1)
    }

    /// Returns the value of an atom key.
    #[must_use]
    pub fn get_atom(&self, name: &str) -> Option<&Value> {
        self.search(|key| match key {
            Value::Atom(atom) => (**atom).cmp(name),
            other => other.rank().cmp(&Value::ATOM),
        })
    }

    /// Returns the integer of at most 64 bits under an atom key.
    pub(crate) fn get_int(&self, name: &str) -> Option<i64> {
        match self.get_atom(name)? {
            Value::Int(integer) => Some(*integer),
            _ => None,
        }
    }

    /// Returns the map with one more entry, or with another value for a key it has.
    #[must_use]
    pub fn put(&self, key: Value, value: Value) -> Self {
        let mut entries = self.0.to_vec();
        match entries.binary_search_by(|entry| entry.0.cmp(&key)) {
            Ok(at) => {
                if let Some(entry) = entries.get_mut(at) {
                    entry.1 = value;
                }
            }
            Err(at) => entries.insert(at, (key, value)),
        }
        Self(entries.into_boxed_slice())
    }

    /// Returns how much there is to walk and to copy.
    #[must_use]
    pub fn size(&self) -> Size {
        self.iter().fold(Size::new(1, 0), |sum, (key, value)| {
            sum.plus(key.size()).plus(value.size())
        })
    }

    /// Returns the entries, to be taken apart.
    #[must_use]
    pub fn into_entries(self) -> Vec<(Value, Value)> {
        self.0.into_vec()
    }
}

/// An amount of data: terms to walk and bytes to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Number of terms.
    pub terms: usize,
    /// Bytes in binaries and names.
    pub bytes: usize,
}

impl Sum for Size {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::default(), Self::plus)
    }
}

impl Size {
    /// Makes an amount of so many terms and bytes.
    #[must_use]
    pub const fn new(terms: usize, bytes: usize) -> Self {
        Self { terms, bytes }
    }

    /// Returns the sum of two amounts.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            terms: self.terms.saturating_add(other.terms),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// Returns the amount without a part of it.
    #[must_use]
    pub const fn minus(self, part: Self) -> Self {
        Self {
            terms: self.terms.saturating_sub(part.terms),
            bytes: self.bytes.saturating_sub(part.bytes),
        }
    }
}
