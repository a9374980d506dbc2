//! What providers, gateways and servers answer when a request fails, as they were recorded in issues, SDKs and documentation,
//! and the kind of failure that each is.
use ash_agent_context_core::FailureKind::{
    self, ContextOverflow, InvalidRequest, Overloaded, Quota, RateLimited, Refused, ServerError,
    Timeout, Unauthorized,
};
use ash_agent_context_core::Fault;
use proptest::prelude::*;

/// Status, what the headers call it, the body, and what it is.
type Case = (u16, Option<&'static str>, &'static str, FailureKind);

const ANTHROPIC: [Case; 10] = [
    (
        429,
        None,
        r#"{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit of 30,000 input tokens per minute"}}"#,
        RateLimited,
    ),
    (
        529,
        None,
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        Overloaded,
    ),
    (
        500,
        None,
        r#"{"type":"error","error":{"type":"api_error","message":"Internal server error"}}"#,
        ServerError,
    ),
    (
        400,
        None,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 213462 tokens > 200000 maximum"}}"#,
        ContextOverflow,
    ),
    (
        400,
        None,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000"}}"#,
        ContextOverflow,
    ),
    (
        413,
        None,
        r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
        ContextOverflow,
    ),
    (
        401,
        None,
        r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
        Unauthorized,
    ),
    (
        400,
        None,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}"#,
        Quota,
    ),
    (
        400,
        None,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"}}"#,
        Refused,
    ),
    (
        404,
        None,
        r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-9"}}"#,
        InvalidRequest,
    ),
];

const OPENAI: [Case; 13] = [
    (
        429,
        None,
        r#"{"error":{"message":"Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#,
        RateLimited,
    ),
    (
        429,
        None,
        r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#,
        Quota,
    ),
    (
        400,
        None,
        r#"{"error":{"message":"This model's maximum context length is 8192 tokens. However, your messages resulted in 8545 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
        ContextOverflow,
    ),
    (
        400,
        None,
        r#"{"error":{"message":"Your input exceeds the context window of this model.","type":"invalid_request_error","param":"input","code":null}}"#,
        ContextOverflow,
    ),
    (
        401,
        None,
        r#"{"error":{"message":"Incorrect API key provided: sk-x.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#,
        Unauthorized,
    ),
    (
        404,
        None,
        r#"{"error":{"message":"The model `gpt-9` does not exist","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#,
        InvalidRequest,
    ),
    (
        503,
        None,
        r#"{"error":{"message":"The engine is currently overloaded, please try again later","type":"server_error","param":null,"code":"slow_down"}}"#,
        Overloaded,
    ),
    (
        500,
        None,
        r#"{"error":{"message":"The server had an error","type":"server_error","param":null,"code":null}}"#,
        ServerError,
    ),
    (
        400,
        None,
        r#"{"error":{"message":"Invalid prompt: your prompt was flagged as potentially violating our usage policy.","type":"invalid_request_error","code":"invalid_prompt"}}"#,
        Refused,
    ),
    // Azure
    (
        400,
        None,
        r#"{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","type":null,"param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#,
        Refused,
    ),
    (
        401,
        None,
        r#"{"statusCode":401,"message":"Unauthorized. Access token is missing, invalid, audience is incorrect."}"#,
        Unauthorized,
    ),
    // Groq, DeepSeek
    (
        400,
        None,
        r#"{"error":{"message":"Please reduce the length of the messages or completion.","type":"invalid_request_error","param":"messages"}}"#,
        ContextOverflow,
    ),
    (
        402,
        None,
        r#"{"error":{"message":"Insufficient Balance","type":"unknown_error","param":null,"code":"invalid_request_error"}}"#,
        Quota,
    ),
];

const OTHERS: [Case; 22] = [
    // Gemini
    (
        429,
        None,
        r#"{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details. Please retry in 36.4s.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"36s"}]}}"#,
        RateLimited,
    ),
    (
        429,
        None,
        r#"{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED"}}"#,
        Quota,
    ),
    (
        429,
        None,
        r#"[{"error":{"code":429,"message":"Resource exhausted. Please try again later.","status":"RESOURCE_EXHAUSTED"}}]"#,
        RateLimited,
    ),
    (
        400,
        None,
        r#"{"error":{"code":400,"message":"The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).","status":"INVALID_ARGUMENT"}}"#,
        ContextOverflow,
    ),
    (
        400,
        None,
        r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}"#,
        Unauthorized,
    ),
    (
        503,
        None,
        r#"{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}"#,
        Overloaded,
    ),
    (
        504,
        None,
        r#"{"error":{"code":504,"message":"Deadline expired before operation could complete.","status":"DEADLINE_EXCEEDED"}}"#,
        Timeout,
    ),
    (
        403,
        None,
        r#"{"error":{"code":403,"message":"Method doesn't allow unregistered callers.","status":"PERMISSION_DENIED"}}"#,
        Unauthorized,
    ),
    // Bedrock
    (
        429,
        Some("ThrottlingException:http://internal.amazon.com/coral/com.amazon.bedrock/"),
        r#"{"message":"Too many requests, please wait before trying again."}"#,
        RateLimited,
    ),
    (
        429,
        Some("ThrottlingException"),
        r#"{"message":"Too many tokens per day, please wait before trying again."}"#,
        Quota,
    ),
    (
        400,
        Some("ValidationException"),
        r#"{"message":"Input is too long for requested model."}"#,
        ContextOverflow,
    ),
    (
        400,
        Some("ValidationException"),
        r#"{"message":"The model returned the following errors: prompt is too long: 203000 tokens > 200000 maximum"}"#,
        ContextOverflow,
    ),
    (
        403,
        None,
        r#"{"__type":"com.amazon.coral.service#UnrecognizedClientException","message":"The security token included in the request is invalid."}"#,
        Unauthorized,
    ),
    (
        408,
        Some("ModelTimeoutException"),
        r#"{"message":"The model took too long"}"#,
        Timeout,
    ),
    (
        503,
        Some("ServiceUnavailableException"),
        r#"{"message":"Bedrock is unable to process your request."}"#,
        Overloaded,
    ),
    (
        400,
        Some("ServiceQuotaExceededException"),
        r#"{"message":"Your request exceeds the service quota for your account."}"#,
        Quota,
    ),
    // Mistral
    (
        429,
        None,
        r#"{"object":"error","message":"Requests rate limit exceeded","type":"rate_limited","param":null,"code":"1300"}"#,
        RateLimited,
    ),
    (
        400,
        None,
        r#"{"object":"error","message":"Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum context length","type":"invalid_request_prompt","code":"3051"}"#,
        ContextOverflow,
    ),
    (401, None, r#"{"detail":"Unauthorized"}"#, Unauthorized),
    (
        422,
        None,
        r#"{"detail":[{"type":"missing","loc":["body","messages"],"msg":"Field required"}]}"#,
        InvalidRequest,
    ),
    // Ollama
    (
        404,
        None,
        r#"{"error":"model 'llama9' not found"}"#,
        InvalidRequest,
    ),
    (
        500,
        None,
        r#"{"error":"prompt too long; exceeded max context length by 12 tokens"}"#,
        ContextOverflow,
    ),
];

const GATEWAYS: [Case; 9] = [
    (
        502,
        None,
        "<html><head><title>502 Bad Gateway</title></head></html>",
        ServerError,
    ),
    (504, None, "upstream request timeout", Timeout),
    (503, None, "", Overloaded),
    (302, None, "", FailureKind::InvalidResponse),
    (524, None, "<html>A timeout occurred</html>", Timeout),
    (429, None, "error code: 1015", RateLimited),
    // OpenRouter
    (
        402,
        None,
        r#"{"error":{"message":"This request requires more credits, or fewer max_tokens.","code":402}}"#,
        Quota,
    ),
    (
        403,
        None,
        r#"{"error":{"message":"openai/gpt-4o requires moderation. Your input was flagged for \"harassment\".","code":403,"metadata":{"reasons":["harassment"]}}}"#,
        Refused,
    ),
    // LiteLLM, vLLM
    (
        400,
        None,
        r#"{"object":"error","message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","param":null,"code":400}"#,
        ContextOverflow,
    ),
];

fn cases() -> impl Iterator<Item = &'static Case> {
    ANTHROPIC
        .iter()
        .chain(&OPENAI)
        .chain(&OTHERS)
        .chain(&GATEWAYS)
}

#[test]
fn refusals_have_one_vocabulary() {
    for (status, name, body, kind) in cases() {
        let fault = Fault::refusal(*status, *name, body.as_bytes());
        assert_eq!(fault.kind(), *kind, "{status} {body}");
        assert_eq!(fault.again(), kind.passes(), "{status} {body}");
    }
}

#[test]
fn the_words_and_the_name_of_a_refusal_are_kept() {
    let said = |body: &str| {
        Fault::refusal(400, None, body.as_bytes())
            .message()
            .map(str::to_owned)
    };
    assert_eq!(said(r#"{"error":{"message":"no"}}"#).unwrap(), "no");
    assert_eq!(said(r#"{"error":"no"}"#).unwrap(), "no");
    assert_eq!(said(r#"{"Message":"no"}"#).unwrap(), "no");
    assert_eq!(said(r#"{"detail":"no"}"#).unwrap(), "no");
    assert_eq!(said(r#"{"detail":[{"msg":"no"}]}"#).unwrap(), "no");
    assert_eq!(said(" no \n").unwrap(), "no");
    assert_eq!(said(r#"{"a":1}"#), None);
    assert_eq!(said(""), None);
    let Fault::Provider { code, after, .. } = Fault::refusal(
        429,
        Some("ThrottlingException:x"),
        br#"{"error":{"details":[{"retryDelay":"1.5s"}]}}"#,
    ) else {
        panic!("another fault");
    };
    assert_eq!(
        (code.as_deref(), after),
        (Some("ThrottlingException"), Some(1500))
    );
}

#[test]
fn kinds_have_names() {
    for kind in FailureKind::ALL {
        assert_eq!(FailureKind::from_name(kind.name()), Some(kind));
    }
    assert_eq!(FailureKind::from_name("rate limited"), None);
}

proptest! {
    #[test]
    fn anything_is_some_refusal(status in 300_u16..600, name in proptest::option::of(".{0,40}"), body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let fault = Fault::refusal(status, name.as_deref(), &body);
        prop_assert!(fault.message().is_none_or(|words| words.chars().count() <= 2_000));
        prop_assert!(FailureKind::ALL.contains(&fault.kind()));
    }
}
