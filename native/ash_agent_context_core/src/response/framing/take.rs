//! The function that takes the documents of a body.

use crate::fault::Fault;

/// Takes a document: its name in the framing, if it has one, and its bytes.
pub(crate) type Take<'t> = &'t mut dyn FnMut(Option<&str>, &[u8]) -> Result<(), Fault>;
