//! Any bytes as a snapshot: refused, or a context that keeps the laws.

#![no_main]

use ash_agent_context_core::Context;
use ash_agent_context_fuzz::laws;
use libfuzzer_sys::{fuzz_target, Corpus};

fuzz_target!(|bytes: &[u8]| -> Corpus {
    match Context::from_snapshot(bytes) {
        Ok(context) => laws::check(&context),
        Err(error) => drop(error.to_string()),
    }
    Corpus::Keep
});
