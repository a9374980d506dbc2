//! The text around an answer: prose, in which a field's name may show that its object lost a brace, and values that were
//! begun and given up. No answer is inside of either.

use crate::answer::answer_type::AnswerType;
use crate::answer::node::has_word;

/// Names have at most so many bytes.
const MOST_NAME: usize = 200;

/// Words that are values, and those that models write for them.
const LITERALS: &str = "true false null True False None NaN Infinity undefined";

/// A kind of quotes, by those that end a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quotes(&'static str);

impl Quotes {
    /// Those of a text of which nobody knows where it ends.
    pub const ENDLESS: Self = Self("");

    /// Returns the quotes of a text that this letter begins.
    pub fn opened_by(letter: char) -> Option<Self> {
        Some(Self(match letter {
            '"' => "\"",
            '\'' => "'",
            '`' => "`",
            '“' | '”' | '„' | '＂' => "”“＂\"",
            '‘' | '’' | '‚' => "’‘",
            '«' | '»' => "»«",
            _ => return None,
        }))
    }

    fn has_end(self, letter: char) -> bool {
        self.0.contains(letter)
    }
}

/// Returns the text in quotes of any kind at the beginning.
pub(crate) fn quoted(rest: &str) -> Option<&str> {
    let mut letters = rest.chars();
    let quotes = Quotes::opened_by(letters.next()?)?;
    let rest = letters.as_str();
    rest.get(..rest.find(|letter| quotes.has_end(letter))?)
}

/// A value that was given up. It ends where its brackets say so, and both counts of them are kept, with and without those in
/// texts: a wrong quote may be what broke it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GivenUp {
    is_list: bool,
    /// Open brackets: all of them, and those outside of texts.
    all: usize,
    outside: usize,
    quotes: Option<Quotes>,
    is_escaped: bool,
    /// One of the counts shows that it ended.
    pub may_have_ended: bool,
}

impl GivenUp {
    /// Begins with so many open levels; the bits of `lists` are set for lists. The last level may have an open text.
    pub fn new(lists: u64, levels: usize, quotes: Option<Quotes>) -> Self {
        let lists = lists & (u64::MAX >> (64 - levels.clamp(1, 64)));
        let is_list = lists & 1 == 1;
        let count = usize::try_from(lists.count_ones()).unwrap_or_default();
        let depth = if is_list { count } else { levels - count };
        Self {
            is_list,
            all: depth,
            outside: depth,
            quotes,
            is_escaped: false,
            may_have_ended: false,
        }
    }

    /// Reads on, after a letter. Returns the bytes up to its end, `None` if it goes on.
    pub fn feed(&mut self, rest: &str, behind: Option<char>) -> Option<usize> {
        let (open, close) = if self.is_list { ('[', ']') } else { ('{', '}') };
        let mut behind = behind;
        for (at, letter) in rest.char_indices() {
            let is_outside = self.quotes.is_none();
            let is_escaped = std::mem::take(&mut self.is_escaped);
            match self.quotes {
                Some(_) if is_escaped => {}
                Some(quotes) => {
                    self.is_escaped = letter == '\\';
                    self.quotes = Some(quotes).filter(|quotes| !quotes.has_end(letter));
                }
                None if begins_none(behind) && is_quote(letter) => {}
                None => self.quotes = Quotes::opened_by(letter),
            }
            behind = Some(letter);
            if letter == open {
                self.all += 1;
                self.outside += usize::from(is_outside);
            }
            if letter == close {
                self.all = self.all.saturating_sub(1);
                self.outside = self.outside.saturating_sub(usize::from(is_outside));
                self.may_have_ended |= self.all == 0 || self.outside == 0;
                if self.all == 0 && self.outside == 0 {
                    return Some(at + 1);
                }
            }
        }
        None
    }
}

fn is_quote(letter: char) -> bool {
    Quotes::opened_by(letter).is_some()
}

/// Returns true if a quote after this letter begins no text: it is an apostrophe, or the end of a text whose beginning is
/// lost.
fn begins_none(behind: Option<char>) -> bool {
    behind.is_some_and(|letter| letter.is_alphanumeric() || is_quote(letter))
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || "_$-".contains(letter)
}

/// The position within prose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Words,
    /// In quotes that may be those of a name.
    Quoted(Quotes),
    /// After a name in quotes.
    Named,
    /// In or after a word.
    Word,
    /// After a name and a colon. The name had quotes.
    Told(bool),
}

/// The thing before the prose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum After {
    #[default]
    Nothing,
    /// A bracket that began no value.
    Bracket,
    GivenUp,
    Value,
}

/// Prose, up to the letter that was read last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Prose {
    place: Place,
    name: String,
    after: After,
    /// A value came before it, at any time.
    has_value: bool,
    /// Open brackets that began no value.
    open: usize,
    /// The letter before, and the last one that is not blank.
    last: Option<char>,
    mark: Option<char>,
    /// The prose has text with which the rest of an object does not begin.
    has_begun: bool,
    /// It began with a field in quotes, whose value comes now.
    is_at_value: bool,
    /// A field's name in quotes and a colon have come, here or in earlier prose since the first value.
    has_told: bool,
    /// Such a name has come after a given-up value, whose end may be further on.
    is_inside: bool,
    /// The value that it comes after was in quotes.
    was_quoted: bool,
}

impl Prose {
    /// Begins after something else.
    pub fn begin(&mut self, after: After) {
        *self = Self {
            after,
            has_value: self.has_value || after == After::Value,
            open: self.open + usize::from(after == After::Bracket),
            has_told: self.has_told && self.has_value,
            is_inside: self.is_inside,
            was_quoted: self.last == Some('"'),
            ..Self::default()
        };
    }

    /// Returns true if a brace here belongs to a word, is a face, or is one too many after an answer, rather than the first
    /// one of an answer.
    pub fn is_in_word(&self) -> bool {
        let joins = |letter: char| letter.is_alphanumeric() || "-\\_$%#^".contains(letter);
        self.last.map_or(self.after == After::Value, joins)
    }

    /// Returns the field of which a list or an object here may be the value.
    pub fn field(&self, answer: &AnswerType) -> Option<&str> {
        let is_told = match self.place {
            Place::Told(true) => answer.is_open || answer.has_inside(&self.name),
            Place::Told(false) => answer.has_inside(&self.name),
            _ => false,
        };
        is_told.then_some(&*self.name)
    }

    /// Returns true if a list or an object here is inside of a given-up value, or of an answer that has ended too early.
    pub fn is_inside(&self) -> bool {
        self.is_inside || (self.is_at_value && self.has_value)
    }

    /// Reads on. Returns true if it is the rest of an object that has lost its brace, or had one too many.
    pub fn feed(&mut self, prose: &str, answer: &AnswerType) -> bool {
        let mut is_rest = false;
        for letter in prose.chars() {
            is_rest |= self.goes_on(letter) || self.tells(letter, answer);
            self.last = Some(letter);
            if !letter.is_whitespace() {
                self.mark = Some(letter);
            }
        }
        is_rest
    }

    /// Returns true if the value before it goes on with this letter: it ended within one of its texts.
    fn goes_on(&mut self, letter: char) -> bool {
        let is_close = letter == '}' || letter == ']';
        if is_close && self.open > 0 {
            self.open -= 1;
            self.after = After::Nothing;
            return false;
        }
        let has_text = self.has_told || self.mark.is_some_and(is_quote);
        let is_behind = self.last.is_none_or(|last| last == '}' || last == ']');
        let is_lone_quote = letter == '"' && is_behind && !self.has_begun && !self.was_quoted;
        (is_lone_quote && self.after == After::Value) || (is_close && has_text && self.has_value)
    }

    /// Returns true if this letter completes a field of the answer that has no object around it.
    fn tells(&mut self, letter: char, answer: &AnswerType) -> bool {
        if let Place::Quoted(quotes) = self.place {
            if quotes.has_end(letter) {
                self.place = Place::Named;
            } else if letter == '\n' || self.name.len() > MOST_NAME {
                self.place = Place::Words;
                self.has_begun = true;
            } else if letter != '\\' {
                self.name.push(letter);
            }
            return false;
        }
        if self.is_at_value && self.ends_value(letter) {
            return true;
        }
        if letter.is_whitespace() {
            return false;
        }
        if is_quote(letter) && !begins_none(self.last) {
            self.has_begun |= self.place != Place::Words;
            self.place = Quotes::opened_by(letter).map_or(Place::Words, Place::Quoted);
            self.name.clear();
            return false;
        }
        let is_letter = is_of_word(letter);
        let is_more = is_letter && self.last.is_some_and(is_of_word);
        match self.place {
            Place::Named if letter == ':' => self.tell(answer),
            Place::Named if letter == '=' => self.place = Place::Told(true),
            Place::Word if ":=>".contains(letter) => self.place = Place::Told(false),
            // Its first quote was taken for the end of another text.
            Place::Word if is_quote(letter) => self.place = Place::Named,
            Place::Told(_) if "=>*".contains(letter) => {}
            Place::Word if letter == '*' => {}
            Place::Word if is_more && self.name.len() <= MOST_NAME => self.name.push(letter),
            _ => {
                self.has_begun |= self.place != Place::Words || !",:{}[]()".contains(letter);
                self.place = Place::Words;
                if is_letter {
                    self.place = Place::Word;
                    self.name.clear();
                    self.name.push(letter);
                }
            }
        }
        false
    }

    /// Returns true if a value comes after a field's name, and not words.
    fn ends_value(&mut self, letter: char) -> bool {
        let is_literal = has_word(LITERALS, &self.name);
        let is_blank = letter.is_whitespace();
        match self.place {
            Place::Word if is_of_word(letter) && self.last.is_some_and(is_of_word) => false,
            Place::Word => {
                self.is_at_value = is_blank && is_literal;
                is_literal && ",}]".contains(letter)
            }
            _ => {
                self.is_at_value = is_blank || letter.is_alphabetic();
                is_quote(letter) || letter.is_ascii_digit() || letter == '-'
            }
        }
    }

    /// Notes a name in quotes and a colon. Where nothing else came before them, an object goes on if a value comes.
    fn tell(&mut self, answer: &AnswerType) {
        self.place = Place::Told(true);
        let is_field = answer.may_have(&self.name);
        let is_first = !self.has_begun || self.after == After::Bracket;
        self.is_at_value = is_first && is_field;
        self.has_begun = true;
        self.has_told |= is_field;
        self.is_inside |= is_field && self.after == After::GivenUp;
    }
}
