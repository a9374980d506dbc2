//! Builds HTML. The markup is the package's own; everything else is escaped for its place.

/// A document that is being built.
#[derive(Debug, Default)]
pub(crate) struct Html(String);

impl Html {
    /// Writes markup. It is static, so nobody else can supply it.
    pub(crate) fn markup(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Writes a text, within an element or within an attribute in double quotes.
    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        for letter in text.chars() {
            match letter {
                '&' => self.0.push_str("&#38;"),
                '<' => self.0.push_str("&#60;"),
                '>' => self.0.push_str("&#62;"),
                '"' => self.0.push_str("&#34;"),
                '\'' => self.0.push_str("&#39;"),
                letter => self.0.push(letter),
            }
        }
        self
    }

    /// Writes JSON into a script tag, in which it cannot end the tag or begin a comment or another tag: a `<` is only in strings,
    /// and there `\/` and `\u003c` mean the same.
    pub(crate) fn json(&mut self, json: &[u8]) -> &mut Self {
        let mut safe = Vec::with_capacity(json.len() + json.len() / 64);
        let mut from = 0;
        for at in memchr::memchr_iter(b'<', json) {
            let escape: &[u8] = match json.get(at + 1) {
                Some(b'/') => b"<\\",
                Some(b'!' | b's' | b'S' | b'?') => b"\\u003c",
                _ => continue,
            };
            safe.extend_from_slice(json.get(from..at).unwrap_or_default());
            safe.extend_from_slice(escape);
            from = at + 1;
        }
        safe.extend_from_slice(json.get(from..).unwrap_or_default());
        // Everything written is UTF-8.
        self.0
            .push_str(&String::from_utf8(safe).unwrap_or_default());
        self
    }

    /// Writes a whole document into an attribute in single quotes.
    pub(crate) fn document(&mut self, document: &Self) -> &mut Self {
        let document = document.0.replace('&', "&amp;").replace('\'', "&#39;");
        self.0.push_str(&document);
        self
    }

    /// Writes what another document has.
    pub(crate) fn append(&mut self, other: Self) {
        self.0.push_str(&other.0);
    }

    /// Returns the document.
    pub(crate) fn finish(self) -> String {
        self.0
    }
}
