//! The only unsafe code: maps and lists made from arrays on the stack, and the size of a tuple.
//!
//! Rustler's safe functions for this copy keys and values into vectors of their own, four
//! allocations for a small map. Without them `to_messages/1` takes half the time
//! (`bench/context.exs`, "list 1000 messages"). And its tuples are copied before they tell their size.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use rustler::sys::{
    enif_get_tuple, enif_make_list_from_array, enif_make_map_from_arrays, ErlNifTerm,
};
use rustler::{Atom, Env, Term};
use smallvec::SmallVec;

/// Terms of one environment.
pub struct Terms<'e> {
    env: Env<'e>,
    raw: SmallVec<[ErlNifTerm; 8]>,
}

impl<'e> Terms<'e> {
    /// None yet.
    pub fn new(env: Env<'e>) -> Self {
        Self {
            env,
            raw: SmallVec::new(),
        }
    }

    /// One more. The lifetime says that it is of the same environment.
    pub fn push(&mut self, term: Term<'e>) {
        self.raw.push(term.as_c_arg());
    }

    /// A list of the terms.
    pub fn list(self) -> Term<'e> {
        let Ok(count) = u32::try_from(self.raw.len()) else {
            return Term::list_new_empty(self.env);
        };
        // SAFETY: the pointer and the count are those of a live array, all terms in it are of
        // this environment, and the new term is, too.
        unsafe {
            let list = enif_make_list_from_array(self.env.as_c_arg(), self.raw.as_ptr(), count);
            Term::new(self.env, list)
        }
    }

    /// A map with the terms as keys, `None` when two of them are equal.
    pub fn map(self, values: &Self) -> Option<Term<'e>> {
        if self.raw.len() != values.raw.len() {
            return None;
        }
        let mut map = MaybeUninit::<ErlNifTerm>::uninit();
        // SAFETY: both pointers are those of live arrays of this length, all terms in them are of
        // this environment (the lifetimes are the same), and `map` is set when the call succeeds.
        unsafe {
            let made = enif_make_map_from_arrays(
                self.env.as_c_arg(),
                self.raw.as_ptr(),
                values.raw.as_ptr(),
                self.raw.len(),
                map.as_mut_ptr(),
            );
            (made != 0).then(|| Term::new(self.env, map.assume_init()))
        }
    }
}

/// A map of so many fields, `None` when two keys are equal.
pub fn map<'e, const N: usize>(
    env: Env<'e>,
    keys: &[Atom; N],
    values: &[Term<'e>; N],
) -> Option<Term<'e>> {
    let keys = keys.map(Atom::as_c_arg);
    let values = values.map(|value| value.as_c_arg());
    let mut map = MaybeUninit::<ErlNifTerm>::uninit();
    // SAFETY: as in [`Terms::map`]; atoms are of every environment.
    unsafe {
        let made = enif_make_map_from_arrays(
            env.as_c_arg(),
            keys.as_ptr(),
            values.as_ptr(),
            N,
            map.as_mut_ptr(),
        );
        (made != 0).then(|| Term::new(env, map.assume_init()))
    }
}

/// Number of elements of a tuple, `None` for other terms.
pub fn tuple_arity(term: Term<'_>) -> Option<usize> {
    let mut arity = 0;
    let mut elements = MaybeUninit::<*const ErlNifTerm>::uninit();
    // SAFETY: both pointers are those of live variables, which the call sets when it succeeds.
    // The elements are not looked at.
    let is_tuple = unsafe {
        enif_get_tuple(
            term.get_env().as_c_arg(),
            term.as_c_arg(),
            &mut arity,
            elements.as_mut_ptr(),
        )
    };
    (is_tuple == 1)
        .then(|| usize::try_from(arity).ok())
        .flatten()
}
