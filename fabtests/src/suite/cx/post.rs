//! What can be posted, and what comes of it, in the same words for every face.

use std::fmt;

use anyhow::bail;
use selvedge::atomic::{Datatype, Family, Op};
use selvedge::rma::RmaIov;
use selvedge::{Address, CompletionFlags, Errno, FiAddr, OpFlags, TagMatch};

use super::check;

/// A message to send.
#[derive(Clone, Debug)]
pub(crate) struct Tx {
    pub(crate) to: FiAddr,
    /// Untagged without one.
    pub(crate) tag: Option<u64>,
    pub(crate) data: Option<u64>,
    pub(crate) bytes: Vec<u8>,
    /// Copied at once, without a completion.
    pub(crate) is_injected: bool,
    /// Lengths of the pieces that it is cut into; the raw face alone.
    pub(crate) pieces: Vec<usize>,
    /// Flags in place of the endpoint's; the raw face alone.
    pub(crate) flags: Option<OpFlags>,
}

impl Tx {
    /// An untagged message.
    pub(crate) fn msg(to: FiAddr, bytes: Vec<u8>) -> Self {
        Self {
            to,
            tag: None,
            data: None,
            bytes,
            is_injected: false,
            pieces: Vec::new(),
            flags: None,
        }
    }

    /// A tagged message.
    pub(crate) fn tagged(to: FiAddr, tag: u64, bytes: Vec<u8>) -> Self {
        Self {
            tag: Some(tag),
            ..Self::msg(to, bytes)
        }
    }
}

/// A receive.
#[derive(Clone, Debug)]
pub(crate) struct Rx {
    pub(crate) from: FiAddr,
    /// Untagged without one.
    pub(crate) tag: Option<TagMatch>,
    pub(crate) room: usize,
    pub(crate) kind: RxKind,
    /// Lengths of the pieces that its room is cut into; the raw face alone.
    pub(crate) pieces: Vec<usize>,
    /// Flags in place of the endpoint's; the raw face alone.
    pub(crate) flags: Option<OpFlags>,
}

/// What kind of receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RxKind {
    /// Takes one message.
    Plain,
    /// Takes many.
    Multi,
    /// Looks for a message and leaves it.
    Look,
    /// Looks for a message and drops it.
    Discard,
}

impl Rx {
    /// Of any untagged message of any peer.
    pub(crate) fn msg(room: usize) -> Self {
        Self {
            from: FiAddr::UNSPEC,
            tag: None,
            room,
            kind: RxKind::Plain,
            pieces: Vec::new(),
            flags: None,
        }
    }

    /// Of tagged messages of any peer.
    pub(crate) fn tagged(tag: impl Into<TagMatch>, room: usize) -> Self {
        Self {
            tag: Some(tag.into()),
            ..Self::msg(room)
        }
    }

    pub(crate) fn from(mut self, from: FiAddr) -> Self {
        self.from = from;
        self
    }

    pub(crate) fn kind(mut self, kind: RxKind) -> Self {
        self.kind = kind;
        self
    }
}

/// A place in a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) peer: FiAddr,
    pub(crate) addr: u64,
    pub(crate) key: u64,
}

impl Place {
    /// So many bytes further on.
    pub(crate) fn at(self, offset: usize) -> Self {
        Self {
            addr: self.addr.wrapping_add(offset as u64),
            ..self
        }
    }

    pub(crate) fn iov(self, len: usize) -> RmaIov {
        RmaIov {
            addr: self.addr,
            len,
            key: self.key,
        }
    }
}

/// A write to a peer's memory.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) to: Place,
    pub(crate) bytes: Vec<u8>,
    pub(crate) data: Option<u64>,
    pub(crate) is_injected: bool,
    /// Flags in place of the endpoint's; the raw face alone.
    pub(crate) flags: Option<OpFlags>,
    /// Lengths of local pieces; the raw face alone.
    pub(crate) pieces: Vec<usize>,
    /// Remote pieces in place of one; the raw face alone.
    pub(crate) places: Vec<RmaIov>,
}

impl Write {
    pub(crate) fn new(to: Place, bytes: Vec<u8>) -> Self {
        Self {
            to,
            bytes,
            data: None,
            is_injected: false,
            flags: None,
            pieces: Vec::new(),
            places: Vec::new(),
        }
    }
}

/// A read of a peer's memory.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) from: Place,
    pub(crate) len: usize,
    /// Flags in place of the endpoint's; the raw face alone.
    pub(crate) flags: Option<OpFlags>,
    /// Lengths of local pieces; the raw face alone.
    pub(crate) pieces: Vec<usize>,
    /// Remote pieces in place of one; the raw face alone.
    pub(crate) places: Vec<RmaIov>,
}

impl Read {
    pub(crate) fn new(from: Place, len: usize) -> Self {
        Self {
            from,
            len,
            flags: None,
            pieces: Vec::new(),
            places: Vec::new(),
        }
    }
}

/// An atomic.
#[derive(Clone, Debug)]
pub(crate) struct Atomic {
    pub(crate) family: Family,
    pub(crate) datatype: Datatype,
    pub(crate) op: Op,
    pub(crate) target: Place,
    /// The operands; none for a read.
    pub(crate) operand: Vec<u8>,
    /// What is compared with.
    pub(crate) compare: Vec<u8>,
    /// Bytes that come back.
    pub(crate) result: usize,
    /// Flags in place of the endpoint's; the raw face alone.
    pub(crate) flags: Option<OpFlags>,
    pub(crate) is_injected: bool,
}

/// Anything.
#[derive(Clone, Debug)]
pub(crate) enum Post {
    Send(Tx),
    Recv(Rx),
    Write(Write),
    Read(Read),
    Atomic(Atomic),
}

impl Post {
    /// Whether it never completes.
    pub(crate) fn is_injected(&self) -> bool {
        match self {
            Self::Send(tx) => tx.is_injected,
            Self::Write(write) => write.is_injected,
            Self::Atomic(atomic) => atomic.is_injected,
            Self::Recv(_) | Self::Read(_) => false,
        }
    }

    /// Whether it completes more than once.
    pub(crate) fn is_multi(&self) -> bool {
        matches!(self, Self::Recv(rx) if rx.kind == RxKind::Multi)
    }
}

/// What several kinds of posts can be told.
macro_rules! setters {
    ($($type:ty: $($name:ident)+;)+) => { $(impl $type { $(setters!(@ $name);)+ })+ };
    (@ data) => {
        pub(crate) fn data(mut self, data: u64) -> Self {
            self.data = Some(data);
            self
        }
    };
    (@ injected) => {
        pub(crate) fn injected(mut self) -> Self {
            self.is_injected = true;
            self
        }
    };
    (@ flags) => {
        pub(crate) fn flags(mut self, flags: OpFlags) -> Self {
            self.flags = Some(flags);
            self
        }
    };
    (@ pieces) => {
        /// Cut into pieces of these lengths.
        pub(crate) fn pieces(mut self, lengths: &[usize]) -> Self {
            self.pieces = lengths.to_vec();
            self
        }
    };
}

setters! {
    Tx: data injected flags pieces;
    Rx: flags pieces;
    Write: data injected flags;
    Read: flags;
}

macro_rules! into_post {
    ($($kind:ident($value:ty)),+) => { $(impl From<$value> for Post {
        fn from(value: $value) -> Self { Self::$kind(value) }
    })+ };
}

into_post!(Send(Tx), Recv(Rx), Write(Write), Read(Read), Atomic(Atomic));

/// A completion.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) context: u64,
    pub(crate) flags: CompletionFlags,
    pub(crate) len: usize,
    pub(crate) tag: u64,
    pub(crate) data: Option<u64>,
    pub(crate) src: FiAddr,
    /// What was received or read.
    pub(crate) bytes: Vec<u8>,
    pub(crate) error: Option<Failure>,
}

/// How an operation failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) errno: Errno,
    pub(crate) olen: usize,
    pub(crate) detail: String,
    pub(crate) sender: Option<Address>,
}

impl Done {
    /// Makes sure that it is a success.
    ///
    /// # Errors
    /// What went wrong.
    pub(crate) fn well(self) -> anyhow::Result<Self> {
        check::count(0);
        match &self.error {
            None => Ok(self),
            Some(failure) => bail!(
                "operation {} ({}) failed: {}: {}",
                self.context,
                self.flags,
                failure.errno,
                failure.detail
            ),
        }
    }

    /// Makes sure that it failed with this error.
    ///
    /// # Errors
    /// What it ended with instead.
    pub(crate) fn failed(self, what: impl fmt::Display, errno: Errno) -> anyhow::Result<Failure> {
        check::count(0);
        match self.error {
            Some(failure) if failure.errno == errno => Ok(failure),
            Some(other) => bail!("{what}: failed with {:?} instead of {errno:?}", other.errno),
            None => bail!("{what}: succeeded instead of failing with {errno:?}"),
        }
    }
}
