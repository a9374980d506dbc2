//! The stored form of a struct as a table: one line for each field, with its name in the struct, its key in the document and
//! its kind, which decides how it is written and read, and what a missing field means. A new field is a new line.

use std::sync::Arc;

use crate::error::Error;
use crate::storage::tagged;
use crate::storage::take::{
    fields, read_name, read_number, read_size, read_text, DocumentFields, Form,
};
use crate::value::builder::{Json, JsonObject};
use crate::value::node::Node;
use crate::value::time::{self, Time};
use crate::value::word::Word;
use crate::value::{Map, Value};

/// A struct with a table.
pub(crate) trait Stored: Sized {
    /// A noun for errors about values that are not objects.
    const EXPECTED: &'static str;

    fn write(&self, json: &mut JsonObject<'_>);

    fn read(fields: DocumentFields<'_>) -> Result<Self, Error>;
}

/// Declares the table of a struct, in the order in which its fields are written. With `extra` it keeps fields of the stored
/// form that this version does not know; the text lists the known ones, for maps with others. Fields that are not stored are
/// those of the value after the dots.
macro_rules! stored {
    ($(#[$doc:meta])* $of:ty, $expected:literal {
        $($(#[$about:meta])* $field:ident: $key:literal $kind:ty,)*
    } $(, $extra:ident $known:literal)? $(.. $rest:expr)?) => {
        impl $crate::storage::table::Stored for $of {
            const EXPECTED: &'static str = $expected;

            fn write(&self, json: &mut $crate::value::builder::JsonObject<'_>) {
                use $crate::storage::table::Field;
                $(<$kind as Field<_>>::write(&self.$field, $key, json);)*
                $($crate::storage::table::unknown(json, self.$extra.as_ref());)?
            }

            #[allow(unused_mut)]
            fn read(mut fields: $crate::storage::take::DocumentFields<'_>) -> Result<Self, $crate::error::Error> {
                use $crate::storage::table::Field;
                Ok(Self {
                    $($field: <$kind as Field<_>>::read(&mut fields, $key)?,)*
                    $($extra: fields.finish($known)?,)?
                    $(..$rest)?
                })
            }
        }
    };
}
pub(crate) use stored;

/// Writes fields that this version does not know, as they came.
pub(crate) fn unknown(json: &mut JsonObject<'_>, fields: Option<&Map>) {
    for (key, value) in fields.into_iter().flat_map(Map::iter) {
        if let Some(key) = key.as_str() {
            json.key(key).value(&crate::value::json::AsJson(value));
        }
    }
}

/// A kind of value.
pub(crate) trait Kind<T> {
    fn put(value: &T, json: &mut Json);

    fn get(node: Node<'_>, form: Form) -> Result<T, Error>;
}

/// A kind of field: a value that is always there, or one that may be missing.
pub(crate) trait Field<T> {
    fn write(value: &T, key: &'static str, json: &mut JsonObject<'_>);

    fn read(fields: &mut DocumentFields<'_>, key: &'static str) -> Result<T, Error>;
}

impl<T, K: Kind<T>> Field<T> for K {
    fn write(value: &T, key: &'static str, json: &mut JsonObject<'_>) {
        K::put(value, json.key(key));
    }

    fn read(fields: &mut DocumentFields<'_>, key: &'static str) -> Result<T, Error> {
        let form = fields.form;
        fields.read(key, |node| K::get(node, form))
    }
}

/// A field that may be missing.
pub(crate) struct Given<K>(K);

impl<T, K: Kind<T>> Field<Option<T>> for Given<K> {
    fn write(value: &Option<T>, key: &'static str, json: &mut JsonObject<'_>) {
        if let Some(value) = value {
            K::write(value, key, json);
        }
    }

    fn read(fields: &mut DocumentFields<'_>, key: &'static str) -> Result<Option<T>, Error> {
        let form = fields.form;
        fields.read_given(key, |node| K::get(node, form))
    }
}

/// An amount that is zero if it is missing; with `ALWAYS`, zero is written as well.
pub(crate) struct AmountOrZero<const ALWAYS: bool>;

impl<const ALWAYS: bool> Field<usize> for AmountOrZero<ALWAYS> {
    fn write(value: &usize, key: &'static str, json: &mut JsonObject<'_>) {
        if ALWAYS || *value > 0 {
            Amount::write(value, key, json);
        }
    }

    fn read(fields: &mut DocumentFields<'_>, key: &'static str) -> Result<usize, Error> {
        Given::<Amount>::read(fields, key).map(Option::unwrap_or_default)
    }
}

/// Tokens that earlier releases did not note, and that are not written if there are none.
pub(crate) struct LaterCount;

impl Field<u64> for LaterCount {
    fn write(value: &u64, key: &'static str, json: &mut JsonObject<'_>) {
        if *value > 0 {
            Count::write(value, key, json);
        }
    }

    fn read(fields: &mut DocumentFields<'_>, key: &'static str) -> Result<u64, Error> {
        match fields.has(key) {
            true => Count::read(fields, key),
            false => Ok(0),
        }
    }
}

/// A flag of which only `true` is written; any value of it counts as that.
pub(crate) struct Mark;

impl Field<bool> for Mark {
    fn write(value: &bool, key: &'static str, json: &mut JsonObject<'_>) {
        if *value {
            Flag::write(value, key, json);
        }
    }

    fn read(fields: &mut DocumentFields<'_>, key: &'static str) -> Result<bool, Error> {
        Ok(fields.take_given(key).is_some())
    }
}

/// A list that may be missing if it is empty; with `ALWAYS`, an empty one is written as well.
pub(crate) struct Each<K, const ALWAYS: bool>(K);

impl<T, K: Kind<T>, const ALWAYS: bool> Field<Vec<T>> for Each<K, ALWAYS> {
    fn write(value: &Vec<T>, key: &'static str, json: &mut JsonObject<'_>) {
        if ALWAYS || !value.is_empty() {
            json.key(key).list(value, |json, one| K::put(one, json));
        }
    }

    fn read(fields: &mut DocumentFields<'_>, key: &'static str) -> Result<Vec<T>, Error> {
        let form = fields.form;
        fields.read_each(key, |node| K::get(node, form))
    }
}

impl<T, K: Kind<T>, const ALWAYS: bool> Field<Arc<[T]>> for Each<K, ALWAYS> {
    fn write(value: &Arc<[T]>, key: &'static str, json: &mut JsonObject<'_>) {
        if ALWAYS || !value.is_empty() {
            let json = json.key(key);
            json.list(value.iter(), |json, one| K::put(one, json));
        }
    }

    fn read(fields: &mut DocumentFields<'_>, key: &'static str) -> Result<Arc<[T]>, Error> {
        <Self as Field<Vec<T>>>::read(fields, key).map(Arc::from)
    }
}

/// A struct that has a table.
pub(crate) struct Of;

impl<T: Stored> Kind<T> for Of {
    fn put(value: &T, json: &mut Json) {
        json.object(|json| value.write(json));
    }

    fn get(node: Node<'_>, form: Form) -> Result<T, Error> {
        T::read(fields(node, T::EXPECTED, form)?)
    }
}

/// A value behind an `Arc`.
pub(crate) struct Shared<K>(K);

impl<T, K: Kind<T>> Kind<Arc<T>> for Shared<K> {
    fn put(value: &Arc<T>, json: &mut Json) {
        K::put(value, json);
    }

    fn get(node: Node<'_>, form: Form) -> Result<Arc<T>, Error> {
        K::get(node, form).map(Arc::new)
    }
}

/// Declares kinds, each with a function that writes a value and one that reads it.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident($of:ty): $put:expr, $get:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $kind;

        impl Kind<$of> for $kind {
            fn put(value: &$of, json: &mut Json) {
                let put: fn(&mut Json, &$of) = $put;
                put(json, value);
            }

            fn get(node: Node<'_>, form: Form) -> Result<$of, Error> {
                let get: fn(Node<'_>, Form) -> Result<$of, Error> = $get;
                get(node, form)
            }
        }
    )*};
}
pub(crate) use kinds;

kinds! {
    Text(Box<str>): |json, text| tagged::text(json, text.as_bytes()), |node, _| read_name(node);
    /// The id of a conversation.
    Id(Box<str>): |json, id| tagged::text(json, id.as_bytes()), |node, form| form.read_id(node);
    /// Text without tags.
    Plain(Box<str>): |json, text| tagged::text(json, text.as_bytes()), |node, _| read_text(node);
    /// The digest that an approval is bound to.
    Digest(Box<str>): |json, digest| tagged::text(json, digest.as_bytes()), |node, _| {
        node.into_text().map_err(|_| Error::expected("the digest of what was approved"))
    };
    /// Tokens.
    Count(u64): |json, count| json.value(count), |node, _| {
        node.as_count().ok_or_else(|| Error::expected("a number of tokens"))
    };
    /// The number of an iteration.
    Number(u64): |json, number| json.value(number), |node, _| read_number(node);
    Amount(usize): |json, size| json.value(size), |node, _| read_size(node);
    Flag(bool): |json, flag| json.value(flag), |node, _| match node {
        Node::Value(Value::Bool(flag)) => Ok(flag),
        _ => Err(Error::expected("true or false")),
    };
    When(Time): |json, at| json.text(&time::to_text(*at)), |node, form| form.read_time(&node);
    Term(Value): tagged::value, |node, form| form.read_term(node);
    Terms(Map): |json, map| tagged::entries(json, map), |node, form| match form.read_term(node)? {
        Value::Map(map) => Ok(map),
        _ => Err(Error::expected("a map")),
    };
    /// Arguments that somebody was asked about.
    Seen(Value): tagged::value, |node, form| match form.read_term(node)? {
        map @ Value::Map(_) => Ok(map),
        _ => Err(Error::expected("the arguments that were shown, a map")),
    };
    /// The arguments that a person wrote.
    Edited(Value): tagged::value, |node, form| match form.read_term(node)? {
        edited @ (Value::Map(_) | Value::Binary(_)) => Ok(edited),
        _ => Err(Error::expected("the arguments that a person wrote, a map or a text")),
    };
    /// The reason why a message broke off.
    Broken(Value): |json, reason| json.object(|json| tagged::value(json.key("reason"), reason)), |node, form| {
        let mut fields = fields(node, "why the message broke off", form)?;
        fields.read("reason", |reason| form.read_term(reason))
    };
    /// A text in an object of its own.
    Words(Box<str>): |json, words| json.object(|json| Text::write(words, "text", json)), |node, form| {
        Text::read(&mut fields(node, "a map with a text", form)?, "text")
    };
}

/// A word that is stored.
pub(crate) trait StoredWord: Word {
    /// A noun for errors about other words.
    const EXPECTED: &'static str;
}

/// A value of a [`Word`], stored under its name.
pub(crate) struct OneOf;

impl<T: StoredWord> Kind<T> for OneOf {
    fn put(word: &T, json: &mut Json) {
        json.text(word.word());
    }

    fn get(node: Node<'_>, _form: Form) -> Result<T, Error> {
        let word = node.as_str().and_then(T::from_word);
        word.ok_or_else(|| Error::expected(T::EXPECTED))
    }
}
