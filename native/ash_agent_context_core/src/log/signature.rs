//! What the first bytes of media say that they are. Providers look at them, and refuse what has another name.

use base64::Engine as _;

use crate::log::media_type::is_text;

/// So many letters of base64 are looked at.
const LETTERS: usize = 64;

/// A text that is shorter says too little to be told from a tiny file.
const SHORTEST_TEXT: usize = 9;

/// Bytes at a position, and the types that begin with them: the first is the one that they are taken for.
const KNOWN: [(usize, &[u8], &str); 39] = [
    (0, b"\x89PNG\r\n\x1a\n", "image/png image/apng"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (8, b"AVI ", "video/avi"),
    (8, b"AIFF", "audio/aiff"),
    (0, b"%PDF-", "application/pdf"),
    (4, b"ftyphei", "image/heic image/heif"),
    (4, b"ftypmif1", "image/heif image/heic image/avif"),
    (4, b"ftypavif", "image/avif image/heif"),
    (4, b"ftypM4A", "audio/mp4 audio/aac video/mp4"),
    (4, b"ftypqt", "video/quicktime video/mp4"),
    (4, b"ftyp3gp", "video/3gpp audio/3gpp video/mp4 audio/mp4"),
    (
        4,
        b"ftyp",
        "video/mp4 audio/mp4 video/quicktime video/3gpp audio/aac",
    ),
    (
        0,
        b"\x1a\x45\xdf\xa3",
        "video/webm audio/webm video/x-matroska audio/x-matroska",
    ),
    (0, b"OggS", "audio/ogg audio/opus video/ogg application/ogg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"ID3", "audio/mpeg audio/mpga audio/aac audio/flac"),
    (0, b"\xff\xfb", "audio/mpeg audio/mpga"),
    (0, b"\xff\xf3", "audio/mpeg audio/mpga"),
    (0, b"\xff\xf1", "audio/aac"),
    (0, b"\xff\xf9", "audio/aac"),
    (0, b"FLV\x01", "video/x-flv"),
    (0, b"\0\0\x01\xba", "video/mpeg video/mpg video/mpegps"),
    (0, b"\0\0\x01\xb3", "video/mpeg video/mpg video/mpegps"),
    (
        0,
        b"\x30\x26\xb2\x75\x8e\x66\xcf\x11",
        "video/wmv audio/wma",
    ),
    // A bitmap with one of the three headers that are in use.
    (10, b"\x36\0\0\0\x28\0\0\0", "image/bmp"),
    (10, b"\x7a\0\0\0\x6c\0\0\0", "image/bmp"),
    (10, b"\x8a\0\0\0\x7c\0\0\0", "image/bmp"),
    (0, b"\0\0\x01\0", "image/x-icon image/vnd.microsoft.icon"),
    (0, b"8BPS", "image/vnd.adobe.photoshop image/x-photoshop"),
    (4, b"jP  \r\n", "image/jp2"),
    (4, b"JXL \r\n", "image/jxl"),
    (0, b"II*\0", "image/tiff"),
    (0, b"MM\0*", "image/tiff"),
    (0, b"\x1f\x8b\x08", "application/gzip"),
    (0, b"PK\x03\x04", "application/zip"),
    (
        0,
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        "application/x-ole-storage",
    ),
];

/// Archives of which many formats are made, whose names say more than the bytes.
const CONTAINERS: [&str; 3] = [
    "application/zip",
    "application/gzip",
    "application/x-ole-storage",
];

/// Returns the type of media in base64, if their bytes surely are of another one than this normal type.
pub(crate) fn other_type(claimed: Option<&str>, data: &str) -> Option<&'static str> {
    let claimed = claimed.unwrap_or_default();
    let start = data.get(..LETTERS).unwrap_or(data);
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(start)
        .ok()?;
    let is_known = |(_, _, types): &&(usize, &[u8], &str)| types.split(' ').any(|of| of == claimed);
    let is_there = |(at, magic, _): &&(usize, &[u8], &str)| {
        bytes.get(*at..).is_some_and(|rest| rest.starts_with(magic))
    };
    let Some(found) = KNOWN.iter().find(is_there) else {
        // The name of a kind of text says more than the bytes.
        let says_nothing = ["", "application/octet-stream"].contains(&claimed);
        let is_other = says_nothing || KNOWN.iter().any(|known| is_known(&known));
        return text_type(&bytes).filter(|_| is_other && !is_text(claimed));
    };
    let name = found.2.split(' ').next()?;
    let is_made_of_it = CONTAINERS.contains(&name)
        && claimed.starts_with("application/")
        && !["application/pdf", "application/octet-stream"].contains(&claimed);
    (!is_known(&found) && !is_made_of_it).then_some(name)
}

/// Returns the type of bytes that are surely text.
fn text_type(bytes: &[u8]) -> Option<&'static str> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        // A letter may be cut at the end.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(bytes.get(..error.valid_up_to())?).ok()?
        }
        Err(_) => return None,
    };
    let is_odd = |letter: char| letter.is_control() && !letter.is_ascii_whitespace();
    if text.len() < SHORTEST_TEXT || text.contains(is_odd) {
        return None;
    }
    let small = text
        .trim_start_matches('\u{feff}')
        .trim_start()
        .to_ascii_lowercase();
    let starts = [
        ("<!doctype html", "text/html"),
        ("<html", "text/html"),
        ("<svg", "image/svg+xml"),
        ("<?xml", "application/xml"),
    ];
    let found = starts.iter().find(|(start, _)| small.starts_with(start));
    Some(found.map_or("text/plain", |(_, of)| of))
}
