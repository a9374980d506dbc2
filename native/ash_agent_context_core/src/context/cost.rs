//! Says what the operations on a conversation cost.

use crate::context::Context;
use crate::error::Error;
use crate::log::iteration::Iteration;
use crate::log::message::Message;
use crate::tokens::Method;
use crate::value::cost::Cost;
use crate::value::Size;
use crate::view::View;

/// How many times as long as an estimate an exact count takes, at worst.
const EXACT: usize = 128;

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
        let walked = Cost::steps(self.count_iterations()).plus(self.append_cost());
        match self.view() {
            Some(view) if view.index().0 > 0 => walked.plus(self.receipt_cost()),
            Some(view) if view.recall || view.pins().is_some() => walked.plus(self.recall_cost()),
            _ => walked,
        }
    }

    /// Of reading what is not shown, or looking for words in it.
    #[must_use]
    pub fn recall_cost(&self) -> Cost {
        Cost::from(self.size()).plus(self.looks_cost())
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

    /// Of reading or changing the system prompt: the texts that stand after it are put there anew.
    #[must_use]
    pub fn system_prompt_cost(&self) -> Cost {
        let system = self.system().map_or(Size::default(), Message::size);
        let view = self.view().map_or(Size::default(), View::size);
        system.plus(view).into()
    }

    /// Of making messages that look different from the log: their texts are read and copied.
    #[must_use]
    pub fn looks_cost(&self) -> Cost {
        let view = self.view().filter(|view| view.changes_looks());
        view.map_or(Cost::default(), |view| view.cost(self.size()).into())
    }

    /// Of handing out the messages of the view.
    #[must_use]
    pub fn messages_cost(&self) -> Cost {
        let handed_out = Cost::handing_out(self.size());
        match self.view().is_some_and(|view| view.masks().is_some()) {
            true => handed_out.plus(Cost::from(self.size())), // masking reads all texts
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

    /// Of looking for something in the log, and of deciding about a call of the last message.
    #[must_use]
    pub fn find_call_cost(&self) -> Cost {
        Cost::steps(self.size().terms).plus(self.current().size().into())
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
}
