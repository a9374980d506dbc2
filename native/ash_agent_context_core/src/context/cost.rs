//! Says what the operations on a conversation cost.

use crate::context::Context;
use crate::error::Error;
use crate::log::iteration::Iteration;
use crate::log::message::Message;
use crate::tokens::Method;
use crate::value::cost::Cost;
use crate::value::{Size, Value};
use crate::view::View;

/// How many times as long as an estimate an exact count takes, at worst.
const EXACT: usize = 128;

/// Bytes that a summary's text counts for: it may be counted exactly.
const SUMMARY: usize = 16;

/// How many times as long as copying a text it takes to find its facts.
const FACTS: usize = 30;

/// How many times as long as copying a view it takes to digest it as often as an operation does.
const DIGESTS: usize = 30;

impl Context {
    /// Of adding a message or results: filling one slot of an exchange touches all of its slots, and an
    /// error lists those that are empty.
    #[must_use]
    pub fn append_cost(&self) -> Cost {
        let last = self.current().last();
        Cost::steps(last.map_or(0, |entry| entry.message.calls.len()))
    }

    /// Of [`Context::interrupt`] and [`Context::cancel`]: every pending call gets the reason.
    #[must_use]
    pub fn interrupt_cost(&self, reason: &Value) -> Cost {
        Cost::from(reason.size()).times(self.current().count_pending())
    }

    /// Of [`Context::sum_spending`].
    #[must_use]
    pub fn spending_cost(&self, since: u64) -> Cost {
        let before = since.saturating_sub(self.first_number());
        let iterations = self.count_iterations() as u64;
        // Most iterations have two messages, of which one is an answer.
        let steps = iterations.saturating_sub(before).saturating_mul(4);
        Cost::steps(usize::try_from(steps).unwrap_or(usize::MAX))
    }

    /// Of [`Context::rewind`].
    #[must_use]
    pub fn rewind_cost(&self, to: i64) -> Cost {
        let counted = Cost::from(self.rewind_size(to));
        match self.has_view() {
            true => counted.plus(self.view_cost()).plus(self.asked_view_cost()),
            false => counted,
        }
    }

    /// Of digesting the view, as it is noted with a request.
    #[must_use]
    pub fn asked_view_cost(&self) -> Cost {
        let size = self.view().map_or(Size::default(), View::size);
        Cost::from(size).times(DIGESTS)
    }

    /// Of changing what the view covers, which walks its iterations at most, and reads them where what is hidden has
    /// handles.
    #[must_use]
    pub fn view_cost(&self) -> Cost {
        let walked = Cost::steps(self.count_iterations());
        match self.view() {
            Some(view) if view.index().0 > 0 => walked.plus(self.receipt_cost()),
            Some(view) if view.recall || view.pins().is_some() => walked.plus(self.recall_cost()),
            _ => walked,
        }
    }

    /// Of reading what is not shown, or looking for words in it.
    #[must_use]
    pub fn recall_cost(&self) -> Cost {
        self.whole_cost().plus(self.looks_cost())
    }

    /// Of [`Context::receipt`]: every text is read twice, once for its facts.
    #[must_use]
    pub fn receipt_cost(&self) -> Cost {
        self.recall_cost().times(FACTS)
    }

    /// Of [`Context::put_masks`] with masks at hand: what stands in the place of iterations is compared with all texts.
    #[must_use]
    pub fn masks_cost(&self) -> Cost {
        match self.view().map_or(0, View::count_covers) {
            0 => Cost::default(),
            _ => self.receipt_cost(),
        }
    }

    /// Of [`Context::as_asked`]: a view of before may have to be masked otherwise.
    #[must_use]
    pub fn as_asked_cost(&self, to: i64) -> Cost {
        let is_covered = self
            .asked
            .views
            .values()
            .flatten()
            .any(|view| view.count_covers() > 0);
        match self.masks().is_some() && is_covered {
            true => self.rewind_cost(to).plus(self.receipt_cost()),
            false => self.rewind_cost(to),
        }
    }

    /// Of [`Context::summary`]: masks read its text.
    #[must_use]
    pub fn summary_cost(&self, number: u64) -> Cost {
        let summary = self
            .cover(number)
            .and_then(|(_, cover)| cover.summary.as_deref());
        let masked = self
            .view()
            .filter(|view| view.masks().is_some())
            .zip(summary);
        masked.map_or(Cost::default(), |(view, summary)| {
            view.cost(summary.size()).into()
        })
    }

    /// Of [`Context::put_system_prompt`]: the texts that stand after it are put there anew.
    #[must_use]
    pub fn system_prompt_cost(&self) -> Cost {
        self.view().map_or(Size::default(), View::size).into()
    }

    /// Of [`Context::put_prompt_block`].
    #[must_use]
    pub fn prompt_block_cost(&self, text: Option<&str>) -> Cost {
        let system = self.system().map_or(Size::default(), Message::size);
        let text = Size::new(1, text.map_or(0, str::len));
        self.system_prompt_cost().plus(system.plus(text).into())
    }

    /// Of [`Context::clear_tool_results`].
    #[must_use]
    pub fn clear_cost(&self) -> Cost {
        Cost::steps(self.count_log())
    }

    /// Of [`Context::clear_when_due`].
    #[must_use]
    pub fn rent_cost(&self) -> Cost {
        self.clear_cost().plus(self.whole_cost())
    }

    /// Of making messages that look different from the log: their texts are read and copied.
    #[must_use]
    pub fn looks_cost(&self) -> Cost {
        let view = self.view().filter(|view| view.changes_looks());
        view.map_or(Cost::default(), |view| view.cost(self.size()).into())
    }

    /// Of comparing it with another one, or reading all of it.
    #[must_use]
    pub fn whole_cost(&self) -> Cost {
        self.size().into()
    }

    /// Of handing out the messages of the view.
    #[must_use]
    pub fn messages_cost(&self) -> Cost {
        let handed_out = Cost::handing_out(self.size());
        match self.view().is_some_and(|view| view.masks().is_some()) {
            true => handed_out.plus(self.whole_cost()), // masking reads all texts
            false => handed_out,
        }
    }

    /// Of handing out an iteration with the system prompt, or that there is none.
    #[must_use]
    pub fn iteration_cost(&self, iteration: Option<&Iteration>) -> Cost {
        let system = self.system().map_or(Size::default(), Message::size);
        let iteration = iteration.map_or(Size::default(), Iteration::size);
        Cost::handing_out(iteration.plus(system))
    }

    /// Of what looks at the arguments of the last message's calls, of which an approval is a digest.
    #[must_use]
    pub fn digest_cost(&self) -> Cost {
        let last = self.current().last();
        let message = last.map_or(Size::default(), |entry| entry.message.size());
        self.append_cost().plus(message.into())
    }

    /// Of deciding about a call: one that is not pending is looked for in the whole conversation.
    #[must_use]
    pub fn decide_cost(&self, id: &str) -> Cost {
        match self.has_pending(id) {
            true => Cost::default(),
            false => self.find_call_cost(),
        }
    }

    /// Of looking for a call.
    #[must_use]
    pub fn find_call_cost(&self) -> Cost {
        Cost::steps(self.size().terms)
    }

    /// Of a fork: what is decided about the calls of the last message is looked at.
    #[must_use]
    pub fn fork_cost(&self) -> Cost {
        self.current().size().into()
    }

    /// Of handing out the calls of the last message.
    #[must_use]
    pub fn calls_cost(&self) -> Cost {
        let last = self.current().last();
        Cost::handing_out(last.map_or(Size::default(), |entry| entry.message.size()))
    }

    /// Of counting tokens by a method, or of estimating what came after the last report.
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

    /// Of [`Context::fit`].
    ///
    /// # Errors
    /// As [`Context::count_cost`].
    pub fn fit_cost(&self, method: Option<Method>) -> Result<Cost, Error> {
        let shown = self.view_cost().plus(self.looks_cost());
        Ok(shown.plus(self.count_cost(method)?))
    }

    /// Of [`Context::summarize`].
    ///
    /// # Errors
    /// As [`Context::count_cost`].
    pub fn summarize_cost(&self, text: &str) -> Result<Cost, Error> {
        let text = Size::new(1, text.len().saturating_mul(SUMMARY));
        Ok(self
            .fit_cost(None)?
            .plus(self.receipt_cost())
            .plus(text.into()))
    }
}
