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
    /// Reads a byte. Returns the next state, and the letter if it is complete; `None` if there is no such escape.
    #[inline]
    pub fn feed(self, byte: u8) -> Option<(Self, Option<char>)> {
        let digit = || char::from(byte).to_digit(16);
        let letter = |letter| Some((Self::None, Some(letter)));
        let next = |escape| Some((escape, None));
        match self {
            Self::None => next(Self::None),
            Self::Backslash => match byte {
                b'"' | b'\\' | b'/' | b'\'' => letter(char::from(byte)),
                b'b' => letter('\u{8}'),
                b'f' => letter('\u{c}'),
                b'n' => letter('\n'),
                b'r' => letter('\r'),
                b't' => letter('\t'),
                b'u' => next(Self::Unicode(0, 0)),
                _ => None,
            },
            Self::Unicode(came, number) => {
                let number = number * 16 + digit()?;
                match (came, number) {
                    (0..=2, _) => next(Self::Unicode(came + 1, number)),
                    (_, 0xD800..=0xDBFF) => next(Self::Half(number, 0)),
                    _ => letter(char::from_u32(number)?),
                }
            }
            Self::Half(half, 0) if byte == b'\\' => next(Self::Half(half, 1)),
            Self::Half(half, 1) if byte == b'u' => next(Self::Pair(half, 0, 0)),
            Self::Half(..) => None,
            Self::Pair(half, came, number) => {
                let number = number * 16 + digit()?;
                if came < 3 {
                    return next(Self::Pair(half, came + 1, number));
                }
                let low = number.checked_sub(0xDC00).filter(|low| *low < 0x400)?;
                letter(char::from_u32(0x10000 + ((half - 0xD800) << 10) + low)?)
            }
        }
    }
}
