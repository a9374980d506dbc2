//! The type of an answer: a compiled schema, and the names by which an answer is told from an example in prose.

use std::collections::HashSet;

use crate::answer::fit::{FitWalk, Repairs, SEVERAL_REPAIRS};
use crate::answer::issue::{Findings, Mend, MendKind};
use crate::answer::node::{without_style, Kinds, NodeId, Others, Property, SchemaNode};
#[cfg(feature = "json_schema")]
use crate::answer::rest::Rest;
use crate::answer::schema;
use crate::error::{Error, Path};
use crate::value::cost::Cost;
use crate::value::{Map, Size, Value};

/// The compiled type of an answer.
#[derive(Debug)]
pub struct AnswerType {
    schema: Value,
    pub(crate) nodes: Vec<SchemaNode>,
    /// Names of the fields of the answer, without style. An object with none of them is not the answer.
    names: HashSet<Box<str>>,
    /// Names of fields at any place, without style.
    fields: HashSet<Box<str>>,
    /// Names of those fields, as they are written, that have an object or a list.
    inner: HashSet<Box<str>>,
    /// Some object may have fields of any name.
    pub(crate) is_open: bool,
    /// The checker for keywords that the nodes do not know, if there are any.
    #[cfg(feature = "json_schema")]
    rest: Option<Rest>,
}

impl AnswerType {
    /// Compiles a JSON Schema.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the path of what cannot be checked: an unknown keyword, format or pattern, a reference to
    /// elsewhere, a schema that leads back to itself.
    pub fn new(schema: &Value) -> Result<Self, Error> {
        Self::compile(schema, false)
    }

    /// Compiles a JSON Schema with any keywords.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the path of an unknown format, a reference to elsewhere, or a schema that leads back to itself.
    #[cfg(feature = "json_schema")]
    pub fn of_any_keywords(schema: &Value) -> Result<Self, Error> {
        Self::compile(schema, true)
    }

    fn compile(schema: &Value, checks_all: bool) -> Result<Self, Error> {
        let schema = schema::read(schema)?;
        let (nodes, _has_rest) = schema::compile(&schema, checks_all)?;
        let properties = || nodes.iter().flat_map(|node| &node.properties);
        let has_inside = |of: &&Property| nodes.get(of.node).is_some_and(SchemaNode::has_inside);
        let inner = properties().filter(has_inside).map(|of| of.name.clone());
        Ok(Self {
            names: names(&nodes),
            fields: properties()
                .map(|of| without_style(&of.name).into_boxed_str())
                .collect(),
            inner: inner.collect(),
            is_open: nodes.iter().any(SchemaNode::is_open),
            #[cfg(feature = "json_schema")]
            rest: _has_rest.then(|| Rest::new(&schema)).transpose()?,
            schema,
            nodes,
        })
    }

    /// Returns the cost of reading a text or a value of this size: the crate `jsonschema` gives no bound.
    #[must_use]
    pub fn reading_cost(&self, size: Size) -> Cost {
        #[cfg(feature = "json_schema")]
        if self.rest.is_some() {
            return Cost::LONG;
        }
        size.into()
    }

    /// Returns the schema, as JSON has it.
    #[must_use]
    pub fn schema(&self) -> &Value {
        &self.schema
    }

    /// Returns true if a value of the type may contain another one of it, or a part of it.
    pub(crate) fn is_recursive(&self) -> bool {
        let below = |id: NodeId| {
            let node = self.nodes.get(id);
            let ids = node.map(|node| {
                let fields = node.properties.iter().map(|property| property.node);
                let others = match node.others {
                    Others::Of(id) => Some(id),
                    _ => None,
                };
                let items = node.items.iter().chain(&node.first_items).copied();
                let inside = fields.chain(others).chain(items).chain(node.in_place());
                inside.collect::<Vec<_>>()
            });
            ids.unwrap_or_default()
        };
        // A node that comes up again before the nodes that it leads to are done.
        let mut states = vec![0_u8; self.nodes.len()];
        let mut open = vec![(0, false)];
        while let Some((id, is_done)) = open.pop() {
            let Some(state) = states.get_mut(id) else {
                continue;
            };
            match (is_done, *state) {
                (true, _) => *state = 2,
                (false, 0) => {
                    *state = 1;
                    open.push((id, true));
                    for inside in below(id) {
                        if states.get(inside) == Some(&1) {
                            return true;
                        }
                        open.push((inside, false));
                    }
                }
                _ => {}
            }
        }
        false
    }

    /// Returns true if a field of this name belongs to the answer.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.contains(&*without_style(name))
    }

    /// Returns true if every list or every object may be the answer, whatever its fields are.
    pub(crate) fn takes_all(&self, kind: Kinds) -> bool {
        let kinds = self.nodes.first().and_then(|root| root.kinds);
        self.names.is_empty() && kinds.is_none_or(|kinds| kinds.has(kind))
    }

    /// Returns true if a field of the answer has a name that begins like this.
    pub(crate) fn has_name_from(&self, word: &str) -> bool {
        let word = without_style(word);
        self.names.iter().any(|name| name.starts_with(&word))
    }

    /// Returns true if some object of the answer may have a field of this name.
    pub(crate) fn may_have(&self, name: &str) -> bool {
        self.is_open || self.fields.contains(&*without_style(name))
    }

    /// Returns true if a field of just this name has an object or a list.
    pub(crate) fn has_inside(&self, name: &str) -> bool {
        self.inner.contains(name)
    }

    /// Returns true if a value fits a field of just this name as it is, but for the values inside it.
    pub(crate) fn takes(&self, name: &str, value: &Value) -> bool {
        let mut fields = self.nodes.iter().filter_map(|node| node.property(name));
        fields.any(|property| {
            let (_, report) = self.fit(property.node, value, Repairs::All, Path::new());
            report.fits() && !report.mends.iter().any(|mend| mend.path.is_empty())
        })
    }

    /// Fits a value to a place.
    pub(crate) fn fit(
        &self,
        id: NodeId,
        value: &Value,
        repairs: Repairs,
        path: Path,
    ) -> (Option<Value>, Findings) {
        let mut walk = FitWalk::new(&self.nodes, repairs, path);
        let fitted = walk.fit(id, value);
        (fitted, walk.report)
    }

    /// Fits the value of a field that came without its object, if there is one field alone that it may be. A text is only taken
    /// for one of several choices, or of a format: it may be words instead of an answer. A list of answers is several answers.
    pub(crate) fn fit_bare(&self, value: &Value) -> Option<(Value, Findings)> {
        let root = self.nodes.first()?;
        if matches!(value, Value::List(items) if items.iter().any(|item| self.is_answer(item))) {
            return None;
        }
        let is_alone = root.properties.len() == 1;
        let may_be = |property: &&Property| {
            let node = self.nodes.get(property.node);
            node.is_some_and(|node| match value {
                Value::List(_) => node.has_inside(),
                Value::Binary(_) => is_alone && (node.choices.is_some() || node.format.is_some()),
                _ => is_alone,
            })
        };
        let fit = |property: &Property| {
            let key = Value::text(&property.name);
            let mut report = Findings::default();
            let path = vec![key.clone()];
            report.mend(&path, MendKind::MissingObject);
            let unwrapped = Mend {
                path,
                kind: MendKind::Unwrapped,
            };
            let object = Value::Map(Map::new(vec![(key, value.clone())]));
            let object = self.fit_whole(object, Repairs::All, &mut report);
            let is_right = !report.mends.contains(&unwrapped) && report.fits();
            is_right.then_some((object, report))
        };
        let mut found = root.properties.iter().filter(may_be).filter_map(fit);
        found.next().filter(|_| found.next().is_none())
    }

    /// Returns true if a value has a field of the answer, and fits.
    fn is_answer(&self, value: &Value) -> bool {
        let is_own = |name: &str| self.names.contains(&*without_style(name));
        let is_named = |map: &Map| map.iter().any(|(key, _)| key.as_name().is_some_and(is_own));
        matches!(value, Value::Map(map) if is_named(map))
            && self.fit(0, value, Repairs::All, Path::new()).1.fits()
    }

    /// Fits a whole answer.
    pub(crate) fn fit_whole(&self, value: Value, repairs: Repairs, report: &mut Findings) -> Value {
        let (fitted, found) = self.fit(0, &value, repairs, Path::new());
        report.add(found);
        if !report.fits() {
            return value;
        }
        let value = match fitted {
            None => value,
            // Several schemas for one value repair it each on its own: the outcome has to fit all of them.
            Some(repaired) => match self.fit(0, &repaired, Repairs::Nulls, Path::new()) {
                (None, again) if again.is_clean() => repaired,
                (_, again) => {
                    report.add(again);
                    if report.fits() {
                        report.issue(&Path::new(), SEVERAL_REPAIRS);
                    }
                    value
                }
            },
        };
        #[cfg(feature = "json_schema")]
        if let Some(rest) = &self.rest {
            rest.check(&value, report);
        }
        value
    }
}

/// Returns the names of the fields of an answer, or of those of its elements.
fn names(nodes: &[SchemaNode]) -> HashSet<Box<str>> {
    let mut names = HashSet::new();
    let (mut open, mut seen) = (vec![0], HashSet::new());
    while let Some(id) = open.pop() {
        let Some(node) = nodes.get(id) else { continue };
        if !seen.insert(id) {
            continue;
        }
        let own = node.properties.iter().map(|property| &*property.name);
        let own = own.chain(node.unnamed.iter().map(|name| &**name));
        names.extend(own.map(|name| without_style(name).into_boxed_str()));
        open.extend(node.in_place());
        if node.properties.is_empty() {
            open.extend(node.items);
            open.extend(&node.first_items);
        }
    }
    names
}
