//! Characters that make a text look different from what it is: they change its direction, control a terminal, or are invisible,
//! such as tags, which can hide a whole text.

use std::borrow::Cow;

/// Returns whether a character changes the direction of the text after it.
const fn turns(letter: char) -> bool {
    matches!(letter, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns whether a character has no width.
const fn is_unseen(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200d}'
        | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
        || chooses(letter)
}

/// Returns whether a character selects a variant of the one before it.
const fn chooses(letter: char) -> bool {
    matches!(letter, '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

fn hides(letter: char) -> bool {
    let is_control = letter.is_control() && !matches!(letter, '\n' | '\t');
    is_control || turns(letter) || is_unseen(letter)
}

/// Returns whether a character is visible: one of a script or a picture.
fn is_seen(letter: char) -> bool {
    !letter.is_ascii() && !hides(letter)
}

/// Returns whether an invisible character has a use here: joiners within scripts and pictures, and a single variant selector.
fn belongs(before: Option<char>, letter: char, after: Option<char>) -> bool {
    let has_form = |before: char| is_seen(before) || matches!(before, '0'..='9' | '#' | '*');
    match letter {
        '\u{200c}' | '\u{200d}' => {
            let follows = before.is_some_and(|before| before == '\u{fe0f}' || is_seen(before));
            follows && after.is_some_and(is_seen)
        }
        letter if chooses(letter) => before.is_some_and(has_form),
        _ => false,
    }
}

/// Returns the text with signs in place of such characters. Lines and tabs stay.
pub(super) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(hides) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    let mut before = None;
    while let Some(letter) = letters.next() {
        let after = letters.peek().copied();
        match letter {
            // Part of a line end, `\r
            // `.
            '\r' if after == Some('\n') => {}
            letter if hides(letter) && !belongs(before, letter, after) => {
                shown.push_str(&format!("\u{27e6}U+{:04X}\u{27e7}", u32::from(letter)));
            }
            letter => shown.push(letter),
        }
        before = Some(letter);
    }
    Cow::Owned(shown)
}
