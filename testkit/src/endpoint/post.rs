//! Operations and completions of endpoints under test, independent of the API.

use std::fmt;

use anyhow::bail;
use selvedge::atomic::{Datatype, Family, Op, Target};
use selvedge::rma::RmaIov;
use selvedge::{Address, CompletionFlags, Errno, FiAddr, OpFlags, TagMatch};

use crate::data::check;

/// A send.
#[derive(Clone, Debug)]
pub struct Tx {
    pub to: FiAddr,
    /// The tag; `None` for an untagged message.
    pub tag: Option<u64>,
    pub data: Option<u64>,
    pub bytes: Vec<u8>,
    /// Whether the message is injected: copied at once, without a completion.
    pub is_injected: bool,
    /// Lengths of the segments; one segment if empty. Raw API only.
    pub segments: Vec<usize>,
    /// Flags in place of the endpoint's default flags. Raw API only.
    pub flags: Option<OpFlags>,
}

impl Tx {
    /// An untagged message.
    pub fn msg(to: FiAddr, bytes: Vec<u8>) -> Self {
        Self {
            to,
            tag: None,
            data: None,
            bytes,
            is_injected: false,
            segments: Vec::new(),
            flags: None,
        }
    }

    /// A tagged message.
    pub fn tagged(to: FiAddr, tag: u64, bytes: Vec<u8>) -> Self {
        Self {
            tag: Some(tag),
            ..Self::msg(to, bytes)
        }
    }
}

/// A receive.
#[derive(Clone, Debug)]
pub struct Rx {
    pub from: FiAddr,
    /// The tag; `None` for an untagged message.
    pub tag: Option<TagMatch>,
    pub room: usize,
    pub kind: RxKind,
    /// Lengths of the segments; one segment if empty. Raw API only.
    pub segments: Vec<usize>,
    /// Flags in place of the endpoint's default flags. Raw API only.
    pub flags: Option<OpFlags>,
}

/// The kind of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxKind {
    /// Receives one message.
    Plain,
    /// Receives many messages (`FI_MULTI_RECV`).
    Multi,
    /// Searches for a message (`FI_PEEK`).
    Peek,
    /// Searches for a message and discards it (`FI_PEEK | FI_DISCARD`).
    Discard,
}

impl Rx {
    /// A receive of an untagged message from any peer.
    pub fn msg(room: usize) -> Self {
        Self {
            from: FiAddr::UNSPEC,
            tag: None,
            room,
            kind: RxKind::Plain,
            segments: Vec::new(),
            flags: None,
        }
    }

    /// A receive of a tagged message from any peer.
    pub fn tagged(tag: impl Into<TagMatch>, room: usize) -> Self {
        Self {
            tag: Some(tag.into()),
            ..Self::msg(room)
        }
    }

    pub fn from(mut self, from: FiAddr) -> Self {
        self.from = from;
        self
    }

    pub fn kind(mut self, kind: RxKind) -> Self {
        self.kind = kind;
        self
    }
}

/// An address in a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddr {
    pub peer: FiAddr,
    pub addr: u64,
    pub key: u64,
}

impl RemoteAddr {
    /// The address `offset` bytes further on.
    pub fn at(self, offset: usize) -> Self {
        Self {
            addr: self.addr.wrapping_add(offset as u64),
            ..self
        }
    }

    pub fn iov(self, len: usize) -> RmaIov {
        RmaIov {
            addr: self.addr,
            len,
            key: self.key,
        }
    }
}

/// A write to a peer's memory.
#[derive(Clone, Debug)]
pub struct Write {
    pub to: RemoteAddr,
    pub bytes: Vec<u8>,
    pub data: Option<u64>,
    pub is_injected: bool,
    /// Flags in place of the endpoint's default flags. Raw API only.
    pub flags: Option<OpFlags>,
    /// Lengths of the local segments; one segment if empty. Raw API only.
    pub segments: Vec<usize>,
    /// The remote segments; one segment if empty. Raw API only.
    pub rma_iov: Vec<RmaIov>,
}

impl Write {
    pub fn new(to: RemoteAddr, bytes: Vec<u8>) -> Self {
        Self {
            to,
            bytes,
            data: None,
            is_injected: false,
            flags: None,
            segments: Vec::new(),
            rma_iov: Vec::new(),
        }
    }
}

/// A read of a peer's memory.
#[derive(Clone, Debug)]
pub struct Read {
    pub from: RemoteAddr,
    pub len: usize,
    /// Flags in place of the endpoint's default flags. Raw API only.
    pub flags: Option<OpFlags>,
    /// Lengths of the local segments; one segment if empty. Raw API only.
    pub segments: Vec<usize>,
    /// The remote segments; one segment if empty. Raw API only.
    pub rma_iov: Vec<RmaIov>,
}

impl Read {
    pub fn new(from: RemoteAddr, len: usize) -> Self {
        Self {
            from,
            len,
            flags: None,
            segments: Vec::new(),
            rma_iov: Vec::new(),
        }
    }
}

/// An atomic.
#[derive(Clone, Debug)]
pub struct Atomic {
    pub family: Family,
    pub datatype: Datatype,
    pub op: Op,
    pub target: RemoteAddr,
    /// The operands; empty for a read.
    pub operand: Vec<u8>,
    /// The comparands.
    pub compare: Vec<u8>,
    /// The size of the result, in bytes.
    pub result: usize,
    /// Flags in place of the endpoint's default flags. Raw API only.
    pub flags: Option<OpFlags>,
    pub is_injected: bool,
}

impl Atomic {
    /// An atomic on as many elements as `operand` has. The operand of a read, the comparand of an
    /// operation that does not compare, and the result of the base family are omitted.
    pub fn new(
        family: Family,
        datatype: Datatype,
        op: Op,
        target: RemoteAddr,
        operand: Vec<u8>,
        compare: Vec<u8>,
    ) -> Self {
        let only_if = |is_so, bytes| if is_so { bytes } else { Vec::new() };
        Self {
            family,
            datatype,
            op,
            target,
            result: if family == Family::Base {
                0
            } else {
                operand.len()
            },
            operand: only_if(op != Op::AtomicRead, operand),
            compare: only_if(family == Family::Compare, compare),
            flags: None,
            is_injected: false,
        }
    }

    /// The target as the short forms of atomics take it.
    pub fn target(&self) -> Target {
        let RemoteAddr { peer, addr, key } = self.target;
        Target {
            dest: peer,
            addr,
            key,
            datatype: self.datatype,
            op: self.op,
        }
    }
}

/// An operation.
#[derive(Clone, Debug)]
pub enum Post {
    Send(Tx),
    Recv(Rx),
    Write(Write),
    Read(Read),
    Atomic(Atomic),
}

impl Post {
    /// Whether it is injected, and has no completion.
    pub fn is_injected(&self) -> bool {
        match self {
            Self::Send(tx) => tx.is_injected,
            Self::Write(write) => write.is_injected,
            Self::Atomic(atomic) => atomic.is_injected,
            Self::Recv(_) | Self::Read(_) => false,
        }
    }

    /// Whether it may complete more than once.
    pub fn is_multi(&self) -> bool {
        matches!(self, Self::Recv(rx) if rx.kind == RxKind::Multi)
    }
}

/// Setters that several kinds of posts have.
macro_rules! setters {
    ($($type:ty: $($name:ident)+;)+) => { $(impl $type { $(setters!(@ $name);)+ })+ };
    (@ data) => {
        pub fn data(mut self, data: u64) -> Self {
            self.data = Some(data);
            self
        }
    };
    (@ injected) => {
        pub fn injected(mut self) -> Self {
            self.is_injected = true;
            self
        }
    };
    (@ flags) => {
        pub fn flags(mut self, flags: OpFlags) -> Self {
            self.flags = Some(flags);
            self
        }
    };
    (@ segments) => {
        /// Sets the lengths of the segments.
        pub fn segments(mut self, lengths: &[usize]) -> Self {
            self.segments = lengths.to_vec();
            self
        }
    };
}

setters! {
    Tx: data injected flags segments;
    Rx: flags segments;
    Write: data injected flags;
    Read: flags;
    Atomic: injected flags;
}

macro_rules! into_post {
    ($($kind:ident($value:ty)),+) => { $(impl From<$value> for Post {
        fn from(value: $value) -> Self { Self::$kind(value) }
    })+ };
}

into_post!(Send(Tx), Recv(Rx), Write(Write), Read(Read), Atomic(Atomic));

/// A completion.
#[derive(Clone, Debug)]
pub struct Completion {
    pub context: u64,
    pub flags: CompletionFlags,
    pub len: usize,
    pub tag: u64,
    pub data: Option<u64>,
    pub src: FiAddr,
    /// The received or read bytes.
    pub bytes: Vec<u8>,
    pub error: Option<Failure>,
}

/// The error of an operation.
#[derive(Clone, Debug)]
pub struct Failure {
    pub errno: Errno,
    pub olen: usize,
    pub detail: String,
    pub sender: Option<Address>,
}

impl Completion {
    /// The received or fetched bytes; `None` if the operation does neither.
    pub fn received(&self) -> Option<&[u8]> {
        let takes = CompletionFlags::RECV | CompletionFlags::READ;
        self.flags.intersects(takes).then_some(&self.bytes[..])
    }

    /// Checks that the operation has succeeded.
    ///
    /// # Errors
    /// The error of the operation.
    pub fn expect_success(self) -> anyhow::Result<Self> {
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

    /// Checks that the operation has failed with `errno`.
    ///
    /// # Errors
    /// Success, or another error of the operation.
    pub fn expect_failure(
        self,
        subject: impl fmt::Display,
        errno: Errno,
    ) -> anyhow::Result<Failure> {
        check::count(0);
        match self.error {
            Some(failure) if failure.errno == errno => Ok(failure),
            Some(other) => bail!(
                "{subject}: failed with {:?} instead of {errno:?}",
                other.errno
            ),
            None => bail!("{subject}: succeeded instead of failing with {errno:?}"),
        }
    }
}
