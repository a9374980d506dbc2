//! The kinds of failures: one vocabulary for the error names, words and statuses of all providers.

use crate::value::word::words;

words! {
    /// The kind of failure that a request ended with.
    pub enum FailureKind {
        /// Too many requests or tokens for now.
        RateLimited = "rate_limited",
        /// The account's money or allowance is used up: waiting does not help soon.
        Quota = "quota",
        /// The provider has no capacity for now.
        Overloaded = "overloaded",
        /// The provider failed.
        ServerError = "server_error",
        /// The request is longer than the model or the server takes.
        ContextOverflow = "context_overflow",
        /// The key is missing, wrong or not allowed to do this.
        Unauthorized = "unauthorized",
        /// The request is wrong, or names a model that is not there.
        InvalidRequest = "invalid_request",
        /// The provider's content filter refused it.
        Refused = "refused",
        /// A time limit was reached.
        Timeout = "timeout",
        /// The connection ended before the answer.
        Closed = "closed",
        /// No connection could be made.
        Unreachable = "unreachable",
        /// The response is not an answer.
        InvalidResponse = "invalid_response",
    }
}

use FailureKind::{ContextOverflow, InvalidRequest, Quota, RateLimited, Refused, Unauthorized};

/// Providers' names for errors, in lower case: in each line, those of the kind that begins it.
const NAMES: &str = "\
context_overflow context_length_exceeded model_context_window_exceeded request_too_large string_above_max_length
context_overflow exceed_context_size_error model_max_prompt_tokens_exceeded 1261
quota insufficient_quota billing_error billing_hard_limit_reached billing_not_active insufficient_balance
quota insufficient_user_quota exceeded_current_quota_error payment_required servicequotaexceededexception
refused content_filter content_policy_violation responsibleaipolicyviolation data_inspection_failed moderation_blocked
refused invalid_prompt
rate_limited rate_limit_error rate_limit_exceeded rate_limit_reached_error rate_limited ratelimitexceeded
rate_limited too_many_requests resource_exhausted service_tier_capacity_exceeded throttlingexception throttled
rate_limited toomanyrequestsexception
overloaded overloaded overloaded_error engine_overloaded engine_overloaded_error slow_down service_unavailable
overloaded service_unavailable_error serviceunavailableexception modelnotreadyexception unavailable
timeout timeout timeout_error deadline_exceeded modeltimeoutexception
server_error api_error server_error internal_server_error internal internalserverexception modelstreamerrorexception
unauthorized authentication_error permission_error invalid_api_key invalid_authentication_error unauthenticated
unauthorized permission_denied accessdeniedexception unrecognizedclientexception expiredtokenexception
unauthorized invalidsignatureexception
invalid_request not_found_error model_not_found not_found invalid_argument failed_precondition
invalid_request resourcenotfoundexception
timeout base_resp_1001
rate_limited base_resp_1002 base_resp_1041 base_resp_2045
overloaded base_resp_2064
unauthorized base_resp_1004 base_resp_2049
quota base_resp_1008 base_resp_2056
refused base_resp_1026 base_resp_1027
server_error base_resp_1000 base_resp_1013 base_resp_1024 base_resp_1033
invalid_request base_resp_1042 base_resp_2013";

/// Vague names: servers give them to errors of every kind, so words and statuses count more.
const VAGUE: &str = "\
invalid_request invalid_request_error badrequesterror validationexception
server_error modelerrorexception";

/// Words of error messages, in lower case, for errors whose names do not decide.
const WORDS: [(&str, FailureKind); 35] = [
    ("prompt is too long", ContextOverflow),   // Anthropic
    ("prompt too long", ContextOverflow),      // Ollama
    ("exceed context limit", ContextOverflow), // Anthropic, with max_tokens
    ("input is too long for requested model", ContextOverflow), // Bedrock
    ("exceeds the context window", ContextOverflow), // Responses
    ("exceed the configured limit", ContextOverflow), // OpenAI
    ("maximum context length", ContextOverflow), // OpenAI, vLLM, OpenRouter, Mistral
    ("maximum prompt length", ContextOverflow), // xAI
    (
        "exceeds the maximum number of tokens allowed",
        ContextOverflow,
    ), // Gemini
    ("model only supports up to", ContextOverflow), // Vertex
    ("must be at least 1, got -", ContextOverflow), // vLLM, of what is left for the answer
    ("reduce the length of", ContextOverflow), // Groq, Cerebras, vLLM
    ("range of input length", ContextOverflow), // DashScope
    ("max_new_tokens` must be <=", ContextOverflow), // Together, TGI
    ("available context size", ContextOverflow), // llama.cpp
    ("greater than the context length", ContextOverflow), // LM Studio
    ("context window exceeds limit", ContextOverflow), // MiniMax
    ("exceeded model token limit", ContextOverflow), // Kimi
    ("context length exceeded", ContextOverflow),
    ("credit balance is too low", Quota), // Anthropic says that it is an invalid request
    ("insufficient balance", Quota),      // DeepSeek
    ("insufficient credits", Quota),      // OpenRouter
    ("requires more credits", Quota),     // OpenRouter
    ("exceeded your current quota", Quota), // OpenAI and Gemini
    ("reached your specified api usage limits", Quota), // Anthropic
    ("too many tokens per day", Quota),   // Bedrock
    ("content management policy", Refused), // Azure
    ("content filtering policy", Refused), // Anthropic, Bedrock
    ("content moderation", Refused),
    ("was flagged", Refused),            // OpenAI, OpenRouter
    ("api key not valid", Unauthorized), // Gemini, with status 400
    ("api key expired", Unauthorized),   // Gemini, with status 400
    ("incorrect api key", Unauthorized), // xAI, with status 400
    ("rate limit", RateLimited),
    ("too many requests", RateLimited),
];

/// In each line words for what is too long, for its maximum, and for something else that has one, in messages that the table does
/// not know.
const TOO_LONG: [&str; 3] = [
    "context|token|prompt is|prompt exceeds|input length|input is|input exceeds|inputs|sequence length",
    "exceed|maximum|max length|limit|too long|too large|too many|longer than|greater than|larger than|more than|less than|at most|\
     overflow",
    "rate limit|rate_limit|ratelimit|per min|per-min|per hour|per day|per second|tpm|quota|try again in|schema|max_tokens|\
     max_output_tokens|max_completion_tokens|maxtokens|maxoutputtokens|output token|completion token|budget|image|cache|in context=|\
     logprobs|expired|parameters",
];

/// Returns whether the words of a refused request say that it is too long for the model.
fn is_too_long(words: &str) -> bool {
    let [what, most, other] =
        TOO_LONG.map(|line| line.split('|').any(|known| words.contains(known)));
    what && most && !other
}

impl FailureKind {
    /// Returns true if the same request may succeed later.
    #[must_use]
    pub const fn passes(self) -> bool {
        matches!(
            self,
            Self::RateLimited
                | Self::Overloaded
                | Self::ServerError
                | Self::Timeout
                | Self::Closed
                | Self::Unreachable
        )
    }

    /// Returns the kind of an HTTP status that is not a success.
    #[must_use]
    pub const fn of_status(status: u16) -> Option<Self> {
        Some(match status {
            300..=399 => Self::InvalidResponse,
            401 | 403 | 407 => Self::Unauthorized,
            402 => Self::Quota,
            408 | 504 | 522 | 524 => Self::Timeout,
            413 => Self::ContextOverflow,
            // The SDKs of OpenAI and Anthropic retry these.
            409 | 425 | 503 | 529 => Self::Overloaded,
            429 => Self::RateLimited,
            400..=499 | 501 => Self::InvalidRequest,
            500..=599 => Self::ServerError,
            _ => return None,
        })
    }

    /// Returns the kind of a provider's error by its names and words, if they decide. `waits`: it asks to wait.
    pub(crate) fn of_error(
        names: &[&str],
        words: Option<&str>,
        status: Option<u16>,
        waits: bool,
    ) -> Option<Self> {
        let find = |table: &str| {
            let kinds = table.lines().filter_map(|line| line.split_once(' '));
            names.iter().find_map(|name| {
                let is_it = |known: &str| known.eq_ignore_ascii_case(name);
                let of = kinds.clone().find(|of| of.1.split(' ').any(is_it));
                of.and_then(|of| Self::from_name(of.0))
            })
        };
        let said = || {
            let words = words?.to_ascii_lowercase();
            let stands = |known: &&(&str, Self)| words.contains(known.0);
            let known = WORDS.iter().find(stands).map(|known| known.1);
            let is_refused = matches!(status, None | Some(400 | 413 | 422));
            known.or_else(|| (is_refused && is_too_long(&words)).then_some(ContextOverflow))
        };
        let by_status = || status.and_then(Self::of_status);
        let number = |name: &&str| name.parse().ok().and_then(Self::of_status);
        let kind = match find(NAMES) {
            // These names are given to more than one kind of failure.
            Some(named @ (RateLimited | InvalidRequest)) => {
                let clear = |kind: &Self| !matches!(kind, RateLimited);
                Some(said().filter(clear).unwrap_or(named))
            }
            named => named.or_else(said),
        };
        let kind = kind
            .or_else(|| by_status().filter(|kind| *kind != InvalidRequest))
            .or_else(|| find(VAGUE))
            .or_else(|| names.iter().find_map(number))
            .or_else(by_status);
        // Gemini has the same words for a minute's allowance, with the time to wait.
        kind.map(|kind| match kind {
            Quota if waits => RateLimited,
            kind => kind,
        })
    }
}
