//! Any operations, compared with a plain model after each.

#![no_main]

use ash_agent_context_fuzz::operations::{self, Op};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|ops: Vec<Op>| operations::run(&ops));
