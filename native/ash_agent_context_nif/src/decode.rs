//! Terms to values.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use ash_agent_context_core::{
    Error, Map, Size, Unsupported, Value, AROUND_CONTEXT, MAX_DEPTH, NESTING,
};
use rustler::sys::ErlNifTerm;
use rustler::types::atom::{self, Atom};
use rustler::{Binary, Env, Term, TermType};
use smallvec::SmallVec;

use crate::atoms;
use crate::big;
use crate::enif::{ListElements, MapPairs, Waiting};
use crate::error::NifError;
use crate::scheduler::Scheduler;

/// Levels of an argument that is a list of parts or calls: values may have [`MAX_DEPTH`] within them.
pub const ITEMS: usize = MAX_DEPTH + 2;

/// Levels of a list of results, which holds maps, which hold `{:ok, value}`.
pub const RESULTS: usize = MAX_DEPTH + 3;

/// Levels of the map of `to_map/1`.
pub const ATTRIBUTES: usize = MAX_DEPTH + 9;

/// Levels of a dumped chat: several dumped contexts.
pub const CHAT: usize = NESTING + AROUND_CONTEXT;

/// Decodes an argument that has so many levels at most.
pub fn value(term: Term<'_>, limit: usize, scheduler: Scheduler) -> Result<Value, NifError> {
    decode(term, limit, scheduler, false)
}

/// Decodes JSON data.
pub fn json(term: Term<'_>, limit: usize, scheduler: Scheduler) -> Result<Value, NifError> {
    decode(term, limit, scheduler, true)
}

fn decode(
    term: Term<'_>,
    limit: usize,
    scheduler: Scheduler,
    json: bool,
) -> Result<Value, NifError> {
    let mut decoder = Decoder {
        env: term.get_env(),
        meter: Meter {
            scheduler,
            read: Size::default(),
            json,
        },
        limit,
        open: SmallVec::new(),
    };
    decoder.value(term).map_err(|error| decoder.locate(*error))
}

/// Decodes a map, or `None` for `nil`.
pub fn metadata(term: Term<'_>, scheduler: Scheduler) -> Result<Option<Map>, NifError> {
    match value(term, MAX_DEPTH + 1, scheduler)? {
        Value::Nil => Ok(None),
        Value::Map(map) => Ok(Some(map)),
        _ => Err(NifError::BadArg),
    }
}

/// Reads an integer; one beyond 64 bits becomes the largest or the smallest of them, because no conversation has so many of
/// anything.
pub fn number(term: Term<'_>) -> Option<i64> {
    if let Ok(small) = term.decode::<i64>() {
        return Some(small);
    }
    let sign = big::decode(term)?.sign();
    let positive = sign == num_bigint::Sign::Plus;
    Some(if positive { i64::MAX } else { i64::MIN })
}

/// An error while decoding. It is boxed, since every scalar is returned with room for one.
type DecodeError = Box<NifError>;

/// Levels that need no allocation: those of a call with its arguments.
const FLAT: usize = 4;

/// Walks a term with a stack of its own: schedulers' stacks are small, and overflowing one ends the VM.
struct Decoder<'a> {
    env: Env<'a>,
    meter: Meter,
    limit: usize,
    open: SmallVec<[OpenTerm<'a>; FLAT]>,
}

impl<'a> Decoder<'a> {
    fn value(&mut self, term: Term<'a>) -> Result<Value, DecodeError> {
        if let Some(scalar) = self.meter.scalar(term, false)? {
            return Ok(scalar);
        }
        self.begin(term)?;
        while let Some(innermost) = self.open.last_mut() {
            if let Some(inner) = innermost.read(self.env, &mut self.meter)? {
                self.begin(inner)?;
                continue;
            }
            let value = self.open.pop();
            let value = value.map_or(Ok(Value::Nil), |open| open.close(self.env))?;
            match self.open.last_mut() {
                Some(around) => around.accept(value),
                None => return Ok(value),
            }
        }
        Ok(Value::Nil)
    }

    fn begin(&mut self, term: Term<'a>) -> Result<(), DecodeError> {
        if self.open.len() >= self.limit {
            return Err(refuse(Error::TooDeep { limit: MAX_DEPTH }));
        }
        self.open.push(self.meter.open(term)?);
        Ok(())
    }

    /// Returns the error with the path to the element that was being read. Keys of maps are not steps.
    fn locate(&mut self, error: NifError) -> NifError {
        let NifError::Core(mut error) = error else {
            return error;
        };
        while let Some(open) = self.open.pop() {
            error = match open {
                OpenTerm::List { items, .. } | OpenTerm::Tuple { items, .. } => {
                    error.within(Value::Int(i64::try_from(items.len()).unwrap_or(i64::MAX)))
                }
                OpenTerm::Map { key: Some(key), .. } => error.within(key),
                OpenTerm::Map { key: None, .. } => error,
            };
        }
        NifError::Core(error)
    }
}

/// A term whose elements are being read.
enum OpenTerm<'a> {
    List {
        rest: Waiting<'a>,
        items: Vec<Value>,
    },
    Tuple {
        rest: ListElements<'a>,
        items: Vec<Value>,
    },
    Map {
        rest: MapPairs<'a>,
        entries: Vec<(Value, Value)>,
        /// The key whose value is being read.
        key: Option<Value>,
        /// The value whose key is being read.
        value: Option<Waiting<'a>>,
    },
}

impl<'a> OpenTerm<'a> {
    /// Reads elements up to one that has elements itself, which it returns.
    fn read(&mut self, env: Env<'a>, meter: &mut Meter) -> Result<Option<Term<'a>>, DecodeError> {
        match self {
            Self::List { rest, items } => {
                while let Ok((head, tail)) = rest.term(env).list_get_cell() {
                    *rest = Waiting::new(tail);
                    match meter.scalar(head, false)? {
                        Some(item) => items.push(item),
                        None => return Ok(Some(head)),
                    }
                }
            }
            Self::Tuple { rest, items } => {
                for term in rest {
                    match meter.scalar(term, false)? {
                        Some(item) => items.push(item),
                        None => return Ok(Some(term)),
                    }
                }
            }
            Self::Map {
                rest,
                entries,
                key,
                value,
            } => loop {
                if let Some(waiting) = value.take() {
                    let term = waiting.term(env);
                    match meter.scalar(term, false)? {
                        Some(read) => entries.extend(key.take().map(|key| (key, read))),
                        None => return Ok(Some(term)),
                    }
                }
                let Some((of_key, of_value)) = rest.next() else {
                    break;
                };
                let Some(read) = meter.scalar(of_key, true)? else {
                    *value = Some(Waiting::new(of_value));
                    return Ok(Some(of_key));
                };
                match meter.scalar(of_value, false) {
                    Ok(Some(of_key)) => entries.push((read, of_key)),
                    other => {
                        *key = Some(read);
                        return other.map(|_| Some(of_value));
                    }
                }
            },
        }
        Ok(None)
    }

    /// Takes the element that was returned, once it is read.
    fn accept(&mut self, read: Value) {
        match self {
            Self::List { items, .. } | Self::Tuple { items, .. } => items.push(read),
            Self::Map { entries, key, .. } => match key.take() {
                Some(key) => entries.push((key, read)),
                None => *key = Some(read),
            },
        }
    }

    fn close(self, env: Env<'a>) -> Result<Value, DecodeError> {
        match self {
            Self::List { rest, .. } if !rest.term(env).is_empty_list() => {
                Err(refuse_unsupported(Unsupported::ImproperList))
            }
            Self::List { items, .. } => Ok(Value::List(items.into_boxed_slice())),
            Self::Tuple { items, .. } => Ok(Value::Tuple(items.into_boxed_slice())),
            Self::Map { entries, .. } => {
                let map = Map::new(entries);
                Ok(unknown_atom(&map).unwrap_or(Value::Map(map)))
            }
        }
    }
}

/// Counts the terms read, and refuses too many and unusable ones.
struct Meter {
    scheduler: Scheduler,
    read: Size,
    /// Accepts only terms that JSON has.
    json: bool,
}

impl Meter {
    /// Reads a term, unless it may have elements.
    fn scalar(&mut self, term: Term<'_>, is_key: bool) -> Result<Option<Value>, DecodeError> {
        self.count(0)?;
        let kind = term.get_type();
        if self.json {
            check_json(term, kind, is_key)?;
        }
        Ok(Some(match kind {
            TermType::Binary => {
                let binary = Binary::from_term(term)
                    .map_err(|_| refuse_unsupported(Unsupported::Bitstring))?;
                self.count(binary.len())?;
                Value::Binary(binary.as_slice().into())
            }
            TermType::Atom => atom_value(term)?,
            TermType::Integer => {
                let integer = integer(term)?;
                self.count(integer.size().bytes)?;
                integer
            }
            TermType::Float => Value::Float(term.decode().map_err(NifError::from)?),
            TermType::List | TermType::Tuple | TermType::Map => return Ok(None),
            // Processes, ports, references and functions live in this VM alone.
            _ => Value::text(&print(term)),
        }))
    }

    /// Begins to read a list, a tuple or a map.
    fn open<'a>(&self, term: Term<'a>) -> Result<OpenTerm<'a>, DecodeError> {
        if let Some(rest) = ListElements::of(term) {
            self.allow(rest.len())?;
            return Ok(OpenTerm::Tuple {
                items: Vec::with_capacity(rest.len()),
                rest,
            });
        }
        let Ok(size) = term.map_size() else {
            return Ok(OpenTerm::List {
                rest: Waiting::new(term),
                // Most lists are of one call or of one result.
                items: Vec::with_capacity(usize::from(!term.is_empty_list())),
            });
        };
        self.allow(2 * size)?;
        Ok(OpenTerm::Map {
            rest: MapPairs::of(term).ok_or(NifError::BadArg)?,
            entries: Vec::with_capacity(size),
            key: None,
            value: None,
        })
    }

    fn count(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.read = self.read.plus(Size::new(1, bytes));
        self.allow(0)
    }

    /// Refuses so many more terms if that is too many.
    fn allow(&self, terms: usize) -> Result<(), DecodeError> {
        let read = self.read.plus(Size::new(terms, 0));
        self.scheduler.allow(read).map_err(Box::new)
    }
}

fn check_json(term: Term<'_>, kind: TermType, is_key: bool) -> Result<(), DecodeError> {
    let expected = match kind {
        TermType::Binary => return Ok(()),
        _ if is_key => "string keys",
        TermType::Integer | TermType::Float | TermType::List | TermType::Map => return Ok(()),
        TermType::Atom if is_json_atom(term) => return Ok(()),
        _ => "JSON data",
    };
    Err(refuse(Error::Invalid {
        path: Vec::new(),
        expected: expected.into(),
    }))
}

/// Returns the atom for `%AshAgent.Context.UnknownAtom{}`, which stands for one that this VM does not have.
fn unknown_atom(map: &Map) -> Option<Value> {
    let is_stand_in = map.len() == 2
        && map.get_atom("__struct__")?.as_name() == Some("Elixir.AshAgent.Context.UnknownAtom");
    is_stand_in
        .then(|| map.get_atom("name")?.as_str().map(Value::atom))
        .flatten()
}

fn is_json_atom(term: Term<'_>) -> bool {
    let known = [atoms::nil(), atom::true_(), atom::false_()];
    known.into_iter().any(|atom| atom == term)
}

fn refuse_unsupported(kind: Unsupported) -> DecodeError {
    refuse(Error::UnsupportedTerm {
        kind,
        path: Vec::new(),
    })
}

fn refuse(error: Error) -> DecodeError {
    Box::new(NifError::Core(error))
}

fn atom_value(term: Term<'_>) -> Result<Value, NifError> {
    let known = Atom::from_term(term)?;
    if known == atoms::nil() {
        return Ok(Value::Nil);
    }
    if known == atom::true_() {
        return Ok(Value::Bool(true));
    }
    if known == atom::false_() {
        return Ok(Value::Bool(false));
    }
    atom_name(term, known).map(Value::Atom)
}

/// A thread remembers so many names. Reading one costs two calls and three allocations; conversations use the same few again
/// and again.
const REMEMBERED: usize = 1024;

thread_local! {
    static NAMES: RefCell<HashMap<ErlNifTerm, Arc<str>, BuildHasherDefault<Spread>>> =
        RefCell::default();
}

/// A hasher that spreads the VM's numbers of atoms.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_usize(&mut self, atom: usize) {
        // The map takes its control bits from the top, which a small number leaves empty.
        self.0 = (atom as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

fn atom_name(term: Term<'_>, atom: Atom) -> Result<Arc<str>, NifError> {
    let atom = atom.as_c_arg();
    NAMES.with_borrow_mut(|names| {
        if let Some(name) = names.get(&atom) {
            return Ok(Arc::clone(name));
        }
        let name: Arc<str> = read_name(term)?.into();
        if names.len() >= REMEMBERED {
            names.clear();
        }
        names.insert(atom, Arc::clone(&name));
        Ok(name)
    })
}

fn read_name(term: Term<'_>) -> Result<String, NifError> {
    if let Ok(name) = term.atom_to_string() {
        return Ok(name);
    }
    // Before NIF 2.17 the direct way knows Latin-1 names only. The external format knows all:
    // 131, then 119 and a length byte, or 118 and two, then the name in UTF-8.
    let external = term.to_binary();
    let name = match external.as_slice() {
        [131, 119, _, name @ ..] | [131, 118, _, _, name @ ..] => name,
        _ => return Err(NifError::BadArg),
    };
    let name = std::str::from_utf8(name).map_err(|_| NifError::BadArg)?;
    Ok(name.to_owned())
}

fn integer(term: Term<'_>) -> Result<Value, NifError> {
    match term.decode::<i64>() {
        Ok(small) => Ok(Value::Int(small)),
        Err(_) => big::decode(term)
            .map(Value::integer)
            .ok_or(NifError::BadArg),
    }
}

/// Prints a term as `inspect/1` does.
fn print(term: Term<'_>) -> String {
    let text = format!("{term:?}");
    match text.strip_prefix("#Ref<") {
        Some(rest) => format!("#Reference<{rest}"),
        None if text.starts_with('<') => format!("#PID{text}"),
        None => text,
    }
}
