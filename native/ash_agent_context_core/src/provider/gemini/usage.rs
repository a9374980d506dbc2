//! How Gemini reports tokens.

use super::Room;
use crate::log::bill::{Count, Term};
use crate::provider::figures::{Billed, Figures};
use crate::provider::format::Reports;

impl Reports for Room {
    fn figures(&self) -> &'static Figures {
        &Figures {
            around: &["usageMetadata", "usage_metadata"],
            whole_input: &["promptTokenCount", "prompt_token_count"],
            tools: &["toolUsePromptTokenCount", "tool_use_prompt_token_count"],
            candidates: &["candidatesTokenCount", "candidates_token_count"],
            thoughts: &["thoughtsTokenCount", "thoughts_token_count"],
            total: &["totalTokenCount", "total_token_count"],
            cached: &["cachedContentTokenCount", "cached_content_token_count"],
            billed: &BILLED,
            terms: &[("serviceTier", Term::Tier), ("trafficType", Term::Tier)],
            ..Figures::NONE
        }
    }
}

const fn modal(list: &'static str, modality: &'static str, count: Count) -> Billed {
    let number = &["tokenCount", "token_count"];
    Billed::in_list(list, ("modality", modality), number, count)
}

const BILLED: [Billed; 32] = [
    modal("promptTokensDetails", "AUDIO", Count::InputAudio),
    modal("promptTokensDetails", "IMAGE", Count::InputImage),
    modal("promptTokensDetails", "DOCUMENT", Count::InputImage),
    modal("promptTokensDetails", "VIDEO", Count::InputVideo),
    modal("prompt_tokens_details", "AUDIO", Count::InputAudio),
    modal("prompt_tokens_details", "IMAGE", Count::InputImage),
    modal("prompt_tokens_details", "DOCUMENT", Count::InputImage),
    modal("prompt_tokens_details", "VIDEO", Count::InputVideo),
    modal("toolUsePromptTokensDetails", "AUDIO", Count::InputAudio),
    modal("toolUsePromptTokensDetails", "IMAGE", Count::InputImage),
    modal("toolUsePromptTokensDetails", "DOCUMENT", Count::InputImage),
    modal("toolUsePromptTokensDetails", "VIDEO", Count::InputVideo),
    modal("tool_use_prompt_tokens_details", "AUDIO", Count::InputAudio),
    modal("tool_use_prompt_tokens_details", "IMAGE", Count::InputImage),
    modal(
        "tool_use_prompt_tokens_details",
        "DOCUMENT",
        Count::InputImage,
    ),
    modal("tool_use_prompt_tokens_details", "VIDEO", Count::InputVideo),
    modal("cacheTokensDetails", "AUDIO", Count::CachedAudio),
    modal("cacheTokensDetails", "IMAGE", Count::CachedImage),
    modal("cacheTokensDetails", "DOCUMENT", Count::CachedImage),
    modal("cacheTokensDetails", "VIDEO", Count::CachedVideo),
    modal("cache_tokens_details", "AUDIO", Count::CachedAudio),
    modal("cache_tokens_details", "IMAGE", Count::CachedImage),
    modal("cache_tokens_details", "DOCUMENT", Count::CachedImage),
    modal("cache_tokens_details", "VIDEO", Count::CachedVideo),
    modal("candidatesTokensDetails", "AUDIO", Count::OutputAudio),
    modal("candidatesTokensDetails", "IMAGE", Count::OutputImage),
    modal("candidatesTokensDetails", "DOCUMENT", Count::OutputImage),
    modal("candidatesTokensDetails", "VIDEO", Count::OutputVideo),
    modal("candidates_tokens_details", "AUDIO", Count::OutputAudio),
    modal("candidates_tokens_details", "IMAGE", Count::OutputImage),
    modal("candidates_tokens_details", "DOCUMENT", Count::OutputImage),
    modal("candidates_tokens_details", "VIDEO", Count::OutputVideo),
];
