//! Characters that would make a text look other than it is: they turn its direction round, or control a
//! terminal.

use std::borrow::Cow;

/// Tells whether a character gives the text after it another direction.
const fn turns(letter: char) -> bool {
    matches!(letter, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with signs in the place of such characters. Lines and tabs stay.
pub(super) fn visible(text: &str) -> Cow<'_, str> {
    let hides = |letter: char| turns(letter) || (letter.is_control() && !"\n\t".contains(letter));
    if !text.contains(hides) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            // The end of a line, as some write it.
            '\r' if letters.peek() == Some(&'\n') => {}
            letter if hides(letter) => {
                shown.push_str(&format!("\u{27e6}U+{:04X}\u{27e7}", u32::from(letter)));
            }
            letter => shown.push(letter),
        }
    }
    Cow::Owned(shown)
}
