//! One walk that checks a value and repairs what is near to its schema. A value that fits is never changed, and one that
//! could be repaired in several ways is refused.

use std::collections::HashMap;
use std::mem;

use crate::answer::check::check;
use crate::answer::issue::{choices, Findings, MendKind};
use crate::answer::node::{canonical, without_style, Kinds, NodeId, Others, Property, SchemaNode};
use crate::error::{index, Path};
use crate::value::{json, steps, Map, Value};

/// Levels of lists and objects that an answer may have. The walk recurses with them.
pub(crate) const LEVELS: usize = 64;

/// Distances of values that are something else than what was asked for.
const OTHER_KIND: usize = 1_000;
const OTHER_CHOICE: usize = 100;

/// The alternative that was taken.
#[derive(Clone, Copy)]
struct TakenBranch {
    branch: NodeId,
    problem: Option<&'static str>,
}

/// A walk.
pub(crate) struct FitWalk<'t> {
    nodes: &'t [SchemaNode],
    /// Repairs what is near, besides `null` for what may be left out.
    is_lenient: bool,
    /// Which alternative was taken for a value. Without it, alternatives within alternatives would be tried again and again.
    taken: HashMap<(NodeId, bool, usize), TakenBranch>,
    /// The length of a path at which no list is made of a value: one was just made there, or taken apart.
    settled_at: Option<usize>,
}

/// The value that a repair made, `None` where nothing had to be repaired.
type Fitted = Option<Value>;

impl<'t> FitWalk<'t> {
    pub fn new(nodes: &'t [SchemaNode], is_lenient: bool) -> Self {
        Self {
            nodes,
            is_lenient,
            taken: HashMap::new(),
            settled_at: None,
        }
    }

    /// Fits a value to a node.
    pub fn fit(
        &mut self,
        id: NodeId,
        value: &Value,
        path: &mut Path,
        report: &mut Findings,
    ) -> Fitted {
        steps::count(1);
        let node = self.nodes.get(id)?;
        if path.len() > LEVELS {
            report.issue(path, format!("expected at most {LEVELS} levels"));
            return None;
        }
        let mut fitted = match self.fit_kind(id, node, value, path, report) {
            Kind::Right => None,
            Kind::Changed(value) => Some(value),
            Kind::Settled(fitted) => return fitted,
        };
        if let Some(choice) = choose(
            node,
            fitted.as_ref().unwrap_or(value),
            self.is_lenient,
            path,
            report,
        ) {
            fitted = Some(choice);
        }
        let inside = match fitted.as_ref().unwrap_or(value) {
            Value::Map(map) => self.fit_object(node, map, path, report),
            Value::List(items) => self.fit_list(node, items, path, report),
            _ => None,
        };
        fitted = inside.or(fitted);
        check(node, fitted.as_ref().unwrap_or(value), path, report);
        for id in &node.all_of {
            fitted = self.fit_again(*id, value, fitted, path, report);
        }
        for (branches, is_one) in [(&node.any_of, false), (&node.one_of, true)] {
            if branches.is_empty() {
                continue;
            }
            fitted = match fitted {
                None => self.fit_one_of(id, branches, is_one, value, path, report),
                Some(made) => {
                    let again = self
                        .afresh(|fit| fit.fit_one_of(id, branches, is_one, &made, path, report));
                    again.or(Some(made))
                }
            };
        }
        fitted
    }

    /// Fits what came of a value so far to another schema for it.
    fn fit_again(
        &mut self,
        id: NodeId,
        value: &Value,
        fitted: Fitted,
        path: &mut Path,
        report: &mut Findings,
    ) -> Fitted {
        match fitted {
            None => self.fit(id, value, path, report),
            Some(made) => {
                let again = self.afresh(|fit| fit.fit(id, &made, path, report));
                again.or(Some(made))
            }
        }
    }

    /// Does something with a value that is gone afterwards: another may have its address then.
    fn afresh<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let outer = mem::take(&mut self.taken);
        let done = work(self);
        self.taken = outer;
        done
    }

    /// Finds out whether a value is of a kind that fits, or can be read as one.
    fn fit_kind(
        &mut self,
        id: NodeId,
        node: &SchemaNode,
        value: &Value,
        path: &mut Path,
        report: &mut Findings,
    ) -> Kind {
        let (Some(kinds), kind) = (node.kinds, Kinds::of(value)) else {
            return Kind::Right;
        };
        if kinds.has(kind) {
            return Kind::Right;
        }
        if self.is_lenient {
            if let Some((value, mend)) = from_text(value, kinds) {
                report.mend(path, mend);
                return Kind::Changed(value);
            }
            let one = match value {
                Value::List(items) => items.first().filter(|_| items.len() == 1),
                _ => None,
            };
            if let Some(fitted) = one.and_then(|one| self.try_one(id, one, path, report)) {
                return Kind::Settled(Some(fitted));
            }
            let is_settled = self.settled_at == Some(path.len());
            let is_single = kind != Kinds::NULL && !says_list(value);
            if kinds.has(Kinds::ARRAY) && is_single && !is_settled {
                if let Some(fitted) = self.try_list(id, value, path, report) {
                    return Kind::Settled(Some(fitted));
                }
            }
        }
        let words = format!("expected {}, got {}", kinds.words(), kind.words());
        report.far_issue(path, OTHER_KIND, words);
        Kind::Settled(None)
    }

    /// A list of one in the place of its element.
    fn try_one(
        &mut self,
        id: NodeId,
        one: &Value,
        path: &mut Path,
        report: &mut Findings,
    ) -> Fitted {
        if matches!(one, Value::List(_)) {
            return None;
        }
        let outer = self.settled_at.replace(path.len());
        let mut tried = Findings::default();
        let fitted = self.fit(id, one, path, &mut tried);
        self.settled_at = outer;
        tried.fits().then(|| {
            report.mend(path, MendKind::Unwrapped);
            report.add(tried);
            fitted.unwrap_or_else(|| one.clone())
        })
    }

    /// A single value in the place of a list of one.
    fn try_list(
        &mut self,
        id: NodeId,
        value: &Value,
        path: &mut Path,
        report: &mut Findings,
    ) -> Fitted {
        let outer = self.settled_at.replace(path.len() + 1);
        let mut tried = Findings::default();
        let list = Value::List(Box::new([value.clone()]));
        let fitted = self.afresh(|fit| fit.fit(id, &list, path, &mut tried));
        self.settled_at = outer;
        tried.fits().then(|| {
            report.mend(path, MendKind::Wrapped);
            report.add(tried);
            fitted.unwrap_or(list)
        })
    }

    fn fit_list(
        &mut self,
        node: &SchemaNode,
        items: &[Value],
        path: &mut Path,
        report: &mut Findings,
    ) -> Fitted {
        let mut made: Option<Vec<Value>> = None;
        for (at, item) in items.iter().enumerate() {
            let Some(id) = node.item(at) else { break };
            path.push(index(at));
            let fitted = self.fit(id, item, path, report);
            path.pop();
            if let Some(fitted) = fitted {
                let made = made.get_or_insert_with(|| items.to_vec());
                if let Some(place) = made.get_mut(at) {
                    *place = fitted;
                }
            }
        }
        made.map(|items| Value::List(items.into()))
    }

    fn fit_object(
        &mut self,
        node: &SchemaNode,
        map: &Map,
        path: &mut Path,
        report: &mut Findings,
    ) -> Fitted {
        let renamed = self.is_lenient.then(|| rename(node, map, path, report));
        let renamed = renamed.flatten();
        let map = renamed.as_ref().unwrap_or(map);
        let mut made: Option<Vec<(Value, Option<Value>)>> = None;
        for (at, (key, value)) in map.iter().enumerate() {
            let name = key.as_name().unwrap_or_default();
            let property = node.property(name);
            let id = match (property, node.others) {
                (Some(property), _) => property.node,
                (None, Others::Of(id)) => id,
                (None, Others::Allowed) => continue,
                (None, Others::Refused) => {
                    path.push(key.clone());
                    report.issue(path, unknown_field(node));
                    path.pop();
                    continue;
                }
            };
            path.push(key.clone());
            let change = if is_left_out(property, value) && self.refuses_null(id, path) {
                report.mend(path, MendKind::DroppedNull);
                Some(None)
            } else {
                self.fit(id, value, path, report).map(Some)
            };
            path.pop();
            if let Some(change) = change {
                let copy = || {
                    let entry = |(key, value): &(Value, Value)| (key.clone(), Some(value.clone()));
                    map.iter().map(entry).collect()
                };
                if let Some(place) = made.get_or_insert_with(copy).get_mut(at) {
                    place.1 = change;
                }
            }
        }
        self.check_required(node, map, path, report);
        let kept = |entries: Vec<(Value, Option<Value>)>| {
            let kept = entries
                .into_iter()
                .filter_map(|(key, value)| Some((key, value?)));
            Value::Map(Map::new(kept.collect()))
        };
        made.map(kept).or(renamed.map(Value::Map))
    }

    fn check_required(&self, node: &SchemaNode, map: &Map, path: &mut Path, report: &mut Findings) {
        let required = node
            .properties
            .iter()
            .filter(|property| property.is_required);
        let names = required.map(|property| (&*property.name, Some(property.node)));
        let unnamed = node.unnamed.iter().map(|name| (&**name, None));
        for (name, id) in names.chain(unnamed) {
            let key = Value::text(name);
            if map.get(&key).is_some() {
                continue;
            }
            let kinds = id.and_then(|id| self.nodes.get(id)?.kinds);
            let words = match kinds {
                Some(kinds) => format!("is missing: expected {}", kinds.words()),
                None => "is missing".to_owned(),
            };
            path.push(key);
            report.issue(path, words);
            path.pop();
        }
    }

    fn refuses_null(&mut self, id: NodeId, path: &mut Path) -> bool {
        let mut tried = Findings::default();
        self.afresh(|fit| fit.fit(id, &Value::Nil, path, &mut tried));
        !tried.fits()
    }

    /// Fits a value to the alternative that was meant.
    fn fit_one_of(
        &mut self,
        id: NodeId,
        branches: &[NodeId],
        is_one: bool,
        value: &Value,
        path: &mut Path,
        report: &mut Findings,
    ) -> Fitted {
        let key = (id, is_one, std::ptr::from_ref(value).addr());
        let taken = match self.taken.get(&key) {
            Some(taken) => Some(*taken),
            None => self.find(branches, is_one, value, path),
        }?;
        self.taken.insert(key, taken);
        if let Some(problem) = taken.problem {
            report.issue(path, problem);
            return None;
        }
        self.fit(taken.branch, value, path, report)
    }

    fn find(
        &mut self,
        branches: &[NodeId],
        is_one: bool,
        value: &Value,
        path: &mut Path,
    ) -> Option<TakenBranch> {
        let (mut clean, mut repaired): (Vec<NodeId>, Vec<(usize, NodeId, Fitted)>) =
            (Vec::new(), Vec::new());
        let mut nearest: Option<(usize, NodeId)> = None;
        for branch in branches {
            let mut tried = Findings::default();
            let fitted = self.fit(*branch, value, path, &mut tried);
            if tried.is_clean() {
                clean.push(*branch);
                if !is_one {
                    break;
                }
            } else if tried.fits() {
                repaired.push((tried.mended, *branch, fitted));
            } else if nearest.is_none_or(|(distance, _)| tried.distance < distance) {
                nearest = Some((tried.distance, *branch));
            }
        }
        let taken = |branch, problem| Some(TakenBranch { branch, problem });
        match (&*clean, &*repaired) {
            ([branch], _) => taken(*branch, None),
            ([branch, ..], _) => taken(
                *branch,
                Some("expected exactly one of the alternatives, and several fit"),
            ),
            ([], [(_, first, value), rest @ ..]) => {
                let is_same = rest.iter().all(|(_, _, other)| other == value);
                let problem = "could be repaired in more than one way: write it as the schema says";
                taken(*first, (!is_same).then_some(problem))
            }
            ([], []) => nearest.and_then(|(_, branch)| taken(branch, None)),
        }
    }
}

/// The outcome of fitting a value's kind.
enum Kind {
    Right,
    Changed(Value),
    /// Nothing more is to be done.
    Settled(Fitted),
}

/// Returns whether a text is a list as JSON has it, or nearly, so that it is not the element of one.
fn says_list(value: &Value) -> bool {
    let text = value.as_str().map_or("", str::trim);
    let inside = text.strip_prefix('[').map(str::trim_start);
    let is_list = |inside: &str| inside.ends_with(']') || inside.starts_with(['"', '\'', '{', '[']);
    text == "null" || inside.is_some_and(is_list)
}

/// A value that JSON writes without quotes, written as a text.
fn from_text(value: &Value, kinds: Kinds) -> Option<(Value, MendKind)> {
    let text = value.as_str()?.trim();
    if text == "null" || text.starts_with(['[', '{']) {
        let (read, is_doubled) = json::read_noting(text.as_bytes(), LEVELS).ok()?;
        let is_right = kinds.has(Kinds::of(&read)) && !is_doubled;
        return is_right.then_some((read, MendKind::JsonFromText));
    }
    if kinds.has(Kinds::BOOLEAN) {
        for (word, flag) in [("true", true), ("false", false)] {
            if text.eq_ignore_ascii_case(word) {
                return Some((Value::Bool(flag), MendKind::BooleanFromText));
            }
        }
    }
    let is_number = text.starts_with(|first: char| first.is_ascii_digit() || first == '-');
    let read = is_number
        .then(|| json::read(text.as_bytes(), 1).ok())
        .flatten()?;
    kinds
        .has(Kinds::of(&read))
        .then_some((read, MendKind::NumberFromText))
}

/// Checks that a value is one of the choices, if there are any, and returns the one that was meant.
fn choose(
    node: &SchemaNode,
    value: &Value,
    is_lenient: bool,
    path: &Path,
    report: &mut Findings,
) -> Fitted {
    let known = node.choices.as_deref()?;
    let is_equal = |choice: &&Value| *choice == value || canonical(choice) == canonical(value);
    if known.iter().any(|choice| is_equal(&choice)) {
        return None;
    }
    if is_lenient {
        let style = value.as_str().map(|word| without_style(word.trim()));
        let near = |choice: &&Value| {
            let word = choice.as_str().map(without_style);
            word.is_some() && word == style
        };
        let mut found = known.iter().filter(near);
        if let (Some(choice), None) = (found.next(), found.next()) {
            report.mend(path, MendKind::Choice);
            return Some(choice.clone());
        }
    }
    let words = if let [only] = known {
        format!("expected {}", json::write(only))
    } else {
        format!("expected one of {}", choices(known))
    };
    report.far_issue(path, OTHER_CHOICE, words);
    None
}

/// Gives keys of another style the name of the property that is missing. `None` if there are none.
fn rename(node: &SchemaNode, map: &Map, path: &mut Path, report: &mut Findings) -> Option<Map> {
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
            path.push(key.clone());
            report.mend(path, MendKind::KeyStyle);
            path.pop();
        }
    }
    Some(Map::new(entries))
}

fn is_left_out(property: Option<&Property>, value: &Value) -> bool {
    *value == Value::Nil && property.is_some_and(|property| !property.is_required)
}

fn unknown_field(node: &SchemaNode) -> String {
    let names: Vec<Value> = node
        .properties
        .iter()
        .map(|of| Value::text(&of.name))
        .collect();
    if names.is_empty() {
        return "is not a field here: leave it out".to_owned();
    }
    format!("is not a field here: the fields are {}", choices(&names))
}
