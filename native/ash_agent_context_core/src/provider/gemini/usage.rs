//! The keys under which Gemini reports tokens.

use super::Room;
use crate::prices::bill::{Count, Term};
use crate::provider::figures::{Billed, FigureKind::*, Figures};
use crate::provider::format::Reports;

impl Reports for Room {
    fn figures(&self) -> &'static Figures {
        &Figures {
            keys: &[
                (Around, &["usageMetadata", "usage_metadata"]),
                (WholeInput, &["promptTokenCount", "prompt_token_count"]),
                (
                    Tools,
                    &["toolUsePromptTokenCount", "tool_use_prompt_token_count"],
                ),
                (
                    Candidates,
                    &["candidatesTokenCount", "candidates_token_count"],
                ),
                (Thoughts, &["thoughtsTokenCount", "thoughts_token_count"]),
                (Total, &["totalTokenCount", "total_token_count"]),
                (
                    Cached,
                    &["cachedContentTokenCount", "cached_content_token_count"],
                ),
            ],
            billed: &BILLED,
            terms: &[("serviceTier", Term::Tier), ("trafficType", Term::Tier)],
            ..Figures::NONE
        }
    }
}

const fn modal(lists: &'static [&'static str], modality: &'static str, count: Count) -> Billed {
    Billed {
        under: lists,
        of: Some(("modality", modality)),
        number: &["tokenCount", "token_count"],
        count,
    }
}

const PROMPT: &[&str] = &[
    "promptTokensDetails",
    "prompt_tokens_details",
    "toolUsePromptTokensDetails",
    "tool_use_prompt_tokens_details",
];
const CACHE: &[&str] = &["cacheTokensDetails", "cache_tokens_details"];
const CANDIDATES: &[&str] = &["candidatesTokensDetails", "candidates_tokens_details"];

const BILLED: [Billed; 12] = [
    modal(PROMPT, "AUDIO", Count::InputAudio),
    modal(PROMPT, "IMAGE", Count::InputImage),
    modal(PROMPT, "DOCUMENT", Count::InputImage),
    modal(PROMPT, "VIDEO", Count::InputVideo),
    modal(CACHE, "AUDIO", Count::CachedAudio),
    modal(CACHE, "IMAGE", Count::CachedImage),
    modal(CACHE, "DOCUMENT", Count::CachedImage),
    modal(CACHE, "VIDEO", Count::CachedVideo),
    modal(CANDIDATES, "AUDIO", Count::OutputAudio),
    modal(CANDIDATES, "IMAGE", Count::OutputImage),
    modal(CANDIDATES, "DOCUMENT", Count::OutputImage),
    modal(CANDIDATES, "VIDEO", Count::OutputVideo),
];
