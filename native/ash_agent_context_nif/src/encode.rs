//! Writes values as terms. No atom is made: a name that the VM does not know becomes an `UnknownAtom`.

use std::cell::RefCell;

use ash_agent_context_core::{Context, Map, Value};
use rustler::types::tuple::make_tuple;
use rustler::{Atom, Encoder as _, Env, NewBinary, Term};
use smallvec::SmallVec;

use crate::atoms;
use crate::big;
use crate::enif::{self, Terms};
use crate::resource::Handle;

/// From this size on, text leaves as a binary that points into the context: below it, a copy is
/// smaller than the pointer (and the VM keeps such binaries on the process heap).
pub const SHARED: usize = 64;

/// Encodes a value that lives nowhere but here.
pub fn value<'e>(env: Env<'e>, value: &Value) -> Term<'e> {
    Encoder::new(env, None).value(value)
}

/// Returns the atom for a word of the core, which no text from outside can add to.
pub fn word<'a>(env: Env<'a>, word: &'static str) -> Term<'a> {
    Atom::from_str(env, word).map_or_else(|_| atoms::error().encode(env), |atom| atom.encode(env))
}

/// Returns a map with more entries.
pub fn with<'a, K: rustler::Encoder>(
    map: Term<'a>,
    entries: impl Iterator<Item = (K, Term<'a>)>,
) -> Term<'a> {
    let put = |map: Term<'a>, (key, value): (K, Term<'a>)| map.map_put(key, value).unwrap_or(map);
    entries.fold(map, put)
}

/// A value that becomes a term.
pub trait ToTerm {
    fn to_term<'a>(&self, env: Env<'a>) -> Term<'a>;

    /// Writes it as a field of a map.
    fn put(&self, key: Atom, fields: &mut FieldTerms<'_>) {
        fields.put(key, self);
    }
}

/// A list, tuple or map whose elements are being encoded.
struct Open<'r, 'e> {
    rest: Remaining<'r>,
    terms: Vec<Term<'e>>,
}

/// The elements left to encode. A map yields keys and values in turn.
enum Remaining<'r> {
    List(std::slice::Iter<'r, Value>),
    Tuple(std::slice::Iter<'r, Value>),
    Map(std::slice::Iter<'r, (Value, Value)>, Option<&'r Value>),
}

impl<'r> Open<'r, '_> {
    fn items(of: &Value, items: &'r [Value]) -> Self {
        let rest = match of {
            Value::Tuple(_) => Remaining::Tuple(items.iter()),
            _ => Remaining::List(items.iter()),
        };
        Self {
            rest,
            terms: Vec::with_capacity(items.len()),
        }
    }

    fn map(map: &'r Map) -> Self {
        Self {
            rest: Remaining::Map(map.iter(), None),
            terms: Vec::with_capacity(2 * map.len()),
        }
    }

    fn next(&mut self) -> Option<&'r Value> {
        match &mut self.rest {
            Remaining::List(items) | Remaining::Tuple(items) => items.next(),
            Remaining::Map(entries, value) => value.take().or_else(|| {
                let (key, of_key) = entries.next()?;
                *value = Some(of_key);
                Some(key)
            }),
        }
    }
}

/// Keys and values of a map in the making.
pub struct FieldTerms<'e> {
    env: Env<'e>,
    keys: Terms<'e>,
    values: Terms<'e>,
}

impl<'e> FieldTerms<'e> {
    pub fn new(env: Env<'e>) -> Self {
        Self {
            env,
            keys: Terms::new(env),
            values: Terms::new(env),
        }
    }

    /// Adds an entry.
    #[inline]
    pub fn put(&mut self, key: Atom, value: impl ToTerm) {
        self.put_term(key.to_term(self.env), value.to_term(self.env));
    }

    /// Adds an entry, if there is a value.
    pub fn put_given(&mut self, key: Atom, value: Option<Term<'e>>) {
        if let Some(value) = value {
            self.put(key, value);
        }
    }

    /// Adds an entry with any key.
    #[inline]
    pub fn put_term(&mut self, key: Term<'e>, value: Term<'e>) {
        self.keys.push(key);
        self.values.push(value);
    }

    /// Returns the map. Keys are never equal: they are fixed, or those of a sorted map.
    pub fn end(&self) -> Term<'e> {
        let nothing = atoms::nil().to_term(self.env);
        self.keys.map(&self.values).unwrap_or(nothing)
    }
}

/// Returns true if no value in a map has elements of its own.
fn is_flat(map: &Map) -> bool {
    let is_scalar =
        |value: &Value| !matches!(value, Value::List(_) | Value::Tuple(_) | Value::Map(_));
    map.iter()
        .all(|(key, value)| is_scalar(key) && is_scalar(value))
}

/// An encoding remembers so many atoms and maps.
const REMEMBERED: usize = 16;

type Models<'e> = SmallVec<[((Atom, Atom), Term<'e>); REMEMBERED]>;

/// Makes terms of the values of a context.
pub struct Encoder<'r, 'e> {
    env: Env<'e>,
    owner: Option<&'r Handle<Context>>,
    /// Atoms by the addresses of their names: names are shared, and looking an atom up takes a lock.
    atoms: RefCell<SmallVec<[(usize, Atom); REMEMBERED]>>,
    /// Maps by their keys, see [`Encoder::like`].
    models: RefCell<Models<'e>>,
}

impl<'r, 'e> Encoder<'r, 'e> {
    /// Makes an encoder whose long binaries point into its owner, of which it may only encode parts then; without one, it
    /// copies everything.
    pub fn new(env: Env<'e>, owner: Option<&'r Handle<Context>>) -> Self {
        Self {
            env,
            owner,
            atoms: RefCell::default(),
            models: RefCell::default(),
        }
    }

    /// Walks the value with a stack of its own: schedulers' stacks are small, and overflowing one
    /// ends the VM.
    pub fn value(&self, value: &'r Value) -> Term<'e> {
        let mut open: Vec<Open<'r, 'e>> = Vec::new();
        let mut next = value;
        loop {
            let mut term = match next {
                Value::List(items) | Value::Tuple(items) if !items.is_empty() => {
                    open.push(Open::items(next, items));
                    None
                }
                Value::Map(map) if !map.is_empty() && !is_flat(map) => {
                    open.push(Open::map(map));
                    None
                }
                scalar => Some(self.scalar(scalar)),
            };
            // Give it to the level around it; close every level that ends here.
            next = loop {
                if let Some(term) = term {
                    match open.last_mut() {
                        Some(level) => level.terms.push(term),
                        None => return term,
                    }
                }
                match open.last_mut().and_then(Open::next) {
                    Some(next) => break next,
                    None => term = open.pop().map(|level| self.close(level)),
                }
            };
        }
    }

    fn close(&self, level: Open<'r, 'e>) -> Term<'e> {
        match level.rest {
            Remaining::List(_) => self.list(level.terms.into_iter()),
            Remaining::Tuple(_) => make_tuple(self.env, &level.terms),
            Remaining::Map(..) => {
                let mut fields = FieldTerms::new(self.env);
                let mut terms = level.terms.into_iter();
                while let (Some(key), Some(value)) = (terms.next(), terms.next()) {
                    fields.put_term(key, value);
                }
                fields.end()
            }
        }
    }

    /// Encodes a value without elements, or a map of such, as arguments mostly are.
    fn scalar(&self, value: &'r Value) -> Term<'e> {
        match value {
            Value::Nil => atoms::nil().to_term(self.env),
            Value::Bool(flag) => flag.encode(self.env),
            Value::Int(integer) => integer.encode(self.env),
            Value::BigInt(integer) => {
                big::encode(self.env, integer).unwrap_or_else(|| atoms::nil().to_term(self.env))
            }
            Value::Float(float) => float.encode(self.env),
            Value::Atom(name) => self.atom(name),
            Value::Binary(bytes) => self.binary(bytes),
            Value::List(_) => Term::list_new_empty(self.env),
            Value::Tuple(_) => make_tuple(self.env, &[]),
            Value::Map(map) => {
                if let [(key, value)] = map.iter().as_slice() {
                    return self.array_map([self.scalar(key)], [self.scalar(value)]);
                }
                let mut fields = FieldTerms::new(self.env);
                for (key, value) in map.iter() {
                    fields.put_term(self.scalar(key), self.scalar(value));
                }
                fields.end()
            }
        }
    }

    /// Encodes a map of any keys.
    pub fn map(&self, map: &'r Map) -> Term<'e> {
        self.entries(map.iter().map(|(key, value)| (key, value)))
    }

    /// Encodes a map of entries whose keys differ.
    pub fn entries(&self, entries: impl Iterator<Item = (&'r Value, &'r Value)>) -> Term<'e> {
        let mut fields = FieldTerms::new(self.env);
        for (key, value) in entries {
            fields.put_term(self.value(key), self.value(value));
        }
        fields.end()
    }

    /// Encodes a map of fixed keys.
    pub fn fields<const N: usize>(&self, keys: [Atom; N], values: [Term<'e>; N]) -> Term<'e> {
        self.array_map(keys.map(|key| key.to_term(self.env)), values)
    }

    fn array_map<const N: usize>(&self, keys: [Term<'e>; N], values: [Term<'e>; N]) -> Term<'e> {
        let nothing = atoms::nil().to_term(self.env);
        enif::map(self.env, keys, values).unwrap_or(nothing)
    }

    /// Encodes a map that differs from others of its kind in one value; `make` makes the first with `nil` for it. Maps that
    /// are made of each other share their keys, which takes half the time of sorting and storing them anew.
    pub fn like(
        &self,
        kind: (Atom, Atom),
        key: Atom,
        value: Term<'e>,
        make: impl FnOnce(Term<'e>) -> Term<'e>,
    ) -> Term<'e> {
        let mut models = self.models.borrow_mut();
        let known = models.iter().find(|(known, _)| *known == kind);
        let model = known.map(|(_, model)| *model).unwrap_or_else(|| {
            let model = make(atoms::nil().to_term(self.env));
            if models.len() < REMEMBERED {
                models.push((kind, model));
            }
            model
        });
        model.map_update(key, value).unwrap_or(model)
    }

    pub fn list(&self, items: impl Iterator<Item = Term<'e>>) -> Term<'e> {
        let mut terms = Terms::new(self.env);
        // `for_each` makes a loop of a chain of iterators; `next` would check at each step which of them it is in.
        items.for_each(|item| terms.push(item));
        terms.list()
    }

    pub fn text(&self, text: &'r str) -> Term<'e> {
        self.binary(text.as_bytes())
    }

    pub fn binary(&self, bytes: &'r [u8]) -> Term<'e> {
        match self.owner {
            Some(owner) if bytes.len() >= SHARED => {
                owner.make_binary(self.env, |_| bytes).to_term(self.env)
            }
            _ => NewBinary::from_slice(self.env, bytes).into(),
        }
    }

    /// Returns the atom of this name; if this VM has none, a struct with the name: text from outside makes no atoms.
    pub fn atom(&self, name: &'r str) -> Term<'e> {
        // The encoded data lives as long as the encoder, so no other name can take its address.
        let place = name.as_ptr() as usize;
        let mut known = self.atoms.borrow_mut();
        if let Some((_, atom)) = known.iter().find(|(known, _)| *known == place) {
            return atom.to_term(self.env);
        }
        match Atom::existing_from_utf8_bytes(self.env, name.as_bytes()) {
            Ok(atom) => {
                if known.len() < REMEMBERED {
                    known.push((place, atom));
                }
                atom.to_term(self.env)
            }
            Err(_) => self.wide_atom(name).unwrap_or_else(|| {
                let keys = [atoms::struct_(), atoms::name()];
                let values = [atoms::unknown_atom().to_term(self.env), self.text(name)];
                self.fields(keys, values)
            }),
        }
    }

    /// Returns the atom of a name that is not Latin-1, by the external format: before NIF 2.17 the direct way only takes
    /// Latin-1. Its safe mode makes no atoms.
    fn wide_atom(&self, name: &str) -> Option<Term<'e>> {
        if name.is_ascii() {
            return None;
        }
        let mut external = vec![131, 118];
        external.extend(u16::try_from(name.len()).ok()?.to_be_bytes());
        external.extend(name.as_bytes());
        let (term, _) = self.env.binary_to_term(&external)?;
        Some(term)
    }

    pub const fn env(&self) -> Env<'e> {
        self.env
    }
}
