//! Contexts of operations: the application's word, or memory of ours for providers that write into
//! what a context points at (`FI_CONTEXT`).
//!
//! With memory of ours, every operation has a [`Slot`] from its post to its completion. The library
//! then has to report every operation, so that slots come back: what nobody asked to hear of is left
//! out here.

#![expect(unsafe_code, reason = "memory that the library writes into")]

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use selvedge::cq::Entry;
use selvedge::{CompletionFlags, Context, Errno, Info, Mode, Result};

/// The modes that this makes needless for applications.
pub(crate) const MODES: Mode = Mode::CONTEXT.union(Mode::CONTEXT2);

/// The contexts of a domain.
#[derive(Debug)]
pub(crate) enum Contexts {
    /// The application's words go to the library and come back.
    Words,
    /// Each goes into a slot.
    Slots(Slots),
}

#[derive(Debug, Default)]
pub(crate) struct Slots {
    all: Mutex<All>,
}

/// Slots stay where they are, and live as long as the domain.
#[derive(Debug, Default)]
struct All {
    slots: Vec<*mut Slot>,
    free: Vec<*mut Slot>,
}

// SAFETY: the slots are this value's own.
unsafe impl Send for All {}

#[derive(Debug)]
#[repr(C)]
struct Slot {
    /// `struct fi_context2`, the larger one.
    theirs: [usize; 8],
    posting: Option<Posting>,
}

/// What is known of an operation that is posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posting {
    pub(crate) context: Context,
    /// Whether its completion is to be reported.
    pub(crate) is_wanted: bool,
    /// Whether it has a completion for each message.
    pub(crate) is_multi: bool,
}

impl Contexts {
    /// What endpoints and queues of a domain need.
    pub(crate) fn new(are_slots: bool) -> Self {
        match are_slots {
            true => Self::Slots(Slots::default()),
            false => Self::Words,
        }
    }

    pub(crate) fn are_slots(&self) -> bool {
        matches!(self, Self::Slots(_))
    }

    /// Posts with the context that the library gets.
    #[inline]
    pub(crate) fn with(
        &self,
        posting: Posting,
        post: impl FnOnce(*mut c_void) -> Result,
    ) -> Result {
        match self {
            Self::Words => post(word(posting.context)),
            Self::Slots(slots) => slots.with(posting, post),
        }
    }

    /// What the library knows an operation by that is posted.
    ///
    /// # Errors
    /// [`Errno::NoEnt`] when there is none.
    pub(crate) fn find(&self, context: Context) -> Result<*mut c_void> {
        match self {
            Self::Words => Ok(word(context)),
            Self::Slots(slots) => slots.find(context),
        }
    }

    /// Puts the application's words into entries, and takes those out that nobody asked for; how
    /// many are left, at the beginning. `src` keeps step.
    pub(crate) fn settle<T: Copy>(&self, entries: &mut [Entry], src: &mut [T]) -> usize {
        let Self::Slots(slots) = self else {
            return entries.len();
        };
        let mut kept = 0;
        for at in 0..entries.len() {
            let mut entry = entries[at];
            let is_last = entry.flags.contains(CompletionFlags::MULTI_RECV);
            let is_remote = entry
                .flags
                .intersects(CompletionFlags::REMOTE_READ | CompletionFlags::REMOTE_WRITE);
            if !is_remote {
                match slots.over(entry.context, is_last) {
                    Some((context, true)) => entry.context = context,
                    Some((_, false)) => continue,
                    None => {}
                }
            }
            entries[kept] = entry;
            if let Some(source) = src.get(at).copied() {
                src[kept] = source;
            }
            kept += 1;
        }
        kept
    }

    /// The application's word of an operation that has failed.
    pub(crate) fn failed(&self, context: Context) -> Context {
        match self {
            Self::Words => context,
            Self::Slots(slots) => slots.over(context, true).map_or(context, |(own, _)| own),
        }
    }
}

/// Whether a description, as the library has it, asks for memory behind contexts.
pub(crate) fn are_needed(info: &Info) -> bool {
    let modes = info.mode | info.domain_attr.mode | info.tx_attr.mode | info.rx_attr.mode;
    modes.intersects(MODES)
}

fn word(context: Context) -> *mut c_void {
    let word = usize::try_from(context.0).unwrap_or(usize::MAX);
    std::ptr::without_provenance_mut(word)
}

impl Slots {
    fn with(&self, posting: Posting, post: impl FnOnce(*mut c_void) -> Result) -> Result {
        let slot = self.lock().take(posting);
        // SAFETY: the slot was taken just now, and the library has not got it.
        post(slot.cast()).inspect_err(|_| unsafe { self.lock().give_back(slot) })
    }

    fn find(&self, context: Context) -> Result<*mut c_void> {
        let all = self.lock();
        let mut slots = all.slots.iter();
        // SAFETY: slots live as long as the domain, and their posting changes under the lock alone.
        let found =
            slots.find(|slot| unsafe { (***slot).posting }.is_some_and(|it| it.context == context));
        found.map(|slot| slot.cast()).ok_or(Errno::NoEnt)
    }

    /// The word of the operation that a context of the library's belongs to, and whether it is to be
    /// reported; `None` for a context that is no slot.
    fn over(&self, theirs: Context, is_last: bool) -> Option<(Context, bool)> {
        let mut all = self.lock();
        let address = usize::try_from(theirs.0).ok()?;
        let mut posted = all.slots.iter();
        let slot = *posted.find(|slot| slot.addr() == address)?;
        // SAFETY: as in `find`.
        let posting = unsafe { (*slot).posting }?;
        if is_last || !posting.is_multi {
            // SAFETY: the library is done with it.
            unsafe { all.give_back(slot) };
        }
        Some((posting.context, posting.is_wanted))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl All {
    fn take(&mut self, posting: Posting) -> *mut Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            let slot = Box::into_raw(Box::new(Slot {
                theirs: [0; 8],
                posting: None,
            }));
            self.slots.push(slot);
            slot
        });
        // SAFETY: it is free, so nobody else has it.
        unsafe { (*slot).posting = Some(posting) };
        slot
    }

    /// # Safety
    /// It is one of these slots, and the library does not write into it any more.
    unsafe fn give_back(&mut self, slot: *mut Slot) {
        // SAFETY: passed on from the caller.
        unsafe { (*slot).posting = None };
        self.free.push(slot);
    }
}

impl Drop for All {
    fn drop(&mut self) {
        for slot in self.slots.drain(..) {
            // SAFETY: it was a box, and everything that was opened from the domain is closed.
            drop(unsafe { Box::from_raw(slot) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posting(context: u64, is_wanted: bool, is_multi: bool) -> Posting {
        Posting {
            context: Context(context),
            is_wanted,
            is_multi,
        }
    }

    fn post(contexts: &Contexts, posting: Posting) -> Context {
        let mut given = Context::default();
        let post = |at: *mut c_void| {
            given = Context(at.addr() as u64);
            Ok(())
        };
        contexts.with(posting, post).expect("it posts");
        given
    }

    fn entry(context: Context, flags: CompletionFlags) -> Entry {
        Entry {
            context,
            flags,
            ..Entry::default()
        }
    }

    #[test]
    fn words_come_back_and_what_nobody_asked_for_is_left_out() {
        let contexts = Contexts::new(true);
        let first = post(&contexts, posting(1, true, false));
        let silent = post(&contexts, posting(2, false, false));
        let third = post(&contexts, posting(3, true, false));
        let none = CompletionFlags::empty();
        let mut entries = [first, silent, third].map(|context| entry(context, none));
        let mut sources = [10, 20, 30];
        assert_eq!(contexts.settle(&mut entries, &mut sources), 2);
        assert_eq!(entries[..2].iter().map(|it| it.context.0).sum::<u64>(), 4);
        assert_eq!(sources[..2], [10, 30]);
        assert_eq!(contexts.find(Context(1)), Err(Errno::NoEnt));
    }

    #[test]
    fn a_buffer_for_many_keeps_its_slot_until_the_last_message() {
        let contexts = Contexts::new(true);
        let slot = post(&contexts, posting(7, true, true));
        for flags in [CompletionFlags::RECV, CompletionFlags::MULTI_RECV] {
            assert!(contexts.find(Context(7)).is_ok());
            let mut entries = [entry(slot, flags)];
            assert_eq!(contexts.settle(&mut entries, &mut [0]), 1);
            assert_eq!(entries[0].context, Context(7));
        }
        assert_eq!(contexts.find(Context(7)), Err(Errno::NoEnt));
        assert_eq!(post(&contexts, posting(8, true, false)), slot);
    }

    #[test]
    fn a_post_that_fails_keeps_nothing() {
        let contexts = Contexts::new(true);
        let refused = contexts.with(posting(1, true, false), |_| Err(Errno::Again));
        assert_eq!(refused, Err(Errno::Again));
        assert_eq!(contexts.find(Context(1)), Err(Errno::NoEnt));
    }
}
