//! Reading maps whose known keys may be atoms or strings.

use crate::error::Error;
use crate::value::{Map, Value};

/// The entries of a map that is being taken apart.
#[derive(Default)]
pub(crate) struct Fields {
    entries: Vec<(Value, Value)>,
    pub keys: Keys,
}

/// The spelling of a map's keys, as far as one can tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Keys {
    #[default]
    Atoms,
    Strings,
}

impl Keys {
    /// Returns a known key in this spelling.
    pub fn spell(self, name: &str) -> Value {
        match self {
            Self::Atoms => Value::atom(name),
            Self::Strings => Value::text(name),
        }
    }
}

impl Fields {
    /// Returns the entries of a map; `None` for any other value.
    pub fn of(value: Value) -> Option<Self> {
        match value {
            Value::Map(map) => Some(Self {
                keys: match map.iter().next() {
                    Some((Value::Binary(_), _)) => Keys::Strings,
                    _ => Keys::Atoms,
                },
                entries: map.into_entries(),
            }),
            _ => None,
        }
    }

    /// Returns a known key as the map spells its keys.
    pub fn key(&self, name: &str) -> Value {
        self.keys.spell(name)
    }

    /// Takes the value of a known key out; of `:key` and `"key"` the atom goes first.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        let at = self.position(name)?;
        Some(self.entries.remove(at).1)
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.entries.iter().position(|(key, _)| match key {
            Value::Atom(atom) => &**atom == name,
            Value::Binary(text) => **text == *name.as_bytes(),
            _ => false,
        })
    }

    /// Returns true if there is a known key.
    pub fn has_key(&self, name: &str) -> bool {
        self.position(name).is_some()
    }

    /// Returns the value of a known key, to be changed in place.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        let found = |key: &Value| matches!(key, Value::Binary(text) if **text == *name.as_bytes());
        let entry = self.entries.iter_mut().find(|(key, _)| found(key));
        entry.map(|(_, value)| value)
    }

    /// Returns true if a known key has a value that is not `nil`.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns the value of a known key that is not `nil`.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let (_, value) = self.entries.get(self.position(name)?)?;
        (!matches!(value, Value::Nil)).then_some(value)
    }

    /// Like [`Fields::take`], but `nil` counts as missing.
    pub fn take_given(&mut self, name: &str) -> Option<Value> {
        self.take(name).filter(|value| !matches!(value, Value::Nil))
    }

    /// Takes a value that `read` accepts; any other stays.
    pub fn take_known<T>(&mut self, name: &str, read: impl Fn(&Value) -> Option<T>) -> Option<T> {
        let at = self.position(name)?;
        let known = self.entries.get(at).and_then(|(_, value)| read(value))?;
        self.entries.remove(at);
        Some(known)
    }

    /// Takes a map under a known key; `Err` if the value is something else.
    pub fn take_map(&mut self, name: &str) -> Result<Option<Map>, NotThat> {
        match self.take_given(name) {
            None => Ok(None),
            Some(Value::Map(map)) => Ok(Some(map)),
            Some(_) => Err(NotThat),
        }
    }

    /// Takes UTF-8 text under a known key.
    pub fn take_text(&mut self, name: &str) -> Result<Option<Box<str>>, NotThat> {
        self.take_given(name).map(utf8).transpose()
    }

    /// Returns the entries that nobody took.
    pub fn rest(self) -> Option<Map> {
        // Still sorted: taking entries out does not change their order.
        (!self.entries.is_empty()).then(|| Map::new(self.entries))
    }

    /// Returns the first key that nobody took.
    pub fn unknown(&self) -> Option<&Value> {
        self.entries.first().map(|(key, _)| key)
    }

    /// Returns an error if a key is left.
    pub fn finish(self, known: &'static str) -> Result<(), Error> {
        match self.entries.into_iter().next() {
            None => Ok(()),
            Some((key, _)) => Err(Error::invalid(vec![key], known)),
        }
    }
}

/// The value under a key has another type.
pub(crate) struct NotThat;

/// Returns the text of a UTF-8 binary.
pub(crate) fn utf8(value: Value) -> Result<Box<str>, NotThat> {
    match value {
        Value::Binary(bytes) => String::from_utf8(bytes.into_vec())
            .map(String::into_boxed_str)
            .map_err(|_| NotThat),
        _ => Err(NotThat),
    }
}
