//! Slots: where a completion waits until it is read. That of an own operation is its context and its
//! flags, and nothing else is written or read.

use selvedge::cq::Entry;
use selvedge::{CompletionFlags, Context, FiAddr};

/// Room for a completion and its source, a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Slot {
    /// With [`PLAIN`] in its flags, what is not context or flags is of an earlier one.
    entry: Entry,
    src: FiAddr,
}

/// In the flags of a completion that is an operation's own: context and flags are all it says.
const PLAIN: CompletionFlags = CompletionFlags::from_bits_retain(1 << 63);

const _: () = assert!(!CompletionFlags::all().intersects(PLAIN));

impl Slot {
    /// Puts in what an own operation has to say.
    #[inline(always)]
    pub(super) fn put_plain(&mut self, context: Context, flags: CompletionFlags) {
        self.entry.context = context;
        self.entry.flags = flags.union(PLAIN);
    }

    /// Puts in an entry and its source.
    #[inline(always)]
    pub(super) fn put(&mut self, entry: Entry, src: FiAddr) {
        *self = Self { entry, src };
    }

    /// What was put in.
    #[inline(always)]
    pub(super) fn entry(&self) -> Entry {
        let Entry { context, flags, .. } = self.entry;
        match flags.intersects(PLAIN) {
            true => Entry {
                context,
                flags: flags.difference(PLAIN),
                ..Entry::default()
            },
            false => self.entry,
        }
    }

    /// Its source.
    #[inline]
    pub(super) fn src(&self) -> FiAddr {
        match self.entry.flags.intersects(PLAIN) {
            true => FiAddr::UNSPEC,
            false => self.src,
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
    fn what_was_put_in_comes_out() {
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

    /// Nothing of what was in the slot before shows.
    #[test]
    fn a_plain_completion_says_nothing_else() {
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
