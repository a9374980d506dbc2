//! Recorded responses of providers, where they lie beside the repository, as the bodies they were.

use std::path::PathBuf;

use ash_agent_context_core::Provider;

/// A recorded response.
pub struct Recorded {
    pub name: String,
    pub provider: Provider,
    /// The body of a stream, framed as its provider does.
    pub body: Vec<u8>,
}

fn folder() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/responses"
    ))
}

fn files(ending: &str) -> Vec<(Provider, String, String)> {
    let mut found = Vec::new();
    for provider in Provider::ALL {
        let Ok(entries) = std::fs::read_dir(folder().join(provider.name())) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if let Some(stem) = name.strip_suffix(ending) {
                let text = std::fs::read_to_string(&path).unwrap();
                let stem = format!("{}/{stem}", provider.name());
                found.push((provider, stem, text));
            }
        }
    }
    found.sort_by(|a, b| a.1.cmp(&b.1));
    found
}

/// All streams. Some recordings hold several, one after the other.
pub fn streams() -> Vec<Recorded> {
    let mut streams = Vec::new();
    for (provider, stem, text) in files(".chunks.txt") {
        for (number, lines) in split(provider, &text).into_iter().enumerate() {
            streams.push(Recorded {
                name: format!("{stem} {number}"),
                provider,
                body: frame(provider, &lines),
            });
        }
    }
    streams
}

/// All whole responses.
pub fn wholes() -> Vec<Recorded> {
    let whole = |(provider, name, text): (Provider, String, String)| Recorded {
        name,
        provider,
        body: text.into_bytes(),
    };
    files(".json").into_iter().map(whole).collect()
}

/// The streams of a recording: a turn with tools that the provider ran has one after the other.
fn split(provider: Provider, text: &str) -> Vec<Vec<&str>> {
    let ends = |line: &str| match provider {
        Provider::Anthropic => line.contains("\"type\":\"message_stop\""),
        Provider::OpenAiResponses => {
            line.contains("\"type\":\"response.completed\"")
                || line.contains("\"type\":\"response.failed\"")
        }
        _ => false,
    };
    let mut streams = vec![Vec::new()];
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        streams.last_mut().unwrap().push(line);
        if ends(line) {
            streams.push(Vec::new());
        }
    }
    streams.retain(|lines| !lines.is_empty());
    streams
}

/// A body around documents, one a line.
pub fn frame(provider: Provider, lines: &[impl AsRef<str>]) -> Vec<u8> {
    let mut body = Vec::new();
    for line in lines.iter().map(AsRef::as_ref) {
        match provider {
            Provider::Anthropic | Provider::OpenAiResponses => {
                let name = field(line, "type");
                body.extend(format!("event: {name}\ndata: {line}\n\n").into_bytes());
            }
            Provider::Gemini => body.extend(format!("data: {line}\r\n\r\n").into_bytes()),
            Provider::Bedrock => body.extend(event_frame(line)),
            Provider::Ollama => body.extend(format!("{line}\n").into_bytes()),
            _ => body.extend(format!("data: {line}\n\n").into_bytes()),
        }
    }
    if matches!(provider, Provider::OpenAiChat | Provider::Mistral) {
        body.extend(b"data: [DONE]\n\n");
    }
    body
}

/// The text of the first field of this name; one recording is not JSON.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let (_, rest) = line.split_once(&format!("\"{name}\":\"")).unwrap();
    rest.split_once('"').unwrap().0
}

/// A frame of the AWS event stream around an object with one key.
fn event_frame(line: &str) -> Vec<u8> {
    let value: serde_json::Value = serde_json::from_str(line).unwrap();
    let (name, inner) = value.as_object().unwrap().iter().next().unwrap();
    aws_frame(
        &[(":event-type", name), (":message-type", "event")],
        inner.to_string().as_bytes(),
    )
}

/// A frame of the AWS event stream.
pub fn aws_frame(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut head = Vec::new();
    for (name, value) in headers {
        head.push(u8::try_from(name.len()).unwrap());
        head.extend(name.as_bytes());
        head.push(7);
        head.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
        head.extend(value.as_bytes());
    }
    let total = u32::try_from(12 + head.len() + payload.len() + 4).unwrap();
    let mut frame = total.to_be_bytes().to_vec();
    frame.extend(u32::try_from(head.len()).unwrap().to_be_bytes());
    frame.extend(crc32fast::hash(&frame).to_be_bytes());
    frame.extend(head);
    frame.extend(payload);
    frame.extend(crc32fast::hash(&frame).to_be_bytes());
    frame
}
