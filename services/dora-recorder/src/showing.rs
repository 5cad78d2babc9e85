//! Whether this process shows the totals: the only one does, and of several replicas the holder of the Lease.

use std::sync::{Arc, Mutex, PoisonError};

use transponder_kubernetes::lease::Term;

/// Who shows the totals. Clones share it.
#[derive(Clone)]
pub(crate) enum Showing {
    /// This process, always: there is no other one.
    Alone,
    /// One replica of several: this one from when it has read everything in its term, and until that ends.
    InTerm(Arc<Mutex<Option<Term>>>),
}

impl Showing {
    /// One replica of several, which does not show anything yet.
    pub(crate) fn replica() -> Self {
        Self::InTerm(Arc::default())
    }

    /// This replica has read everything in this term.
    pub(crate) fn begin(&self, term: Term) {
        if let Self::InTerm(current) = self {
            *current.lock().unwrap_or_else(PoisonError::into_inner) = Some(term);
        }
    }

    /// At this moment.
    pub(crate) fn is_on(&self) -> bool {
        match self {
            Self::Alone => true,
            Self::InTerm(term) => {
                term.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(Term::lasts)
            }
        }
    }
}
