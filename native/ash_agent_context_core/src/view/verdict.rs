//! The verdict of a check on a summary: which facts it kept and which it made up.

/// A verdict names so many facts of each sort.
pub(crate) const NAMED: usize = 20;

/// The verdict of a check on a summary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The number of facts in the text that it replaces.
    pub facts: usize,
    /// The number of those that it has.
    pub kept: usize,
    /// Facts that it lacks, the likeliest to be needed first.
    pub missing: Vec<Box<str>>,
    /// Its claims that are not in the text it replaces.
    pub wrong: Vec<Box<str>>,
    /// The number of facts that were added to it.
    pub appended: usize,
}

impl Verdict {
    pub(crate) fn bytes(&self) -> usize {
        let named = self.missing.iter().chain(&self.wrong);
        named.map(|text| text.len()).sum()
    }
}
