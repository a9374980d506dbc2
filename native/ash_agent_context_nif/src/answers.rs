//! The NIFs of typed answers.

use ash_agent_context_core::{
    constrain, Answer, AnswerType, Came, Cost, Follow, Issue, Mend, Provider, ReadingState,
    ShownPart, Size, Value,
};
use rustler::{Binary, Encoder as _, Env, Resource, ResourceArc, Term};

use crate::argument::{Any, Of, Worded};
use crate::atoms;
use crate::encode;
use crate::error::NifError;
use crate::nif::nif;

/// A type of answers behind a reference.
pub struct AnswerTypeResource(AnswerType);

#[rustler::resource_impl]
impl Resource for AnswerTypeResource {}

/// Holds what NIFs take and give.
pub type AnswerTypeHandle = ResourceArc<AnswerTypeResource>;

/// How far a stream has come, behind a reference.
pub struct FollowResource(Follow);

#[rustler::resource_impl]
impl Resource for FollowResource {}

type FollowHandle = ResourceArc<FollowResource>;

fn text<'b>(bytes: &'b Binary<'_>) -> Result<&'b str, NifError> {
    std::str::from_utf8(bytes.as_slice()).map_err(|_| NifError::BadArg)
}

/// Reading makes terms and walks them again.
fn cost(bytes: usize) -> Size {
    Size::new(bytes / 16, bytes)
}

nif!(
    answer_type_normal,
    answer_type_dirty,
    |env, scheduler, schema: Any| {
        // Its patterns are compiled.
        scheduler.allow(Cost::LONG)?;
        #[cfg(feature = "json_schema")]
        let answer = AnswerType::of_any_keywords(&schema)?;
        #[cfg(not(feature = "json_schema"))]
        let answer = AnswerType::new(&schema)?;
        Ok(ResourceArc::new(AnswerTypeResource(answer)).encode(env))
    }
);

// `{:fits | :misfits | :cut, value, [{path, words, line}], [{path, kind}]}`
nif!(
    answer_read_normal,
    answer_read_dirty,
    |env, scheduler, answer: AnswerTypeHandle, read: Binary<'a>, strict: bool| {
        scheduler.allow(answer.0.reading_cost(cost(read.len())))?;
        Ok(encode_answer(env, &answer.0.read(text(&read)?, strict)))
    }
);

nif!(
    answer_check_normal,
    answer_check_dirty,
    |env, scheduler, answer: AnswerTypeHandle, value: Any, strict: bool| {
        scheduler.allow(answer.0.reading_cost(value.size()))?;
        Ok(encode_answer(env, &answer.0.check(&value, strict)))
    }
);

// The value as far as a text has come, and `:none` before anything is shown.
nif!(
    answer_partial_normal,
    answer_partial_dirty,
    |env, scheduler, answer: AnswerTypeHandle, read: Binary<'a>, strict: bool| {
        scheduler.allow(cost(read.len()))?;
        let value = answer.0.read_partial(text(&read)?, !strict);
        let none = || atoms::none().encode(env);
        Ok(value.map_or_else(none, |value| encode::value(env, &value)))
    }
);

/// Nothing has come.
#[rustler::nif]
fn answer_follow_new_normal(env: Env<'_>) -> Result<Term<'_>, NifError> {
    Ok(ResourceArc::new(FollowResource(Follow::default())).encode(env))
}

// `{follow, [{path, {:text, text} | {:value, value}}]}`
nif!(
    answer_follow_normal,
    answer_follow_dirty,
    |env,
     scheduler,
     follow: FollowHandle,
     answer: AnswerTypeHandle,
     piece: Binary<'a>,
     strict: bool| {
        // The buffered text is read again by the piece that ends it.
        scheduler.allow(cost(piece.len() + follow.0.held_bytes()))?;
        let (next, shown) = follow.0.feed(&answer.0, !strict, text(&piece)?);
        let shown: Vec<Term<'_>> = shown.iter().map(|part| encode_part(env, part)).collect();
        Ok((ResourceArc::new(FollowResource(next)), shown).encode(env))
    }
);

// The fields of a request that hold its answer to a type: `asked` is `{beside tools, whatever the model}`.
nif!(
    answer_constrain_normal,
    answer_constrain_dirty,
    |env,
     scheduler,
     answer: AnswerTypeHandle,
     provider: Worded<Provider>,
     model: Of<'a, &'a str>,
     name: Of<'a, &'a str>,
     asked: Of<'a, (bool, bool)>| {
        scheduler.allow(answer.0.schema().size())?;
        let (beside_tools, forced) = asked;
        let fields = constrain(&answer.0, provider, model, name, beside_tools, forced)?;
        Ok(encode::value(env, &fields))
    }
);

nif!(
    answer_schema_normal,
    answer_schema_dirty,
    |env, scheduler, answer: AnswerTypeHandle| {
        scheduler.allow(answer.0.schema().size())?;
        Ok(encode::value(env, answer.0.schema()))
    }
);

fn encode_path<'e>(env: Env<'e>, path: &[Value]) -> Term<'e> {
    let steps: Vec<Term<'_>> = path.iter().map(|step| encode::value(env, step)).collect();
    steps.encode(env)
}

fn encode_answer<'e>(env: Env<'e>, answer: &Answer) -> Term<'e> {
    let state = match answer.state {
        ReadingState::Fits => atoms::fits(),
        ReadingState::Misfits => atoms::misfits(),
        ReadingState::Cut => atoms::cut(),
    };
    let value = answer.value.as_ref().unwrap_or(&Value::Nil);
    let issue = |of: &Issue| (encode_path(env, &of.path), &*of.words, of.line()).encode(env);
    let issues: Vec<Term<'_>> = answer.issues.iter().map(issue).collect();
    // The names of kinds are the core's own and few.
    let mend = |of: &Mend| {
        let kind = encode::value(env, &Value::text(of.kind.name()));
        (encode_path(env, &of.path), kind).encode(env)
    };
    let mends: Vec<Term<'_>> = answer.mends.iter().map(mend).collect();
    (state, encode::value(env, value), issues, mends).encode(env)
}

fn encode_part<'e>(env: Env<'e>, part: &ShownPart) -> Term<'e> {
    let came = match &part.came {
        Came::Text(text) => (atoms::text(), text).encode(env),
        Came::Value(value) => (atoms::value(), encode::value(env, value)).encode(env),
    };
    (encode_path(env, &part.path), came).encode(env)
}
