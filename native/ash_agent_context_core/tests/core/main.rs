//! The core by its public functions, in one binary: each of these files would otherwise be linked with all of it.

#![allow(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod account;
mod addresses;
mod approvals;
mod beside;
mod bound;
mod changes;
#[path = "../../../fuzz/checks/lib.rs"]
mod checks;
mod costs;
mod deep;
mod ended;
mod failed;
mod failures;
#[path = "../support/fixture.rs"]
mod fixture;
mod forecast;
mod found;
mod import;
mod inputs;
mod joined;
mod late;
#[path = "../support/log_replay.rs"]
mod log_replay;
mod looks;
#[path = "../support/make.rs"]
mod make;
mod masked;
mod media;
mod model;
mod numbers;
mod openai_items;
mod order;
mod pairs;
mod prices;
#[path = "../support/provider_answers.rs"]
mod provider_answers;
mod pushed;
mod questions;
mod recall;
#[path = "../support/recorded.rs"]
mod recorded;
mod recorded_answers;
mod rent;
mod replies;
mod requests;
mod responses;
mod rewind;
mod rules;
mod sent;
mod shorten;
mod snapshot;
mod snapshot_depth;
mod spelled;
#[path = "../support/stack.rs"]
mod stack;
mod summaries;
mod tokens;
mod traits;
mod unnoticed;
mod usage;
mod values;
mod view;
#[path = "../support/view_model.rs"]
mod view_model;
#[path = "../support/view_ops.rs"]
mod view_ops;
mod view_replay;
mod whole;
