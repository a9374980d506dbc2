//! Reads providers' errors, and whether they pass.

use crate::failure::FailureKind;
use crate::fault::Fault;

use super::node::{self, Node};

/// The most characters of a provider's own words that are kept.
const WORDS: usize = 2_000;

impl Fault {
    /// Returns the fault for a provider's code and message.
    pub(crate) fn provider(code: Option<&str>, message: Option<&str>) -> Self {
        Self::tell(code, message, code.as_slice(), None, None)
    }

    fn tell(
        code: Option<&str>,
        message: Option<&str>,
        names: &[&str],
        status: Option<u16>,
        after: Option<u64>,
    ) -> Self {
        // Some servers send nothing but the name.
        let named: Vec<_> = names.iter().copied().chain(message).collect();
        let known = FailureKind::of_error(&named, message, status, after.is_some());
        Self::Provider {
            code: code.map(|code| short(code, 200)),
            message: message.map(|message| short(message, WORDS)),
            kind: known.unwrap_or(FailureKind::ServerError),
            again: known.is_some_and(FailureKind::passes),
            after,
        }
    }

    /// Returns the error in a document, in any provider's form: `{"error": ..}` of all of them, Mistral's `{"object": "error"}`,
    /// Bedrock's and gateways' `{"message": ..}` with `code`.
    pub(crate) fn of(node: &Node<'_>) -> Option<Self> {
        let told = node::get(node, "error");
        let flat = matches!(node::text(node, "type"), Some("error"))
            || matches!(node::text(node, "object"), Some("error"));
        if let Some(told) = node::get(node, "base_resp").filter(|_| told.is_none()) {
            // MiniMax's, with the status 200. Its numbers mean other things elsewhere.
            let code = node::number(told, "status_code").filter(|code| *code != 0)?;
            let words = node::filled_text(told, "status_msg");
            let name = format!("base_resp_{code}");
            let code = code.to_string();
            return Some(Self::tell(Some(&code), words, &[&name], None, None));
        }
        match (told, told.and_then(Node::as_str)) {
            (_, Some(message)) => Some(Self::provider(None, Some(message))),
            (Some(error @ Node::Object(_)), _) => Some(Self::read(error)),
            _ => flat.then(|| Self::read(node)),
        }
    }

    /// Refuses a document that has an error.
    pub(crate) fn check(node: &Node<'_>) -> Result<(), Self> {
        Self::of(node).map_or(Ok(()), Err)
    }

    /// Returns the fault for a document that is not the expected one: a gateway's words, if it has any.
    pub(crate) fn neither(node: &Node<'_>, expected: &'static str) -> Self {
        let has = |name| node::filled_text(node, name).is_some();
        match has("message") || has("detail") {
            true => Self::read(node),
            false => Self::unreadable(expected),
        }
    }

    pub(crate) fn read(error: &Node<'_>) -> Self {
        Self::read_refusal(error, None, None)
    }

    /// Reads the body of an HTTP response that refuses, in any provider's or gateway's form. `name`: the error's name in the
    /// headers, as Bedrock sends it.
    #[must_use]
    pub fn refusal(status: u16, name: Option<&str>, body: &[u8]) -> Self {
        // Amazon appends an address after a colon.
        let name = name.map(|name| name.split(':').next().unwrap_or(name));
        let say =
            |message: Option<&str>| Self::tell(name, message, name.as_slice(), Some(status), None);
        let read = |node: &Node<'_>| {
            // Gemini's streams refuse with a list of errors.
            let node = node::as_list(node).first().unwrap_or(node);
            let told = node::get(node, "error");
            Ok(match told.and_then(Node::as_str) {
                Some(message) => say(Some(message)),
                None => {
                    let told = told.filter(|told| matches!(told, Node::Object(_)));
                    Self::read_refusal(told.unwrap_or(node), name, Some(status))
                }
            })
        };
        node::read(body, read).unwrap_or_else(|_| {
            let text = std::str::from_utf8(body).ok().map(str::trim);
            say(text.filter(|text| !text.is_empty()))
        })
    }

    fn read_refusal(error: &Node<'_>, name: Option<&str>, status: Option<u16>) -> Self {
        let number = |key| node::number(error, key).map(|code| code.to_string());
        let named = ["code", "status", "type", "__type"].into_iter();
        let named = named.filter_map(|key| node::filled_text(error, key));
        let named = named.filter(|name| *name != "error");
        // Bedrock's name begins with that of the service.
        let named = named.map(|name| name.rsplit('#').next().unwrap_or(name));
        let named: Vec<_> = name.into_iter().chain(named).collect();
        let numbered = number("code").or_else(|| number("status"));
        let message = ["message", "Message", "detail", "metadata"]
            .into_iter()
            .find_map(|key| node::filled_text(error, key));
        // Servers in Python send a list of details.
        let first = || node::text(node::list(error, "detail").first()?, "msg");
        let names: Vec<_> = named.iter().copied().chain(numbered.as_deref()).collect();
        Self::tell(
            named.first().copied().or(numbered.as_deref()),
            message.or_else(first),
            &names,
            status,
            retry_after(error),
        )
    }
}

/// Returns the delay in milliseconds from Gemini's details, which have it in seconds.
fn retry_after(error: &Node<'_>) -> Option<u64> {
    let delays = node::list(error, "details");
    let delay = delays.iter().find_map(|of| node::text(of, "retryDelay"))?;
    let seconds: f64 = delay.strip_suffix('s')?.parse().ok()?;
    // Nobody waits longer than a day, and below that the cast loses nothing.
    (0.0..=86_400.0)
        .contains(&seconds)
        .then_some((seconds * 1000.0).ceil() as u64)
}

fn short(text: &str, limit: usize) -> Box<str> {
    text.chars().take(limit).collect::<String>().into()
}
