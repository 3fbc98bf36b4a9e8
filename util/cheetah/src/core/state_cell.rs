//! Cell of a context's state: a `RefCell` if only the context's thread uses it, a mutex if the
//! library has a thread.

use std::cell::{RefCell, RefMut};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::state::State;
use crate::engine::Engine;

/// Cell of the state of a context.
#[expect(
    clippy::large_enum_variant,
    reason = "one value per context, accessed in every call"
)]
pub(super) enum StateCell {
    Unshared(RefCell<State>),
    Shared(Arc<Shared>),
}

/// State that a context shares with the library's thread.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Copies of engine flags, so that a caller without events needs no lock.
    has_messages: AtomicBool,
    has_failures: AtomicBool,
    owes_flush: AtomicBool,
}

impl StateCell {
    /// A cell for one thread.
    pub(super) fn unshared(state: State) -> Self {
        Self::Unshared(RefCell::new(state))
    }

    /// A cell for two threads.
    pub(super) fn shared(state: State) -> Self {
        Self::Shared(Arc::new(Shared {
            state: Mutex::new(state),
            has_messages: AtomicBool::new(false),
            has_failures: AtomicBool::new(false),
            owes_flush: AtomicBool::new(false),
        }))
    }

    /// Borrows or locks the state. Calls do not nest.
    #[inline]
    pub(super) fn lock(&self) -> StateGuard<'_> {
        match self {
            Self::Unshared(state) => StateGuard::Unshared(state.borrow_mut()),
            Self::Shared(shared) => StateGuard::Shared(shared.lock()),
        }
    }

    /// Returns whether the flags show, without a lock, that no message is pending and no flush is
    /// owed.
    #[inline]
    pub(super) fn is_known_idle(&self) -> bool {
        match self {
            Self::Unshared(_) => false,
            Self::Shared(shared) => {
                !shared.has_messages.load(Ordering::Acquire)
                    && !shared.owes_flush.load(Ordering::Acquire)
            }
        }
    }

    /// Returns whether the flags show, without a lock, that there are no failures.
    #[inline]
    pub(super) fn is_known_without_failures(&self) -> bool {
        match self {
            Self::Unshared(_) => false,
            Self::Shared(shared) => !shared.has_failures.load(Ordering::Acquire),
        }
    }
}

impl Shared {
    #[inline]
    pub(super) fn lock(&self) -> Locked<'_> {
        Locked {
            state: self.state.lock().unwrap_or_else(PoisonError::into_inner),
            shared: self,
        }
    }
}

/// The borrowed or locked state.
pub(super) enum StateGuard<'a> {
    Unshared(RefMut<'a, State>),
    Shared(Locked<'a>),
}

impl Deref for StateGuard<'_> {
    type Target = State;

    #[inline]
    fn deref(&self) -> &State {
        match self {
            Self::Unshared(state) => state,
            Self::Shared(locked) => locked,
        }
    }
}

impl DerefMut for StateGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        match self {
            Self::Unshared(state) => state,
            Self::Shared(locked) => locked,
        }
    }
}

/// The locked state. Dropping the guard updates the flags.
pub(super) struct Locked<'a> {
    state: MutexGuard<'a, State>,
    shared: &'a Shared,
}

impl Deref for Locked<'_> {
    type Target = State;

    #[inline]
    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        let engine = self.state.engine.as_ref();
        let update = |flag: &AtomicBool, query: fn(&Engine) -> bool| {
            flag.store(engine.is_some_and(query), Ordering::Release);
        };
        update(&self.shared.has_messages, Engine::has_messages);
        update(&self.shared.has_failures, Engine::has_failures);
        update(&self.shared.owes_flush, Engine::owes_flush);
    }
}

impl fmt::Debug for StateCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unshared(_) => "unshared state",
            Self::Shared(_) => "shared state",
        })
    }
}
