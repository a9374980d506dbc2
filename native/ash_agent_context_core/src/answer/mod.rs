//! Answers of a type: a schema, a model's text read by it, and the value of a stream so far.

pub mod answer_type;
pub mod builder;
pub mod check;
pub mod comment;
pub mod fit;
pub mod follow;
pub mod formats;
pub mod issue;
pub mod lexer;
pub mod node;
pub mod pattern;
pub mod prose;
pub mod reading;
#[cfg(feature = "json_schema")]
pub mod rest;
pub mod schema;
pub mod subset;
