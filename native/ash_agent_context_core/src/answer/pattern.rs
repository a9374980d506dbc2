//! Regular expressions of JSON Schema, which are those of ECMA-262, in the syntax of the crate `regex`: `\d` is an ASCII digit, `\w`
//! an ASCII letter, and a bracket within a class is a letter like any other.

const BLANKS: &str =
    r"\t-\r \u{A0}\u{1680}\u{2000}-\u{200A}\u{2028}\u{2029}\u{202F}\u{205F}\u{3000}\u{FEFF}";

/// Returns the same expression in the other syntax; `None` if it has an empty class.
pub(crate) fn translate(pattern: &str) -> Option<String> {
    let mut made = String::with_capacity(pattern.len());
    let mut is_class = false;
    let mut letters = pattern.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('d') => made.push_str("[0-9]"),
                Some('D') => made.push_str("[^0-9]"),
                Some('w') => made.push_str("[0-9A-Za-z_]"),
                Some('W') => made.push_str("[^0-9A-Za-z_]"),
                Some('s') => made.extend(["[", BLANKS, "]"]),
                Some('S') => made.extend(["[^", BLANKS, "]"]),
                Some('b') if is_class => made.push_str(r"\x08"),
                Some('b') => made.push_str(r"(?-u:\b)"),
                next => {
                    made.push('\\');
                    made.extend(next);
                }
            },
            '[' | '&' | '~' if is_class => made.extend(['\\', letter]),
            '[' => {
                made.push('[');
                made.extend(letters.next_if_eq(&'^'));
                if letters.peek() == Some(&']') {
                    return None;
                }
                is_class = true;
            }
            ']' => {
                is_class = false;
                made.push(']');
            }
            '.' if !is_class => made.push_str(r"[^\n\r\u{2028}\u{2029}]"),
            _ => made.push(letter),
        }
    }
    Some(made)
}
