//! Terms to values.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use ash_agent_context_core::{
    Error, Map, Size, Unsupported, Value, AROUND_CONTEXT, BODY_DEPTH, MAX_DEPTH, NESTING,
};
use num_bigint::BigInt;
use rustler::types::atom::{self, Atom};
use rustler::types::tuple::get_tuple;
use rustler::{Binary, MapIterator, Term, TermType};

use crate::atoms;
use crate::enif;
use crate::error::NifError;
use crate::scheduler::Scheduler;

/// Levels of lists and maps around the values of an argument: a list of results holds maps, which
/// hold `{:ok, value}`. Values may have [`MAX_DEPTH`] levels within them.
#[derive(Debug, Clone, Copy)]
pub enum Around {
    /// The argument is the value.
    Nothing,
    /// A map of metadata.
    Metadata,
    /// A list of parts or calls.
    Items,
    /// A list of results.
    Results,
    /// What `to_map/1` gives.
    Attributes,
    /// A dumped context: JSON data, where tags add levels to values.
    Document,
    /// A dumped chat: several dumped contexts.
    Chat,
    /// A foreign request.
    Body,
}

impl Around {
    /// Levels that an argument may have in all.
    pub const fn limit(self) -> usize {
        match self {
            Self::Nothing => MAX_DEPTH,
            Self::Metadata => MAX_DEPTH + 1,
            Self::Items => MAX_DEPTH + 2,
            Self::Results => MAX_DEPTH + 3,
            Self::Attributes => MAX_DEPTH + 9,
            Self::Document => NESTING,
            Self::Chat => NESTING + AROUND_CONTEXT,
            Self::Body => BODY_DEPTH,
        }
    }
}

/// Decodes an argument.
pub fn value(term: Term<'_>, around: Around, scheduler: Scheduler) -> Result<Value, NifError> {
    let mut decoder = Decoder {
        scheduler,
        read: Size::default(),
        limit: around.limit(),
        json: matches!(around, Around::Document | Around::Chat),
        open: Vec::new(),
    };
    decoder.value(term)
}

/// Decodes a map, or `None` for `nil`.
pub fn metadata(term: Term<'_>, scheduler: Scheduler) -> Result<Option<Map>, NifError> {
    match value(term, Around::Metadata, scheduler)? {
        Value::Nil => Ok(None),
        Value::Map(map) => Ok(Some(map)),
        _ => Err(NifError::BadArg),
    }
}

/// An integer; one beyond 64 bits is as good as the largest or the smallest of them, because no
/// conversation has so many of anything.
pub struct Number(pub i64);

impl<'a> rustler::Decoder<'a> for Number {
    fn decode(term: Term<'a>) -> rustler::NifResult<Self> {
        if let Ok(small) = term.decode::<i64>() {
            return Ok(Self(small));
        }
        let sign = term.decode::<BigInt>()?.sign();
        let positive = sign == num_bigint::Sign::Plus;
        Ok(Self(if positive { i64::MAX } else { i64::MIN }))
    }
}

/// Walks a term with a stack of its own: schedulers' stacks are small, and overflowing one ends the VM.
struct Decoder<'a> {
    scheduler: Scheduler,
    read: Size,
    limit: usize,
    /// Whether only terms are taken that JSON has.
    json: bool,
    open: Vec<Open<'a>>,
}

/// A term whose elements are being read.
enum Open<'a> {
    List {
        rest: Term<'a>,
        items: Vec<Value>,
    },
    Tuple {
        rest: std::vec::IntoIter<Term<'a>>,
        items: Vec<Value>,
    },
    Map {
        rest: std::vec::IntoIter<(Term<'a>, Term<'a>)>,
        entries: Vec<(Value, Value)>,
        /// The key that was read last and the term of its value, until that is read too.
        key: Option<Value>,
        value: Option<Term<'a>>,
    },
}

/// What to do next.
enum Next<'a> {
    Read(Term<'a>),
    Done(Value),
}

impl<'a> Decoder<'a> {
    fn value(&mut self, term: Term<'a>) -> Result<Value, NifError> {
        let mut step = Next::Read(term);
        loop {
            let value = match step {
                Next::Done(value) => value,
                Next::Read(term) => match self.begin(term) {
                    Ok(Some(value)) => value,
                    Ok(None) => {
                        step = self.advance()?;
                        continue;
                    }
                    Err(error) => return Err(self.locate(error)),
                },
            };
            if self.open.is_empty() {
                return Ok(value);
            }
            self.accept(value);
            step = self.advance()?;
        }
    }

    /// Reads a term without elements, or opens one that has some.
    fn begin(&mut self, term: Term<'a>) -> Result<Option<Value>, NifError> {
        self.count(0)?;
        if self.json {
            self.check_json(term)?;
        }
        let open = match term.get_type() {
            TermType::Atom => return atom_value(term).map(Some),
            TermType::Integer => {
                let integer = integer(term)?;
                self.count(integer.size().bytes)?;
                return Ok(Some(integer));
            }
            TermType::Float => return Ok(Some(Value::Float(term.decode()?))),
            TermType::Binary => return self.binary(term).map(Some),
            TermType::List => Open::List {
                rest: term,
                items: Vec::new(),
            },
            TermType::Tuple => {
                let arity = enif::tuple_arity(term).ok_or(NifError::BadArg)?;
                self.scheduler.allow(self.read.plus(Size::new(arity, 0)))?;
                let terms = get_tuple(term)?;
                Open::Tuple {
                    items: Vec::with_capacity(terms.len()),
                    rest: terms.into_iter(),
                }
            }
            TermType::Map => {
                let size = term.map_size()?;
                self.scheduler
                    .allow(self.read.plus(Size::new(2 * size, 0)))?;
                let pairs: Vec<_> = MapIterator::new(term).ok_or(NifError::BadArg)?.collect();
                Open::Map {
                    rest: pairs.into_iter(),
                    entries: Vec::with_capacity(size),
                    key: None,
                    value: None,
                }
            }
            // Processes, ports, references and functions live in this VM alone.
            _ => return Ok(Some(Value::text(&printed(term)))),
        };
        if self.open.len() >= self.limit {
            return Err(Error::TooDeep { limit: MAX_DEPTH }.into());
        }
        self.open.push(open);
        Ok(None)
    }

    fn check_json(&self, term: Term<'a>) -> Result<(), NifError> {
        let is_key = matches!(self.open.last(), Some(Open::Map { key: None, .. }));
        let expected = match term.get_type() {
            TermType::Binary => return Ok(()),
            _ if is_key => "string keys",
            TermType::Integer | TermType::Float | TermType::List | TermType::Map => return Ok(()),
            TermType::Atom if is_json_atom(term) => return Ok(()),
            _ => "JSON data",
        };
        Err(NifError::Core(Error::Invalid {
            path: Vec::new(),
            expected: expected.into(),
        }))
    }

    /// Gives a value to the innermost open term.
    fn accept(&mut self, read: Value) {
        match self.open.last_mut() {
            Some(Open::List { items, .. } | Open::Tuple { items, .. }) => items.push(read),
            Some(Open::Map { entries, key, .. }) => match key.take() {
                Some(key) => entries.push((key, read)),
                None => *key = Some(read),
            },
            None => {}
        }
    }

    /// The next element of the innermost open term, or that term itself when it has no more.
    fn advance(&mut self) -> Result<Next<'a>, NifError> {
        let next = match self.open.last_mut() {
            None => None,
            Some(Open::List { rest, .. }) => match rest.list_get_cell() {
                Ok((head, tail)) => {
                    *rest = tail;
                    Some(head)
                }
                Err(_) if rest.is_empty_list() => None,
                Err(_) => {
                    self.open.pop();
                    return Err(self.locate(unsupported(Unsupported::ImproperList)));
                }
            },
            Some(Open::Tuple { rest, .. }) => rest.next(),
            Some(Open::Map { rest, value, .. }) => value.take().or_else(|| {
                let (key, of_key) = rest.next()?;
                *value = Some(of_key);
                Some(key)
            }),
        };
        Ok(match next {
            Some(term) => Next::Read(term),
            None => Next::Done(self.close()),
        })
    }

    fn close(&mut self) -> Value {
        match self.open.pop() {
            Some(Open::List { items, .. }) => Value::List(items.into_boxed_slice()),
            Some(Open::Tuple { items, .. }) => Value::Tuple(items.into_boxed_slice()),
            Some(Open::Map { entries, .. }) => {
                let map = Map::new(entries);
                unknown_atom(&map).unwrap_or(Value::Map(map))
            }
            None => Value::Nil,
        }
    }

    fn count(&mut self, bytes: usize) -> Result<(), NifError> {
        self.read = self.read.plus(Size::new(1, bytes));
        self.scheduler.allow(self.read)
    }

    fn binary(&mut self, term: Term<'a>) -> Result<Value, NifError> {
        if !term.is_binary() {
            return Err(unsupported(Unsupported::Bitstring));
        }
        let binary = Binary::from_term(term)?;
        self.count(binary.len())?;
        Ok(Value::Binary(binary.as_slice().into()))
    }

    /// The error, with the way to the element that was being read. Keys of maps are not steps.
    fn locate(&mut self, error: NifError) -> NifError {
        let NifError::Core(mut error) = error else {
            return error;
        };
        while let Some(open) = self.open.pop() {
            error = match open {
                Open::List { items, .. } | Open::Tuple { items, .. } => {
                    error.within(Value::Int(i64::try_from(items.len()).unwrap_or(i64::MAX)))
                }
                Open::Map { key: Some(key), .. } => error.within(key),
                Open::Map { key: None, .. } => error,
            };
        }
        NifError::Core(error)
    }
}

/// `%AshAgent.Context.UnknownAtom{}` stands for an atom that this VM does not have.
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

fn unsupported(kind: Unsupported) -> NifError {
    NifError::Core(Error::UnsupportedTerm {
        kind,
        path: Vec::new(),
    })
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

/// Names one thread remembers. Reading one costs two calls and three allocations; conversations
/// use the same few again and again.
const REMEMBERED: usize = 1024;

thread_local! {
    static NAMES: RefCell<HashMap<Atom, Arc<str>, BuildHasherDefault<AsHashed>>> =
        RefCell::default();
}

/// Takes the VM's own hash of an atom as it is.
#[derive(Default)]
struct AsHashed(u64);

impl Hasher for AsHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u32(&mut self, hash: u32) {
        // The map takes its control bits from the top, which a small hash leaves empty.
        self.0 = u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

fn atom_name(term: Term<'_>, atom: Atom) -> Result<Arc<str>, NifError> {
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
        Err(_) => Ok(Value::integer(term.decode::<BigInt>()?)),
    }
}

/// As `inspect/1` prints it.
fn printed(term: Term<'_>) -> String {
    let text = format!("{term:?}");
    match text.strip_prefix("#Ref<") {
        Some(rest) => format!("#Reference<{rest}"),
        None if text.starts_with('<') => format!("#PID{text}"),
        None => text,
    }
}
