//! The listener to which a room reads a history, turn by turn.

use crate::error::{each, Error};
use crate::log::call::ToolCall;
use crate::log::message::{Output, Status};
use crate::log::part::{Content, Part};
use crate::provider::facts::Facts;
use crate::value::fields::Fields;
use crate::value::{Map, Value};

/// Takes the turns of a history.
pub(crate) trait Listen {
    /// Returns the facts about the provider.
    fn facts(&self) -> &'static Facts;

    /// Begins the next element of the list.
    fn begin(&mut self, position: usize, element: &Value);

    /// Returns the position of the element that is being read.
    fn element(&self) -> usize;

    /// Notes that the element has a shape that its provider refuses.
    fn mark_refused(&mut self);

    /// Notes that the element at this position is no longer as it was given.
    fn mark_cleaned(&mut self, position: usize);

    /// Takes a system prompt that stands beside the messages, and the JSON of its field.
    fn prompt(&mut self, content: Content, json: Box<str>);

    /// Takes a system message. If it is the first of all messages, it is the system prompt.
    fn system(&mut self, content: Content, metadata: Option<Map>);

    /// Takes a message of the user.
    fn user(&mut self, content: Content, metadata: Option<Map>);

    /// Takes a message of the user with results and other parts.
    fn user_turn(&mut self, answers: Vec<ReadResult>, parts: Vec<Part>);

    /// Takes a message of the model that these elements make.
    fn assistant_of(
        &mut self,
        elements: &[usize],
        content: Content,
        calls: Vec<ToolCall>,
        metadata: Option<Map>,
    );

    /// Takes a result of a call.
    fn answer(&mut self, answer: ReadResult);
}

pub(crate) type Listener = dyn Listen;

impl Listener {
    /// Takes a message of the model.
    pub fn assistant(&mut self, content: Content, calls: Vec<ToolCall>, metadata: Option<Map>) {
        let elements = [self.element()];
        self.assistant_of(&elements, content, calls, metadata);
    }

    /// Reads the elements of the list one by one.
    pub fn read_each(
        &mut self,
        elements: Vec<Value>,
        mut read: impl FnMut(Value, &mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        each(elements.into_iter().enumerate(), |(at, element)| {
            self.begin(at, &element);
            read(element, self)
        })?;
        Ok(())
    }

    /// Reads a message of the user from its blocks, some of which are results.
    pub fn read_user(
        &mut self,
        blocks: Vec<Value>,
        read: impl FnMut(Value) -> Result<UserBlock, Error>,
    ) -> Result<(), Error> {
        let (answers, parts) = split_user(blocks, read)?;
        self.user_turn(answers, parts);
        Ok(())
    }

    /// Takes an element that has no neutral form: its own provider gets it back whole.
    pub fn whole(&mut self, block: Part) {
        self.user(Content::Parts(Box::new([block])), None);
    }

    /// Reads a system prompt that stands beside the messages, if there is one.
    pub fn read_prompt(
        &mut self,
        body: &mut Fields,
        name: &str,
        read: impl FnOnce(Value) -> Result<Content, Error>,
    ) -> Result<(), Error> {
        let Some(field) = body.take_given(name) else {
            return Ok(());
        };
        let json = crate::value::json::write(&field).into_boxed_str();
        let content = read(field).map_err(|error| error.within(body.key(name)))?;
        self.prompt(content, json);
        Ok(())
    }

    /// Reads the list of messages.
    pub fn read_list(
        &mut self,
        body: &mut Fields,
        name: &str,
        expected: &'static str,
        read: impl FnMut(Value, &mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let messages = body.need_list(name, expected)?;
        let read = self.read_each(messages, read);
        read.map_err(|error| error.within(body.key(name)))
    }
}

/// A block of a user's message.
#[derive(Debug)]
pub enum UserBlock {
    Answer(ReadResult),
    Part(Part),
    /// A cache breakpoint, which is not part of the conversation.
    Mark,
}

/// Splits blocks into results and other parts. A result that comes after other parts has moved.
pub fn split_user(
    blocks: Vec<Value>,
    mut read: impl FnMut(Value) -> Result<UserBlock, Error>,
) -> Result<(Vec<ReadResult>, Vec<Part>), Error> {
    let (mut answers, mut parts) = (Vec::new(), Vec::new());
    each(blocks, |block| {
        match read(block)? {
            UserBlock::Answer(mut answer) => {
                answer.moved = !parts.is_empty();
                answers.push(answer);
            }
            UserBlock::Part(part) => parts.push(part),
            UserBlock::Mark => {}
        }
        Ok(())
    })?;
    Ok((answers, parts))
}

#[derive(Debug)]
pub struct ReadResult {
    /// The id of its call, if it has one.
    pub id: Option<Box<str>>,
    /// The tool's name, if it has one.
    pub name: Option<Box<str>>,
    pub status: Status,
    pub output: Output,
    pub metadata: Option<Map>,
    /// True if a part before it in the message belongs after it.
    pub moved: bool,
}

impl ReadResult {
    pub const fn new(
        id: Option<Box<str>>,
        name: Option<Box<str>>,
        status: Status,
        output: Output,
    ) -> Self {
        Self {
            id,
            name,
            status,
            output,
            metadata: None,
            moved: false,
        }
    }
}
