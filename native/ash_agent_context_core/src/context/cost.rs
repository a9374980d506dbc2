//! The costs of operations on a conversation.

use crate::context::Context;
use crate::error::Error;
use crate::log::iteration::Iteration;
use crate::log::message::Message;
use crate::tokens::Method;
use crate::value::cost::Cost;
use crate::value::Size;
use crate::view::facts::FACTS;
use crate::view::View;

/// An exact count takes at worst so many times as long as an estimate.
const EXACT: usize = 128;

/// A search reads a text up to so many times, word by word.
const SEARCHES: usize = 10;

/// Digesting a view as often as an operation does takes so many times as long as copying it.
const DIGESTS: usize = 30;

impl Context {
    /// Returns the cost of adding a message or results: filling one slot of an exchange touches all of its slots, and an
    /// error lists those that are empty.
    #[must_use]
    pub fn append_cost(&self) -> Cost {
        let last = self.current().last();
        Cost::steps(last.map_or(0, |entry| entry.message.calls.len()))
    }

    /// Returns the cost of [`Context::rewind`].
    #[must_use]
    pub fn rewind_cost(&self, to: i64) -> Cost {
        let counted = Cost::from(self.rewind_size(to));
        match self.has_view() {
            true => counted.plus(self.view_cost()).plus(self.asked_view_cost()),
            false => counted,
        }
    }

    /// Returns the cost of digesting the view, as it is noted with a request.
    #[must_use]
    pub fn asked_view_cost(&self) -> Cost {
        Cost::from(self.view_size()).times(DIGESTS)
    }

    /// Returns the cost of changing which iterations the view covers: it walks them at most, and reads them where hidden ones
    /// have handles.
    #[must_use]
    pub fn view_cost(&self) -> Cost {
        let walked = Cost::steps(self.count_iterations()).plus(self.append_cost());
        match self.view() {
            Some(view) if view.index > 0 || view.recall => walked.plus(self.receipt_cost()),
            Some(view) if view.pins().is_some() => walked.plus(self.recall_cost()),
            _ => walked,
        }
    }

    /// Returns the cost of reading texts that are not shown, or looking for words in them.
    #[must_use]
    pub fn recall_cost(&self) -> Cost {
        Cost::from(self.size()).plus(self.looks_cost())
    }

    /// Returns the cost of [`Context::search`]: where no text has a word, all are read again for those like it, and for these.
    #[must_use]
    pub fn search_cost(&self) -> Cost {
        self.recall_cost().times(SEARCHES)
    }

    /// Returns the cost of [`Context::receipt`]: every text is read twice, once for its facts.
    #[must_use]
    pub fn receipt_cost(&self) -> Cost {
        let found = Cost::from(self.size()).times(FACTS);
        found.plus(self.looks_cost().times(2))
    }

    /// Returns the cost of [`Context::put_masks`] with compiled masks: notes, summaries and prompt blocks are compared with all texts.
    #[must_use]
    pub fn masks_cost(&self) -> Cost {
        let is_made =
            |view: &View| view.covers().next().is_some() || !view.prompt_texts().is_empty();
        match self.view().is_some_and(is_made) {
            true => self.receipt_cost(),
            false => Cost::default(),
        }
    }

    /// Returns the cost of reading or changing the system prompt: the texts after it are added anew,
    /// and under masks they are compared with all texts.
    #[must_use]
    pub fn system_prompt_cost(&self) -> Cost {
        let system = self.system().map_or(Size::default(), Message::size);
        let cost = Cost::from(system.plus(self.view_size()));
        self.masks()
            .map_or(cost, |_| cost.plus(self.receipt_cost()))
    }

    /// Returns the cost of making messages that look different from the log: their texts are read and copied.
    #[must_use]
    pub fn looks_cost(&self) -> Cost {
        let view = self.view().filter(|view| view.changes_looks());
        view.map_or(Cost::default(), |view| view.cost(self.size()).into())
    }

    /// Returns the cost of handing out the messages of the view.
    #[must_use]
    pub fn messages_cost(&self) -> Cost {
        let handed_out = Cost::handing_out(self.size());
        match self.view() {
            Some(view) if view.tells_facts() => handed_out.plus(self.looks_cost()),
            Some(view) if view.masks().is_some() => handed_out.plus(Cost::from(self.size())), // masking reads all texts
            _ => handed_out,
        }
    }

    /// Returns the cost of handing out an iteration with the system prompt, or of finding that there is none.
    #[must_use]
    pub fn iteration_cost(&self, iteration: Option<&Iteration>) -> Cost {
        let system = self.system().map_or(Size::default(), Message::size);
        let iteration = iteration.map_or(Size::default(), Iteration::size);
        Cost::handing_out(iteration.plus(system))
    }

    /// Returns the cost of looking for something in the log, and of deciding about a call of the last message.
    #[must_use]
    pub fn find_call_cost(&self) -> Cost {
        Cost::steps(self.size().terms).plus(self.current().size().into())
    }

    /// Returns the cost of counting tokens by a method, or of estimating those since the last report.
    ///
    /// # Errors
    /// [`Error::FeatureMissing`].
    pub fn count_cost(&self, method: Option<Method>) -> Result<Cost, Error> {
        let method = method.unwrap_or(Method::Estimate);
        method.check()?;
        if !method.is_ready() {
            return Ok(Cost::LONG); // its tables are made first, which takes a second
        }
        let size = self.count_size(method);
        let size = self.view().map_or(size, |view| view.cost(size));
        let times = match method {
            Method::Estimate => 1,
            Method::O200k | Method::Cl100k => EXACT,
        };
        Ok(Size::new(size.terms, size.bytes.saturating_mul(times)).into())
    }

    /// Returns the cost of [`Context::fit`].
    ///
    /// # Errors
    /// As [`Context::count_cost`].
    pub fn fit_cost(&self, method: Option<Method>) -> Result<Cost, Error> {
        let shown = self.view_cost().plus(self.looks_cost());
        Ok(shown.plus(self.count_cost(method)?))
    }
}
