//! Answers of people to the questions of tools.
//!
//! A call that somebody was asked about as a question is answered and not run: the answer is its result, in the same change as
//! the decision. No other call takes an answer, so that nobody can write the result of a tool that did not run. What was
//! shown with the question, choices or a form, says which answers there are, and is what the digest is of.
//!
//! Where it says `to_tool: true`, the tool itself has asked in the middle of its call. Then the answer is kept with an approval of the
//! `arguments` there, which the call had, and it runs once more.

use crate::answer::answer_type::AnswerType;
use crate::answer::issue::Issue;
use crate::answer::reading::ReadingState;
use crate::context::approval::{check_shown, digest};
use crate::context::Context;
use crate::error::Error;
use crate::log::decision::{Decision, Stage};
use crate::log::message::{Outcome, Output, Status};
use crate::value::fields::Fields;
use crate::value::time::Time;
use crate::value::Value;

impl Context {
    /// Answers a question: the answer is the result of its call, or lets it run where its tool has asked. `shown` is as in
    /// [`Context::approve_tool_call`].
    ///
    /// # Errors
    /// As [`Context::deny_tool_call`]; [`Error::NotAQuestion`]; [`Error::Invalid`] for an answer that was not among the choices,
    /// that does not fit the form, or that is no text where there are neither.
    pub fn answer_tool_call(
        &self,
        id: &str,
        shown: Option<Value>,
        answer: Value,
        by: Value,
        at: Time,
    ) -> Result<Self, Error> {
        let (slot, call, decisions) = self.find_undecided(id, "answered")?;
        if !decisions.is_question(slot) {
            return Err(Error::NotAQuestion { id: id.into() });
        }
        let asked = decisions.asked_arguments(slot);
        let question = asked.unwrap_or(&call.arguments.value);
        check_shown(id, shown.as_ref(), question)?;
        let answer = check_answer(question, answer)?;
        if let Some(to_run) = asked.and_then(arguments_of_tool) {
            let decision = Decision {
                approved: true,
                answered: false,
                by,
                at,
                reason: answer,
                digest: Some(digest(call, &to_run)),
                arguments: Some(to_run).filter(|to_run| *to_run != call.arguments.value),
                edited: None,
            };
            return Ok(self.with_decision(at, |exchange| {
                exchange.decisions.set(slot, Stage::Decided(decision));
            }));
        }
        let decision = Decision {
            approved: true,
            answered: true,
            by,
            at,
            reason: Value::Nil,
            digest: Some(digest(call, question)),
            arguments: asked.cloned(),
            edited: None,
        };
        Ok(self.with_decision(at, |exchange| {
            exchange.decisions.set(slot, Stage::Decided(decision));
            exchange.fill(slot, Outcome::new(Status::Ok, Output::Value(answer)));
        }))
    }
}

/// Returns the arguments of a call whose tool has asked. A model cannot write that: only what was shown counts.
fn arguments_of_tool(asked: &Value) -> Option<Value> {
    let fields = Fields::of(asked.clone())?;
    let to_tool = fields.get("to_tool") == Some(&Value::Bool(true));
    fields.get("arguments").filter(|_| to_tool).cloned()
}

/// Returns an answer as the form reads it: a page sends texts for numbers.
fn check_answer(question: &Value, answer: Value) -> Result<Value, Error> {
    let refuse = |expected: String| Err(Error::invalid(vec![Value::atom("answer")], expected));
    let fields = Fields::of(question.clone());
    let field = |name| fields.as_ref().and_then(|fields| fields.get(name));
    if let Some(form) = field("form") {
        #[cfg(feature = "json_schema")]
        let form = AnswerType::of_any_keywords(form);
        #[cfg(not(feature = "json_schema"))]
        let form = AnswerType::new(form);
        let form = form.map_err(|error| error.within(Value::atom("form")))?;
        let read = form.check_arguments(&answer);
        return match (read.state, read.value) {
            (ReadingState::Fits, Some(value)) => Ok(value),
            _ => {
                let lines: Vec<String> = read.issues.iter().map(Issue::line).collect();
                refuse(format!("what the form asks for: {}", lines.join("; ")))
            }
        };
    }
    match (field("choices"), answer.as_str()) {
        (Some(Value::List(choices)), _) if !choices.is_empty() => match choices.contains(&answer) {
            true => Ok(answer),
            false => refuse("one of the choices that were shown".to_owned()),
        },
        (_, Some(text)) if !text.trim().is_empty() => Ok(answer),
        _ => refuse("a text that is not empty".to_owned()),
    }
}
