//! Keys of the document.

pub const VERSION: &str = "version";
pub const ID: &str = "id";
pub const SINCE: &str = "since";
pub const SHARED: &str = "shared";
pub const CREATED_AT: &str = "created_at";
pub const UPDATED_AT: &str = "updated_at";
pub const ORIGIN: &str = "origin";
pub const METADATA: &str = "metadata";
pub const SYSTEM: &str = "system";
pub const ITERATIONS: &str = "iterations";
pub const NUMBER: &str = "number";
pub const STARTED_AT: &str = "started_at";
pub const COMPLETED_AT: &str = "completed_at";
pub const FAILURES: &str = "failures";
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
pub const ASKED: &str = "asked";
pub const WAS_ASKED: &str = "was_asked";
pub const REASON: &str = "reason";
pub const USAGE: &str = "usage";
pub const VIEW: &str = "view";
pub const COVERS: &str = "covers";
pub const LAST: &str = "last";
pub const ITERATION: &str = "iteration";
pub const CALLS: &str = "calls";
pub const MASKS: &str = "masks";
pub const PATTERN: &str = "pattern";
pub const REPLACEMENT: &str = "replacement";
pub const RESULTS_WIRE: &str = "results_wire";
pub const JSON: &str = "json";
pub const TYPE: &str = "type";
pub const TEXT: &str = "text";
pub const MEDIA_TYPE: &str = "media_type";
pub const FILENAME: &str = "filename";
pub const DATA: &str = "data";
pub const URL: &str = "url";
pub const PROVIDER: &str = "provider";
pub const RESPONSE: &str = "response";
pub const MODEL: &str = "model";
/// The fields of a request, its tools, the digests of its system prompt, of the whole request and of its masks, and the
/// request that a rewind cut off.
pub const REQUEST: [&str; 6] = [
    "request",
    "tools",
    SYSTEM_DIGEST,
    SENT,
    MASKS_DIGEST,
    REWOUND,
];
pub const REWOUND: &str = "rewound";
pub const MASKS_DIGEST: &str = "masks_digest";
pub const SENT: &str = "sent";
pub const SYSTEM_DIGEST: &str = "system_digest";
pub const ERROR_TYPE: &str = "error_type";
pub const ENDED_AT: &str = "ended_at";
pub const PARENT_ID: &str = "parent_id";
pub const CONFIG: &str = "config";
pub const ACTIVE_BRANCH: &str = "active_branch";
pub const BRANCHES: &str = "branches";
pub const BASE: &str = "base";
pub const CONTEXT: &str = "context";
pub const POSITION: &str = "position";
pub const SLOT: &str = "slot";
