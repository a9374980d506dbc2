//! The frame of a late result: where texts have it, and that it is escaped there. So no tool and no user can make one.

/// The name of the frame.
const NAME: &[u8] = b"late_result";

/// What the first character of a frame becomes in other texts.
pub(crate) const ESCAPED: &str = "&lt;";

/// Returns the places of `<late_result` and `</late_result`, in whatever case.
fn find(text: &[u8]) -> impl Iterator<Item = usize> + '_ {
    memchr::memchr_iter(b'<', text).filter(|at| {
        let name = text.get(at.saturating_add(1)..).unwrap_or_default();
        let name = name.strip_prefix(b"/").unwrap_or(name);
        name.get(..NAME.len())
            .is_some_and(|name| name.eq_ignore_ascii_case(NAME))
    })
}

/// Which frames of late results are escaped in what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Escapes {
    /// Those of the model and of the application stay.
    #[default]
    Nothing,
    /// None of them is real.
    All,
    /// Only the outermost one is.
    Inside,
}

/// Returns the places of frames that are escaped.
pub(crate) fn find_false(text: &[u8], escapes: Escapes) -> Vec<usize> {
    if escapes == Escapes::Nothing {
        return Vec::new();
    }
    let mut found: Vec<usize> = find(text).collect();
    if escapes == Escapes::Inside {
        found.pop();
        found.drain(..found.len().min(1));
    }
    found
}

/// Escapes frames in bytes from `start` on, and returns where they were.
pub(crate) fn escape(text: &mut Vec<u8>, start: usize, escapes: Escapes) -> Vec<usize> {
    let found = find_false(text.get(start..).unwrap_or_default(), escapes);
    let found: Vec<usize> = found.into_iter().map(|at| at + start).collect();
    if let Some(first) = found.first() {
        let rest = text.split_off(*first);
        let mut places = found.iter().peekable();
        for (at, byte) in (*first..).zip(rest) {
            match places.next_if(|place| **place == at) {
                Some(_) => text.extend_from_slice(ESCAPED.as_bytes()),
                None => text.push(byte),
            }
        }
    }
    found
}
