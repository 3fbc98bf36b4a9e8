//! `CompletionKind`: the owner of a completion.

use selvedge::Context;

/// The owner of a completion, encoded in its context.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CompletionKind {
    /// A receive buffer, by index.
    Buffer(usize),
    /// The watch of a peer.
    Watch(usize),
    /// An operation.
    Op(u64),
    /// A message or put to a peer whose success is not reported.
    Unreported(usize),
    /// A barrier message to a peer.
    Barrier(usize),
}

const KIND_SHIFT: u32 = 56;

impl CompletionKind {
    pub(crate) fn context(self) -> Context {
        let (kind, number) = match self {
            Self::Buffer(index) => (0, index as u64),
            Self::Watch(peer) => (1, peer as u64),
            Self::Op(op) => (2, op),
            Self::Unreported(peer) => (3, peer as u64),
            Self::Barrier(peer) => (4, peer as u64),
        };
        Context(kind << KIND_SHIFT | number)
    }

    pub(crate) fn from_context(context: Context) -> Self {
        let number = context.0 & ((1 << KIND_SHIFT) - 1);
        match context.0 >> KIND_SHIFT {
            0 => Self::Buffer(number as usize),
            1 => Self::Watch(number as usize),
            2 => Self::Op(number),
            3 => Self::Unreported(number as usize),
            _ => Self::Barrier(number as usize),
        }
    }
}
