//! Escapes of JSON texts, byte by byte.

/// An escape, up to the byte that was read last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Escape {
    #[default]
    None,
    Backslash,
    /// The number of digits so far, and their value.
    Unicode(u8, u32),
    /// The first half of a pair, and how much of `\u` came after it.
    Half(u32, u8),
    /// The first half of a pair, and the digits of the second.
    Pair(u32, u8, u32),
}

impl Escape {
    /// Reads a byte, and says the letters that are complete. Returns the next state, and whether the byte was part of the escape;
    /// `None` if there is no such escape. Half of a pair is a replacement character.
    #[inline]
    pub fn feed(self, byte: u8, say: &mut impl FnMut(char)) -> Option<(Self, bool)> {
        let digit = || char::from(byte).to_digit(16);
        let next = |escape| Some((escape, true));
        let letter = match self {
            Self::None => return next(Self::None),
            Self::Backslash => match byte {
                b'"' | b'\\' | b'/' | b'\'' => char::from(byte),
                b'b' => '\u{8}',
                b'f' => '\u{c}',
                b'n' => '\n',
                b'r' => '\r',
                b't' => '\t',
                b'u' => return next(Self::Unicode(0, 0)),
                _ => return None,
            },
            Self::Unicode(came, number) => {
                let number = number * 16 + digit()?;
                match (came, number) {
                    (0..=2, _) => return next(Self::Unicode(came + 1, number)),
                    (_, 0xD800..=0xDBFF) => return next(Self::Half(number, 0)),
                    _ => char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER),
                }
            }
            Self::Half(half, 0) if byte == b'\\' => return next(Self::Half(half, 1)),
            Self::Half(half, 1) if byte == b'u' => return next(Self::Pair(half, 0, 0)),
            Self::Half(_, came) => {
                say(char::REPLACEMENT_CHARACTER);
                return match came {
                    0 => Some((Self::None, false)),
                    _ => Self::Backslash.feed(byte, say),
                };
            }
            Self::Pair(half, came, number) => {
                let number = number * 16 + digit()?;
                if came < 3 {
                    return next(Self::Pair(half, came + 1, number));
                }
                let low = number.checked_sub(0xDC00).filter(|low| *low < 0x400);
                let pair =
                    low.and_then(|low| char::from_u32(0x10000 + ((half - 0xD800) << 10) + low));
                let Some(pair) = pair else {
                    say(char::REPLACEMENT_CHARACTER);
                    return Self::Unicode(came, number >> 4).feed(byte, say);
                };
                pair
            }
        };
        say(letter);
        next(Self::None)
    }
}
