//! Answers that are damaged as models damage them, in any place: each reads as the answer that it was, or is refused or cut.
//! Nothing of it is taken for the whole, and a stream shows nothing else.

use crate::part;

use ash_agent_context_core::{
    json, put_together, AnswerType, Follow, Map, ReadingState, ShownPart, Value,
};
use part::is_part;

/// Damages of each kind that each type gets.
const PLACES: usize = 25;

/// Those of them that are read.
const LEAST: usize = 6_110;

/// Numbers that are the same in every run, so that figures can be compared.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(high).unwrap() % sides.max(1)
    }

    fn pick(&mut self, of: &[&'static str]) -> &'static str {
        of[self.roll(of.len())]
    }
}

// ---- answers

const TEXTS: [&str; 26] = [
    "Ann",
    "order 7",
    "",
    "it's",
    "a \"b\" c",
    "x } y",
    "{ z",
    "{\"name\": \"Bob\"}",
    "{'name': 'Bob'}",
    "} {\"city\": \"Bonn\", \"name\": \"Bob\"}",
    "} {name: 'Bob', 'city': 'Bonn', 'value': ['b']}",
    "[1, \"b\"]",
    "a, b: c",
    "“so”",
    "// no",
    "]}",
    "',",
    "\"}",
    "{}",
    "\", \"name\": \"Z",
    "```json\n{\"city\": \"Bonn\"}\n```",
    "null",
    "\\",
    "/* no */",
    "line\nbreak",
    "Ä \u{1F600} \\ /",
];

/// JSON in the order in which it is written.
enum Json {
    Raw(String),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(&'static str, Json)>),
}

fn text(dice: &mut Dice) -> Json {
    Json::Text(dice.pick(&TEXTS).to_owned())
}

fn number(dice: &mut Dice) -> Json {
    Json::Raw(dice.pick(&["0", "7", "42", "127000", "-3"]).to_owned())
}

fn list(dice: &mut Dice, of: impl Fn(&mut Dice) -> Json) -> Json {
    let length = dice.roll(4);
    Json::List((0..length).map(|_| of(dice)).collect())
}

/// Some of the fields, in any order. The first `required` ones are always there.
fn object(dice: &mut Dice, required: usize, fields: Vec<(&'static str, Json)>) -> Json {
    let mut kept = Vec::new();
    for (at, field) in fields.into_iter().enumerate() {
        if at < required || dice.roll(4) > 0 {
            kept.insert(dice.roll(kept.len() + 1), field);
        }
    }
    Json::Object(kept)
}

fn node(dice: &mut Dice, levels: usize) -> Json {
    let mut fields = vec![("name", text(dice))];
    if levels > 0 {
        fields.push(("node", node(dice, levels - 1)));
        fields.push(("nodes", list(dice, |dice| node(dice, levels - 1))));
    }
    object(dice, 0, fields)
}

struct Type {
    name: &'static str,
    schema: &'static str,
    make: fn(&mut Dice) -> Json,
}

const TYPES: [Type; 12] = [
    Type {
        name: "a part that looks like the whole",
        schema: r#"{"type":"object","properties":{"name":{"type":"string"},"note":{"type":"string"},"customer":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"],"additionalProperties":false}},"required":["name"],"additionalProperties":false}"#,
        make: |dice| {
            let customer = Json::Object(vec![("name", text(dice))]);
            let fields = vec![
                ("name", text(dice)),
                ("note", text(dice)),
                ("customer", customer),
            ];
            object(dice, 1, fields)
        },
    },
    Type {
        name: "a text",
        schema: r#"{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}"#,
        make: |dice| Json::Object(vec![("city", text(dice))]),
    },
    Type {
        name: "scalars",
        schema: r#"{"type":"object","properties":{"city":{"type":"string"},"people":{"type":"integer"},"price":{"type":"number"},"paid":{"type":"boolean"},"state":{"enum":["new","in_progress"]}},"required":["city","people"],"additionalProperties":false}"#,
        make: |dice| {
            let price = Json::Raw(dice.pick(&["0.5", "1.25", "-0.1", "12"]).to_owned());
            let paid = Json::Raw(dice.pick(&["true", "false"]).to_owned());
            let state = Json::Text(dice.pick(&["new", "in_progress"]).to_owned());
            let fields = vec![
                ("city", text(dice)),
                ("people", number(dice)),
                ("price", price),
                ("paid", paid),
                ("state", state),
            ];
            object(dice, 2, fields)
        },
    },
    Type {
        name: "a list of texts",
        schema: r#"{"type":"object","properties":{"value":{"type":"array","items":{"type":"string"}}},"required":["value"],"additionalProperties":false}"#,
        make: |dice| Json::Object(vec![("value", list(dice, text))]),
    },
    Type {
        name: "a list of objects",
        schema: r#"{"type":"object","properties":{"value":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"value":{"type":"array","items":{"type":"string"}}},"required":[],"additionalProperties":false}}},"required":["value"],"additionalProperties":false}"#,
        make: |dice| {
            let item = |dice: &mut Dice| {
                let fields = vec![("name", text(dice)), ("value", list(dice, text))];
                object(dice, 1, fields)
            };
            Json::Object(vec![("value", list(dice, item))])
        },
    },
    Type {
        name: "alternatives",
        schema: r#"{"type":"object","properties":{"value":{"anyOf":[{"type":"object","properties":{"type":{"const":"ticket"},"value":{"type":"object","properties":{"name":{"type":"string"},"value":{"type":"string"}},"required":["name"],"additionalProperties":false}},"required":["type","value"],"additionalProperties":false},{"type":"object","properties":{"type":{"const":"question"},"value":{"type":"string"}},"required":["type","value"],"additionalProperties":false}]}},"required":["value"],"additionalProperties":false}"#,
        make: |dice| {
            let (name, value) = if dice.roll(2) == 0 {
                let fields = vec![("name", text(dice)), ("value", text(dice))];
                ("ticket", object(dice, 1, fields))
            } else {
                ("question", text(dice))
            };
            let fields = vec![("type", Json::Text(name.to_owned())), ("value", value)];
            Json::Object(vec![("value", object(dice, 2, fields))])
        },
    },
    Type {
        name: "what may be null",
        schema: r#"{"type":"object","properties":{"tags":{"anyOf":[{"type":"array","items":{"type":"string"}},{"type":"null"}]},"city":{"anyOf":[{"type":"object","properties":{"tags":{"anyOf":[{"type":"array","items":{"type":"string"}},{"type":"null"}]},"city":{"type":"null"}},"required":["tags","city"],"additionalProperties":false},{"type":"null"}]}},"required":["tags","city"],"additionalProperties":false}"#,
        make: |dice| {
            let null = || Json::Raw("null".to_owned());
            let tags = |dice: &mut Dice| {
                if dice.roll(3) == 0 {
                    null()
                } else {
                    list(dice, text)
                }
            };
            let city = if dice.roll(3) == 0 {
                null()
            } else {
                let fields = vec![("tags", tags(dice)), ("city", null())];
                object(dice, 2, fields)
            };
            let fields = vec![("tags", tags(dice)), ("city", city)];
            object(dice, 2, fields)
        },
    },
    Type {
        name: "nothing but optional fields",
        schema: r#"{"type":"object","properties":{"name":{"type":"string"},"tags":{"type":"array","items":{"type":"string"}},"inner":{"type":"object","properties":{"name":{"type":"string"},"tags":{"type":"array","items":{"type":"string"}}},"additionalProperties":false}},"additionalProperties":false}"#,
        make: |dice| {
            let fields = vec![("name", text(dice)), ("tags", list(dice, text))];
            let inner = object(dice, 1, fields);
            let fields = vec![
                ("name", text(dice)),
                ("tags", list(dice, text)),
                ("inner", inner),
            ];
            object(dice, 1, fields)
        },
    },
    Type {
        name: "any object",
        schema: r#"{"type":"object"}"#,
        make: |dice| {
            let inner = Json::Object(vec![("a", text(dice)), ("b", number(dice))]);
            let fields = vec![("a", text(dice)), ("b", inner), ("c", list(dice, text))];
            object(dice, 1, fields)
        },
    },
    Type {
        name: "more fields than are named",
        schema: r#"{"type":"object","properties":{"name":{"type":"string"}}}"#,
        make: |dice| {
            let inner = Json::Object(vec![("name", text(dice))]);
            let fields = vec![
                ("name", text(dice)),
                ("more", inner),
                ("most", number(dice)),
            ];
            object(dice, 1, fields)
        },
    },
    Type {
        name: "a tree",
        schema: r##"{"type":"object","properties":{"name":{"type":"string"},"node":{"$ref":"#"},"nodes":{"type":"array","items":{"$ref":"#"}}},"additionalProperties":false}"##,
        make: |dice| {
            let fields = vec![
                ("name", text(dice)),
                ("node", node(dice, 2)),
                ("nodes", list(dice, |dice| node(dice, 1))),
            ];
            object(dice, 1, fields)
        },
    },
    Type {
        name: "numbers in lists",
        schema: r#"{"type":"object","properties":{"rows":{"type":"array","items":{"type":"array","items":{"type":"integer"}}},"row":{"type":"array","items":{"type":"integer"}}},"required":["rows"],"additionalProperties":false}"#,
        make: |dice| {
            let rows = list(dice, |dice| list(dice, number));
            let fields = vec![("rows", rows), ("row", list(dice, number))];
            object(dice, 1, fields)
        },
    },
];

fn write(value: &Json, is_spaced: bool, to: &mut String) {
    let (comma, colon) = if is_spaced { (", ", ": ") } else { (",", ":") };
    match value {
        Json::Raw(raw) => to.push_str(raw),
        Json::Text(text) => to.push_str(&json::write(&Value::text(text))),
        Json::List(items) => {
            to.push('[');
            for (at, item) in items.iter().enumerate() {
                to.push_str(if at > 0 { comma } else { "" });
                write(item, is_spaced, to);
            }
            to.push(']');
        }
        Json::Object(fields) => {
            to.push('{');
            for (at, (name, value)) in fields.iter().enumerate() {
                to.push_str(if at > 0 { comma } else { "" });
                to.push_str(&format!("\"{name}\"{colon}"));
                write(value, is_spaced, to);
            }
            to.push('}');
        }
    }
}

// ---- damage

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Key,
    Text,
    Word,
    Mark(u8),
}

/// The tokens of JSON.
fn tokens(text: &str) -> Vec<(Kind, usize, usize)> {
    let bytes = text.as_bytes();
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        let from = at;
        at += 1;
        match bytes[from] {
            b'"' => {
                while bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
                let is_key = bytes[at..].starts_with(b":");
                found.push((if is_key { Kind::Key } else { Kind::Text }, from, at));
            }
            b' ' => {}
            mark if b"{}[]:,".contains(&mark) => found.push((Kind::Mark(mark), from, at)),
            _ => {
                while bytes.get(at).is_some_and(|byte| !b",]}".contains(byte)) {
                    at += 1;
                }
                found.push((Kind::Word, from, at));
            }
        }
    }
    found
}

fn splice(text: &str, from: usize, to: usize, with: &str) -> String {
    format!("{}{with}{}", &text[..from], &text[to..])
}

struct Damage<'a> {
    text: &'a str,
    other: &'a str,
    /// Objects of the type have fields of any name and kind.
    is_open: bool,
    dice: &'a mut Dice,
}

impl Damage<'_> {
    /// A token of these kinds.
    fn one(&mut self, is_wanted: impl Fn(Kind) -> bool) -> Option<(usize, usize)> {
        let all = tokens(self.text);
        let found: Vec<_> = all
            .into_iter()
            .filter(|(kind, ..)| is_wanted(*kind))
            .collect();
        if found.is_empty() {
            return None;
        }
        let (_, from, to) = found[self.dice.roll(found.len())];
        Some((from, to))
    }

    fn replace(
        &mut self,
        is_wanted: impl Fn(Kind) -> bool,
        with: impl Fn(&str) -> String,
    ) -> Option<String> {
        let (from, to) = self.one(is_wanted)?;
        Some(splice(self.text, from, to, &with(&self.text[from..to])))
    }

    fn replace_all(
        &self,
        is_wanted: impl Fn(Kind) -> bool,
        with: impl Fn(&str) -> String,
    ) -> String {
        let mut text = self.text.to_owned();
        for (kind, from, to) in tokens(self.text).into_iter().rev() {
            if is_wanted(kind) {
                text = splice(&text, from, to, &with(&self.text[from..to]));
            }
        }
        text
    }

    fn mark(&mut self, mark: u8, with: &str) -> Option<String> {
        self.replace(|kind| kind == Kind::Mark(mark), |_| with.to_owned())
    }

    /// Something between two tokens.
    fn between(&mut self, what: &str) -> Option<String> {
        let (_, to) = self.one(|_| true)?;
        Some(splice(self.text, to, to, what))
    }

    /// A letter within a text or a key.
    fn within(&mut self, what: &str) -> Option<String> {
        let (from, to) = self.one(|kind| matches!(kind, Kind::Text | Kind::Key))?;
        let mut places: Vec<usize> = (from + 1..to)
            .filter(|at| self.text.is_char_boundary(*at))
            .collect();
        places.retain(|at| !self.text[..*at].ends_with('\\'));
        let at = places[self.dice.roll(places.len())];
        Some(splice(self.text, at, at, what))
    }

    fn cut(&mut self, text: &str, least: usize) -> String {
        let mut at = least + self.dice.roll(text.len() - least);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        text[..at.max(least)].to_owned()
    }
}

fn is_text(kind: Kind) -> bool {
    kind == Kind::Text
}

fn is_key(kind: Kind) -> bool {
    kind == Kind::Key
}

fn is_quoted(kind: Kind) -> bool {
    is_text(kind) || is_key(kind)
}

fn is_word(kind: Kind) -> bool {
    kind == Kind::Word
}

fn is_value(kind: Kind) -> bool {
    is_word(kind) || is_text(kind)
}

fn inside(quoted: &str) -> &str {
    &quoted[1..quoted.len() - 1]
}

fn single(quoted: &str) -> String {
    format!(
        "'{}'",
        inside(quoted).replace("\\\"", "\"").replace('\'', "\\'")
    )
}

fn smart(quoted: &str) -> String {
    format!("“{}”", inside(quoted))
}

fn number_or(word: &str, with: impl Fn(&str) -> String) -> String {
    if word.starts_with(|first: char| first.is_ascii_digit()) {
        with(word)
    } else {
        word.to_owned()
    }
}

/// A name, and the damage; `None` where there is nothing to damage.
type Kinds = [(&'static str, fn(&mut Damage<'_>) -> Option<String>)];

/// What leaves the ends of texts, lists and objects where they are.
const KINDS: &Kinds = &[
    ("smart quotes around a key", |it| it.replace(is_key, smart)),
    ("smart quotes around a text", |it| {
        it.replace(is_text, smart)
    }),
    ("smart quotes around all keys", |it| {
        Some(it.replace_all(is_key, smart))
    }),
    ("smart quotes everywhere", |it| {
        Some(it.replace_all(is_quoted, smart))
    }),
    ("other quotes around a key", |it| {
        let (open, close) = [
            ("«", "»"),
            ("`", "`"),
            ("„", "“"),
            ("‘", "’"),
            ("\"\"", "\"\""),
        ][it.dice.roll(5)];
        it.replace(is_key, |key| format!("{open}{}{close}", inside(key)))
    }),
    ("NaN", |it| it.replace(is_value, |_| "NaN".to_owned())),
    ("a word of JavaScript", |it| {
        it.replace(is_value, |_| "undefined".to_owned())
    }),
    ("zeros before a number", |it| {
        it.replace(is_word, |word| number_or(word, |word| format!("00{word}")))
    }),
    ("a plus before a number", |it| {
        it.replace(is_word, |word| number_or(word, |word| format!("+{word}")))
    }),
    ("a number with a separator", |it| {
        it.replace(is_word, |word| {
            number_or(word, |word| format!("{word}_000"))
        })
    }),
    ("a point after a number", |it| {
        it.replace(is_word, |word| number_or(word, |word| format!("{word}.")))
    }),
    ("a missing colon", |it| it.mark(b':', " ")),
    ("another sign for a colon", |it| {
        let sign = it.dice.pick(&["=", " =>", "::", ";"]);
        it.mark(b':', sign)
    }),
    ("a missing comma", |it| it.mark(b',', " ")),
    ("a second comma", |it| it.mark(b',', ",,")),
    ("another sign for a comma", |it| {
        let sign = it.dice.pick(&[";", " . ", "\n", "|"]);
        it.mark(b',', sign)
    }),
    ("a comma at the beginning", |it| {
        let mark = [b'{', b'['][it.dice.roll(2)];
        it.replace(|kind| kind == Kind::Mark(mark), |mark| format!("{mark},"))
    }),
    ("a backslash within a text", |it| it.within("\\d")),
    ("line breaks within texts", |it| {
        Some(it.text.replace("\\n", "\n"))
    }),
    ("cut off", |it| {
        let text = it.text.to_owned();
        Some(it.cut(&text, 1))
    }),
    ("a second answer that is cut off", |it| {
        let words = it
            .dice
            .pick(&[" Wait: ", "\n", "", "\n```json\n", " Or [", " I mean: "]);
        let whole = format!("{}{words}{}", it.text, it.other);
        // A brace alone directly behind an answer is one too many.
        let least = it.text.len() + words.len() + if words.is_empty() { 2 } else { 1 };
        Some(it.cut(&whole, least))
    }),
    ("a second answer", |it| {
        let words = it.dice.pick(&[" Wait: ", "\n", "", "\n```json\n"]);
        Some(format!("{}{words}{}", it.text, it.other)).filter(|_| it.text != it.other)
    }),
    ("the answer twice", |it| {
        Some(format!("{}\n{}", it.text, it.text))
    }),
    ("a comment", |it| {
        let comment = it.dice.pick(&[
            "/* so {it} is */",
            "// \"so\"\n",
            "# so\n",
            "<!-- so -->",
            "...",
        ]);
        it.between(comment)
    }),
    ("a comma at the end", |it| {
        let mark = [b'}', b']'][it.dice.roll(2)];
        it.replace(|kind| kind == Kind::Mark(mark), |mark| format!(",{mark}"))
    }),
    ("words of Python", |it| {
        Some(it.replace_all(is_word, |word| match word {
            "true" => "True".to_owned(),
            "false" => "False".to_owned(),
            "null" => "None".to_owned(),
            word => word.to_owned(),
        }))
    }),
    ("single quotes", |it| {
        Some(it.replace_all(is_quoted, single))
    }),
    ("single quotes around one", |it| {
        it.replace(is_quoted, single)
    }),
    ("keys without quotes", |it| {
        Some(it.replace_all(is_key, |key| inside(key).to_owned()))
    }),
    ("a fence", |it| Some(format!("```json\n{}\n```", it.text))),
    ("words with braces before it", |it| {
        let words = it.dice.pick(&[
            "Here {it} is: ",
            ":-{ ",
            "if (x) { return {1} } ",
            "{x : x > 0} ",
            "[1] and [a, b) ",
            "{foo: bar} gives ",
            "{ a \"b\" } ",
            "{{template}} ",
            "{'a', 'b'} ",
            "f() { return {\"foo\": 1}; } ",
            "{{\"foo\": NaN}} ",
            "{don't: do} ",
            "[[link]] ",
        ]);
        Some(format!("{words}{}", it.text))
    }),
    ("words with braces after it", |it| {
        let words = it.dice.pick(&[
            " :-{ Sorry.",
            " {so} it is",
            ", as you asked.",
            " [1]",
            " where {x : x > 0}.",
            " }",
            "]",
            ". It's {done}!",
        ]);
        Some(format!("{}{words}", it.text))
    }),
    ("a part as a text", |it| {
        if it.is_open {
            return None;
        }
        // Of the innermost lists and objects that have one.
        let all = tokens(it.text);
        let opens = |kind| matches!(kind, Kind::Mark(b'{' | b'['));
        let closes = |kind| matches!(kind, Kind::Mark(b'}' | b']'));
        let inner: Vec<(usize, usize)> = all
            .iter()
            .enumerate()
            .filter(|(_, (kind, ..))| opens(*kind))
            .filter_map(|(at, (_, from, _))| {
                let mut depth = 0_i32;
                let end = all[at..].iter().find(|(kind, ..)| {
                    depth += i32::from(opens(*kind)) - i32::from(closes(*kind));
                    depth == 0
                })?;
                (*from > 0).then_some((*from, end.2))
            })
            .collect();
        if inner.is_empty() {
            return None;
        }
        let (from, to) = inner[it.dice.roll(inner.len())];
        Some(splice(
            it.text,
            from,
            to,
            &json::write(&Value::text(&it.text[from..to])),
        ))
    }),
    ("in a list or another object", |it| {
        // For anything, an object around it is right, too.
        let kinds = if it.is_open { 4 } else { 6 };
        let (before, after) = [
            ("[", "]"),
            ("{", "}"),
            ("(", ")"),
            ("answer = ", ";"),
            ("{\"answer\": ", "}"),
            ("\"answer\": ", ""),
        ][it.dice.roll(kinds)];
        Some(format!("{before}{}{after}", it.text))
    }),
];

/// What moves an end, or has something else before it: what a stream shows of it cannot be right.
const MOVING: &Kinds = &[
    ("a smart quote that opens", |it| {
        it.replace(is_quoted, |quoted| format!("“{}", &quoted[1..]))
    }),
    ("a smart quote that closes", |it| {
        it.replace(is_quoted, |quoted| {
            format!("{}”", &quoted[..quoted.len() - 1])
        })
    }),
    ("a missing brace that opens", |it| it.mark(b'{', "")),
    ("a missing brace that closes", |it| it.mark(b'}', "")),
    ("a missing bracket that opens", |it| it.mark(b'[', "")),
    ("a missing bracket that closes", |it| it.mark(b']', "")),
    ("another brace that closes", |it| it.between("}")),
    ("another bracket that closes", |it| it.between("]")),
    ("another brace that opens", |it| it.between("{")),
    ("another bracket that opens", |it| it.between("[")),
    ("a bracket for a brace", |it| {
        let (mark, with) = [
            (b'{', "["),
            (b'}', "]"),
            (b'[', "{"),
            (b']', "}"),
            (b'{', "("),
            (b'}', ")"),
        ][it.dice.roll(6)];
        it.mark(mark, with)
    }),
    ("a missing quote that opens", |it| {
        it.replace(is_quoted, |quoted| quoted[1..].to_owned())
    }),
    ("a missing quote that closes", |it| {
        it.replace(is_quoted, |quoted| quoted[..quoted.len() - 1].to_owned())
    }),
    ("a quote within a text", |it| it.within("\"")),
    ("another answer in thinking or an example", |it| {
        let (before, after) = [
            ("<think>Perhaps ", "?</think>"),
            ("For example ", " would do.\n"),
            ("```json\n", "\n```\nBetter:\n"),
            ("Not `", "` but "),
        ][it.dice.roll(4)];
        Some(format!("{before}{}{after}{}", it.other, it.text)).filter(|_| it.other != it.text)
    }),
    ("a field twice", |it| {
        let twice = it.text.rfind('}')?;
        let all = tokens(it.text);
        let (_, from, to) = *all.iter().find(|(kind, ..)| is_key(*kind))?;
        let value = it.dice.pick(&["\"Z\"", "[]", "null", "1"]);
        Some(splice(
            it.text,
            twice,
            twice,
            &format!(",{}:{value}", &it.text[from..to]),
        ))
    }),
    ("begun and written anew", |it| {
        let text = it.text.to_owned();
        let words = it.dice.pick(&["", "\n", " Sorry: ", "\n```json\n", "\"}"]);
        Some(format!("{}{words}{}", it.cut(&text, 1), it.text))
    }),
    ("cut off in a fence", |it| {
        let text = it.text.to_owned();
        let (before, after) = [
            ("```json\n", "\n```"),
            ("Here {it} is: ", "..."),
            ("```\n", "\n```\nDone {so far}."),
            ("", "[...]"),
        ][it.dice.roll(4)];
        Some(format!("{before}{}{after}", it.cut(&text, 1)))
    }),
];

/// What leaves valid JSON or nearly, in other words than the schema asks for, and what stands around it.
const OTHERWISE: &Kinds = &[
    ("a word as a text", |it| {
        let is_wanted = !it.is_open;
        it.replace(is_word, |word| format!("\"{word}\""))
            .filter(|_| is_wanted)
    }),
    ("a word in capitals", |it| {
        it.replace(is_word, str::to_uppercase)
    }),
    ("a number with a point and a zero", |it| {
        it.replace(is_word, |word| match word.contains('.') {
            true => word.to_owned(),
            false => number_or(word, |word| format!("{word}.0")),
        })
    }),
    ("a number with an exponent", |it| {
        it.replace(is_word, |word| match word.contains('.') {
            true => word.to_owned(),
            false => number_or(word, |word| format!("{word}e0")),
        })
    }),
    ("a number with its unit", |it| {
        it.replace(is_word, |word| {
            number_or(word, |word| format!("{word} EUR"))
        })
    }),
    ("a key in another style", |it| {
        let style = it.dice.roll(3);
        let is_wanted = !it.is_open;
        let styled = it.replace(is_key, |key| match style {
            0 => key.to_uppercase(),
            1 => format!(
                "\"{}\"",
                inside(key)[..1].to_uppercase() + &inside(key)[1..]
            ),
            _ => format!("\"{}_\"", inside(key)),
        });
        styled.filter(|_| is_wanted)
    }),
    ("a list around a value", |it| {
        let is_wanted = !it.is_open;
        it.replace(is_value, |value| format!("[{value}]"))
            .filter(|_| is_wanted)
    }),
    ("an element without its list", |it| {
        let all = tokens(it.text);
        let (open, close) = (Kind::Mark(b'['), Kind::Mark(b']'));
        let found = all.windows(3).find_map(|three| match three {
            [(a, from, _), (value, start, end), (b, _, to)]
                if (*a, *b) == (open, close) && is_value(*value) =>
            {
                Some((*from, *to, &it.text[*start..*end]))
            }
            _ => None,
        });
        let (from, to, element) = found?;
        // These say what they are themselves.
        let is_said = element.starts_with("\"[") || element == "\"null\"";
        (!is_said && !it.is_open).then(|| splice(it.text, from, to, element))
    }),
    ("a choice in another style", |it| {
        let is_choice = |text: &str| ["\"new\"", "\"in_progress\""].contains(&text);
        it.replace(is_text, |text| match is_choice(text) {
            true => text.to_uppercase().replace('_', "-"),
            false => text.to_owned(),
        })
    }),
    ("letters as escapes", |it| {
        Some(it.replace_all(is_quoted, |quoted| {
            quoted.replace('n', "\\u006e").replace("\\\\u006e", "\\n")
        }))
    }),
    ("markup around it", |it| {
        let (before, after) = [
            ("<answer>", "</answer>"),
            ("**Answer:**\n\n", "\n"),
            ("`", "`"),
            ("~~~json\n", "\n~~~"),
            ("```\n", "\n```\nI hope {that} helps."),
            ("```json\n", ""),
            ("", "\n```"),
            ("json\n", ""),
            ("\u{feff}", ""),
            ("<think>I {do} think.</think>\n", ""),
            ("> ", "\n"),
            ("(1) [x] ", " (2) [y]"),
        ][it.dice.roll(12)];
        Some(format!("{before}{}{after}", it.text))
    }),
    ("lines that end otherwise", |it| {
        let is_mark = |kind: Kind| matches!(kind, Kind::Mark(b',' | b'{' | b'['));
        Some(it.replace_all(is_mark, |mark| format!("{mark}\r\n\t")))
    }),
    ("blanks that are not those of JSON", |it| {
        let blank = it
            .dice
            .pick(&["\u{a0}", "\u{200b}", "\u{3000}", "\u{feff}", "\u{b}"]);
        it.between(blank)
    }),
    ("the whole as a text", |it| {
        Some(json::write(&Value::text(it.text)))
    }),
    ("in two objects", |it| {
        let all = tokens(it.text);
        let mut depth = 0;
        let commas: Vec<usize> = all
            .iter()
            .filter_map(|(kind, at, _)| {
                depth += match kind {
                    Kind::Mark(b'{' | b'[') => 1,
                    Kind::Mark(b'}' | b']') => -1,
                    _ => 0,
                };
                (depth == 1 && *kind == Kind::Mark(b',')).then_some(*at)
            })
            .collect();
        if commas.is_empty() || it.is_open {
            return None;
        }
        let at = commas[it.dice.roll(commas.len())];
        let (open, between, close) = [
            ("", "}\n{", ""),
            ("[", "}, {", "]"),
            ("", "} and {", ""),
            ("", "}{", ""),
        ][it.dice.roll(4)];
        Some(format!(
            "{open}{}{close}",
            splice(it.text, at, at + 1, between)
        ))
    }),
    ("a list of two answers", |it| {
        Some(format!("[{}, {}]", it.text, it.other))
    }),
    ("a text in two pieces", |it| {
        let between = it.dice.pick(&["\" + \"", "\" \"", "\"\n\"", "\"\""]);
        it.within(between)
    }),
    ("three quotes", |it| {
        it.replace(is_quoted, |text| format!("\"\"{text}\"\""))
    }),
    ("a colon in the quotes", |it| {
        let is_wanted = !it.is_open;
        it.replace(is_key, |key| format!("\"{}:\"", inside(key)))
            .filter(|_| is_wanted)
    }),
    ("a key without its value", |it| {
        let all = tokens(it.text);
        let values: Vec<_> = all
            .windows(2)
            .filter(|two| two[0].0 == Kind::Mark(b':') && is_value(two[1].0))
            .collect();
        let (_, from, to) = *values.get(it.dice.roll(values.len()))?.get(1)?;
        Some(splice(it.text, from, to, ""))
    }),
    ("names of entities", |it| {
        Some(it.text.replace('"', "&quot;"))
    }),
    ("escaped quotes", |it| Some(it.text.replace('"', "\\\""))),
    ("two braces around it", |it| {
        Some(format!("{{{}}}", it.text))
    }),
    ("as YAML", |it| {
        Some(
            it.text
                .replace(['{', '}'], "")
                .replace(',', "\n")
                .replace(':', ": "),
        )
    }),
    ("a field before its object", |it| {
        let all = tokens(it.text);
        let (_, from, to) = *all.iter().find(|(kind, ..)| is_key(*kind))?;
        Some(format!("{}: {}", &it.text[from..to], it.text))
    }),
    ("a tail of its own", |it| {
        let from = it.dice.roll(it.text.len());
        let from = (from..it.text.len()).find(|at| it.text.is_char_boundary(*at))?;
        Some(format!("{}{}", it.text, &it.text[from..]))
    }),
];

// ---- the law

/// The value with integers for floats that are whole: JSON does not tell them apart.
fn plain(value: &Value) -> Value {
    match value {
        Value::Float(float) if float.fract() == 0.0 && float.abs() < 1e15 => {
            json::read(format!("{float:.0}").as_bytes(), 1).unwrap()
        }
        Value::List(items) => Value::List(items.iter().map(plain).collect()),
        Value::Map(map) => {
            let entry = |(key, value): &(Value, Value)| (key.clone(), plain(value));
            Value::Map(Map::new(map.iter().map(entry).collect()))
        }
        other => other.clone(),
    }
}

/// How the damaged texts of a kind were read.
#[derive(Default)]
struct Tally {
    equal: usize,
    refused: usize,
    cut: usize,
    wrong: Vec<String>,
}

/// What a stream of this text shows, after each of its pieces.
fn show(answer: &AnswerType, text: &str, dice: &mut Dice) -> Vec<Value> {
    let (mut state, mut parts, mut shown) =
        (Follow::default(), Vec::<ShownPart>::new(), Vec::new());
    let mut from = 0;
    while from < text.len() {
        let mut to = (from + 1 + dice.roll(12)).min(text.len());
        while !text.is_char_boundary(to) {
            to += 1;
        }
        let (next, came) = state.feed(answer, true, &text[from..to]);
        (state, from) = (next, to);
        parts.extend(came);
        shown.extend(put_together(&parts));
    }
    shown
}

fn written(value: &Json, is_spaced: bool) -> String {
    let mut text = String::new();
    write(value, is_spaced, &mut text);
    text
}

/// An answer of a type, and its text with damage.
fn damaged(
    of: &Type,
    damage: fn(&mut Damage<'_>) -> Option<String>,
    dice: &mut Dice,
) -> Option<(Value, String)> {
    // Not every answer has a place for every damage, and not every type.
    (0..50).find_map(|_| {
        let (one, other) = ((of.make)(dice), (of.make)(dice));
        let is_spaced = dice.roll(2) == 0;
        let (text, other) = (written(&one, is_spaced), written(&other, is_spaced));
        let is_open = !of.schema.contains("\"additionalProperties\":false");
        let damaged = damage(&mut Damage {
            text: &text,
            other: &other,
            is_open,
            dice,
        })?;
        let value = json::read(text.as_bytes(), 64).unwrap();
        (damaged != text).then_some((value, damaged))
    })
}

fn tally(
    kind: usize,
    (name, damage): (&str, fn(&mut Damage<'_>) -> Option<String>),
    is_moving: bool,
    from: u64,
) -> Tally {
    let mut tally = Tally::default();
    for (at, of) in TYPES.iter().enumerate() {
        let answer = AnswerType::new(&json::read(of.schema.as_bytes(), 64).unwrap()).unwrap();
        let seed = (kind * 100 + at + 1) as u64 + from * 100_000;
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        // Its own, so that the answers do not depend on how they are read.
        let mut cuts = Dice(seed);
        for _ in 0..PLACES {
            let Some((right, text)) = damaged(of, damage, &mut dice) else {
                break;
            };
            let read = answer.read(&text, false);
            let value = read.value.unwrap_or(Value::Nil);
            let mut wrong = |shown: &Value| {
                tally.wrong.push(format!(
                    "{name}, {}: {text}\n    gives {}",
                    of.name,
                    json::write(shown)
                ));
            };
            match read.state {
                ReadingState::Fits if plain(&value) == right => tally.equal += 1,
                ReadingState::Fits => wrong(&value),
                ReadingState::Misfits => tally.refused += 1,
                ReadingState::Cut => tally.cut += 1,
            }
            // The same text as the arguments of a call, which have to be JSON. Of two fields of one name the last counts there,
            // as in the vendors' libraries.
            let called = json::read(text.as_bytes(), 64).ok();
            if let Some(value) = called.filter(|_| name != "a field twice") {
                let called = answer.check_arguments(&value);
                let value = called.value.unwrap_or(Value::Nil);
                if called.state == ReadingState::Fits && plain(&value) != right {
                    wrong(&value);
                }
            }
            if !is_moving || read.state == ReadingState::Fits {
                let shown = show(&answer, &text, &mut cuts);
                if let Some(shown) = shown.iter().find(|shown| !is_part(&plain(shown), &right)) {
                    wrong(shown);
                }
            }
        }
    }
    tally
}

#[test]
fn damaged_answers_read_as_they_were_or_are_refused_or_cut() {
    // Other damages than in every other run.
    let from = std::env::var("DAMAGE_SEED").map_or(0, |seed| seed.parse().unwrap());
    let kept = KINDS.iter().map(|kind| (*kind, false));
    let moving = MOVING.iter().map(|kind| (*kind, true));
    let (mut equal, mut total, mut wrong) = (0, 0, Vec::new());
    let otherwise = OTHERWISE.iter().map(|kind| (*kind, false));
    for (number, (kind, is_moving)) in kept.chain(moving).chain(otherwise).enumerate() {
        let found = tally(number, kind, is_moving, from);
        println!(
            "{:4} equal {:4} refused {:4} cut {:4} wrong: {}",
            found.equal,
            found.refused,
            found.cut,
            found.wrong.len(),
            kind.0
        );
        if kind.0 == "a second answer that is cut off" {
            assert_eq!(found.equal, 0, "the first one is not the answer");
        }
        equal += found.equal;
        total += found.equal + found.refused + found.cut + found.wrong.len();
        wrong.extend(found.wrong);
    }
    println!("{equal} of {total} equal, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Whoever refuses more than this has made the reader worse.
    assert!(from > 0 || equal >= LEAST, "{equal} are read");
}
