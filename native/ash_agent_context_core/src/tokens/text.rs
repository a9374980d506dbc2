//! Counts the tokens of a text.
//!
//! [`Method::Estimate`] assumes a tokenizer with the vocabulary of OpenAI's newest, o200k_base, which cuts words, digits and
//! white space as that does. The table has its error in percent: the median, and the number that nine of ten texts stay within.
//! The texts have about 3 kB, except the messages. The last column has the error of counting four bytes a token.
//!
//! | text | o200k_base: median | 9 of 10 | most | cl100k_base: median | most | bytes / 4: median |
//! |---|---:|---:|---:|---:|---:|---:|
//! | real conversations: messages | 5 | 13 | 15 | 4 | 16 | 16 |
//! | real conversations: JSON of tools | 8 | 22 | 40 | 9 | 40 | 29 |
//! | English prose, Markdown | 4 | 16 | 37 | 4 | 38 | 12 |
//! | programs | 4 | 11 | 48 | 5 | 48 | 11 |
//! | JSON, YAML, HTML, CSS, minified JS | 6 | 14 | 77 | 6 | 83 | 16 |
//! | logs, tables, CSV, listings | 5 | 12 | 26 | 5 | 26 | 43 |
//! | UUIDs, hex, base64, signatures | 5 | 8 | 11 | 6 | 15 | 61 |
//! | German, French, Spanish, Portuguese, Italian | 7 | 15 | 53 | 11 | 33 | 9 |
//! | Polish, Czech, Hungarian, Turkish, Vietnamese | 10 | 22 | 38 | 22 | 38 | 21 |
//! | Russian, Ukrainian, Greek | 7 | 19 | 36 | 37 | 61 | 21 |
//! | Chinese, Japanese, Korean | 6 | 16 | 24 | 24 | 44 | 11 |
//! | Hindi, Bengali, Tamil, Thai, Georgian | 7 | 21 | 38 | 67 | 78 | 61 |
//! | Arabic, Persian, Hebrew | 9 | 17 | 24 | 48 | 63 | 12 |
//! | emoji, chat with emoji | 2 | 6 | 7 | 12 | 16 | 34 |
//!
//! The error for a text of a few words may be larger. The vocabulary of cl100k_base has few words of languages in other scripts,
//! which take up to four times the tokens. Models of other makers have vocabularies that are not public; the number that they
//! report is the better one.

mod estimate;
#[cfg(feature = "exact_tokens")]
mod exact;

use crate::error::Error;
use crate::value::steps;
use crate::value::word::words;

words! {
    /// The ways to count tokens.
    pub enum Method {
        /// An estimate for any model, from the kinds of characters. Takes no time to load.
        Estimate = "estimate",
        /// The exact count of OpenAI's models from GPT-4o on.
        O200k = "o200k_base",
        /// The exact count of OpenAI's GPT-4 and GPT-3.5.
        Cl100k = "cl100k_base",
    }
}

impl Method {
    /// Returns its position in [`Method::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the number of tokens in a text. Names of special tokens, such as `<|endoftext|>`, are text like any other, and
    /// bytes that are not valid UTF-8 count as replaced.
    ///
    /// The first exact count with a vocabulary builds its tables, which stay: o200k_base takes about a second and 85 MB,
    /// cl100k_base half of that.
    ///
    /// # Complexity
    /// O(bytes), whatever they are
    pub(crate) fn text(self, text: &[u8]) -> u64 {
        if text.is_empty() {
            return 0;
        }
        steps::count(text.len());
        self.exact(text).unwrap_or_else(|| estimate::tokens(text))
    }

    /// Refuses a method whose vocabulary is not in this build.
    ///
    /// # Errors
    /// [`Error::FeatureMissing`].
    pub const fn check(self) -> Result<(), Error> {
        match self {
            Self::Estimate => Ok(()),
            _ if cfg!(feature = "exact_tokens") => Ok(()),
            Self::O200k | Self::Cl100k => Err(Error::FeatureMissing {
                feature: "exact_tokens",
            }),
        }
    }
}

#[cfg(feature = "exact_tokens")]
impl Method {
    const fn vocabulary(self) -> Option<&'static exact::Vocabulary> {
        match self {
            Self::Estimate => None,
            Self::O200k => Some(&exact::O200K),
            Self::Cl100k => Some(&exact::CL100K),
        }
    }

    fn exact(self, text: &[u8]) -> Option<u64> {
        self.vocabulary()?.count(text)
    }

    /// Returns whether its tables are built, which takes about a second.
    #[must_use]
    pub fn is_ready(self) -> bool {
        self.vocabulary().is_none_or(exact::Vocabulary::is_ready)
    }
}

#[cfg(not(feature = "exact_tokens"))]
impl Method {
    const fn exact(self, _text: &[u8]) -> Option<u64> {
        None
    }

    /// Returns whether its tables are built. This build has no tables.
    #[must_use]
    pub const fn is_ready(self) -> bool {
        true
    }
}

#[cfg(all(test, feature = "exact_tokens"))]
mod tests {
    use super::*;

    /// Each text with the percentage by which its estimate may be off.
    const SAMPLES: [(&str, u64); 16] = [
        (
            "The committee met again on Thursday to discuss the new schedule. Most members agreed that \
             the library should open earlier, although nobody could say who would pay for the heating. \
             After an hour of polite argument, they decided to ask the visitors themselves.",
            15,
        ),
        (
            "# Release notes\n\n- **Faster start**: the cache is read only once (see `load/2`).\n\
             - Fixed: `mix deps.get` no longer prints a warning on Windows.\n\n## Upgrading\n\n\
             1. Stop the old server.\n2. Run `bin/migrate --all`.\n3. Start it again.\n",
            20,
        ),
        (
            "pub fn total(items: &[Item]) -> Result<u64, PriceError> {\n    let mut sum = 0_u64;\n    \
             for item in items {\n        let price = item.price().ok_or(PriceError::Missing)?;\n        \
             sum = sum.checked_add(price * item.count).ok_or(PriceError::Overflow)?;\n    }\n    \
             Ok(sum)\n}\n",
            20,
        ),
        (
            "class UserRepository:\n    def __init__(self, session):\n        self.session = session\n\n    \
             def find_by_email(self, email):\n        query = self.session.query(User)\n        \
             return query.filter(User.email == email).one_or_none()\n",
            20,
        ),
        (
            "{\"reservation_id\": \"QX7R2M\", \"passengers\": [{\"first_name\": \"Ada\", \"last_name\": \
             \"Byron\", \"dob\": \"1985-12-10\"}], \"flights\": [{\"number\": \"LX318\", \"price\": 214, \
             \"status\": \"available\"}], \"total_baggages\": 2, \"insurance\": \"no\"}",
            20,
        ),
        (
            "2024-10-07T09:14:22.518Z INFO  [worker-3] request_id=7f3a91 GET /api/v1/orders 200 in 41ms\n\
             2024-10-07T09:14:23.002Z WARN  [worker-1] request_id=0c44be POST /api/v1/login 401 in 8ms\n",
            20,
        ),
        (
            "6f1c2a9e-8b34-4d57-9e0a-51c7f2d8b630\n0b9d7e42-13fa-4c68-a5d1-e97c3042fb8d\n\
             d41b60c3-72e9-4f1a-8c5d-3e8a9f07b216\n",
            15,
        ),
        (
            "pT9xKc2LwQm7VbRz4HsYd1NfGa8JuEo5XiWk3ZtCy6BlMrPqDvSnAh0gUeOjFx+7TbLwKz9RcQmY2HsVd4NfGpa1Ju\
             8EoXi5WkZt3CyBl6MrPDqvSnhA0gUeO",
            25,
        ),
        (
            "Der Ausschuss hat am Donnerstag wieder über den neuen Fahrplan beraten. Die meisten Mitglieder \
             waren dafür, dass die Züge früher fahren, aber niemand wusste, wer das bezahlen würde.",
            25,
        ),
        (
            "Le comité s'est réuni jeudi pour parler du nouveau calendrier. La plupart des membres étaient \
             d'accord pour ouvrir plus tôt, mais personne ne savait qui paierait le chauffage.",
            25,
        ),
        (
            "Комитет снова собрался в четверг, чтобы обсудить новое расписание. Большинство участников \
             согласились открывать библиотеку раньше, но никто не знал, кто заплатит за отопление.",
            35,
        ),
        (
            "委员会星期四再次开会讨论新的时间表。大多数成员同意图书馆应该早点开门，但是没有人知道谁来支付暖气费。",
            35,
        ),
        (
            "委員会は木曜日に新しい予定について話し合いました。多くの人は図書館を早く開けることに賛成しましたが、\
             暖房の費用を誰が払うのかは分かりませんでした。",
            30,
        ),
        (
            "समिति ने गुरुवार को नए कार्यक्रम पर फिर से चर्चा की। अधिकतर सदस्य सहमत थे कि पुस्तकालय पहले खुलना चाहिए, \
             लेकिन कोई नहीं जानता था कि पैसे कौन देगा।",
            35,
        ),
        (
            "thanks, the build is green 🎉 see you tomorrow 😀 great work 👍 the demo went well 🔥 let us ship it 🚀",
            25,
        ),
        (
            "id,city,temperature,humidity\n1,Oslo,-3.5,81\n2,Lima,19.25,77\n3,Cairo,31.0,24\n\
             4,Hanoi,27.75,88\n5,Quito,14.5,69\n",
            20,
        ),
    ];

    #[test]
    fn an_estimate_is_off_by_no_more_than_stated() {
        for (text, percent) in SAMPLES {
            let exact = Method::O200k.text(text.as_bytes());
            let about = Method::Estimate.text(text.as_bytes());
            let off = about.abs_diff(exact) * 100 / exact;
            assert!(
                off <= percent,
                "{about} for {exact}, off by {off} %: {text}"
            );
        }
    }

    #[test]
    fn nothing_has_no_tokens_and_anything_has_one() {
        for method in Method::ALL {
            assert_eq!(method.text(b""), 0);
            assert_eq!(method.text(b"a"), 1);
            assert!(method.text(b"\xff") > 0);
            assert!(method.text(&[0x80; 100]) >= 10);
        }
    }

    #[test]
    fn a_longer_text_has_no_fewer_tokens_by_estimate() {
        let text: String = SAMPLES.iter().map(|(text, _)| *text).collect();
        let counts = (0..text.len()).map(|len| Method::Estimate.text(&text.as_bytes()[..len]));
        assert!(counts.collect::<Vec<_>>().is_sorted());
    }

    #[test]
    fn methods_are_told_apart_by_their_place() {
        for (place, method) in Method::ALL.into_iter().enumerate() {
            assert_eq!(method.index(), place);
        }
    }
}

#[cfg(all(test, not(feature = "exact_tokens")))]
mod tests {
    use super::*;

    #[test]
    fn a_vocabulary_that_was_left_out_is_refused() {
        let missing = Error::FeatureMissing {
            feature: "exact_tokens",
        };
        assert_eq!(Method::Estimate.check(), Ok(()));
        assert_eq!(Method::O200k.check(), Err(missing.clone()));
        assert_eq!(Method::Cl100k.check(), Err(missing));
    }
}
