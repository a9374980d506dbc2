//! How providers say that something went wrong, and whether it passes.

use crate::fault::Fault;

use super::node::{self, Node, NodeKind};

/// Characters that are kept of a provider's own words.
const WORDS: usize = 2_000;

impl Fault {
    /// Returns what a provider says went wrong.
    pub(crate) fn provider(code: Option<&str>, message: Option<&str>) -> Self {
        Self::Provider {
            code: code.map(|code| short(code, 200)),
            message: message.map(|message| short(message, WORDS)),
            again: [code, message].into_iter().flatten().any(passes),
            after: None,
        }
    }

    /// The error that a document tells of, in any provider's form: `{"error": ..}` of all of them,
    /// Mistral's `{"object": "error"}`, Bedrock's and gateways' `{"message": ..}` with `code`.
    pub(crate) fn of(node: &Node<'_>) -> Option<Self> {
        let told = node::get(node, "error");
        let flat = matches!(node::text(node, "type"), Some("error"))
            || matches!(node::text(node, "object"), Some("error"));
        match (told, told.map(Node::kind)) {
            (_, Some(NodeKind::Text(message))) => Some(Self::provider(None, Some(message))),
            (Some(error), Some(NodeKind::Object(_))) => Some(Self::read(error)),
            _ if flat => Some(Self::read(node)),
            _ => None,
        }
    }

    /// A document that is not what was expected: a gateway's words, where it has any.
    pub(crate) fn neither(node: &Node<'_>, expected: &'static str) -> Self {
        match ["message", "detail"]
            .iter()
            .any(|name| node::filled(node, name).is_some())
        {
            true => Self::read(node),
            false => Self::unreadable(expected),
        }
    }

    /// Reads an error object.
    pub(crate) fn read(error: &Node<'_>) -> Self {
        let number = |key| node::number(error, key).map(|code| code.to_string());
        let named = ["code", "status", "type"]
            .into_iter()
            .find_map(|key| node::filled(error, key).filter(|name| *name != "error"));
        let status = number("code").or_else(|| number("status"));
        let message = ["message", "detail", "metadata"]
            .into_iter()
            .find_map(|key| node::filled(error, key));
        let mut fault = Self::provider(named.or(status.as_deref()), message);
        if let Self::Provider { again, after, .. } = &mut fault {
            let also = [node::text(error, "type"), status.as_deref()];
            let names = || also.into_iter().flatten().chain(named);
            *again = (*again || names().any(passes)) && !names().any(stays);
            *after = retry_after(error);
        }
        fault
    }
}

/// Returns what a server that is out of breath says: errors that pass.
fn passes(word: &str) -> bool {
    const PASSING: [&str; 24] = [
        "overloaded",
        "overloaded_error",
        "api_error",
        "rate_limit_error",
        "rate_limit_exceeded",
        "rate_limited",
        "too_many_requests",
        "timeout_error",
        "timeout",
        "server_error",
        "internal_server_error",
        "service_unavailable",
        "service_unavailable_error",
        "engine_overloaded",
        "unavailable",
        "internal",
        "resource_exhausted",
        "deadline_exceeded",
        "internalserverexception",
        "modelstreamerrorexception",
        "modeltimeoutexception",
        "modelnotreadyexception",
        "serviceunavailableexception",
        "throttlingexception",
    ];
    let is_status = matches!(
        word,
        "408" | "409" | "425" | "429" | "500" | "502" | "503" | "504" | "522" | "524" | "529"
    );
    is_status || (word.len() < 40 && PASSING.contains(&word.to_ascii_lowercase().as_str()))
}

/// Errors that stay although their status is one of those that pass.
fn stays(word: &str) -> bool {
    matches!(
        word,
        "insufficient_quota"
            | "billing_error"
            | "invalid_request_error"
            | "context_length_exceeded"
    )
}

/// Gemini says it in the details, as seconds.
fn retry_after(error: &Node<'_>) -> Option<u64> {
    let delays = node::list(error, "details");
    let delay = delays.iter().find_map(|of| node::text(of, "retryDelay"))?;
    let seconds: f64 = delay.strip_suffix('s')?.parse().ok()?;
    // A day is longer than anybody waits; a cast of such a number loses nothing.
    (0.0..=86_400.0)
        .contains(&seconds)
        .then_some((seconds * 1000.0).ceil() as u64)
}

fn short(text: &str, limit: usize) -> Box<str> {
    text.chars().take(limit).collect::<String>().into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::fault::Fault;
    use crate::provider::node;

    fn fault(json: &str) -> Fault {
        node::read(json.as_bytes(), |node| Ok(Fault::of(node).unwrap())).unwrap()
    }

    #[test]
    fn providers_say_whether_asking_again_helps() {
        let again = [
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            r#"{"error":{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED"}}"#,
            r#"{"error":{"message":"m","type":"server_error","code":null}}"#,
            r#"{"error":{"message":"m","code":502}}"#,
            r#"{"type":"error","code":"rate_limit_exceeded","message":"m"}"#,
            r#"{"object":"error","message":"m","type":"rate_limited","code":"1300"}"#,
        ];
        let not = [
            r#"{"error":{"message":"m","type":"insufficient_quota","code":"insufficient_quota"}}"#,
            r#"{"error":{"message":"m","type":"invalid_request_error","code":429}}"#,
            r#"{"error":"model not found"}"#,
            r#"{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT"}}"#,
        ];
        for json in again {
            assert!(fault(json).again(), "{json}");
        }
        for json in not {
            assert!(!fault(json).again(), "{json}");
        }
    }

    #[test]
    fn gemini_says_how_long_to_wait() {
        let json = r#"{"error":{"code":429,"message":"m","details":[{"@type":"x"},{"retryDelay":"34.4s"}]}}"#;
        let Fault::Provider { after, .. } = fault(json) else {
            panic!("another fault");
        };
        assert_eq!(after, Some(34_400));
    }
}
