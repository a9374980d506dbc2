//! The value of an answer while it comes. Texts grow; everything else appears when it is complete, and nothing that was shown
//! is taken back. Text that may still be read in another way is held until it ends.

use rpds::ListSync;

use crate::answer::answer_type::AnswerType;
use crate::answer::builder::build;
use crate::answer::fit::Repairs;
use crate::answer::lexer::{Lexer, Sink};
use crate::answer::node::{Kinds, NodeId, Others, SchemaNode};
use crate::error::{index, Path};
use crate::value::{Map, Value};

/// A change of the value that is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct ShownPart {
    /// The place.
    pub path: Path,
    /// The change there.
    pub came: Came,
}

/// The change at a place.
#[derive(Debug, Clone, PartialEq)]
pub enum Came {
    /// More of a text, which is empty before the first of it.
    Text(String),
    /// A value: whole, or an empty list or object that grows.
    Value(Value),
}

/// The rules of a place: a node of the schema, or none at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Node(NodeId),
    Any,
    /// It is not known yet which field it will be.
    Hidden,
}

#[derive(Debug, Clone)]
struct Level {
    rule: Rule,
    is_list: bool,
    /// It is a list of which nothing is shown yet, since its first element may be the value itself.
    waits: bool,
    count: usize,
    /// The elements of a list that are shown.
    shown: usize,
    key: Value,
    /// The rule of the next value.
    next: Rule,
    /// Fields that came, by their positions in the node.
    seen: u64,
}

/// Text that is held until it ends.
#[derive(Debug, Clone, Default)]
struct Held {
    /// The last one first.
    chunks: ListSync<Box<str>>,
    bytes: usize,
}

/// The state between two chunks of a stream. Copying it costs as much as the answer has levels.
#[derive(Debug, Clone, Default)]
pub struct Follow {
    lexer: Lexer,
    levels: Vec<Level>,
    /// Levels within a value that is not shown, and the rule for it.
    hidden: Option<(usize, Rule)>,
    held: Option<Held>,
    is_text: bool,
    has_shown: bool,
    /// A field has shown that the open value is the answer. It is shown from the next value on that is not hidden.
    is_told: bool,
    is_meant: bool,
    /// The open value may be that of a field.
    is_part: bool,
    is_over: bool,
}

impl Follow {
    /// Returns the bytes that are read again at the end of the value that they are part of.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.bytes)
    }

    /// Reads a chunk of the text. Returns the changes that it makes to the value.
    ///
    /// # Complexity
    /// O(n) in the chunk, besides the levels of the answer and the text held so far.
    #[must_use]
    pub fn feed(
        &self,
        answer: &AnswerType,
        is_lenient: bool,
        chunk: &str,
    ) -> (Self, Vec<ShownPart>) {
        let mut next = self.clone();
        if next.is_over {
            return (next, Vec::new());
        }
        let mut lexer = std::mem::take(&mut next.lexer);
        let mut following = Following {
            answer,
            is_lenient,
            chunk,
            from: 0,
            state: next,
            shown: Vec::new(),
        };
        lexer.feed(chunk, &mut following);
        following.hold(chunk.len());
        let Following {
            mut state, shown, ..
        } = following;
        state.lexer = lexer;
        state.has_shown |= !shown.is_empty();
        (state, shown)
    }
}

/// Returns the value that these changes show, `None` before the first.
#[must_use]
pub fn put_together(shown: &[ShownPart]) -> Option<Value> {
    let mut root = None;
    for ShownPart { path, came } in shown {
        put(&mut root, path, came);
    }
    root.map(Growing::value)
}

/// A value that grows at its end.
enum Growing {
    Text(String),
    Whole(Value),
    List(Vec<Growing>),
    Object(Vec<(Value, Growing)>),
}

impl Growing {
    fn of(came: &Came) -> Self {
        match came {
            Came::Text(text) => Self::Text(text.clone()),
            Came::Value(Value::List(items)) if items.is_empty() => Self::List(Vec::new()),
            Came::Value(Value::Map(map)) if map.is_empty() => Self::Object(Vec::new()),
            Came::Value(value) => Self::Whole(value.clone()),
        }
    }

    // As deep as an answer may be.
    fn value(self) -> Value {
        match self {
            Self::Text(text) => Value::text(&text),
            Self::Whole(value) => value,
            Self::List(items) => Value::List(items.into_iter().map(Self::value).collect()),
            Self::Object(entries) => {
                let entry = |(key, value): (Value, Self)| (key, value.value());
                Value::Map(Map::new(entries.into_iter().map(entry).collect()))
            }
        }
    }
}

// Only the last element of a list and the last field of an object ever change.
fn put(root: &mut Option<Growing>, path: &[Value], came: &Came) {
    let Some(mut at) = root.as_mut() else {
        *root = Some(Growing::of(came));
        return;
    };
    for (depth, step) in path.iter().enumerate() {
        let is_last = depth + 1 == path.len();
        let inside = match at {
            Growing::List(items) if is_last && *step == index(items.len()) => {
                return items.push(Growing::of(came));
            }
            Growing::Object(entries)
                if is_last && entries.last().is_none_or(|(key, _)| key != step) =>
            {
                return entries.push((step.clone(), Growing::of(came)));
            }
            Growing::List(items) => items.last_mut(),
            Growing::Object(entries) => entries.last_mut().map(|(_, value)| value),
            Growing::Text(_) | Growing::Whole(_) => None,
        };
        let Some(inside) = inside else { return };
        at = inside;
    }
    if let (Growing::Text(text), Came::Text(more)) = (at, came) {
        text.push_str(more);
    }
}

fn empty(is_list: bool) -> Came {
    Came::Value(match is_list {
        true => Value::List(Box::default()),
        false => Value::Map(Map::default()),
    })
}

struct Following<'t> {
    answer: &'t AnswerType,
    is_lenient: bool,
    chunk: &'t str,
    /// The index in the chunk at which the held text begins.
    from: usize,
    state: Follow,
    shown: Vec<ShownPart>,
}

impl Following<'_> {
    fn path(&self) -> Path {
        let step = |level: &Level| match level.is_list {
            true => index(level.count),
            false => level.key.clone(),
        };
        self.state.levels.iter().map(step).collect()
    }

    /// Returns whether all elements before this place are shown, and gives an element its place. Behind one that is not, nothing
    /// of the list is shown: it would stand in its place.
    fn has_place(&mut self) -> bool {
        let Some((last, around)) = self.state.levels.split_last_mut() else {
            return true;
        };
        let is_shown = |level: &Level| !level.is_list || level.count < level.shown;
        let has_place = around.iter().all(is_shown) && !(last.is_list && last.count > last.shown);
        if has_place {
            last.shown = last.shown.max(last.count + 1);
        }
        has_place
    }

    fn show(&mut self, came: Came) {
        if let Some(mut level) = self.state.levels.pop_if(|level| level.waits) {
            level.waits = false;
            self.show(empty(true));
            self.state.levels.push(level);
        }
        if self.state.is_over || !self.has_place() {
            return;
        }
        let path = self.path();
        let last = self.shown.last_mut().filter(|last| last.path == path);
        match (&came, last.map(|last| &mut last.came)) {
            (Came::Text(more), Some(Came::Text(text))) => text.push_str(more),
            _ => self.shown.push(ShownPart { path, came }),
        }
    }

    fn hold(&mut self, to: usize) {
        if let Some(held) = &mut self.state.held {
            let text = self.chunk.get(self.from..to).unwrap_or_default();
            if !text.is_empty() {
                held.chunks.push_front_mut(text.into());
                held.bytes += text.len();
            }
        }
        self.from = 0;
    }

    fn rule(&self) -> Rule {
        let level = self.state.levels.last();
        level.map_or(Rule::Node(0), |level| level.next)
    }

    /// Returns the rule for a value of this kind, if there is only one.
    fn resolve(&self, rule: Rule, kind: Kinds) -> Option<Rule> {
        let mut id = match rule {
            Rule::Any => return Some(Rule::Any),
            Rule::Hidden => return None,
            Rule::Node(id) => id,
        };
        loop {
            let node = self.answer.nodes.get(id)?;
            if node.kinds.is_some_and(|kinds| !kinds.has(kind)) {
                return None;
            }
            let mut inner = node.in_place();
            let Some(first) = inner.next() else {
                return Some(Rule::Node(id));
            };
            let is_bare = node.properties.is_empty()
                && node.items.is_none()
                && node.first_items.is_empty()
                && node.choices.is_none()
                && node.others == Others::Allowed;
            let groups = [&node.all_of, &node.any_of, &node.one_of];
            if !is_bare || groups.iter().filter(|group| !group.is_empty()).count() > 1 {
                return None;
            }
            let mut fitting = std::iter::once(first)
                .chain(inner)
                .filter(|id| self.may_be(*id, kind));
            let only = fitting.next()?;
            if fitting.next().is_some() {
                return None;
            }
            id = only;
        }
    }

    /// Returns true if a value of this kind may fit as it is.
    fn may_be(&self, id: NodeId, kind: Kinds) -> bool {
        let mut open = vec![id];
        while let Some(node) = open.pop().and_then(|id| self.answer.nodes.get(id)) {
            if node.kinds.is_some_and(|kinds| !kinds.has(kind)) {
                return false;
            }
            let known = node.choices.as_ref();
            if known.is_some_and(|known| !known.iter().any(|value| kind.has(Kinds::of(value)))) {
                return false;
            }
            open.extend(&node.all_of);
        }
        true
    }

    fn node(&self, rule: Rule) -> Option<&SchemaNode> {
        match rule {
            Rule::Node(id) => self.answer.nodes.get(id),
            _ => None,
        }
    }

    /// Shows the lists and objects around the first field that proves this to be the answer.
    fn show_levels(&mut self) {
        self.state.is_meant = true;
        let levels = std::mem::take(&mut self.state.levels);
        for level in levels {
            self.show(empty(level.is_list));
            self.state.levels.push(level);
        }
    }

    /// Shows the held text, if it fits.
    fn release(&mut self, rule: Rule) {
        let Some(held) = self.state.held.take() else {
            return;
        };
        let mut chunks: Vec<&str> = held.chunks.iter().map(|chunk| &**chunk).collect();
        chunks.reverse();
        let (Some(value), Rule::Node(id)) = (read_value(&chunks.concat()), rule) else {
            return;
        };
        let path = self.path();
        let repairs = Repairs::of(self.is_lenient);
        let (fitted, report) = self.answer.fit(id, &value, repairs, path.clone());
        // A whole answer that fits is the one that was meant, whatever its fields are, but not one that is made of something else.
        let is_made = report.mends.iter().any(|mend| mend.path.is_empty());
        let is_whole = path.is_empty() && !is_made;
        let is_meant = (self.state.is_meant || is_whole) && !self.state.is_part;
        if report.fits() && is_meant {
            self.show(Came::Value(fitted.unwrap_or(value)));
        }
    }
}

/// Reads a single value with the lexer.
fn read_value(text: &str) -> Option<Value> {
    // The lexer looks for a list or an object, so the value gets a list around it.
    let (_, mut found) = build(None, &["[", text, "]"]);
    match found.pop()?.value {
        Value::List(items) => items.into_vec().pop(),
        _ => None,
    }
}

impl Sink for Following<'_> {
    fn answer(&self) -> Option<&AnswerType> {
        Some(self.answer)
    }

    // The value of a field may be the answer, but it is not shown as such: the text after it decides.
    fn mean(&mut self, field: Option<&str>) {
        if field.is_some() {
            self.state.is_part = true;
            return;
        }
        self.state.is_told = true;
        if self.state.hidden.is_none() {
            self.show_levels();
        }
    }

    fn begin(&mut self, kind: Kinds, at: usize) {
        if let Some((depth, _)) = &mut self.state.hidden {
            *depth += 1;
            return;
        }
        let rule = self.rule();
        let is_open = [Kinds::OBJECT, Kinds::ARRAY, Kinds::STRING].contains(&kind);
        let is_choice = |node: &SchemaNode| node.choices.is_some() || node.format.is_some();
        let grows = |of: &Rule| is_open && !self.node(*of).is_some_and(is_choice);
        let Some(rule) = self.resolve(rule, kind).filter(grows) else {
            // A number that may be anything is complete as soon as it ends.
            let is_held = rule != Rule::Hidden && rule != Rule::Any;
            self.state.hidden = Some((1, rule));
            self.state.held = is_held.then(Held::default);
            self.from = at;
            return;
        };
        let is_list = kind == Kinds::ARRAY;
        let waits = is_list && self.state.is_meant && rule != self.rule();
        self.state.is_text = kind == Kinds::STRING;
        if self.state.is_meant && !waits {
            self.show(match self.state.is_text {
                true => Came::Text(String::new()),
                false => empty(is_list),
            });
        }
        if self.state.is_text {
            return;
        }
        let next = match is_list {
            true => self.element_rule(rule, 0),
            false => Rule::Any,
        };
        self.state.levels.push(Level {
            rule,
            is_list,
            waits,
            count: 0,
            shown: 0,
            key: Value::Nil,
            next,
            seen: 0,
        });
    }

    fn key(&mut self, key: &str) {
        if self.state.hidden.is_some() {
            return;
        }
        if self.state.is_told && !self.state.is_meant {
            self.show_levels();
        }
        let Some(rule) = self.state.levels.last().map(|level| level.rule) else {
            return;
        };
        let (name, next, place) = self.field_rule(rule, key);
        let name = Value::text(name);
        let is_meant = self.state.is_meant;
        if let Some(level) = self.state.levels.last_mut() {
            level.key = name;
            let place = place.filter(|place| *place < 64);
            let bit = place.map_or(0, |place| 1_u64 << place);
            let is_hidden = level.seen & bit != 0 || !is_meant;
            level.seen |= bit;
            level.next = if is_hidden { Rule::Hidden } else { next };
        }
    }

    fn text(&mut self, part: &str) {
        if self.state.hidden.is_none() && self.state.is_text && self.state.is_meant {
            self.show(Came::Text(part.to_owned()));
        }
    }

    fn scalar(&mut self, value: Value) {
        // The buffered text is read again as a whole.
        if let Some((1, Rule::Any)) = self.state.hidden {
            if self.state.is_meant {
                self.show(Came::Value(value));
            }
        }
    }

    fn end(&mut self, at: usize) {
        if let Some((depth, rule)) = self.state.hidden {
            if depth > 1 {
                self.state.hidden = Some((depth - 1, rule));
                return;
            }
            self.hold(at);
            self.state.hidden = None;
            self.release(rule);
        } else if self.state.is_text {
            self.state.is_text = false;
        } else if let Some(level) = self.state.levels.pop() {
            if level.waits && level.count == 0 {
                self.show(empty(true));
            }
        }
        let Some(level) = self.state.levels.last() else {
            return self.finish();
        };
        let (count, rule) = (level.count + 1, level.rule);
        let next = self.element_rule(rule, count);
        if let Some(level) = self.state.levels.last_mut().filter(|level| level.is_list) {
            (level.next, level.count) = (next, count);
        }
    }

    fn abandon(&mut self) {
        self.state.levels.clear();
        self.state.hidden = None;
        self.state.held = None;
        self.state.is_text = false;
        self.from = 0;
        self.finish();
    }
}

impl Following<'_> {
    /// Ends a value that is not part of another one.
    fn finish(&mut self) {
        self.state.is_over = self.state.has_shown || !self.shown.is_empty();
        self.state.is_told = false;
        self.state.is_meant = false;
        self.state.is_part = false;
    }

    fn element_rule(&self, rule: Rule, at: usize) -> Rule {
        let item = self.node(rule).and_then(|node| node.item(at));
        item.map_or(Rule::Any, Rule::Node)
    }

    /// Returns the name of a field, its rule, and its position among those of the node.
    fn field_rule<'k>(&'k self, rule: Rule, key: &'k str) -> (&'k str, Rule, Option<usize>) {
        let Some(node) = self.node(rule) else {
            return (key, Rule::Any, None);
        };
        // A key in another style is renamed, if no other one has the name: where others are refused, that would not fit.
        let is_certain = self.is_lenient && node.others == Others::Refused;
        let styled = node.property_in_style(key).filter(|_| is_certain);
        let name = styled.map_or(key, |property| &*property.name);
        let name = if node.places.contains_key(key) {
            key
        } else {
            name
        };
        if let Some(place) = node.places.get(name).copied() {
            let found = node.properties.get(place);
            let rule = found.map_or(Rule::Hidden, |property| Rule::Node(property.node));
            return (name, rule, Some(place));
        }
        let rule = match node.others {
            _ if node.property_in_style(key).is_some() => Rule::Hidden,
            Others::Allowed => Rule::Any,
            Others::Refused => Rule::Hidden,
            Others::Of(id) => Rule::Node(id),
        };
        (key, rule, None)
    }
}
