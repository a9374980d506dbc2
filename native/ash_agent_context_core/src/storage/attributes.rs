//! Contexts from attributes: the maps that `to_map/1` returns, with atom or string keys.

use crate::context::Context;
use crate::error::Error;
use crate::import::defaults::Defaults;
use crate::storage::head::DocumentHead;
use crate::storage::iterations::Opened;
use crate::storage::late::LateHead;
use crate::storage::take::{fields, read_text, Form};
use crate::value::fields::Keys;
use crate::value::node::Node;
use crate::value::time::Time;
use crate::value::Value;

const CURRENT_ITERATION: &str = "current_iteration";

const ATTRIBUTES: &str =
    "one of :id, :iterations, :current_iteration, :metadata, :origin, :asked, :late, :created_at, :updated_at";

impl Context {
    /// Makes a context from attributes.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the path of what is wrong.
    pub fn from_attributes(attributes: Value, defaults: Defaults<'_>) -> Result<Self, Error> {
        let mut given = Attributes::read(attributes, defaults.at)?;
        given.frame.id.get_or_insert_with(|| defaults.id.into());
        let context = given.iterations.take();
        let context = context.unwrap_or_else(|| Self::empty(defaults.id, defaults.at));
        given.put_on(context, defaults.at)
    }

    /// Returns the context with these attributes in the place of its own.
    ///
    /// # Errors
    /// As [`Context::from_attributes`].
    pub fn update_attributes(&self, attributes: Value, at: Time) -> Result<Self, Error> {
        let mut given = Attributes::read(attributes, at)?;
        let Some(mut next) = given.iterations.take() else {
            return given.put_on(self.clone(), at);
        };
        next.log.id = self.log.id.clone();
        next.log.created_at = self.created_at();
        next.log.metadata = self.metadata().clone();
        next.log.origin = self.log.origin.clone();
        next.log.set_extra(self.extra().cloned());
        next.take_rules(self);
        if given.late.is_none() {
            next.log.take_waits(&self.log);
        }
        given.put_on(next, at)
    }

    /// Makes the iteration of this number the current one: it is already, or it is the next.
    fn reach(&mut self, number: Option<u64>, keys: Keys, at: Time) -> Result<(), Error> {
        let last = self.current_iteration();
        match number {
            None => Ok(()),
            Some(number) if number == last => Ok(()),
            // ash_agent counts from 0 before the first message.
            Some(0) if last == 1 && self.count_messages() == 0 => Ok(()),
            Some(number) if number.checked_sub(1) == Some(last) => {
                self.log.check_nothing_pending()?;
                self.log.complete(at);
                Ok(())
            }
            Some(_) => Err(Error::invalid(
                vec![keys.spell(CURRENT_ITERATION)],
                format!(
                    "{last}, the number of the last iteration, or {}, which opens the next",
                    last.saturating_add(1)
                ),
            )),
        }
    }
}

/// Reads a call as `asked_tool_calls/1` returns it. A text can only be the call's own.
fn read_asked(call: Node<'_>, form: Form) -> Result<(Box<str>, Option<Value>), Error> {
    let mut fields = fields(call, "a tool call map", form)?;
    let id = fields.read("id", read_text)?;
    let shown = fields.read_given("arguments", |shown| form.read_term(shown))?;
    Ok((id, shown.filter(|shown| matches!(shown, Value::Map(_)))))
}

struct Attributes {
    frame: DocumentHead,
    /// The conversation of the given iterations.
    iterations: Option<Context>,
    current: Option<u64>,
    /// The calls that somebody was asked about, with the arguments that were shown.
    asked: Vec<(Box<str>, Option<Value>)>,
    late: Option<LateHead>,
    keys: Keys,
}

impl Attributes {
    fn read(attributes: Value, at: Time) -> Result<Self, Error> {
        let form = Form::Maps(at);
        let mut fields = fields(Node::Value(attributes), "a map of attributes", form)?;
        let current = |node: Node<'_>| match node.as_count() {
            Some(0) => Ok(0),
            _ => form.read_number(&node),
        };
        let attributes = Self {
            frame: DocumentHead::take(&mut fields)?,
            current: fields.read_given(CURRENT_ITERATION, current)?,
            asked: fields.read_each("asked", |call| read_asked(call, form))?,
            late: LateHead::read(&mut fields, form.trust(), false)?,
            iterations: match fields.take_list("iterations")? {
                None => None,
                Some(nodes) => {
                    let mut opened = Opened::new(form);
                    fields.at("iterations", opened.add_all(nodes))?;
                    let context = opened.context;
                    Some(context.unwrap_or_else(|| Context::empty("", at)))
                }
            },
            keys: fields.keys(),
        };
        fields.finish(ATTRIBUTES)?;
        Ok(attributes)
    }

    fn put_on(mut self, mut context: Context, at: Time) -> Result<Context, Error> {
        for (id, shown) in &self.asked {
            let asked = context.ask_about_tool_call(id, shown.clone(), at);
            context = asked.map_err(|error| error.within(self.keys.spell("asked")))?;
        }
        if let Some(late) = self.late.take() {
            let put = late.put_on(&mut context.log);
            put.map_err(|error| error.within(self.keys.spell("late")))?;
        }
        self.frame.updated_at.get_or_insert(at);
        self.frame.put_on(&mut context.log);
        context.grown();
        context.reach(self.current, self.keys, at)?;
        Ok(context)
    }
}
