//! Chats: named conversations in one document, each stored beside the one that it shares most with.
//!
//! The rest of a chat, besides its conversations, is a map of the application: it is written as a context's metadata is.
//! Fields that this version does not know are kept as they came.

use crate::context::Context;
use crate::error::{each, Error};
use crate::storage::bases;
pub use crate::storage::bases::Branch;
use crate::storage::head::check_version;
use crate::storage::limits::{LATE_VERSION, LEVELS, NESTING, VERSION};
use crate::storage::table::*;
use crate::storage::tagged;
use crate::storage::take::{at, check_unknown, fields, wrong, DocumentFields, NIL};
use crate::storage::trust::Trust;
use crate::storage::untagged;
use crate::value::builder::{Json, JsonObject};
use crate::value::node::Node;
use crate::value::{json, Map, Value};

/// Levels around a conversation in the document of a chat.
pub const AROUND_CONTEXT: usize = 3;

/// The most messages in iterations in the middle of which branches part. There are few of them, but each branch names their
/// number, and loading takes that much time.
const MOST_SHARED: i64 = 1_000_000;

/// The keys of a chat's own fields beside its configuration.
const NAMES: [&str; 3] = ["id", "parent_id", "active_branch"];

/// A chat to be stored.
#[derive(Debug)]
pub struct Chat<'a> {
    /// `"id"`, `"parent_id"`, `"config"` and `"active_branch"`; nil and empty maps are left out.
    pub head: Map,
    /// Fields of the chat that another version wrote.
    pub extra: Map,
    /// Fields of its configuration that another version wrote.
    pub config_extra: Map,
    /// The branches, the oldest first.
    pub branches: Vec<Branch<'a>>,
}

impl Chat<'_> {
    /// Returns the document.
    ///
    /// # Errors
    /// As [`json::read`], which reads the text that is written here.
    ///
    /// # Complexity
    /// O(n) for each branch
    pub fn dump(&self) -> Result<Value, Error> {
        let mut json = Json::default();
        json.object(|json| {
            // Of fields with one key, the last one is read.
            unknown(json, Some(&self.extra));
            self.write_head(json);
            let bases = bases::find(&self.branches);
            let branches = self.branches.iter().zip(bases);
            json.key("branches").list(branches, |json, (branch, base)| {
                branch.write(base.and_then(|base| self.branches.get(base)), json);
            });
            let is_late = self.branches.iter().any(|of| of.context.held_waiting());
            json.key("version")
                .value(if is_late { &LATE_VERSION } else { &VERSION });
        });
        json::read(&json.0, NESTING + AROUND_CONTEXT)
    }

    fn write_head(&self, json: &mut JsonObject<'_>) {
        let config = self.head.get_named("config").and_then(Value::as_map);
        let own = config.filter(|own| !own.is_empty());
        if own.is_some() || !self.config_extra.is_empty() {
            json.object("config", |json| {
                unknown(json, Some(&self.config_extra));
                own.into_iter().for_each(|own| tagged::fields(json, own));
            });
        }
        for key in NAMES {
            match self.head.get_named(key) {
                None | Some(Value::Nil) => {}
                Some(name) => tagged::value(json.key(key), name),
            }
        }
    }

    /// Returns the document as JSON text.
    ///
    /// # Errors
    /// As [`Chat::dump`].
    pub fn to_snapshot(&self) -> Result<Vec<u8>, Error> {
        let mut json = Json::default();
        tagged::data(&mut json, &self.dump()?);
        Ok(json.0)
    }
}

impl Branch<'_> {
    fn write(&self, base: Option<&Branch<'_>>, json: &mut Json) {
        json.object(|json| {
            unknown(json, Some(&self.extra));
            tagged::value(json.key("name"), &self.name);
            if let Some(base) = base {
                tagged::value(json.key("base"), &base.name);
            }
            let text = match base {
                Some(base) => self.context.delta_beside(base.context),
                None => self.context.to_snapshot(),
            };
            json.key("context").0.extend_from_slice(&text);
        });
    }
}

/// A branch that was loaded.
#[derive(Debug)]
pub struct LoadedBranch {
    /// Its name.
    pub name: Box<str>,
    /// The position of the branch that it was stored beside.
    pub base: Option<usize>,
    /// Its conversation.
    pub context: Context,
    /// Fields that this version does not know.
    pub extra: Map,
}

/// A chat that was loaded.
#[derive(Debug)]
pub struct LoadedChat {
    /// As [`Chat::head`]; the configuration is a map or missing, and its fields are not checked.
    pub head: Map,
    /// Fields of the chat that this version does not know.
    pub extra: Map,
    /// Fields of its configuration that its application does not know.
    pub config_extra: Map,
    /// The branches, one at least.
    pub branches: Vec<LoadedBranch>,
}

impl LoadedChat {
    /// Reads the chat of a document that [`Chat::dump`] wrote, trusted this far. The application names the fields of its
    /// configuration.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the path of what is wrong, [`Error::TooDeep`].
    pub fn read(document: Value, config_keys: &[&str], trust: Trust) -> Result<Self, Error> {
        let document = Node::Value(document);
        let mut document = fields(document, "a chat: a map with string keys", trust)?;
        check_version(document.take("version"))?;
        let given = take_branches(&mut document, trust)?;
        let mut head = Vec::new();
        let mut config_extra = Map::default();
        for key in ["id", "parent_id", "config", "active_branch"] {
            let Some(mut value) = document.take(key).map(Node::into_value) else {
                continue;
            };
            if let ("config", Value::Map(map)) = (key, &mut value) {
                config_extra = at(key, split(map, config_keys))?;
            }
            at(key, untagged::untag(&mut value, LEVELS, trust.structs))?;
            head.push((Value::text(key), value));
        }
        let extra = document.keep_rest()?.unwrap_or_default();
        let head = Map::new(head);
        check_head(&head)?;
        let branches = read_branches(given, trust)?;
        let active = head.get_named("active_branch").and_then(Value::as_str);
        if !branches.iter().any(|branch| Some(&*branch.name) == active) {
            let expected = "the name of one of the branches";
            return Err(wrong("active_branch", expected));
        }
        Ok(Self {
            head,
            extra,
            config_extra,
            branches,
        })
    }
}

fn take_branches(
    document: &mut DocumentFields<'static>,
    trust: Trust,
) -> Result<Vec<DocumentFields<'static>>, Error> {
    let given = match document.take("branches").map(Node::into_value) {
        Some(Value::List(given)) if !given.is_empty() => given.into_vec(),
        _ => return Err(wrong("branches", "a list of at least one branch")),
    };
    let shared = given.iter().filter_map(|branch| {
        let context = branch.as_map()?.get_named("context")?;
        context.as_map()?.get_named("shared")
    });
    let shared = shared.fold(0_i64, |sum, shared| match shared {
        Value::Int(shared) => sum.saturating_add(*shared),
        Value::BigInt(_) => i64::MAX,
        _ => sum,
    });
    let branch = |branch| fields(Node::Value(branch), "a branch", trust);
    let branches = at("branches", each(given, branch));
    if shared > MOST_SHARED {
        return Err(wrong("branches", "branches that share less"));
    }
    branches
}

/// Takes the fields that its application does not know out of a configuration.
fn split(config: &mut Map, known: &[&str]) -> Result<Map, Error> {
    let is_known = |key: &Value| key.as_str().is_some_and(|key| known.contains(&key));
    let entries = std::mem::take(config).into_entries();
    let (own, others) = entries.into_iter().partition(|(key, _)| is_known(key));
    *config = Map::new(own);
    check_unknown(Map::new(others))
}

fn check_head(head: &Map) -> Result<(), Error> {
    match head.get_named("config") {
        None | Some(Value::Nil | Value::Map(_)) => {}
        Some(_) => return Err(wrong("config", "a map")),
    }
    for key in NAMES {
        let given = head.get_named(key).unwrap_or(&Value::Nil);
        let may_miss = key == "parent_id" && *given == Value::Nil;
        if !may_miss && name(given).is_none() {
            return Err(wrong(key, "non-empty text"));
        }
    }
    Ok(())
}

fn name(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

/// Reads the branches. Each branch's base comes before it, so there cannot be a cycle.
fn read_branches(
    given: Vec<DocumentFields<'static>>,
    trust: Trust,
) -> Result<Vec<LoadedBranch>, Error> {
    let mut branches: Vec<LoadedBranch> = Vec::new();
    let mut names = std::collections::HashMap::new();
    let read = each(given, |fields| {
        let branch = read_branch(fields, &names, &branches, trust)?;
        names.insert(branch.name.clone(), branches.len());
        branches.push(branch);
        Ok(())
    });
    at("branches", read)?;
    Ok(branches)
}

fn read_branch(
    mut fields: DocumentFields<'static>,
    names: &std::collections::HashMap<Box<str>, usize>,
    branches: &[LoadedBranch],
    trust: Trust,
) -> Result<LoadedBranch, Error> {
    let own = Given::<Term>::read(&mut fields, "name")?.unwrap_or_default();
    let base = Given::<Term>::read(&mut fields, "base")?.unwrap_or_default();
    let Some(own) = name(&own).filter(|own| !names.contains_key(*own)) else {
        let expected = "non-empty text that is not the name of an earlier branch";
        return Err(wrong("name", expected));
    };
    let base = match (&base, name(&base).and_then(|base| names.get(base))) {
        (Value::Nil, _) => None,
        (_, Some(base)) => Some(*base),
        (_, None) => return Err(wrong("base", "the name of an earlier branch")),
    };
    let document = fields.take("context").unwrap_or(NIL).into_value();
    let context = match base.and_then(|base| branches.get(base)) {
        Some(base) => base.context.load_delta_with(document, trust),
        None => Context::load_with(document, trust),
    };
    Ok(LoadedBranch {
        name: own.into(),
        base,
        context: at("context", context)?,
        extra: fields.keep_rest()?.unwrap_or_default(),
    })
}
