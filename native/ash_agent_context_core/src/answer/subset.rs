//! The part of JSON Schema that a provider takes, and a schema narrowed to it. Bounds that it does not take become words of
//! the description, and are checked here when the answer comes. Changing the shape of answers is an error.

use crate::answer::node::has_word;
use crate::answer::schema::ANNOTATIONS;
use crate::error::{index, Error, Path};
use crate::value::{json, Map, Value};

/// The subset that a provider accepts: words with spaces between them.
#[derive(Debug)]
pub(crate) struct Subset {
    /// Keywords for bounds of values that it takes.
    pub bounds: &'static str,
    /// Formats of texts that it takes.
    pub formats: &'static str,
    /// Keywords of [`SHAPES`] that it takes.
    pub shapes: &'static str,
    /// Objects have the named fields, and no others.
    pub is_closed: bool,
    /// Each field has to be there: one that may be left out is `null` instead.
    pub needs_all: bool,
    /// A schema may contain itself.
    pub may_recur: bool,
}

/// All of JSON Schema.
pub(crate) const WHOLE: Subset = Subset {
    bounds: BOUNDS,
    formats: FORMATS,
    shapes: SHAPES,
    is_closed: false,
    needs_all: false,
    may_recur: true,
};

const BOUNDS: &str =
    "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern \
                      minItems maxItems uniqueItems minProperties maxProperties";

pub(crate) const FORMATS: &str = "date date-time time uuid email uri ipv4 ipv6";

const SHAPES: &str = "oneOf allOf prefixItems const";

/// Narrows a schema.
///
/// # Errors
/// [`Error::Invalid`] with the path of a part that the provider does not take.
pub(crate) fn narrow(schema: &Value, is_recursive: bool, subset: &Subset) -> Result<Value, Error> {
    if is_recursive && !subset.may_recur {
        return Err(Error::expected("a schema that does not contain itself"));
    }
    Narrowing {
        subset,
        path: Path::new(),
    }
    .schema(schema)
}

struct Narrowing<'s> {
    subset: &'s Subset,
    path: Path,
}

impl Narrowing<'_> {
    fn refuse<T>(&self, expected: &'static str) -> Result<T, Error> {
        Err(Error::invalid(self.path.clone(), expected))
    }

    fn inside<T>(
        &mut self,
        step: Value,
        work: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.path.push(step);
        let done = work(self)?;
        self.path.pop();
        Ok(done)
    }

    // As deep as a value may be.
    fn schema(&mut self, schema: &Value) -> Result<Value, Error> {
        let Value::Map(map) = schema else {
            return match self.subset.is_closed {
                true => self.refuse("a schema that says what its values are"),
                false => Ok(schema.clone()),
            };
        };
        if let Some(reference) = map.get(&Value::text("$ref")) {
            let only = (Value::text("$ref"), reference.clone());
            let defs = map.get(&Value::text("$defs"));
            let defs = defs.map(|defs| self.inside(Value::text("$defs"), |all| all.schemas(defs)));
            let mut entries = vec![only];
            entries.extend(defs.transpose()?.map(|defs| (Value::text("$defs"), defs)));
            return Ok(Value::Map(Map::new(entries)));
        }
        let (mut entries, mut words) = (Vec::new(), Vec::new());
        for (key, value) in map.iter() {
            let name = key.as_str().unwrap_or_default();
            self.inside(key.clone(), |inside| {
                inside.keyword(name, value, &mut entries, &mut words)
            })?;
        }
        self.close(map, &mut entries)?;
        describe(&mut entries, &words);
        Ok(Value::Map(Map::new(entries)))
    }

    fn keyword(
        &mut self,
        name: &str,
        value: &Value,
        entries: &mut Vec<(Value, Value)>,
        words: &mut Vec<String>,
    ) -> Result<(), Error> {
        let subset = self.subset;
        let mut put = |name: &str, value| entries.push((Value::text(name), value));
        match name {
            // Several alternatives may fit an `anyOf`, which is found when the answer comes.
            "oneOf" if !has_word(subset.shapes, name) => put("anyOf", self.list(value)?),
            "const" if !has_word(subset.shapes, name) => {
                put("enum", Value::List(Box::new([value.clone()])));
            }
            "allOf" | "prefixItems" if !has_word(subset.shapes, name) => {
                return self.refuse("a schema without this keyword");
            }
            "type" | "enum" | "required" | "title" | "description" | "const" => {
                put(name, value.clone());
            }
            "properties" | "$defs" | "definitions" => put(name, self.schemas(value)?),
            "items" => put(name, self.schema(value)?),
            "anyOf" | "oneOf" | "allOf" | "prefixItems" => put(name, self.list(value)?),
            "additionalProperties" => match value {
                Value::Bool(false) => put(name, value.clone()),
                _ if subset.is_closed => return self.refuse("objects whose fields are all named"),
                Value::Bool(_) => put(name, value.clone()),
                schema => put(name, self.schema(schema)?),
            },
            bound if bound == "format" || has_word(BOUNDS, bound) => {
                let format = value.as_str().unwrap_or_default();
                let is_taken = match bound {
                    "format" => has_word(subset.formats, format),
                    bound => has_word(subset.bounds, bound),
                };
                match is_taken {
                    true => put(name, value.clone()),
                    false => words.push(format!("{bound}: {}", json::write(value))),
                }
            }
            // Names and examples are for people.
            name if has_word(ANNOTATIONS, name) => {}
            _ => return self.refuse("a schema without this keyword"),
        }
        Ok(())
    }

    fn schemas(&mut self, schemas: &Value) -> Result<Value, Error> {
        let Value::Map(map) = schemas else {
            return Ok(schemas.clone());
        };
        let entries = map.iter().map(|(key, schema)| {
            let schema = self.inside(key.clone(), |inside| inside.schema(schema))?;
            Ok((key.clone(), schema))
        });
        Ok(Value::Map(Map::new(entries.collect::<Result<_, Error>>()?)))
    }

    fn list(&mut self, schemas: &Value) -> Result<Value, Error> {
        let Value::List(items) = schemas else {
            return Ok(schemas.clone());
        };
        let items = items.iter().enumerate();
        let items =
            items.map(|(at, schema)| self.inside(index(at), |inside| inside.schema(schema)));
        Ok(Value::List(items.collect::<Result<_, _>>()?))
    }

    /// Adds that objects have no other fields, and that each field has to be there.
    fn close(&self, map: &Map, entries: &mut Vec<(Value, Value)>) -> Result<(), Error> {
        let kind = map.get(&Value::text("type"));
        let is_object = kind.is_some_and(|kind| match kind {
            Value::List(kinds) => kinds.iter().any(|kind| kind.as_str() == Some("object")),
            kind => kind.as_str() == Some("object"),
        });
        if !is_object || !self.subset.is_closed {
            return Ok(());
        }
        let Some(Value::Map(properties)) = map.get(&Value::text("properties")) else {
            return self.refuse("objects whose fields are all named");
        };
        entries.push((Value::text("additionalProperties"), Value::Bool(false)));
        if !self.subset.needs_all {
            return Ok(());
        }
        let required = match map.get(&Value::text("required")) {
            Some(Value::List(names)) => &**names,
            _ => &[],
        };
        let is_properties = |(key, _): &&mut (Value, Value)| key.as_str() == Some("properties");
        let narrowed = entries.iter_mut().find(is_properties);
        if let Some((_, Value::Map(narrowed))) = narrowed {
            let field = |(name, schema): &(Value, Value)| {
                let schema = match required.contains(name) {
                    true => schema.clone(),
                    false => nullable(schema),
                };
                (name.clone(), schema)
            };
            *narrowed = Map::new(narrowed.iter().map(field).collect());
        }
        let names = properties.iter().map(|(name, _)| name.clone()).collect();
        entries.push((Value::text("required"), Value::List(names)));
        Ok(())
    }
}

fn nullable(schema: &Value) -> Value {
    let null = Map::new(vec![(Value::text("type"), Value::text("null"))]);
    let either = Value::List(Box::new([schema.clone(), Value::Map(null)]));
    Value::Map(Map::new(vec![(Value::text("anyOf"), either)]))
}

/// Adds the bounds that were left out to the description.
fn describe(entries: &mut Vec<(Value, Value)>, words: &[String]) {
    if words.is_empty() {
        return;
    }
    let words = format!("{{{}}}", words.join(", "));
    let key = Value::text("description");
    match entries.iter_mut().find(|(name, _)| *name == key) {
        Some((_, text)) => {
            let before = text.as_str().unwrap_or_default();
            *text = Value::text(&format!("{before}\n\n{words}"));
        }
        None => entries.push((key, Value::text(&words))),
    }
}
