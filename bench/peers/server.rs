//! A model on loopback for benches, made with the standard library alone: `rustc --edition 2021 -O server.rs`, then
//! `server [PORT]`, or `server --attached`, which ends when its input does. It prints its port.
//!
//! It speaks OpenAI's `/v1/chat/completions`. The model's name says what it does:
//!
//!   * `turns-N` calls `search` until the conversation has N results, and then answers.
//!   * `pieces-N` streams an answer of N pieces as fast as they are taken.
//!   * `paced-N` streams N pieces, one a millisecond.
//!
//! `GET /stats` says how many requests came and how many bytes their bodies had since it was asked last, so that nobody
//! sends less than the others without being seen.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

static REQUESTS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static RESULTS: AtomicU64 = AtomicU64::new(0);

fn main() -> std::io::Result<()> {
    let argument = std::env::args().nth(1);
    if argument.as_deref() == Some("--attached") {
        std::thread::spawn(|| {
            let _ended = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            std::process::exit(0);
        });
    }
    let port = argument.and_then(|port| port.parse().ok()).unwrap_or(0);
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    println!("{}", listener.local_addr()?.port());
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || serve(stream));
    }
    Ok(())
}

fn serve(stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(65_536, stream.try_clone()?);
    let mut writer = stream;
    while let Some((line, body)) = read_request(&mut reader, &mut writer)? {
        if line.starts_with("GET /stats") {
            let [requests, bytes, results] = [&REQUESTS, &BYTES, &RESULTS].map(|c| c.swap(0, Ordering::Relaxed));
            let stats = format!(r#"{{"requests":{requests},"bytes":{bytes},"results":{results}}}"#);
            respond(&mut writer, &stats)?;
        } else {
            REQUESTS.fetch_add(1, Ordering::Relaxed);
            BYTES.fetch_add(body.len() as u64, Ordering::Relaxed);
            answer(&mut writer, &body)?;
        }
    }
    Ok(())
}

/// The first line and the body, or nothing when the client has closed the connection.
fn read_request(reader: &mut impl BufRead, writer: &mut impl Write) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let (mut first, mut length, mut chunked) = (String::new(), 0, false);
    if reader.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim().to_ascii_lowercase();
        match line.split_once(':').map(|(name, value)| (name, value.trim())) {
            Some(("content-length", value)) => length = value.parse().unwrap_or(0),
            Some(("transfer-encoding", value)) => chunked = value == "chunked",
            Some(("expect", _)) => writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?,
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    while chunked {
        let mut size = String::new();
        reader.read_line(&mut size)?;
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        let mut chunk = vec![0; size + 2];
        reader.read_exact(&mut chunk)?;
        body.extend_from_slice(&chunk[..size]);
        chunked = size > 0;
    }
    Ok(Some((first, body)))
}

fn respond(writer: &mut impl Write, json: &str) -> std::io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
    writer.write_all(format!("{head} {}\r\n\r\n{json}", json.len()).as_bytes())
}

const HEAD: &str = r#""created":1,"model":"bench""#;

/// Counts as providers without a cache do.
fn usage(body: &[u8]) -> String {
    let tokens = body.len() / 4;
    format!(r#""usage":{{"prompt_tokens":{tokens},"completion_tokens":5,"total_tokens":{}}}"#, tokens + 5)
}

fn answer(writer: &mut impl Write, body: &[u8]) -> std::io::Result<()> {
    let text = String::from_utf8_lossy(body);
    let has = |key: &str, value: &str| text.contains(&format!("{key}:{value}")) || text.contains(&format!("{key}: {value}"));
    let number = |name: &str| -> Option<usize> {
        let begin = text.find(&format!("\"{name}-"))? + name.len() + 2;
        text[begin..].split('"').next()?.parse().ok()
    };
    // A result has the id of its call, however its client writes spaces.
    let results = text.matches("\"tool_call_id\"").count();
    RESULTS.fetch_add(results as u64, Ordering::Relaxed);
    let stream = has("\"stream\"", "true");
    if let Some(pieces) = number("pieces") {
        return stream_text(writer, body, pieces, Duration::ZERO);
    }
    if let Some(pieces) = number("paced") {
        return stream_text(writer, body, pieces, Duration::from_millis(1));
    }
    let (message, finish) = if results < number("turns").unwrap_or(0) {
        let call = format!(
            r#"{{"index":0,"id":"call_{results}","type":"function","function":{{"name":"search","arguments":"{{\"query\":\"number {results}\"}}"}}}}"#
        );
        (format!(r#"{{"role":"assistant","content":null,"tool_calls":[{call}]}}"#), "tool_calls")
    } else {
        (r#"{"role":"assistant","content":"Done."}"#.to_string(), "stop")
    };
    if stream {
        let mut out = begin_stream();
        chunk(&mut out, &message, &format!("\"{finish}\""));
        end_stream(&mut out, body);
        return writer.write_all(&out);
    }
    let usage = usage(body);
    respond(
        writer,
        &format!(
            r#"{{"id":"c","object":"chat.completion",{HEAD},"choices":[{{"index":0,"message":{message},"finish_reason":"{finish}"}}],{usage}}}"#
        ),
    )
}

fn stream_text(writer: &mut impl Write, body: &[u8], pieces: usize, pause: Duration) -> std::io::Result<()> {
    let mut out = begin_stream();
    let start = Instant::now();
    for n in 0..pieces {
        chunk(&mut out, r#"{"role":"assistant","content":"word "}"#, "null");
        let due = pause * (n as u32 + 1);
        if pause > Duration::ZERO || out.len() > 60_000 {
            writer.write_all(&out)?;
            out.clear();
            std::thread::sleep(due.saturating_sub(start.elapsed()));
        }
    }
    chunk(&mut out, "{}", "\"stop\"");
    end_stream(&mut out, body);
    writer.write_all(&out)
}

fn begin_stream() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec()
}

fn event(out: &mut Vec<u8>, data: &str) {
    let line = format!("data: {data}\n\n");
    out.extend_from_slice(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes());
}

fn chunk(out: &mut Vec<u8>, delta: &str, finish: &str) {
    let choice = format!(r#"[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]"#);
    event(out, &format!(r#"{{"id":"c","object":"chat.completion.chunk",{HEAD},"choices":{choice}}}"#));
}

fn end_stream(out: &mut Vec<u8>, body: &[u8]) {
    let usage = usage(body);
    event(out, &format!(r#"{{"id":"c","object":"chat.completion.chunk",{HEAD},"choices":[],{usage}}}"#));
    event(out, "[DONE]");
    out.extend_from_slice(b"0\r\n\r\n");
}
