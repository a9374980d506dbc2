//! How Gemini reports tokens.

use super::Room;
use crate::provider::figures::Figures;
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
            ..Figures::NONE
        }
    }
}
