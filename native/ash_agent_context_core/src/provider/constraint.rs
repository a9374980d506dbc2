//! The fields of a request that make the model answer by a schema.

use crate::answer::answer_type::AnswerType;
use crate::answer::subset::narrow;
use crate::error::{Error, Path};
use crate::log::provider::Provider;
use crate::value::Value;

/// Returns the fields of a request that make the model answer by a type, as JSON data.
///
/// # Errors
/// [`Error::Invalid`] with the reason why it has to be asked for in another way: the provider does not take the schema, or,
/// unless it is `forced`, the model is not known to follow one.
pub fn constrain(
    answer: &AnswerType,
    provider: Provider,
    model: &str,
    name: &str,
    beside_tools: bool,
    forced: bool,
) -> Result<Value, Error> {
    let facts = provider.facts();
    if !forced && !(facts.constrains)(model, beside_tools) {
        let expected = if beside_tools {
            "a model that is known to hold its answers to a schema beside tools"
        } else {
            "a model that is known to hold its answers to a schema"
        };
        return Err(Error::invalid(Path::new(), expected));
    }
    let schema = narrow(answer.schema(), answer.is_recursive(), facts.subset)?;
    Ok((facts.constraint)(name, schema))
}
