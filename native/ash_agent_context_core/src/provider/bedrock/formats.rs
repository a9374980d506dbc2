//! The names of formats in Converse, and the media types that they stand for.

pub(crate) const DOCUMENTS: [(&str, &str); 9] = [
    ("pdf", "application/pdf"),
    ("csv", "text/csv"),
    ("doc", "application/msword"),
    (
        "docx",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ),
    ("xls", "application/vnd.ms-excel"),
    (
        "xlsx",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ),
    ("html", "text/html"),
    ("txt", "text/plain"),
    ("md", "text/markdown"),
];

pub(crate) const AUDIO: [(&str, &str); 9] = [
    ("mp3", "audio/mpeg"),
    ("wav", "audio/wav"),
    ("opus", "audio/opus"),
    ("aac", "audio/aac"),
    ("flac", "audio/flac"),
    ("mp4", "audio/mp4"),
    ("ogg", "audio/ogg"),
    ("pcm", "audio/pcm"),
    ("webm", "audio/webm"),
];

pub(crate) const VIDEO: [(&str, &str); 8] = [
    ("mp4", "video/mp4"),
    ("mov", "video/quicktime"),
    ("mkv", "video/x-matroska"),
    ("webm", "video/webm"),
    ("flv", "video/x-flv"),
    ("mpeg", "video/mpeg"),
    ("wmv", "video/wmv"),
    ("three_gp", "video/3gpp"),
];
