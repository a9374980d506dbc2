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
const O200K_PIECES: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+$",
);
const CL100K_PIECES: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+$",
);

/// Stands for `\s+(?!\S)`, as the automaton cannot look ahead: the last character stays for the next piece.
const SPACES_BUT_ONE: &str = r"\s+\s";

/// The position of that pattern in the list.
const BUT_ONE: usize = 1;

const SPACES: &str = r"\s+";

/// A vocabulary whose tables are built on first use, which takes about a second.
pub(super) struct Vocabulary {
    tokens: &'static [u8],
    pieces: &'static str,
    made: OnceLock<Option<Tokenizer>>,
}

pub(super) static O200K: Vocabulary = Vocabulary {
    tokens: include_bytes!(concat!(env!("OUT_DIR"), "/o200k_base")),
    pieces: O200K_PIECES,
    made: OnceLock::new(),
};

pub(super) static CL100K: Vocabulary = Vocabulary {
    tokens: include_bytes!(concat!(env!("OUT_DIR"), "/cl100k_base")),
    pieces: CL100K_PIECES,
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
            .get_or_init(|| Tokenizer::new(self.tokens, self.pieces));
        made.as_ref().map(|tokenizer| tokenizer.count(text))
    }
}

struct Tokenizer {
    vocabulary: BytePairEncoding,
    pieces: Regex,
}

impl Tokenizer {
    fn new(tokens: &[u8], pieces: &str) -> Option<Self> {
        Some(Self {
            vocabulary: BytePairEncoding::from_dictionary(read(tokens), Some(HASH_FACTOR)),
            pieces: Regex::new_many(&[pieces, SPACES_BUT_ONE, SPACES]).ok()?,
        })
    }

    fn count(&self, text: &[u8]) -> u64 {
        let text = letters::utf8(text);
        let mut rest: &str = &text;
        let mut sum = 0;
        while !rest.is_empty() {
            let (piece, after) = self.cut(rest);
            sum += self.vocabulary.count(piece.as_bytes()) as u64;
            rest = after;
        }
        sum
    }

    /// Returns the first piece, which is never empty, and the text after it.
    fn cut<'a>(&self, text: &'a str) -> (&'a str, &'a str) {
        let found = self.pieces.find(Input::new(text).anchored(Anchored::Yes));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A text, and its tokens in o200k_base and cl100k_base, as tiktoken counts them.
    const COUNTS: [(&str, u64, u64); 21] = [
        ("", 0, 0),
        ("a", 1, 1),
        ("Hello, world!", 4, 4),
        ("  indented\n\n\tlines \n", 6, 6),
        ("It's we'll I'D they've", 5, 8),
        ("camelCaseName SCREAMING_CASE", 7, 7),
        ("1234567 3.14159 1,000", 12, 12),
        ("naïve café Füße", 6, 7),
        ("привет, мир", 4, 7),
        ("你好，世界", 3, 6),
        ("こんにちは世界", 2, 4),
        ("नमस\u{94d}त\u{947} द\u{941}निया", 5, 13),
        ("مرحبا بالعالم", 4, 10),
        ("👩\u{200d}👩\u{200d}👧\u{200d}👦 🎉", 13, 21),
        ("<|endoftext|><|im_start|>", 12, 12),
        ("x = [1, 2]; // ok\r\n", 11, 11),
        ("a\u{a0}\u{2003} b", 4, 5),
        ("e\u{301}\u{301} z\u{200d}z", 6, 7),
        ("====----====\n====", 4, 4),
        ("ǅ ʰ Ⅷ ½", 10, 10),
        ("ZGVjb2RlIG1lIHBsZWFzZQ==", 17, 18),
    ];

    #[test]
    fn counts_as_tiktoken_does() {
        for (text, in_o200k, in_cl100k) in COUNTS {
            assert_eq!(O200K.count(text.as_bytes()), Some(in_o200k), "{text:?}");
            assert_eq!(CL100K.count(text.as_bytes()), Some(in_cl100k), "{text:?}");
        }
    }

    #[test]
    fn the_pieces_are_the_text() {
        O200K.count(b"a");
        let made = O200K.made.get();
        let tokenizer = made.and_then(Option::as_ref).expect("a tokenizer");
        let mut rest = "a  b\n\n \u{a0}\t7890 It's\u{301}!\r\n  ";
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let (piece, after) = tokenizer.cut(rest);
            pieces.push(piece);
            rest = after;
        }
        let wanted = [
            "a", " ", " b", "\n\n", " \u{a0}", "\t", "789", "0", " It's", "\u{301}", "!\r\n", "  ",
        ];
        assert_eq!(pieces, wanted);
    }

    #[test]
    fn what_is_no_utf8_counts_as_replaced() {
        let count = |text: &[u8]| O200K.count(text);
        assert_eq!(count(b"a\xff\xfeb"), count("a\u{fffd}\u{fffd}b".as_bytes()));
        assert_eq!(count(b"\xf0\x9f\x98"), count("\u{fffd}".as_bytes()));
    }

    #[test]
    fn long_runs_count_in_linear_time() {
        let megabyte = |unit: &str| unit.repeat(1_000_000 / unit.len());
        let hostile = [
            ("a", 125_000),
            (" ", 7_813),
            ("\u{a0}", 62_500),
            ("7", 333_334),
        ];
        for (unit, tokens) in hostile {
            assert_eq!(
                O200K.count(megabyte(unit).as_bytes()),
                Some(tokens),
                "{unit:?}"
            );
        }
    }

    /// Dirty schedulers of the BEAM have a stack of 320 KiB.
    #[test]
    fn a_small_stack_is_enough() {
        let count = || (O200K.count(b"Hello"), CL100K.count(b"Hello"));
        let thread = std::thread::Builder::new().stack_size(256 * 1024);
        let counted = thread.spawn(count).expect("a thread").join();
        assert_eq!(counted.expect("no overflow"), (Some(1), Some(1)));
    }
}
