//! Characters that would make a text look other than it is: they turn its direction round, control a terminal, or are not
//! seen at all, such as tags, in which a whole text can be hidden.

use std::borrow::Cow;

/// Returns whether a character gives the text after it another direction.
const fn turns(letter: char) -> bool {
    matches!(letter, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns whether a character takes no room.
const fn is_unseen(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200d}'
        | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
        || chooses(letter)
}

/// Returns whether a character chooses another form of the one before it.
const fn chooses(letter: char) -> bool {
    matches!(letter, '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

fn hides(letter: char) -> bool {
    let is_control = letter.is_control() && !matches!(letter, '\n' | '\t');
    is_control || turns(letter) || is_unseen(letter)
}

/// Returns whether a character is one of a script or a picture.
fn is_seen(letter: char) -> bool {
    !letter.is_ascii() && !hides(letter)
}

/// Returns whether a character that hides does what it is there for: joiners within scripts and pictures, and one choice of a
/// form.
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

/// The text with signs in the place of such characters. Lines and tabs stay.
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
            // The end of a line, as some write it.
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
