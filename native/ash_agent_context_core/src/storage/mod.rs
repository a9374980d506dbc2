//! The stored form of a conversation: JSON text, or the same as a value with string keys.
//!
//! The shape of the document is in [`write`] and, the other way round, in [`read`]; what JSON
//! lacks is in [`tag`]. Fields that this version does not know are kept as they came.

mod read;
mod tag;
mod text;
mod view;
mod write;

pub use read::has_masks;

use crate::value::MAX_DEPTH;

/// The format that is written, and the newest that is read.
const VERSION: i64 = 1;

/// Levels of nesting that the values in a document may have: attributes can bring in values that
/// are a few levels deeper than [`MAX_DEPTH`].
const LEVELS: usize = MAX_DEPTH + 9;

/// Levels of nesting that a whole document may have: a map with other than string keys takes three
/// levels of JSON for one of its own, and twelve more lead from the top to the innermost values.
pub const NESTING: usize = 3 * LEVELS + 12;

/// Keys of the document.
mod keys {
    pub const VERSION: &str = "version";
    pub const ID: &str = "id";
    pub const SINCE: &str = "since";
    pub const SHARED: &str = "shared";
    pub const CREATED_AT: &str = "created_at";
    pub const UPDATED_AT: &str = "updated_at";
    pub const METADATA: &str = "metadata";
    pub const SYSTEM: &str = "system";
    pub const ITERATIONS: &str = "iterations";
    pub const NUMBER: &str = "number";
    pub const STARTED_AT: &str = "started_at";
    pub const COMPLETED_AT: &str = "completed_at";
    pub const MESSAGES: &str = "messages";
    pub const ROLE: &str = "role";
    pub const CONTENT: &str = "content";
    pub const TOOL_CALLS: &str = "tool_calls";
    pub const RESULTS_METADATA: &str = "results_metadata";
    pub const NAME: &str = "name";
    pub const ARGUMENTS: &str = "arguments";
    pub const ARGUMENTS_JSON: &str = "arguments_json";
    pub const PROVIDER_METADATA: &str = "provider_metadata";
    pub const KIND: &str = "kind";
    pub const OPTIONS: &str = "options";
    pub const FILE_ID: &str = "file_id";
    pub const EXTRA: &str = "extra";
    pub const STATUS: &str = "status";
    pub const RESULT: &str = "result";
    pub const VALUE: &str = "value";
    pub const PARTS: &str = "parts";
    pub const WIRE: &str = "wire";
    pub const DECISION: &str = "decision";
    pub const APPROVED: &str = "approved";
    pub const BY: &str = "by";
    pub const AT: &str = "at";
    pub const REASON: &str = "reason";
    pub const USAGE: &str = "usage";
    pub const SUM: &str = "sum";
    pub const LAST_REPORT: &str = "last";
    pub const ESTIMATE: &str = "estimate";
    pub const INPUT_TOKENS: &str = "input_tokens";
    pub const OUTPUT_TOKENS: &str = "output_tokens";
    pub const TOTAL_TOKENS: &str = "total_tokens";
    pub const CACHED_TOKENS: &str = "cached_tokens";
    pub const REASONING_TOKENS: &str = "reasoning_tokens";
    pub const VIEW: &str = "view";
    pub const COVERS: &str = "covers";
    pub const FIRST: &str = "first";
    pub const LAST: &str = "last";
    pub const SUMMARY: &str = "summary";
    pub const CLEARED: &str = "cleared";
    pub const ITERATION: &str = "iteration";
    pub const CALLS: &str = "calls";
    pub const PLACEHOLDER: &str = "placeholder";
    pub const MAX_RESULT_BYTES: &str = "max_result_bytes";
    pub const MASKS: &str = "masks";
    pub const PATTERN: &str = "pattern";
    pub const REPLACEMENT: &str = "replacement";
    pub const BLOCKS: &str = "blocks";
    pub const RESULTS_WIRE: &str = "results_wire";
    pub const JSON: &str = "json";
    pub const TYPE: &str = "type";
    pub const TEXT: &str = "text";
    pub const MEDIA_TYPE: &str = "media_type";
    pub const FILENAME: &str = "filename";
    pub const DATA: &str = "data";
    pub const URL: &str = "url";
    pub const PROVIDER: &str = "provider";
}
