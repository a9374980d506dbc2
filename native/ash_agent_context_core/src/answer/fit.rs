//! One walk that checks a value and repairs it where it is near to its schema. A value that fits is never changed, and one
//! that could be repaired in several ways is refused.

use std::collections::HashMap;
use std::mem;

use crate::answer::check::{check, INEXACT};
use crate::answer::issue::{choices, Findings, MendKind};
use crate::answer::node::{canonical, without_style, Kinds, NodeId, Others, Property, SchemaNode};
use crate::error::{index, Path};
use crate::value::{json, steps, Map, Value};

/// An answer may have so many levels of lists and objects. The walk recurses with them.
pub(crate) const LEVELS: usize = 64;

/// The problem of a value that several repairs would make fit.
pub(crate) const SEVERAL_REPAIRS: &str =
    "could be repaired in more than one way: write it as the schema says";

const SEVERAL_FIT: &str = "expected exactly one of the alternatives, and several fit";

/// The distance of a value that is something else than asked for.
const OTHER_KIND: usize = 1_000;
const OTHER_CHOICE: usize = 100;

/// The repairs that a walk may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repairs {
    /// Only `null` for a property that may be left out.
    Nulls,
    /// Also those that leave what was said as it is: a number, a boolean, a list or an object that was written as a text, and an
    /// integer with a point.
    Same,
    /// Also those that guess what was meant.
    All,
}

impl Repairs {
    /// Those of an answer.
    pub const fn of(is_lenient: bool) -> Self {
        if is_lenient {
            Self::All
        } else {
            Self::Nulls
        }
    }
}

/// The alternative that was taken for a value, and why it cannot be.
type TakenBranch = (NodeId, Option<&'static str>);

pub(crate) struct FitWalk<'t> {
    nodes: &'t [SchemaNode],
    repairs: Repairs,
    path: Path,
    pub report: Findings,
    /// The alternative that was taken for a value. Without it, alternatives within alternatives would be tried again and
    /// again.
    taken: HashMap<(NodeId, bool, usize), TakenBranch>,
    /// The length of a path at which no list is made of a value: one was just made there, or taken apart.
    settled_at: Option<usize>,
}

/// A repaired value; `None` where nothing had to be repaired.
type Fitted = Option<Value>;

impl<'t> FitWalk<'t> {
    /// Begins a walk at a path.
    pub fn new(nodes: &'t [SchemaNode], repairs: Repairs, path: Path) -> Self {
        Self {
            nodes,
            repairs,
            path,
            report: Findings::default(),
            taken: HashMap::new(),
            settled_at: None,
        }
    }

    /// Fits a value to a node.
    pub fn fit(&mut self, id: NodeId, value: &Value) -> Fitted {
        steps::count(1);
        let node = self.nodes.get(id)?;
        if self.path.len() > LEVELS {
            self.issue(format!("expected at most {LEVELS} levels"));
            return None;
        }
        let mut fitted = match self.fit_kind(id, node, value) {
            Ok(fitted) => fitted,
            Err(settled) => return settled,
        };
        fitted = self
            .choose(node, fitted.as_ref().unwrap_or(value))
            .or(fitted);
        let inside = match fitted.as_ref().unwrap_or(value) {
            Value::Map(map) => self.fit_object(node, map),
            Value::List(items) => self.fit_list(node, items),
            _ => None,
        };
        fitted = inside.or(fitted);
        let made = fitted.as_ref().unwrap_or(value);
        check(node, made, &self.path, &mut self.report);
        for id in &node.all_of {
            fitted = self.fit_again(value, fitted, |fit, value| fit.fit(*id, value));
        }
        for (branches, is_one) in [(&node.any_of, false), (&node.one_of, true)] {
            if !branches.is_empty() {
                let again = |fit: &mut Self, value: &_| fit.fit_one_of(id, branches, is_one, value);
                fitted = self.fit_again(value, fitted, again);
            }
        }
        fitted
    }

    /// Fits a value, with its repairs so far, to another schema for it.
    fn fit_again(
        &mut self,
        value: &Value,
        fitted: Fitted,
        fit: impl FnOnce(&mut Self, &Value) -> Fitted,
    ) -> Fitted {
        match fitted {
            None => fit(self, value),
            Some(made) => self.afresh(|walk| fit(walk, &made)).or(Some(made)),
        }
    }

    /// Calls a function with values that are gone afterwards: others may have their addresses then.
    fn afresh<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let outer = mem::take(&mut self.taken);
        let done = work(self);
        self.taken = outer;
        done
    }

    /// Tries a function, and returns its findings apart from the others.
    fn attempt(&mut self, work: impl FnOnce(&mut Self) -> Fitted) -> (Fitted, Findings) {
        let outer = mem::take(&mut self.report);
        let fitted = work(self);
        (fitted, mem::replace(&mut self.report, outer))
    }

    /// Calls a function one step further into the value.
    fn within<R>(&mut self, step: Value, work: impl FnOnce(&mut Self) -> R) -> R {
        self.path.push(step);
        let done = work(self);
        self.path.pop();
        done
    }

    fn issue(&mut self, words: impl Into<String>) {
        self.report.issue(&self.path, words);
    }

    fn mend(&mut self, kind: MendKind) {
        self.report.mend(&self.path, kind);
    }

    /// Finds out whether a value is of a kind that fits, or can be read as one. `Err` if nothing more is to be done.
    fn fit_kind(&mut self, id: NodeId, node: &SchemaNode, value: &Value) -> Result<Fitted, Fitted> {
        let kind = Kinds::of(value);
        let Some(kinds) = node.kinds else {
            return Ok(None);
        };
        let is_exact = self.repairs == Repairs::Same && !kinds.has(Kinds::FRACTION);
        if kinds.has(kind) {
            let whole = is_exact.then(|| whole(value)).flatten();
            if whole.is_some() {
                self.mend(MendKind::WholeNumber);
            }
            return Ok(whole);
        }
        if self.repairs != Repairs::Nulls {
            if let Some(text) = to_text(node, value) {
                self.mend(MendKind::TextFromNumber);
                return Ok(Some(text));
            }
            if let Some((value, mend)) = from_text(value, kinds) {
                self.mend(mend);
                let whole = is_exact.then(|| whole(&value)).flatten();
                return Ok(Some(whole.unwrap_or(value)));
            }
        }
        if self.repairs == Repairs::All {
            let one = match value {
                Value::List(items) => items.first().filter(|_| items.len() == 1),
                _ => None,
            };
            // A list of one in the place of its element.
            let one = one.filter(|one| !matches!(one, Value::List(_)));
            let place = self.path.len();
            let fitted = one.and_then(|one| {
                self.try_instead(place, MendKind::Unwrapped, one, |walk| walk.fit(id, one))
            });
            if fitted.is_some() {
                return Err(fitted);
            }
            let is_settled = self.settled_at == Some(place);
            let is_single = kind != Kinds::NULL && !says_list(value);
            if kinds.has(Kinds::ARRAY) && is_single && !is_settled {
                // A single value in the place of a list of one.
                let list = Value::List(Box::new([value.clone()]));
                let fitted = self.try_instead(place + 1, MendKind::Wrapped, &list, |walk| {
                    walk.afresh(|walk| walk.fit(id, &list))
                });
                if fitted.is_some() {
                    return Err(fitted);
                }
            }
        }
        let words = format!("expected {}, got {}", kinds.words(), kind.words());
        self.report.far_issue(&self.path, OTHER_KIND, words);
        Err(None)
    }

    /// Takes another value if that fits.
    fn try_instead(
        &mut self,
        settled_at: usize,
        mend: MendKind,
        other: &Value,
        fit: impl FnOnce(&mut Self) -> Fitted,
    ) -> Fitted {
        let outer = self.settled_at.replace(settled_at);
        let (fitted, tried) = self.attempt(fit);
        self.settled_at = outer;
        tried.fits().then(|| {
            self.mend(mend);
            self.report.add(tried);
            fitted.unwrap_or_else(|| other.clone())
        })
    }

    fn fit_list(&mut self, node: &SchemaNode, items: &[Value]) -> Fitted {
        let mut made: Option<Vec<Value>> = None;
        for (at, item) in items.iter().enumerate() {
            let Some(id) = node.item(at) else { break };
            if let Some(fitted) = self.within(index(at), |walk| walk.fit(id, item)) {
                let made = made.get_or_insert_with(|| items.to_vec());
                if let Some(place) = made.get_mut(at) {
                    *place = fitted;
                }
            }
        }
        made.map(|items| Value::List(items.into()))
    }

    fn fit_object(&mut self, node: &SchemaNode, map: &Map) -> Fitted {
        let renamed = (self.repairs == Repairs::All)
            .then(|| self.rename(node, map))
            .flatten();
        let map = renamed.as_ref().unwrap_or(map);
        let mut changes = Vec::new();
        for (at, (key, value)) in map.iter().enumerate() {
            let name = key.as_name().unwrap_or_default();
            let property = node.property(name);
            let id = match (property, node.others) {
                (Some(property), _) => Some(property.node),
                (None, Others::Of(id)) => Some(id),
                (None, Others::Allowed) => continue,
                (None, Others::Refused) => None,
            };
            let change = self.within(key.clone(), |walk| {
                let Some(id) = id else {
                    walk.issue(unknown_field(node));
                    return None;
                };
                if is_left_out(property, value) && walk.refuses_null(id) {
                    walk.mend(MendKind::DroppedNull);
                    return Some(None);
                }
                walk.fit(id, value).map(Some)
            });
            changes.extend(change.map(|change| (at, change)));
        }
        self.check_required(node, map);
        if changes.is_empty() {
            return renamed.map(Value::Map);
        }
        let mut changes = changes.into_iter().peekable();
        let entries = map.iter().enumerate().filter_map(|(at, (key, value))| {
            let change = changes.next_if(|(changed, _)| *changed == at);
            let value = change.map_or_else(|| Some(value.clone()), |(_, made)| made);
            Some((key.clone(), value?))
        });
        Some(Value::Map(Map::new(entries.collect())))
    }

    fn check_required(&mut self, node: &SchemaNode, map: &Map) {
        let properties = node.properties.iter();
        let required = properties.filter(|property| property.is_required);
        let names = required.map(|property| (&*property.name, Some(property.node)));
        let unnamed = node.unnamed.iter().map(|name| (&**name, None));
        for (name, id) in names.chain(unnamed) {
            let key = Value::text(name);
            if map.get(&key).is_some() {
                continue;
            }
            let kinds = id.and_then(|id| self.nodes.get(id)?.kinds);
            let words = kinds.map(|kinds| format!(": expected {}", kinds.words()));
            let words = format!("is missing{}", words.unwrap_or_default());
            self.within(key, |walk| walk.issue(words));
        }
    }

    fn refuses_null(&mut self, id: NodeId) -> bool {
        let (_, tried) = self.attempt(|walk| walk.afresh(|walk| walk.fit(id, &Value::Nil)));
        !tried.fits()
    }

    /// Fits a value to the alternative that was meant.
    fn fit_one_of(
        &mut self,
        id: NodeId,
        branches: &[NodeId],
        is_one: bool,
        value: &Value,
    ) -> Fitted {
        let key = (id, is_one, std::ptr::from_ref(value).addr());
        let taken = self.taken.get(&key).copied();
        let taken = taken.or_else(|| self.find(branches, is_one, value))?;
        self.taken.insert(key, taken);
        let (branch, problem) = taken;
        if let Some(problem) = problem {
            self.issue(problem);
            return None;
        }
        self.fit(branch, value)
    }

    fn find(&mut self, branches: &[NodeId], is_one: bool, value: &Value) -> Option<TakenBranch> {
        let (mut clean, mut repaired) = (Vec::new(), Vec::<(NodeId, Fitted)>::new());
        let mut nearest: Option<(usize, NodeId)> = None;
        for branch in branches {
            let (fitted, tried) = self.attempt(|walk| walk.fit(*branch, value));
            if tried.is_clean() {
                clean.push(*branch);
                if !is_one {
                    break;
                }
            } else if tried.fits() {
                repaired.push((*branch, fitted));
            } else if nearest.is_none_or(|(distance, _)| tried.distance < distance) {
                nearest = Some((tried.distance, *branch));
            }
        }
        match (&*clean, &*repaired) {
            ([branch], _) => Some((*branch, None)),
            ([branch, ..], _) => Some((*branch, Some(SEVERAL_FIT))),
            ([], [(first, value), rest @ ..]) => {
                let is_same = rest.iter().all(|(_, other)| other == value);
                Some((*first, (!is_same).then_some(SEVERAL_REPAIRS)))
            }
            ([], []) => nearest.map(|(_, branch)| (branch, None)),
        }
    }

    /// Checks that a value is one of the choices, if there are any, and returns the one that it means.
    fn choose(&mut self, node: &SchemaNode, value: &Value) -> Fitted {
        let known = node.choices.as_deref()?;
        let is_equal = |choice: &&Value| *choice == value || canonical(choice) == canonical(value);
        if known.iter().any(|choice| is_equal(&choice)) {
            return None;
        }
        if self.repairs == Repairs::All {
            let style = value.as_str().map(|word| without_style(word.trim()));
            let near = |choice: &&Value| {
                let word = choice.as_str().map(without_style);
                word.is_some() && word == style
            };
            let mut found = known.iter().filter(near);
            if let (Some(choice), None) = (found.next(), found.next()) {
                self.mend(MendKind::Choice);
                return Some(choice.clone());
            }
        }
        let words = match known {
            [only] => format!("expected {}", json::write(only)),
            _ => format!("expected one of {}", choices(known)),
        };
        self.report.far_issue(&self.path, OTHER_CHOICE, words);
        None
    }

    /// Renames keys of another style to the properties that are missing. `None` if there are none.
    fn rename(&mut self, node: &SchemaNode, map: &Map) -> Option<Map> {
        let mut renamed: HashMap<&str, usize> = HashMap::new();
        let mut found = Vec::new();
        for (at, (key, _)) in map.iter().enumerate() {
            let name = key.as_str()?;
            if node.property(name).is_some() {
                continue;
            }
            let Some(property) = node.property_in_style(name) else {
                continue;
            };
            let is_wanted = property.is_required || node.others == Others::Refused;
            if is_wanted && map.get(&Value::text(&property.name)).is_none() {
                *renamed.entry(&*property.name).or_default() += 1;
                found.push((at, &*property.name));
            }
        }
        // Of two keys for one property, nobody knows which one was meant.
        found.retain(|(_, name)| renamed.get(name) == Some(&1));
        if found.is_empty() {
            return None;
        }
        let mut entries: Vec<(Value, Value)> = map.iter().cloned().collect();
        for (at, name) in found {
            if let Some((key, _)) = entries.get_mut(at) {
                *key = Value::text(name);
                self.within(key.clone(), |walk| walk.mend(MendKind::KeyStyle));
            }
        }
        Some(Map::new(entries))
    }
}

/// Returns the integer that a float stands for, if it is exact.
fn whole(value: &Value) -> Option<Value> {
    let is_exact = matches!(value, Value::Float(float) if float.abs() < INEXACT);
    let whole = is_exact.then(|| canonical(value));
    whole.filter(|whole| matches!(whole, Value::Int(_)))
}

/// Returns true if a text is a list in JSON, or nearly, so that it is not the element of one.
fn says_list(value: &Value) -> bool {
    let text = value.as_str().map_or("", str::trim);
    let inside = text.strip_prefix('[').map(str::trim_start);
    let is_list = |inside: &str| inside.ends_with(']') || inside.starts_with(['"', '\'', '{', '[']);
    text == "null" || inside.is_some_and(is_list)
}

/// Reads a text as a value that JSON writes without quotes.
fn from_text(value: &Value, kinds: Kinds) -> Option<(Value, MendKind)> {
    let text = value.as_str()?.trim();
    if text == "null" || text.starts_with(['[', '{']) {
        let (read, is_doubled) = json::read_noting(text.as_bytes(), LEVELS).ok()?;
        let is_right = kinds.has(Kinds::of(&read)) && !is_doubled;
        return is_right.then_some((read, MendKind::JsonFromText));
    }
    let flag = || text.to_ascii_lowercase().parse().ok();
    if let Some(flag) = kinds.has(Kinds::BOOLEAN).then(flag).flatten() {
        return Some((Value::Bool(flag), MendKind::BooleanFromText));
    }
    if !text.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
        return None;
    }
    let read = json::read(text.as_bytes(), 1).ok()?;
    let is_right = kinds.has(Kinds::of(&read));
    is_right.then_some((read, MendKind::NumberFromText))
}

/// Writes a number as a text where a pattern asks for such texts. A float with more digits may have been another number.
fn to_text(node: &SchemaNode, value: &Value) -> Option<Value> {
    const EXACT: usize = 15;
    let (_, pattern) = node.pattern.as_ref()?;
    let text = match value {
        Value::Int(_) | Value::BigInt(_) => json::write(value),
        Value::Float(_) => Some(json::write(value)).filter(|text| {
            let digits = text.bytes().filter(u8::is_ascii_digit).count();
            digits <= EXACT
        })?,
        _ => return None,
    };
    let is_asked = node.kinds.is_some_and(|kinds| kinds.has(Kinds::STRING));
    (is_asked && pattern.is_match(&text)).then(|| Value::text(&text))
}

fn is_left_out(property: Option<&Property>, value: &Value) -> bool {
    *value == Value::Nil && property.is_some_and(|property| !property.is_required)
}

fn unknown_field(node: &SchemaNode) -> String {
    let names = node.properties.iter().map(|of| Value::text(&of.name));
    match &*names.collect::<Vec<_>>() {
        [] => "is not a field here: leave it out".to_owned(),
        names => format!("is not a field here: the fields are {}", choices(names)),
    }
}
