//! Places of the facts in an iteration's texts, which are found once: to read the texts again would take ten times as long.

/// The marks of an iteration.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// Those of its texts, in their order.
    pub texts: Box<[TextMarks]>,
    /// The keys of what calls have as arguments, and of the facts that users name.
    pub used: Box<[u64]>,
    pub named: Box<[u64]>,
}

/// The facts of a text, and the words that are facts where a later call uses them: each once.
#[derive(Debug, Default)]
pub(crate) struct TextMarks {
    pub facts: Vec<FactMark>,
    pub words: Vec<WordMark>,
}

/// A fact, with the place of its first byte and the one behind its last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FactMark {
    pub key: u64,
    /// The key of its piece: a number without its word.
    pub piece_key: u64,
    /// The number of its kind.
    pub kind: u8,
    pub at: (u32, u32),
}

/// How many different facts a text has, by the number of their kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FactCounts {
    pub of: [u16; 8],
    /// True if the text goes on behind what was read.
    pub is_part: bool,
}

/// A word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WordMark {
    pub key: u64,
    pub start: u32,
    pub len: u8,
}
