//! The verdict of a check on a summary.

/// Facts that a verdict names, of each sort.
pub(crate) const NAMED: usize = 20;

/// The verdict of a check on a summary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// How many facts there are in what it stands for.
    pub facts: usize,
    /// How many of them it has.
    pub kept: usize,
    /// The likeliest to be needed of those that it does not have.
    pub missing: Vec<Box<str>>,
    /// Its claims that are not in the text it replaces.
    pub wrong: Vec<Box<str>>,
    /// How many facts were added to it.
    pub appended: usize,
}

impl Verdict {
    pub(crate) fn bytes(&self) -> usize {
        let named = self.missing.iter().chain(&self.wrong);
        named.map(|text| text.len()).sum()
    }
}
