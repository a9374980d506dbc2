//! JSON Schema, compiled into nodes. Each keyword is either understood or an error: none is ignored.

use std::collections::HashMap;

use regex::RegexBuilder;

use crate::answer::formats::TextFormat;
use crate::answer::node::{has_word, without_style, Kinds, NodeId, Others, Property, SchemaNode};
use crate::answer::pattern::translate;
use crate::error::{index, Error, Path};
use crate::value::{json, Map, Value};

/// A schema may have so many nodes.
const MOST_NODES: usize = 10_000;

/// So many schemas may hold for one value, each inside of the other: reading recurses with them.
const MOST_IN_PLACE: usize = 8;

/// A compiled pattern may take so many bytes.
const PATTERN_BYTES: usize = 1 << 20;

/// Keywords without effect on which values fit.
pub(crate) const ANNOTATIONS: &str =
    "$schema $id $comment $defs definitions title description default examples example deprecated \
                           readOnly writeOnly propertyOrdering";

const UNKNOWN: &str = "a keyword of JSON Schema that is checked; the feature json_schema of the library checks all of them";

const LOOK_AROUND: &str = "a regular expression without look-around; the feature json_schema of the library checks all of them";

/// Returns a schema as JSON has it: atoms and texts are the same there.
pub(crate) fn read(schema: &Value) -> Result<Value, Error> {
    json::read(json::write(schema).as_bytes(), crate::value::MAX_DEPTH)
}

/// Compiles a schema. The first node is that of the whole answer. Returns true beside the nodes if keywords were left out,
/// which is only allowed if something else `checks_all`.
pub(crate) fn compile(schema: &Value, checks_all: bool) -> Result<(Vec<SchemaNode>, bool), Error> {
    let mut compiler = Compiler {
        root: schema,
        checks_all,
        has_rest: false,
        ids: HashMap::new(),
        open: Vec::new(),
        nodes: Vec::new(),
    };
    compiler.child(Path::new(), schema)?;
    while let Some((id, path, schema)) = compiler.open.pop() {
        let node = compiler.node(&path, schema)?;
        if let Some(place) = compiler.nodes.get_mut(id) {
            *place = node;
        }
    }
    check_in_place(&compiler.nodes)?;
    Ok((compiler.nodes, compiler.has_rest))
}

struct Compiler<'s> {
    root: &'s Value,
    /// Unknown keywords are checked elsewhere.
    checks_all: bool,
    /// Some keyword was left out.
    has_rest: bool,
    ids: HashMap<String, NodeId>,
    open: Vec<(NodeId, Path, &'s Value)>,
    nodes: Vec<SchemaNode>,
}

impl<'s> Compiler<'s> {
    /// Returns the node for a schema at a path, which is compiled later.
    fn child(&mut self, path: Path, schema: &'s Value) -> Result<NodeId, Error> {
        let key = json::write(&Value::List(path.clone().into()));
        if let Some(id) = self.ids.get(&key) {
            return Ok(*id);
        }
        let id = self.nodes.len();
        if id >= MOST_NODES {
            let expected = format!("a schema of at most {MOST_NODES} places");
            return Err(Error::invalid(path, expected));
        }
        self.nodes.push(SchemaNode::default());
        self.ids.insert(key, id);
        self.open.push((id, path, schema));
        Ok(id)
    }

    fn children(&mut self, path: &Path, schemas: &'s Value) -> Result<Vec<NodeId>, Error> {
        let numbered = match schemas {
            Value::List(schemas) if schemas.is_empty() => {
                return Err(wrong(path, "at least one schema"));
            }
            Value::List(schemas) => schemas.iter().enumerate(),
            _ => return Err(wrong(path, "a list of schemas")),
        };
        numbered
            .map(|(at, schema)| self.child(step(path, index(at)), schema))
            .collect()
    }

    fn node(&mut self, path: &Path, schema: &'s Value) -> Result<SchemaNode, Error> {
        let mut node = SchemaNode::default();
        let map = match schema {
            Value::Bool(true) => return Ok(node),
            Value::Bool(false) => {
                node.kinds = Some(Kinds::NONE);
                return Ok(node);
            }
            Value::Map(map) => map,
            _ => return Err(wrong(path, "a schema as an object")),
        };
        for (key, value) in map.iter() {
            let name = key.as_str().unwrap_or_default();
            let here = step(path, key.clone());
            self.keyword(&mut node, name, value, &here)?;
        }
        // With patterns it is not known which other properties there are.
        if map.get(&Value::text("patternProperties")).is_some() {
            node.others = Others::Allowed;
        }
        require(&mut node, map, path)?;
        Ok(node)
    }

    fn keyword(
        &mut self,
        node: &mut SchemaNode,
        name: &str,
        value: &'s Value,
        here: &Path,
    ) -> Result<(), Error> {
        match name {
            "type" => node.kinds = Some(kinds(value, here)?),
            "enum" => narrow(node, list(value, here)?),
            "const" => narrow(node, std::slice::from_ref(value)),
            "properties" => self.properties(node, value, here)?,
            "required" => {} // needs the properties
            "additionalProperties" => {
                node.others = match value {
                    Value::Bool(true) => Others::Allowed,
                    Value::Bool(false) => Others::Refused,
                    schema => Others::Of(self.child(here.clone(), schema)?),
                }
            }
            "items" => node.items = Some(self.child(here.clone(), value)?),
            "prefixItems" => node.first_items = self.children(here, value)?,
            "allOf" => node.all_of.extend(self.children(here, value)?),
            "anyOf" => node.any_of = self.children(here, value)?,
            "oneOf" => node.one_of = self.children(here, value)?,
            "$ref" => {
                let (path, schema) = self.find(value, here)?;
                let id = self.child(path, schema)?;
                node.all_of.push(id);
            }
            "minLength" => node.text.least = Some(count(value, here)?),
            "maxLength" => node.text.most = Some(count(value, here)?),
            "minItems" => node.list.least = Some(count(value, here)?),
            "maxItems" => node.list.most = Some(count(value, here)?),
            "minProperties" => node.object.least = Some(count(value, here)?),
            "maxProperties" => node.object.most = Some(count(value, here)?),
            "uniqueItems" => {
                let Value::Bool(is_unique) = value else {
                    return Err(wrong(here, "true or false"));
                };
                node.is_unique = *is_unique;
            }
            "pattern" => match pattern(value, here) {
                Err(_) if self.checks_all => self.has_rest = true,
                pattern => node.pattern = Some(pattern?),
            },
            "format" => {
                let known = value.as_str().and_then(TextFormat::from_name);
                let expected = "a format that can be checked: date, date-time, time, duration, uuid, email, uri, ipv4 or ipv6";
                node.format = Some(known.ok_or_else(|| wrong(here, expected))?);
            }
            "minimum" => node.minimum = Some(number(value, here)?),
            "maximum" => node.maximum = Some(number(value, here)?),
            "exclusiveMinimum" => node.above = Some(number(value, here)?),
            "exclusiveMaximum" => node.below = Some(number(value, here)?),
            "multipleOf" => {
                let step = number(value, here)?;
                if matches!(&step, Value::Int(..=0))
                    || matches!(&step, Value::Float(f) if *f <= 0.0)
                {
                    return Err(wrong(here, "a number above 0"));
                }
                node.multiple_of = Some(step);
            }
            "$schema" => dialect(value, here)?,
            known if has_word(ANNOTATIONS, known) => {}
            _ if self.checks_all => self.has_rest = true,
            _ => return Err(wrong(here, UNKNOWN)),
        }
        Ok(())
    }

    fn properties(
        &mut self,
        node: &mut SchemaNode,
        value: &'s Value,
        here: &Path,
    ) -> Result<(), Error> {
        let Value::Map(map) = value else {
            return Err(wrong(here, "an object of schemas"));
        };
        for (key, schema) in map.iter() {
            let name = key.as_str().unwrap_or_default();
            let id = self.child(step(here, key.clone()), schema)?;
            let at = node.properties.len();
            node.properties.push(Property {
                name: name.into(),
                node: id,
                is_required: false,
            });
            node.places.insert(name.into(), at);
            let style = without_style(name).into_boxed_str();
            let several = node.styles.contains_key(&style);
            node.styles.insert(style, (!several).then_some(at));
        }
        Ok(())
    }

    /// Returns the schema that a reference points to.
    fn find(&self, reference: &Value, here: &Path) -> Result<(Path, &'s Value), Error> {
        let expected = "a reference into the same schema, such as #/$defs/item";
        let wrong = || wrong(here, expected);
        let rest = reference.as_str().and_then(|text| text.strip_prefix('#'));
        let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let rest = rest.ok_or_else(wrong)?;
        let (mut path, mut found) = (Path::new(), self.root);
        for step in rest.split('/').skip(1) {
            let step = step.replace("~1", "/").replace("~0", "~");
            let (key, next) = match (found, step.parse()) {
                (Value::Map(map), _) => (Value::text(&step), map.get(&Value::text(&step))),
                (Value::List(items), Ok(at)) => (index(at), items.get(at)),
                _ => return Err(wrong()),
            };
            found = next.ok_or_else(wrong)?;
            path.push(key);
        }
        Ok((path, found))
    }
}

fn wrong(path: &Path, expected: &'static str) -> Error {
    Error::invalid(path.clone(), expected)
}

fn step(path: &Path, step: Value) -> Path {
    let mut path = path.clone();
    path.push(step);
    path
}

/// Marks the properties that must be there.
fn require(node: &mut SchemaNode, map: &Map, path: &Path) -> Result<(), Error> {
    let Some(names) = map.get(&Value::text("required")) else {
        return Ok(());
    };
    let here = step(path, Value::text("required"));
    for name in list(names, &here)? {
        let Some(name) = name.as_str() else {
            return Err(Error::invalid(here, "names of properties"));
        };
        let at = node.places.get(name).copied();
        match at.and_then(|at| node.properties.get_mut(at)) {
            Some(property) => property.is_required = true,
            None => node.unnamed.push(name.into()),
        }
    }
    Ok(())
}

/// Refuses a schema that leads back to itself without a level of the answer in between.
fn check_in_place(nodes: &[SchemaNode]) -> Result<(), Error> {
    let mut heights = vec![0_usize; nodes.len()];
    for _ in 0..=MOST_IN_PLACE {
        let mut grows = false;
        for (id, node) in nodes.iter().enumerate() {
            let below = node
                .in_place()
                .map(|id| heights.get(id).map_or(0, |of| of + 1));
            let height = below.max().unwrap_or(0);
            if let Some(known) = heights.get_mut(id) {
                grows |= *known != height;
                *known = height;
            }
        }
        if !grows {
            return Ok(());
        }
    }
    Err(Error::expected(format!(
        "at most {MOST_IN_PLACE} schemas for one value, none of which leads back to itself"
    )))
}

fn kinds(value: &Value, here: &Path) -> Result<Kinds, Error> {
    let expected = "string, number, integer, boolean, object, array or null, or a list of these";
    let one = |value: &Value| {
        let kinds = value.as_str().and_then(Kinds::from_name);
        kinds.ok_or_else(|| wrong(here, expected))
    };
    match value {
        Value::List(names) => names
            .iter()
            .try_fold(Kinds::NONE, |all, name| Ok(all.with(one(name)?))),
        name => one(name),
    }
}

/// Narrows the choices: with `enum` and `const`, a value has to be in both.
fn narrow(node: &mut SchemaNode, values: &[Value]) {
    let values = values.iter();
    node.choices = Some(match &node.choices {
        None => values.cloned().collect(),
        Some(known) => values
            .filter(|value| known.contains(value))
            .cloned()
            .collect(),
    });
}

fn list<'v>(value: &'v Value, here: &Path) -> Result<&'v [Value], Error> {
    match value {
        Value::List(items) => Ok(items),
        _ => Err(wrong(here, "a list")),
    }
}

fn count(value: &Value, here: &Path) -> Result<usize, Error> {
    let whole = match value {
        Value::Int(count) => usize::try_from(*count).ok(),
        Value::Float(float) if float.fract() == 0.0 && (0.0..1.0e15).contains(float) =>
        {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            Some(*float as usize)
        }
        _ => None,
    };
    whole.ok_or_else(|| wrong(here, "a number of at least 0"))
}

fn number(value: &Value, here: &Path) -> Result<Value, Error> {
    match value {
        Value::Int(_) | Value::Float(_) | Value::BigInt(_) => Ok(value.clone()),
        _ => Err(wrong(here, "a number")),
    }
}

/// Refuses other dialects, which may give keywords another meaning.
fn dialect(value: &Value, here: &Path) -> Result<(), Error> {
    let url = value.as_str().unwrap_or_default();
    let own = ["https://json-schema.org/", "http://json-schema.org/"];
    let is_own = own.iter().any(|known| url.starts_with(known));
    is_own
        .then_some(())
        .ok_or_else(|| wrong(here, "a draft of json-schema.org"))
}

fn pattern(value: &Value, here: &Path) -> Result<(Box<str>, regex::Regex), Error> {
    let wrong = || wrong(here, LOOK_AROUND);
    let text = value.as_str().ok_or_else(wrong)?;
    let expression = translate(text).ok_or_else(wrong)?;
    let built = RegexBuilder::new(&expression)
        .size_limit(PATTERN_BYTES)
        .build();
    Ok((text.into(), built.map_err(|_| wrong())?))
}
