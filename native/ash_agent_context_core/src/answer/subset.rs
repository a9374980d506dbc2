//! The part of JSON Schema that a provider takes, and a schema narrowed to it. Bounds that it does not take become words of
//! the description, and are checked here when the answer comes. Changing the shape of answers is an error.

use std::collections::BTreeMap;

use crate::answer::node::{has_word, Kinds};
use crate::answer::schema::ANNOTATIONS;
use crate::error::{index, Error, Path};
use crate::value::word::words;
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
    /// The kinds of values that `enum` and `const` may have.
    pub choices: Kinds,
    /// How much one schema may have.
    pub most: &'static [(Size, usize)],
}

words! {
    /// What a whole schema has, of which a provider may take only so much.
    pub(crate) enum Size {
        /// Objects and lists inside of each other, the outermost included.
        Levels = "levels",
        /// Fields of all objects.
        Fields = "fields",
        /// Values of all `enum`s and `const`s.
        Choices = "values to choose from",
        /// The letters of all names of fields and definitions, and of these values.
        Letters = "letters in names and values to choose from",
        Optional = "fields that may be left out",
        Unions = "places with alternatives or several types",
        /// The letters of the values of one place that has more than [`MANY`].
        Crowded = "letters in the values of one long choice",
    }
}

/// From so many values of one place on, OpenAI counts their letters.
const MANY: usize = 250;

/// All of JSON Schema.
pub(crate) const WHOLE: Subset = Subset {
    bounds: BOUNDS,
    formats: FORMATS,
    shapes: SHAPES,
    is_closed: false,
    needs_all: false,
    may_recur: true,
    choices: Kinds::ANY,
    most: &[],
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
    let mut narrowing = Narrowing {
        subset,
        path: Path::new(),
        level: 0,
        sizes: BTreeMap::new(),
    };
    let narrowed = narrowing.schema(schema)?;
    for (size, most) in subset.most {
        let found = narrowing.sizes.get(size).unwrap_or(&0);
        if found > most {
            let what = size.name();
            let expected = format!("a schema of at most {most} {what}, and this one has {found}");
            return Err(Error::invalid(Path::new(), expected));
        }
    }
    Ok(narrowed)
}

struct Narrowing<'s> {
    subset: &'s Subset,
    path: Path,
    /// Objects and lists around this place.
    level: usize,
    /// What was found so far.
    sizes: BTreeMap<Size, usize>,
}

impl Narrowing<'_> {
    fn refuse<T>(&self, expected: &'static str) -> Result<T, Error> {
        Err(Error::invalid(self.path.clone(), expected))
    }

    fn count(&mut self, size: Size, more: usize) {
        *self.sizes.entry(size).or_default() += more;
    }

    fn reach(&mut self, size: Size, found: usize) {
        let most = self.sizes.entry(size).or_default();
        *most = found.max(*most);
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
        let has_inside = ["properties", "items", "prefixItems"].iter();
        let level = usize::from(has_inside.clone().any(|key| map.get_named(key).is_some()));
        self.level += level;
        self.reach(Size::Levels, self.level);
        for (key, value) in map.iter() {
            let name = key.as_str().unwrap_or_default();
            self.inside(key.clone(), |inside| {
                inside.keyword(name, value, &mut entries, &mut words)
            })?;
        }
        self.level -= level;
        self.add_type(map, &mut entries)?;
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
        match (name, value) {
            ("enum", Value::List(choices)) => self.count_choices(choices)?,
            ("const", choice) => self.count_choices(std::slice::from_ref(choice))?,
            ("anyOf" | "oneOf", _) | ("type", Value::List(_)) => self.count(Size::Unions, 1),
            ("properties" | "$defs" | "definitions", Value::Map(named)) => {
                let names = named.iter().filter_map(|(name, _)| name.as_str());
                self.count(Size::Letters, names.map(|name| name.chars().count()).sum());
            }
            _ => {}
        }
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

    fn count_choices(&mut self, choices: &[Value]) -> Result<(), Error> {
        let is_taken = |choice: &Value| self.subset.choices.has(Kinds::of(choice));
        if !choices.iter().all(is_taken) {
            return self.refuse("choices that are texts or numbers");
        }
        let letters = choices.iter().filter_map(Value::as_str);
        let letters = letters.map(|text| text.chars().count()).sum::<usize>();
        self.count(Size::Choices, choices.len());
        self.count(Size::Letters, letters);
        if choices.len() > MANY {
            self.reach(Size::Crowded, letters);
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

    /// Adds the type of values that are told otherwise: OpenAI and Anthropic want one at each place.
    fn add_type(&self, map: &Map, entries: &mut Vec<(Value, Value)>) -> Result<(), Error> {
        let has = |name: &str| map.get_named(name).is_some();
        if ["type", "anyOf", "oneOf", "allOf"]
            .iter()
            .any(|name| has(name))
        {
            return Ok(());
        }
        let choices = match (map.get_named("enum"), map.get_named("const")) {
            (Some(Value::List(choices)), _) => &**choices,
            (_, Some(choice)) => std::slice::from_ref(choice),
            _ => &[],
        };
        let is_closed = self.subset.is_closed;
        let kinds = match choices {
            [] if is_closed && has("properties") => Kinds::OBJECT,
            [] if is_closed && has("items") => Kinds::ARRAY,
            [] if is_closed => return self.refuse("a schema that says what its values are"),
            choices => choices.iter().map(Kinds::of).fold(Kinds::NONE, Kinds::with),
        };
        let kind = match &*kinds.names() {
            [] => return Ok(()),
            [name] => Value::text(name),
            names => Value::List(names.iter().map(|name| Value::text(name)).collect()),
        };
        entries.push((Value::text("type"), kind));
        Ok(())
    }

    /// Adds that objects have no other fields, and that each field has to be there.
    fn close(&mut self, map: &Map, entries: &mut Vec<(Value, Value)>) -> Result<(), Error> {
        let kind = entries.iter().find(|(key, _)| key.as_str() == Some("type"));
        let may_be = |name: &str| {
            kind.is_some_and(|(_, kind)| match kind {
                Value::List(kinds) => kinds.iter().any(|kind| kind.as_str() == Some(name)),
                kind => kind.as_str() == Some(name),
            })
        };
        let has_elements = ["items", "prefixItems"].iter();
        let has_elements = has_elements.clone().any(|key| map.get_named(key).is_some());
        if self.subset.is_closed && may_be("array") && !has_elements {
            return self.refuse("lists that say what their elements are");
        }
        let is_object = may_be("object");
        let properties = match map.get_named("properties") {
            Some(Value::Map(properties)) => Some(properties),
            _ => None,
        };
        let required = match map.get_named("required") {
            Some(Value::List(names)) => &**names,
            _ => &[],
        };
        let names = || {
            properties
                .into_iter()
                .flat_map(|all| all.iter().map(|(name, _)| name))
        };
        self.count(Size::Fields, names().count());
        let optional = names().filter(|name| !required.contains(name)).count();
        self.count(Size::Optional, optional);
        if !is_object || !self.subset.is_closed {
            return Ok(());
        }
        if properties.is_none() {
            return self.refuse("objects whose fields are all named");
        }
        entries.push((Value::text("additionalProperties"), Value::Bool(false)));
        if !self.subset.needs_all {
            return Ok(());
        }
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
        let names = Value::List(names().cloned().collect());
        entries.push((Value::text("required"), names));
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
