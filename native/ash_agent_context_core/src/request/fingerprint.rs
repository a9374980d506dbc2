//! The digest of what was sent: whether a request that is made again from the log is the one that the provider got.

use crate::context::Context;
use crate::error::Error;
use crate::log::iteration::Iteration;
use crate::log::reply::Reply;
use crate::provider;
use crate::provider::options::Options;
use crate::request::body::Body;
use crate::request::forecast::compare;
use crate::request::slice::Slice;
use crate::value::digest::Digest;
use crate::value::Value;

impl Context {
    /// Notes the digest of the next request: of the system prompt and the messages, without marks for the cache.
    ///
    /// # Errors
    /// As [`Context::encode_request`].
    ///
    /// # Complexity
    /// O(new bytes + messages)
    pub fn note_sent(&self, options: &Options<'_>) -> Result<Self, Error> {
        self.log.check_nothing_pending()?;
        self.check_from(options)?;
        let (slices, _) = Body::new(self, provider::room(options.provider), options).lay_out()?;
        let mut next = self.clone();
        let digest = digest(&slices).to_text();
        next.asked.note_sent(self.next_number(), &digest);
        next.weigh_view();
        Ok(next)
    }

    /// The digest that was noted of what an iteration's last request sent.
    #[must_use]
    pub fn sent_note(&self, iteration: &Iteration) -> Option<&str> {
        self.asked.sent_at(iteration.number)?.as_str()
    }

    /// Tells whether the last request of an iteration surely began with all of that of another one: both can be made again, and
    /// are what was sent.
    pub(super) fn surely_continues(&self, before: &Iteration, next: &Iteration) -> bool {
        let pair = self.as_sent(before).zip(self.as_sent(next));
        pair.is_some_and(|(before, next)| {
            let both = [&before, &next].map(|(context, options)| lay_out(context, options));
            let [Some(before), Some(next)] = both else {
                return false;
            };
            let (same, _) = compare(&before, &next);
            is_all(&before, same)
        })
    }

    /// The conversation as the last request of an iteration was made from it, if it is known to be that.
    fn as_sent<'a>(&'a self, iteration: &'a Iteration) -> Option<(Self, Options<'a>)> {
        let sent = self.asked.sent_at(iteration.number)?;
        let context = self.as_asked(iteration)?;
        let mut answers = iteration.entries().rev().filter(|entry| entry.is_model());
        let reply: &Reply = answers.next()?.message.reply.as_deref()?;
        let [fields, _tools] = self.asked.request_of(iteration.number);
        let asked = fields.and_then(|(_, fields)| match fields {
            Value::Map(fields) => fields.get_named("model")?.as_str(),
            _ => None,
        });
        let provider = reply.provider?;
        // Parts that may have marks look different.
        let found = [false, true].into_iter().find_map(|cache| {
            let options = Options {
                model: asked.or(reply.model.as_deref()),
                cache,
                ..Options::new(provider)
            };
            let slices = lay_out(&context, &options)?;
            let is_it = sent.as_str() == Some(&*digest(&slices).to_text());
            is_it.then_some(options)
        });
        let options = found?;
        Some((context, options))
    }
}

fn lay_out<'a>(context: &'a Context, options: &Options<'_>) -> Option<Vec<Slice<'a>>> {
    let room = provider::room(options.provider);
    let (slices, _) = Body::new(context, room, options).lay_out().ok()?;
    Some(slices)
}

/// Tells whether so many bytes are all of a request but its end, which goes on.
pub(super) fn is_all(slices: &[Slice<'_>], same: u64) -> bool {
    let all: u64 = slices.iter().map(Slice::len).sum();
    all.saturating_sub(same) <= provider::writer::CLOSE.len() as u64
}

fn digest(slices: &[Slice<'_>]) -> Digest {
    let digests = slices.iter().map(Slice::digest);
    digests.fold(Digest::EMPTY, Digest::then)
}
