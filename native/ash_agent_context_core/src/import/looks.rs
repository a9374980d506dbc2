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
    /// `.field` of a message, `!field` of one without a type, its `@role`, `:type` of a message or of one of its parts, `list.key` of
    /// a part without a type, `list+key` of any part.
    signs: &'static str,
}

const GUIDE: &str = "for which the guide \"Bringing your history\" has a function";

const FORMS: [Form; 13] = [
    Form {
        of: "the Vercel AI SDK's UI messages",
        reader: GUIDE,
        providers: &[],
        // No provider has parts with a type under this key.
        signs: ".toolInvocations .experimental_attachments :tool-invocation :tool-call :tool-result :step-start :dynamic-tool parts.type",
    },
    Form {
        of: "LangChain's dumps",
        reader: GUIDE,
        providers: &[],
        signs: ".lc .kwargs .additional_kwargs .response_metadata :human :ai",
    },
    Form {
        of: "ShareGPT's",
        reader: GUIDE,
        providers: &[],
        signs: ".from",
    },
    Form {
        of: "a transcript of Claude Code or Codex",
        reader: GUIDE,
        providers: &[],
        signs: ".isSidechain .payload",
    },
    Form {
        of: "words under another key",
        reader: "which belong under `content`",
        providers: &[],
        signs: "!text",
    },
    Form {
        of: "Anthropic's",
        reader: "which Import.from_request(%{\"messages\" => messages}, :anthropic) reads",
        providers: &[Anthropic],
        signs: ":tool_use :server_tool_use :tool_result content+source",
    },
    Form {
        of: "Anthropic's or Mistral's",
        reader: BOTH,
        providers: &[Anthropic, Mistral],
        signs: "content+signature",
    },
    Form {
        of: "Anthropic's or Mistral's",
        reader: BOTH,
        providers: &[Anthropic, Mistral, OpenAiChat],
        signs: "content+thinking",
    },
    Form {
        of: "Bedrock's",
        reader: "which Import.from_request(%{\"messages\" => messages}, :bedrock) reads",
        providers: &[Bedrock],
        signs: "content.text content.toolUse content.toolResult content.reasoningContent content.cachePoint",
    },
    Form {
        of: "Gemini's",
        reader: "which Import.from_request(%{\"contents\" => messages}, :gemini) reads",
        providers: &[Gemini],
        signs: "parts.text parts.functionCall parts.functionResponse parts.inlineData parts.function_call \
                parts.function_response parts.inline_data",
    },
    Form {
        of: "OpenAI Responses' items",
        reader: "which Import.from_request(%{\"input\" => messages}, :openai_responses) reads",
        providers: &[OpenAiResponses],
        signs: ":function_call :function_call_output :custom_tool_call :custom_tool_call_output :input_text :output_text",
    },
    Form {
        of: "OpenAI's chat format",
        reader: CHAT,
        providers: &[OpenAiChat, Mistral, Ollama],
        signs: ".tool_calls .tool_call_id @tool :image_url",
    },
    Form {
        of: "OpenAI's chat format before there were tools",
        reader: CHAT,
        providers: &[OpenAiChat, Mistral],
        signs: ".function_call @function",
    },
];

const BOTH: &str = "which Import.from_request(%{\"messages\" => messages}, provider) reads";

const CHAT: &str =
    "which Import.from_messages(messages) and Import.from_request(body, :openai_chat) read";

impl Form {
    /// Returns whether a message has a sign of this form, other than one that it may have.
    fn is_of(&self, message: &Value, known: &str) -> bool {
        let mut signs = self.signs.split(' ').filter(|sign| *sign != known);
        signs.any(|sign| {
            if let Some(field) = sign.strip_prefix('.') {
                return at(message, field).is_some_and(says);
            }
            if let Some(field) = sign.strip_prefix('!') {
                return at(message, field).is_some_and(says) && !has(message, "type");
            }
            if let Some(role) = sign.strip_prefix('@') {
                return name_at(message, "role") == Some(role);
            }
            if let Some(kind) = sign.strip_prefix(':') {
                let is_such = |value: &Value| name_at(value, "type") == Some(kind);
                return is_such(message) || has_part(message, "content", is_such);
            }
            if let Some((list, key)) = sign.split_once('+') {
                return has_part(message, list, |part| has(part, key));
            }
            let (list, key) = sign.split_once('.').unwrap_or_default();
            let is_typed = |part: &Value| has(part, "type");
            has_part(message, list, |part| {
                has(part, key) && (key == "type" || !is_typed(part))
            })
        })
    }
}

fn has_part(message: &Value, list: &str, is_such: impl Fn(&Value) -> bool) -> bool {
    match at(message, list) {
        Some(Value::List(parts)) => parts.iter().any(is_such),
        Some(part @ Value::Map(_)) => is_such(part),
        _ => false,
    }
}

fn says(field: &Value) -> bool {
    !matches!(field, Value::Nil) && *field != Value::List(Box::default())
}

/// Returns the error for messages in the form of another provider or program, if one of them is. Without a provider they may be in
/// OpenAI's form or in ours.
pub(super) fn find(messages: &[Value], provider: Option<Provider>) -> Option<Error> {
    let (of, known) = match provider {
        Some(provider) => (provider, ""),
        None => (OpenAiChat, ":tool_result"),
    };
    let others = FORMS.iter().filter(|form| !form.providers.contains(&of));
    let others: Vec<&Form> = others.collect();
    let found = messages.iter().enumerate().find_map(|(position, message)| {
        let form = others.iter().find(|form| form.is_of(message, known))?;
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
