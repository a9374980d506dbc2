//! The elements of a request's list, and which messages and exchanges were made of them.

use crate::log::original::Original;
use crate::log::provider::Provider;
use crate::value::json;
use crate::value::Value;

/// Elements as JSON, to be given back to their provider as they were.
///
/// Messages and exchanges are numbered in their order. Those that share an element belong
/// together: the first of them carries all their elements, or none of them carries any.
#[derive(Debug)]
pub struct Elements {
    provider: Option<Provider>,
    elements: Vec<Element>,
    /// A smaller number that belongs together with this one, or the number itself.
    leaders: Vec<usize>,
    /// Says whether anything was made of an element.
    claimed: Vec<bool>,
    /// By leader: whether they are not as they were.
    changed: Vec<bool>,
}

#[derive(Debug)]
struct Element {
    json: String,
    changed: bool,
    number: Option<usize>,
}

impl Elements {
    /// Of nobody: nothing is kept.
    pub const fn of(provider: Option<Provider>) -> Self {
        Self {
            provider,
            elements: Vec::new(),
            leaders: Vec::new(),
            claimed: Vec::new(),
            changed: Vec::new(),
        }
    }

    /// Takes the next element down, and how it was written where that is known.
    pub fn push(&mut self, element: &Value, written: Option<String>) {
        let json = match (self.provider, written) {
            (Some(_), Some(written)) => written,
            (Some(_), None) => json::write(element),
            (None, _) => String::new(),
        };
        self.elements.push(Element {
            json,
            changed: false,
            number: None,
        });
    }

    /// The message with this number is made from this element.
    pub fn claim(&mut self, number: usize, element: usize) {
        self.reach(number);
        let Some(element) = self.elements.get_mut(element) else {
            return;
        };
        if let Some(claimed) = self.claimed.get_mut(number) {
            *claimed = true;
        }
        match element.number {
            Some(other) => self.join(number, other),
            None => element.number = Some(number),
        }
    }

    /// All from one number to a later one belong together.
    ///
    /// # Complexity
    /// Every step takes two groups together, so that all calls are linear in sum.
    pub fn join_range(&mut self, from: usize, to: usize) {
        self.reach(to);
        let first = self.leader(from);
        let mut last = self.leader(to);
        while last > first {
            self.join(last - 1, last);
            last = self.leader(last);
        }
    }

    /// An element is not in the history as it was.
    pub fn change_element(&mut self, element: usize) {
        if let Some(element) = self.elements.get_mut(element) {
            element.changed = true;
        }
    }

    /// The message with this number differs from its element.
    pub fn change(&mut self, number: usize) {
        self.reach(number);
        let leader = self.leader(number);
        if let Some(changed) = self.changed.get_mut(leader) {
            *changed = true;
        }
    }

    fn reach(&mut self, number: usize) {
        while self.leaders.len() <= number {
            self.leaders.push(self.leaders.len());
            self.claimed.push(false);
            self.changed.push(false);
        }
    }

    fn leader(&mut self, mut number: usize) -> usize {
        loop {
            let next = self.leaders.get(number).copied().unwrap_or(number);
            if next == number {
                return number;
            }
            // Halves the way for those who come later.
            let after = self.leaders.get(next).copied().unwrap_or(next);
            if let Some(leader) = self.leaders.get_mut(number) {
                *leader = after;
            }
            number = after;
        }
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.leader(a), self.leader(b));
        let (first, second) = (a.min(b), a.max(b));
        let changed = self.is_changed(second);
        if let Some(leader) = self.leaders.get_mut(second) {
            *leader = first;
        }
        if changed {
            self.change(first);
        }
    }

    fn is_changed(&mut self, number: usize) -> bool {
        let leader = self.leader(number);
        self.changed.get(leader).copied().unwrap_or(false)
    }

    /// Returns what stands on the wire for each number; of `pairs`, both are as they were or none.
    pub fn finish(mut self, pairs: &[(usize, usize)]) -> Vec<Option<Original>> {
        let Some(provider) = self.provider else {
            return Vec::new();
        };
        for element in std::mem::take(&mut self.elements) {
            if let (true, Some(number)) = (element.changed, element.number) {
                self.change(number);
            }
            self.elements.push(element);
        }
        for (a, b) in pairs.iter().chain(pairs.iter().rev()).copied() {
            if self.is_changed(a) || self.is_changed(b) {
                self.change(a);
                self.change(b);
            }
        }
        let mut texts = vec![String::new(); self.leaders.len()];
        for element in std::mem::take(&mut self.elements) {
            let Some(number) = element.number else {
                continue;
            };
            let leader = self.leader(number);
            if let Some(text) = texts.get_mut(leader) {
                text.push(',');
                text.push_str(&element.json);
            }
        }
        let numbers = 0..self.leaders.len();
        let original = |number: usize| {
            let kept = self.claimed.get(number).copied().unwrap_or(false);
            if !kept || self.is_changed(number) {
                return None;
            }
            // Others' texts are empty: every element is its leader's.
            let json = texts.get_mut(number).map(std::mem::take)?;
            Some(Original {
                provider,
                json: json.into_boxed_str(),
            })
        };
        numbers.map(original).collect()
    }
}
