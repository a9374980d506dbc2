//! The elements of a request's list, and the messages and exchanges that are made of them.

use crate::log::original::Original;
use crate::log::provider::Provider;
use crate::value::json;
use crate::value::Value;

/// Elements as JSON, to be given back to their provider unchanged.
///
/// Messages and exchanges are numbered in their order. Those that share an element are one group: the first of them has all the
/// elements, or none of them has any.
#[derive(Debug, Default)]
pub struct Elements {
    provider: Option<Provider>,
    elements: Vec<Element>,
    /// By the number of the message or exchange.
    made: Vec<Made>,
}

/// A message or an exchange.
#[derive(Debug)]
struct Made {
    /// A smaller number of its group, or its own number.
    leader: usize,
    /// True if it was made of an element.
    claimed: bool,
    /// True if a member of its group is not as it was.
    changed: bool,
    /// True if its group has other members.
    joined: bool,
}

#[derive(Debug)]
struct Element {
    json: String,
    changed: bool,
    number: Option<usize>,
}

impl Elements {
    /// Returns an empty list for this provider. Without a provider, no elements are kept.
    pub fn of(provider: Option<Provider>) -> Self {
        Self {
            provider,
            ..Self::default()
        }
    }

    /// Adds the next element, and its own text if that is known.
    pub fn push(&mut self, element: &Value, written: Option<String>) {
        let json = self
            .provider
            .map(|_| written.unwrap_or_else(|| json::write(element)));
        let json = json.unwrap_or_default();
        self.elements.push(Element {
            json,
            changed: false,
            number: None,
        });
    }

    /// Notes that the message with this number is made from this element.
    pub fn claim(&mut self, number: usize, element: usize) {
        self.reach(number);
        let Some(element) = self.elements.get_mut(element) else {
            return;
        };
        if let Some(made) = self.made.get_mut(number) {
            made.claimed = true;
        }
        match element.number {
            Some(other) => self.join(number, other),
            None => element.number = Some(number),
        }
    }

    /// Makes the messages from one number to a later one a group.
    ///
    /// # Complexity
    /// Every step joins two groups, so that all calls together are linear.
    pub fn join_range(&mut self, from: usize, to: usize) {
        self.reach(to);
        let first = self.leader(from);
        let mut last = self.leader(to);
        while last > first {
            self.join(last - 1, last);
            last = self.leader(last);
        }
    }

    /// Notes that an element is not in the history as it was.
    pub fn change_element(&mut self, element: usize) {
        if let Some(element) = self.elements.get_mut(element) {
            element.changed = true;
        }
    }

    /// Notes that the message with this number differs from its element.
    pub fn change(&mut self, number: usize) {
        self.reach(number);
        let leader = self.leader(number);
        if let Some(leader) = self.made.get_mut(leader) {
            leader.changed = true;
        }
    }

    fn reach(&mut self, number: usize) {
        for leader in self.made.len()..=number {
            self.made.push(Made {
                leader,
                claimed: false,
                changed: false,
                joined: false,
            });
        }
    }

    fn leader(&mut self, mut number: usize) -> usize {
        loop {
            let leader = |number: usize| self.made.get(number).map_or(number, |made| made.leader);
            let next = leader(number);
            if next == number {
                return number;
            }
            // Halves the path for later calls.
            let after = leader(next);
            if let Some(made) = self.made.get_mut(number) {
                made.leader = after;
            }
            number = after;
        }
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.leader(a), self.leader(b));
        let (first, second) = (a.min(b), a.max(b));
        let changed = self.is_changed(second);
        if let Some(leader) = self.made.get_mut(first) {
            leader.joined |= first != second;
        }
        if let Some(second) = self.made.get_mut(second) {
            second.leader = first;
        }
        if changed {
            self.change(first);
        }
    }

    /// Returns whether the message with this number is in a group with others.
    pub fn is_joined(&mut self, number: usize) -> bool {
        self.reach(number);
        let leader = self.leader(number);
        self.made.get(leader).is_some_and(|made| made.joined)
    }

    fn is_changed(&mut self, number: usize) -> bool {
        let leader = self.leader(number);
        self.made.get(leader).is_some_and(|made| made.changed)
    }

    /// Returns the elements that each number keeps. Of each of the `pairs`, both keep theirs or neither does.
    pub fn finish(mut self, pairs: &[(usize, usize)]) -> Vec<Option<Original>> {
        let Some(provider) = self.provider else {
            return Vec::new();
        };
        let elements = std::mem::take(&mut self.elements);
        let changed = elements.iter().filter(|element| element.changed);
        changed
            .filter_map(|element| element.number)
            .for_each(|number| self.change(number));
        for (a, b) in pairs.iter().chain(pairs.iter().rev()).copied() {
            if self.is_changed(a) || self.is_changed(b) {
                self.change(a);
                self.change(b);
            }
        }
        let mut texts = vec![String::new(); self.made.len()];
        for element in elements {
            let Some(number) = element.number else {
                continue;
            };
            let leader = self.leader(number);
            if let Some(text) = texts.get_mut(leader) {
                text.push(',');
                text.push_str(&element.json);
            }
        }
        let numbers = 0..self.made.len();
        let original = |number: usize| {
            let kept = self.made.get(number).is_some_and(|made| made.claimed);
            if !kept || self.is_changed(number) {
                return None;
            }
            // The texts of other members are empty: the leader has all elements.
            let json = texts.get_mut(number).map(std::mem::take)?;
            Some(Original {
                provider,
                json: json.into_boxed_str(),
            })
        };
        numbers.map(original).collect()
    }
}
