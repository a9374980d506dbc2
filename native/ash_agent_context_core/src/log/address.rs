//! Which addresses of media may go to a provider.

/// Providers fetch from the web and from data URLs, and some of them from Google's and Amazon's stores.
const SCHEMES: [&str; 5] = ["https", "http", "data", "gs", "s3"];

/// Returns true if some provider fetches this scheme and there are no control characters, which could end a line in a log or
/// a header there.
pub(crate) fn is_address(url: &str) -> bool {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    let is_known = |known: &&str| known.eq_ignore_ascii_case(scheme);
    SCHEMES.iter().any(is_known) && !has_controls(url)
}

/// Returns true if the name or address of a file in a provider's store may go there.
pub(crate) fn is_file_id(id: &str) -> bool {
    match id.contains("://") {
        true => is_address(id),
        false => !has_controls(id),
    }
}

/// Looks at bytes first: a data URL may have millions of letters.
fn has_controls(text: &str) -> bool {
    let is_ascii = text.is_ascii();
    text.bytes().any(|byte| byte.is_ascii_control())
        || (!is_ascii && text.contains(char::is_control))
}
