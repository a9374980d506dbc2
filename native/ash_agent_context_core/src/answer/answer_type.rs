//! The type of an answer: a compiled schema, and the names by which an answer is told from an example in prose.

use std::collections::HashSet;

use crate::answer::fit::FitWalk;
use crate::answer::issue::Findings;
use crate::answer::node::{without_style, NodeId, Others, SchemaNode};
#[cfg(feature = "json_schema")]
use crate::answer::rest::Rest;
use crate::answer::schema;
use crate::error::{Error, Path};
use crate::value::cost::Cost;
use crate::value::{Size, Value};

/// A type that answers may have.
#[derive(Debug)]
pub struct AnswerType {
    schema: Value,
    nodes: Vec<SchemaNode>,
    /// Names of the fields of the answer, without style. An object with none of them is not the answer.
    names: HashSet<Box<str>>,
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
        Ok(Self {
            names: names(&nodes),
            #[cfg(feature = "json_schema")]
            rest: _has_rest.then(|| Rest::new(&schema)).transpose()?,
            schema,
            nodes,
        })
    }

    /// The cost of reading a text or a value of this size: that crate gives no bound.
    #[must_use]
    pub fn reading_cost(&self, size: Size) -> Cost {
        #[cfg(feature = "json_schema")]
        if self.rest.is_some() {
            return Cost::LONG;
        }
        size.into()
    }

    /// The schema, as JSON has it.
    #[must_use]
    pub fn schema(&self) -> &Value {
        &self.schema
    }

    /// Returns whether a value of the type may contain another one of it, or a part of it.
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
        // A node that is reached while what it leads to is still open.
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

    pub(crate) fn nodes(&self) -> &[SchemaNode] {
        &self.nodes
    }

    /// Returns whether a field of this name belongs to the answer.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.contains(&*without_style(name))
    }

    /// Fits a value to a place.
    pub(crate) fn fit(
        &self,
        id: NodeId,
        value: &Value,
        is_lenient: bool,
        path: &Path,
        report: &mut Findings,
    ) -> Option<Value> {
        let mut path = path.clone();
        FitWalk::new(&self.nodes, is_lenient).fit(id, value, &mut path, report)
    }

    /// Schemas that hold for the same value repair it each for itself: what came of it has to fit all of them.
    fn check_repaired(&self, value: Value, repaired: Value, report: &mut Findings) -> Value {
        let mut again = Findings::default();
        let changed = self.fit(0, &repaired, false, &Path::new(), &mut again);
        if again.is_clean() && changed.is_none() {
            return repaired;
        }
        report.add(again);
        if report.fits() {
            let words = "could be repaired in more than one way: write it as the schema says";
            report.issue(&Path::new(), words);
        }
        value
    }

    /// Fits a whole answer.
    pub(crate) fn fit_whole(&self, value: Value, is_lenient: bool, report: &mut Findings) -> Value {
        let fitted = self.fit(0, &value, is_lenient, &Path::new(), report);
        if !report.fits() {
            return value;
        }
        let value = match fitted {
            Some(fitted) => self.check_repaired(value, fitted, report),
            None => value,
        };
        #[cfg(feature = "json_schema")]
        if let Some(rest) = &self.rest {
            rest.check(&value, report);
        }
        value
    }
}

/// The names of the fields of an answer, or of those of its elements.
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
