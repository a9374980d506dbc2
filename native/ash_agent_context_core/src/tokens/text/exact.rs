//! Counts the tokens of a text as OpenAI's tokenizers do.
//!
//! The crate `bpe` counts in linear time for any text. `bpe-openai` has prepared tables for both vocabularies, of 49 MB; here the
//! tables are built from 2 MB on first use.

use std::sync::OnceLock;

use crate::value::letters;
use bpe::byte_pair_encoding::BytePairEncoding;
use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input};

/// With this factor no two tokens of either vocabulary have the same hash; from `bpe-openai`.
const HASH_FACTOR: u64 = 17_846_336_922_010_275_747;

/// The patterns that cut a text, from <https://github.com/openai/tiktoken/blob/main/tiktoken_ext/openai_public.py>.
const O200K_WORDS: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+$",
);
const CL100K_WORDS: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+$",
);

/// Stands for `\s+(?!\S)`, as the automaton cannot look ahead: the last character stays for the next word.
const SPACES_BUT_ONE: &str = r"\s+\s";

/// The position of that pattern in the list.
const BUT_ONE: usize = 1;

const SPACES: &str = r"\s+";

/// A vocabulary whose tables are built on first use, which takes about a second.
pub(super) struct Vocabulary {
    tokens: &'static [u8],
    words: &'static str,
    made: OnceLock<Option<Tokenizer>>,
}

pub(super) static O200K: Vocabulary = Vocabulary {
    tokens: include_bytes!(concat!(env!("OUT_DIR"), "/o200k_base")),
    words: O200K_WORDS,
    made: OnceLock::new(),
};

pub(super) static CL100K: Vocabulary = Vocabulary {
    tokens: include_bytes!(concat!(env!("OUT_DIR"), "/cl100k_base")),
    words: CL100K_WORDS,
    made: OnceLock::new(),
};

impl Vocabulary {
    /// Returns whether the tables are built.
    pub fn is_ready(&self) -> bool {
        self.made.get().is_some()
    }

    /// Returns the number of tokens in a text.
    pub fn count(&self, text: &[u8]) -> Option<u64> {
        let made = self
            .made
            .get_or_init(|| Tokenizer::new(self.tokens, self.words));
        made.as_ref().map(|tokenizer| tokenizer.count(text))
    }
}

struct Tokenizer {
    vocabulary: BytePairEncoding,
    words: Regex,
}

impl Tokenizer {
    fn new(tokens: &[u8], words: &str) -> Option<Self> {
        Some(Self {
            vocabulary: BytePairEncoding::from_dictionary(read(tokens), Some(HASH_FACTOR)),
            words: Regex::new_many(&[words, SPACES_BUT_ONE, SPACES]).ok()?,
        })
    }

    fn count(&self, text: &[u8]) -> u64 {
        let text = letters::utf8(text);
        let mut rest: &str = &text;
        let mut sum = 0;
        while !rest.is_empty() {
            let (word, after) = self.cut(rest);
            sum += self.vocabulary.count(word.as_bytes()) as u64;
            rest = after;
        }
        sum
    }

    /// Returns the first word, which is never empty, and the text after it.
    fn cut<'a>(&self, text: &'a str) -> (&'a str, &'a str) {
        let found = self.words.find(Input::new(text).anchored(Anchored::Yes));
        let end = found.map(|found| {
            let all = text.get(..found.end()).unwrap_or(text);
            match all.char_indices().next_back() {
                Some((last, _)) if found.pattern().as_usize() == BUT_ONE => last,
                _ => all.len(),
            }
        });
        end.filter(|end| *end > 0)
            .and_then(|end| text.split_at_checked(end))
            .unwrap_or((text, ""))
    }
}

/// Reads the tokens that the build script wrote.
fn read(mut tokens: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    std::iter::from_fn(move || {
        let (len, rest) = tokens.split_first()?;
        let (token, rest) = rest.split_at_checked(usize::from(*len))?;
        tokens = rest;
        Some(token.to_vec())
    })
}
