//! Reading streamed responses, beside nothing but parsing their documents.
//!
//! `cargo bench --package ash_agent_context_core --bench responses [-- PROVIDER]`
//!
//! The recorded streams lie beside the repository, where there are any; one long stream is made.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a program for measuring"
)]

#[path = "../tests/support/recorded.rs"]
#[allow(dead_code)]
mod recorded;

use std::hint::black_box;
use std::time::{Duration, Instant};

use ash_agent_context_core::{Provider, Reading, Response};

/// Bytes that a network gives at once.
const PIECE: usize = 1_400;

const RUNS: usize = 40;

fn main() {
    let only = std::env::args().skip(1).find(|of| !of.starts_with('-'));
    let is_asked = |name: &str| only.as_deref().is_none_or(|only| only == name);
    for provider in Provider::ALL {
        let streams: Vec<_> = recorded::streams()
            .into_iter()
            .filter(|stream| stream.provider == provider)
            .map(|stream| stream.body)
            .collect();
        if !streams.is_empty() && is_asked(provider.name()) {
            show(provider.name(), provider, &streams, PIECE);
        }
    }
    if !is_asked("long") {
        return;
    }
    let events: Vec<String> = (0..50_000).map(chunk).collect();
    let lines: Vec<&str> = events.iter().map(String::as_str).collect();
    let body = recorded::frame(Provider::OpenAiChat, &lines);
    show(
        "an event a piece",
        Provider::OpenAiChat,
        &[body],
        events[0].len() + 8,
    );
}

fn show(name: &str, provider: Provider, streams: &[Vec<u8>], piece: usize) {
    let bytes: usize = streams.iter().map(Vec::len).sum();
    let pieces: usize = streams
        .iter()
        .map(|stream| stream.len().div_ceil(piece))
        .sum();
    let read = median(|| {
        for stream in streams {
            black_box(feed(provider, stream, piece));
        }
    });
    let each = |time: Duration| time.as_secs_f64() * 1e6 / pieces as f64;
    println!(
        "{name}: {} streams, {bytes} bytes: {:.2} us a piece, {:.0} MB/s",
        streams.len(),
        each(read),
        bytes as f64 / read.as_secs_f64() / 1e6
    );
}

fn feed(provider: Provider, stream: &[u8], piece: usize) -> Response {
    let mut response = Response::new(&Reading::of(provider));
    for piece in stream.chunks(piece) {
        match response.feed(piece, usize::MAX) {
            Ok((next, events)) => {
                black_box(events);
                response = next;
            }
            Err(_) => break,
        }
    }
    response
}

fn median(mut work: impl FnMut()) -> Duration {
    let mut times: Vec<_> = (0..RUNS)
        .map(|_| {
            let started = Instant::now();
            work();
            started.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

fn chunk(n: usize) -> String {
    format!(
        r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1770933892,"model":"m","choices":[{{"index":0,"delta":{{"content":"word {n:<14}x"}},"logprobs":null,"finish_reason":null}}],"usage":null}}"#
    )
}
