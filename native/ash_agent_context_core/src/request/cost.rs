//! What requests cost, beside what has to be encoded for them: see [`Options::most`].

use crate::context::Context;
use crate::provider::options::Options;
use crate::provider::room;
use crate::value::cost::Cost;

impl Context {
    /// Of [`Context::encode_request`] when everything is encoded: complete iterations are walked as a
    /// whole, but where roles alternate, imported ones message by message.
    #[must_use]
    pub fn encode_cost(&self, options: &Options<'_>) -> Cost {
        let walked = match room(options.provider).alternates() {
            true => self.count_messages(),
            false => self.count_iterations() + self.current().count_messages(),
        };
        Cost::steps(walked).plus(self.append_cost())
    }

    /// Of making a request as a value, or its report, or the view as plain text.
    #[must_use]
    pub fn request_cost(&self) -> Cost {
        self.whole_cost().plus(self.looks_cost())
    }

    /// Of [`Context::unready`].
    #[must_use]
    pub fn unready_cost(&self) -> Cost {
        self.view_cost().plus(self.append_cost())
    }
}
