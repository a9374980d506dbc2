//! Words of the core as atoms, and back: an atom has the name that the core gives the word.

use std::sync::OnceLock;

use ash_agent_context_core::{
    Approvals, CallKind, Cause, ChangeKind, Check, Due, FactKind, FactState, Fate, Finish, Framing,
    LateState, Look, MediaClass, Method, Pressure, Prompt, Provider, RepairKind, Role,
    ShorteningKind, Status, Structs, Thinking,
};
use rustler::{Atom, Env, OwnedEnv, Term};

use crate::argument::Argument;
use crate::atoms;
use crate::encode::ToTerm;
use crate::error::NifError;
use crate::scheduler::Scheduler;

/// A word with an atom for each of its values.
pub trait Word: ash_agent_context_core::Word {
    fn atoms() -> &'static [Atom];

    /// Returns its atom.
    fn atom(self) -> Atom {
        let place = Self::WORDS.iter().position(|word| *word == self);
        let atom = place.and_then(|place| Self::atoms().get(place));
        atom.copied().unwrap_or_else(atoms::nil)
    }

    /// Returns the word of an atom.
    fn of(atom: Atom) -> Option<Self> {
        let place = Self::atoms().iter().position(|known| *known == atom);
        let word = place.and_then(|place| Self::WORDS.get(place));
        word.copied()
    }
}

macro_rules! words {
    ($($word:ident),* $(,)?) => {
        $(impl Word for $word {
            fn atoms() -> &'static [Atom] {
                static ATOMS: OnceLock<Vec<Atom>> = OnceLock::new();
                ATOMS.get_or_init(|| atoms_of::<Self>())
            }
        }

        impl Argument<'_> for $word {
            fn read(term: Term<'_>, _scheduler: Scheduler) -> Result<Self, NifError> {
                let atom = term.decode().map_err(|_| NifError::Raise)?;
                Self::of(atom).ok_or(NifError::Raise)
            }
        }

        impl ToTerm for $word {
            fn to_term<'a>(&self, env: Env<'a>) -> Term<'a> {
                self.atom().to_term(env)
            }
        })*
    };
}

words! {
    Approvals, CallKind, Cause, ChangeKind, Check, Due, FactKind, FactState, Fate, Finish, Framing, LateState, Look, MediaClass, Method, Pressure, Prompt,
    Provider, RepairKind, Role, ShorteningKind, Status, Structs, Thinking,
}

fn atoms_of<T: Word>() -> Vec<Atom> {
    let names = T::WORDS.iter().map(|word| word.word());
    OwnedEnv::new().run(|env| {
        let atom = |name| Atom::from_str(env, name).unwrap_or_else(|_| atoms::nil());
        names.map(atom).collect()
    })
}
