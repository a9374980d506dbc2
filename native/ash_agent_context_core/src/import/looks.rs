//! Histories in another form than they are said to be in: whose they are, and what reads them. Read as they are said to be, they
//! would lose calls and results.

use crate::error::{index, Error};
use crate::log::provider::Provider::{
    self, Anthropic, Bedrock, Gemini, Mistral, Ollama, OpenAiChat, OpenAiResponses,
};
use crate::provider::foreign::{at, has, name_at};
use crate::value::fields::Fields;
use crate::value::Value;

/// What only one form has.
struct Form {
    of: &'static str,
    reader: &'static str,
    /// The providers whose requests have it.
    providers: &'static [Provider],
    /// Fields of a message.
    fields: &'static [&'static str],
    /// Types of messages and of their parts.
    types: &'static [&'static str],
    /// Keys of parts that have no type.
    keys: &'static [&'static str],
    /// The field of a message with its parts.
    list: &'static str,
}

const UI: &str = "the Vercel AI SDK's UI messages";

const FORMS: [Form; 7] = [
    Form {
        of: UI,
        reader: "for which the guide \"Bringing your history\" has a function",
        providers: &[],
        fields: &["toolInvocations"],
        types: &[
            "tool-invocation",
            "tool-call",
            "tool-result",
            "step-start",
            "dynamic-tool",
        ],
        keys: &[],
        list: "content",
    },
    Form {
        of: "LangChain's dumps",
        reader: "for which the guide \"Bringing your history\" has a function",
        providers: &[],
        fields: &["lc", "kwargs", "additional_kwargs", "response_metadata"],
        types: &["human", "ai"],
        keys: &[],
        list: "content",
    },
    Form {
        of: "Anthropic's",
        reader: "which Import.from_request(%{\"messages\" => messages}, :anthropic) reads",
        providers: &[Anthropic],
        fields: &[],
        types: &["tool_use", "server_tool_use"],
        keys: &[],
        list: "content",
    },
    Form {
        of: "Bedrock's",
        reader: "which Import.from_request(%{\"messages\" => messages}, :bedrock) reads",
        providers: &[Bedrock],
        fields: &[],
        types: &[],
        keys: &[
            "text",
            "toolUse",
            "toolResult",
            "reasoningContent",
            "cachePoint",
        ],
        list: "content",
    },
    Form {
        of: "Gemini's",
        reader: "which Import.from_request(%{\"contents\" => messages}, :gemini) reads",
        providers: &[Gemini],
        fields: &[],
        types: &[],
        keys: &["functionCall", "functionResponse", "inlineData", "text"],
        list: "parts",
    },
    Form {
        of: "OpenAI Responses' items",
        reader: "which Import.from_request(%{\"input\" => messages}, :openai_responses) reads",
        providers: &[OpenAiResponses],
        fields: &[],
        types: &[
            "function_call",
            "function_call_output",
            "custom_tool_call",
            "custom_tool_call_output",
            "input_text",
            "output_text",
        ],
        keys: &[],
        list: "content",
    },
    Form {
        of: "OpenAI's chat format",
        reader:
            "which Import.from_messages(messages) and Import.from_request(body, :openai_chat) read",
        providers: &[OpenAiChat, Mistral, Ollama],
        fields: &["tool_calls", "tool_call_id"],
        types: &["image_url"],
        keys: &[],
        list: "content",
    },
];

impl Form {
    fn is_of(&self, message: &Value) -> bool {
        let is_typed = |value: &Value| {
            let kind = name_at(value, "type");
            kind.is_some_and(|kind| self.types.contains(&kind))
        };
        let is_part = |part: &Value| {
            is_typed(part) || (!has(part, "type") && self.keys.iter().any(|key| has(part, key)))
        };
        let any = |list: &str, test: &dyn Fn(&Value) -> bool| match at(message, list) {
            Some(Value::List(parts)) => parts.iter().any(test),
            Some(part @ Value::Map(_)) => test(part),
            _ => false,
        };
        // No provider has parts with a type under this key.
        let is_ui = self.of == UI && any("parts", &|part| has(part, "type"));
        let says = |field: &&str| at(message, field).is_some_and(says);
        is_ui || is_typed(message) || self.fields.iter().any(says) || any(self.list, &is_part)
    }
}

fn says(field: &Value) -> bool {
    !matches!(field, Value::Nil) && *field != Value::List(Box::default())
}

/// Returns the error for messages in the form of another provider or program, if one of them is.
pub(super) fn find(messages: &[Value], provider: Provider) -> Option<Error> {
    let others = FORMS
        .iter()
        .filter(|form| !form.providers.contains(&provider));
    let others: Vec<&Form> = others.collect();
    let found = messages.iter().enumerate().find_map(|(position, message)| {
        let form = others.iter().find(|form| form.is_of(message))?;
        Some((position, form))
    });
    let (position, form) = found?;
    let expected = format!(
        "another form (this looks like {}, {})",
        form.of, form.reader
    );
    Some(Error::invalid(vec![index(position)], expected))
}

/// Returns the error for a body whose messages stand where another provider has them.
pub(super) fn find_list(body: &Fields, provider: Provider) -> Option<Error> {
    const LISTS: [(&str, &str); 3] = [
        ("messages", "Anthropic, Bedrock or a chat server"),
        ("contents", "Gemini"),
        ("input", "OpenAI Responses"),
    ];
    let list = provider.facts().list;
    let is_there = |(name, _): &&(&str, &str)| body.has(name);
    let (_, of) = LISTS.iter().find(is_there).filter(|_| !body.has(list))?;
    let expected = format!("messages under this key: this looks like a request for {of}, so read it with that provider's name");
    Some(Error::invalid(vec![body.key(list)], expected))
}
