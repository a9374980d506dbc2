//! How servers that speak the chat dialect report tokens.

use crate::provider::figures::Figures;

/// OpenAI's keys, and what DeepSeek calls the hits of its cache.
pub(crate) const FIGURES: Figures = Figures {
    around: &["usage"],
    whole_input: &["prompt_tokens"],
    output: &["completion_tokens"],
    total: &["total_tokens"],
    cached: &["cached_tokens", "prompt_cache_hit_tokens"],
    reasoning: &["reasoning_tokens"],
    input_details: &["prompt_tokens_details"],
    output_details: &["completion_tokens_details"],
    ..Figures::NONE
};
