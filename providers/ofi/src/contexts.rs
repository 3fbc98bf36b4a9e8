//! Contexts of operations: the application's word, or a memory slot for providers that write into
//! the memory that a context points to (`FI_CONTEXT`).
//!
//! With slots, every operation has a [`Slot`] from its post to its completion. The library then has
//! to report every operation, so that its slot is freed. This module drops completions that the
//! application did not request.

#![expect(unsafe_code, reason = "memory that the library writes into")]

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use selvedge::cq::Entry;
use selvedge::{CompletionFlags, Context, Errno, Info, Mode, Result};

/// The modes that applications need not fulfil because of this module.
pub(crate) const MODES: Mode = Mode::CONTEXT.union(Mode::CONTEXT2);

/// The contexts of a domain.
#[derive(Debug)]
pub(crate) enum Contexts {
    /// The library gets the application's words and returns them.
    Words,
    /// Each word is stored in a slot.
    Slots(Slots),
}

#[derive(Debug, Default)]
pub(crate) struct Slots {
    all: Mutex<SlotArena>,
}

/// The slots of a domain, which do not move and live as long as the domain.
#[derive(Debug, Default)]
struct SlotArena {
    slots: Vec<*mut Slot>,
    free: Vec<*mut Slot>,
}

// SAFETY: this value owns the slots.
unsafe impl Send for SlotArena {}

#[derive(Debug)]
#[repr(C)]
struct Slot {
    /// `struct fi_context2`, the larger one.
    context2: [usize; 8],
    posted_op: Option<PostedOp>,
}

/// The data of a posted operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PostedOp {
    pub(crate) context: Context,
    /// Whether the completion is reported to the application.
    pub(crate) is_reported: bool,
    /// Whether the operation is a multi-receive, with a completion for each message.
    pub(crate) is_multi: bool,
}

impl Contexts {
    /// The contexts of a domain.
    pub(crate) fn new(are_slots: bool) -> Self {
        if are_slots {
            Self::Slots(Slots::default())
        } else {
            Self::Words
        }
    }

    pub(crate) fn are_slots(&self) -> bool {
        matches!(self, Self::Slots(_))
    }

    /// Posts an operation with the context that the library gets.
    #[inline]
    pub(crate) fn post(
        &self,
        posted_op: PostedOp,
        post: impl FnOnce(*mut c_void) -> Result,
    ) -> Result {
        match self {
            Self::Words => post(word(posted_op.context)),
            Self::Slots(slots) => slots.post(posted_op, post),
        }
    }

    /// The library's context of a posted operation.
    ///
    /// # Errors
    /// [`Errno::NoEnt`] if there is no such operation.
    pub(crate) fn find(&self, context: Context) -> Result<*mut c_void> {
        match self {
            Self::Words => Ok(word(context)),
            Self::Slots(slots) => slots.find(context),
        }
    }

    /// Restores the application's contexts in the entries and removes completions that were not
    /// requested. Returns the number of remaining entries, which are at the beginning. `src` is
    /// compacted likewise.
    pub(crate) fn restore<T: Copy>(&self, entries: &mut [Entry], src: &mut [T]) -> usize {
        let Self::Slots(slots) = self else {
            return entries.len();
        };
        let mut reported = 0;
        for index in 0..entries.len() {
            let mut entry = entries[index];
            let is_last = entry.flags.contains(CompletionFlags::MULTI_RECV);
            let is_remote = entry
                .flags
                .intersects(CompletionFlags::REMOTE_READ | CompletionFlags::REMOTE_WRITE);
            if !is_remote {
                match slots.complete(entry.context, is_last) {
                    Some((context, true)) => entry.context = context,
                    Some((_, false)) => continue,
                    None => {}
                }
            }
            entries[reported] = entry;
            if let Some(source) = src.get(index).copied() {
                src[reported] = source;
            }
            reported += 1;
        }
        reported
    }

    /// The application's context of a failed operation.
    pub(crate) fn restore_failed(&self, context: Context) -> Context {
        match self {
            Self::Words => context,
            Self::Slots(slots) => slots
                .complete(context, true)
                .map_or(context, |(restored, _)| restored),
        }
    }
}

/// Whether an info of the library requires memory behind contexts.
pub(crate) fn needs_slots(info: &Info) -> bool {
    let modes = info.mode | info.domain_attr.mode | info.tx_attr.mode | info.rx_attr.mode;
    modes.intersects(MODES)
}

fn word(context: Context) -> *mut c_void {
    let word = usize::try_from(context.0).unwrap_or(usize::MAX);
    std::ptr::without_provenance_mut(word)
}

impl Slots {
    fn post(&self, posted_op: PostedOp, post: impl FnOnce(*mut c_void) -> Result) -> Result {
        let slot = self.lock().allocate(posted_op);
        // SAFETY: the slot was allocated just now, and the library does not have it.
        post(slot.cast()).inspect_err(|_| unsafe { self.lock().free_slot(slot) })
    }

    fn find(&self, context: Context) -> Result<*mut c_void> {
        let all = self.lock();
        let mut slots = all.slots.iter();
        // SAFETY: slots live as long as the domain, and only the lock's holder changes their
        // operations.
        let found = slots
            .find(|slot| unsafe { (***slot).posted_op }.is_some_and(|it| it.context == context));
        found.map(|slot| slot.cast()).ok_or(Errno::NoEnt)
    }

    /// The application's context of the operation of one of the library's contexts, and whether to
    /// report it; `None` for a context that is not a slot.
    fn complete(&self, raw: Context, is_last: bool) -> Option<(Context, bool)> {
        let mut all = self.lock();
        let address = usize::try_from(raw.0).ok()?;
        let mut posted = all.slots.iter();
        let slot = *posted.find(|slot| slot.addr() == address)?;
        // SAFETY: as in `find`.
        let posted_op = unsafe { (*slot).posted_op }?;
        if is_last || !posted_op.is_multi {
            // SAFETY: the library has completed the operation.
            unsafe { all.free_slot(slot) };
        }
        Some((posted_op.context, posted_op.is_reported))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SlotArena> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotArena {
    fn allocate(&mut self, posted_op: PostedOp) -> *mut Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            let slot = Box::into_raw(Box::new(Slot {
                context2: [0; 8],
                posted_op: None,
            }));
            self.slots.push(slot);
            slot
        });
        // SAFETY: the slot is free, so it has no other user.
        unsafe { (*slot).posted_op = Some(posted_op) };
        slot
    }

    /// # Safety
    /// `slot` is one of the arena's slots, and the library does not write into it any more.
    unsafe fn free_slot(&mut self, slot: *mut Slot) {
        // SAFETY: passed on from the caller.
        unsafe { (*slot).posted_op = None };
        self.free.push(slot);
    }
}

impl Drop for SlotArena {
    fn drop(&mut self) {
        for slot in self.slots.drain(..) {
            // SAFETY: the slot was a box, and all objects of the domain are closed.
            drop(unsafe { Box::from_raw(slot) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posted_op(context: u64, is_reported: bool, is_multi: bool) -> PostedOp {
        PostedOp {
            context: Context(context),
            is_reported,
            is_multi,
        }
    }

    fn post(contexts: &Contexts, posted_op: PostedOp) -> Context {
        let mut given = Context::default();
        let post = |pointer: *mut c_void| {
            given = Context(pointer.addr() as u64);
            Ok(())
        };
        contexts.post(posted_op, post).expect("the post succeeds");
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
    fn contexts_are_restored_and_unrequested_completions_removed() {
        let contexts = Contexts::new(true);
        let first = post(&contexts, posted_op(1, true, false));
        let silent = post(&contexts, posted_op(2, false, false));
        let third = post(&contexts, posted_op(3, true, false));
        let none = CompletionFlags::empty();
        let mut entries = [first, silent, third].map(|context| entry(context, none));
        let mut sources = [10, 20, 30];
        assert_eq!(contexts.restore(&mut entries, &mut sources), 2);
        assert_eq!(entries[..2].iter().map(|it| it.context.0).sum::<u64>(), 4);
        assert_eq!(sources[..2], [10, 30]);
        assert_eq!(contexts.find(Context(1)), Err(Errno::NoEnt));
    }

    #[test]
    fn a_multi_receive_keeps_its_slot_until_the_last_message() {
        let contexts = Contexts::new(true);
        let slot = post(&contexts, posted_op(7, true, true));
        for flags in [CompletionFlags::RECV, CompletionFlags::MULTI_RECV] {
            assert!(contexts.find(Context(7)).is_ok());
            let mut entries = [entry(slot, flags)];
            assert_eq!(contexts.restore(&mut entries, &mut [0]), 1);
            assert_eq!(entries[0].context, Context(7));
        }
        assert_eq!(contexts.find(Context(7)), Err(Errno::NoEnt));
        assert_eq!(post(&contexts, posted_op(8, true, false)), slot);
    }

    #[test]
    fn a_failed_post_frees_its_slot() {
        let contexts = Contexts::new(true);
        let refused = contexts.post(posted_op(1, true, false), |_| Err(Errno::Again));
        assert_eq!(refused, Err(Errno::Again));
        assert_eq!(contexts.find(Context(1)), Err(Errno::NoEnt));
    }
}
