//! The slots in which completions are stored until they are read. The slot of an operation that
//! this endpoint initiated is plain: it holds a context and flags, and its other fields are neither
//! written nor read.

use selvedge::cq::Entry;
use selvedge::{CompletionFlags, Context, FiAddr};

/// Storage for a completion and its source: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Slot {
    /// With [`PLAIN`] in its flags, every field but context and flags is of an earlier completion.
    entry: Entry,
    src: FiAddr,
}

/// A flag of a completion that has only a context and flags.
const PLAIN: CompletionFlags = CompletionFlags::from_bits_retain(1 << 63);

const _: () = assert!(!CompletionFlags::all().intersects(PLAIN));

impl Slot {
    /// Stores a completion that has only a context and flags.
    #[inline(always)]
    pub(super) fn put_plain(&mut self, context: Context, flags: CompletionFlags) {
        self.entry.context = context;
        self.entry.flags = flags.union(PLAIN);
    }

    /// Stores an entry and its source.
    #[inline(always)]
    pub(super) fn put(&mut self, entry: Entry, src: FiAddr) {
        *self = Self { entry, src };
    }

    /// The stored entry.
    #[inline(always)]
    pub(super) fn entry(&self) -> Entry {
        let Entry { context, flags, .. } = self.entry;
        if flags.intersects(PLAIN) {
            Entry {
                context,
                flags: flags.difference(PLAIN),
                ..Entry::default()
            }
        } else {
            self.entry
        }
    }

    /// The stored source.
    #[inline]
    pub(super) fn src(&self) -> FiAddr {
        if self.entry.flags.intersects(PLAIN) {
            FiAddr::UNSPEC
        } else {
            self.src
        }
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            entry: Entry::default(),
            src: FiAddr::UNSPEC,
        }
    }
}

const _: () = assert!(size_of::<Slot>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_entry_is_read_unchanged() {
        let entry = Entry {
            context: Context(u64::MAX),
            flags: CompletionFlags::all(),
            len: 3,
            buf: 4,
            data: 5,
            tag: u64::MAX,
        };
        let mut slot = Slot::default();
        slot.put(entry, FiAddr(7));
        assert_eq!((slot.entry(), slot.src()), (entry, FiAddr(7)));
    }

    /// The entry has no field of the earlier entry.
    #[test]
    fn a_plain_completion_has_only_context_and_flags() {
        let old = Entry {
            len: 3,
            buf: 4,
            data: 5,
            tag: 6,
            ..Entry::default()
        };
        let flags = CompletionFlags::RMA | CompletionFlags::WRITE;
        let mut slot = Slot::default();
        slot.put(old, FiAddr(7));
        slot.put_plain(Context(1), flags);
        let plain = Entry {
            context: Context(1),
            flags,
            ..Entry::default()
        };
        assert_eq!((slot.entry(), slot.src()), (plain, FiAddr::UNSPEC));
        slot.put(old, FiAddr(7));
        assert_eq!((slot.entry(), slot.src()), (old, FiAddr(7)));
    }
}
