//! Enums of plain words: each value has one name, which stands for it in documents, in Elixir and in JSON.

/// A value of a small set, each with a name.
pub trait Word: Copy + PartialEq + 'static {
    /// All values in their order.
    const WORDS: &'static [Self];

    /// Returns its name.
    fn word(self) -> &'static str;

    /// Returns the value with this name.
    fn from_word(word: &str) -> Option<Self> {
        let mut words = Self::WORDS.iter().copied();
        words.find(|known| known.word() == word)
    }
}

/// Declares such an enum: `Stop = "stop",` is a value with its name.
macro_rules! words {
    ($($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$doc:meta])* $value:ident = $word:literal,)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $vis enum $name {
            $($(#[$doc])* $value,)*
        }

        #[allow(dead_code)] // some are only written
        impl $name {
            /// All values.
            pub const ALL: [Self; [$($word,)*].len()] = [$(Self::$value,)*];

            /// Returns its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)*
                }
            }

            /// Returns the value with this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                $crate::value::word::Word::from_word(name)
            }
        }

        impl $crate::value::word::Word for $name {
            const WORDS: &'static [Self] = &Self::ALL;

            fn word(self) -> &'static str {
                self.name()
            }
        }
    )*};
}
pub(crate) use words;
