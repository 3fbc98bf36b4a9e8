//! `Region` and `PeerRegion`: sealed memory that one endpoint owns and one peer maps read-only.
//!
//! A region is sealed against new writable mappings, so only its owner writes to it.

use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use selvedge::{Errno, Error};
use selvedge_kit::barrier::{self, Scope};
use selvedge_kit::numa::NodeId;

use super::layout::{
    COLL_COUNT, HEADER_SIZE, MAGIC, NAME_MAX, PEER_ADDR, PEER_NAME, Sizes, UNSPEC, VERSION, word,
};
use super::memory::bytes::Bytes;
use super::memory::mapping::{Mapping, Memory, Writers, failed, map_peer_memory, refused};
use super::queues::cmd_queue::{Credit, Receiver, SLOT_WORDS, Sender};
use super::queues::inject_pool::InjectPool;
use super::queues::resp_queue::{RespReceiver, RespSender};
use super::sync::{Ordering, Words, order};

/// A peer's name, and this endpoint's index in the peer's map (`smr_addr`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Addr {
    /// The peer's name.
    pub name: String,
    /// This endpoint's index in the peer's map; `None` (UNSPEC) while the peer has not written one.
    pub index: Option<u64>,
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(index) => write!(f, "{} {index}", self.name),
            None => write!(f, "{} UNSPEC", self.name),
        }
    }
}

/// Attributes of a new region.
#[derive(Clone, Debug)]
pub struct Attr<'a> {
    /// Sizes of the region's parts.
    pub sizes: Sizes,
    /// Name of the peer that will map the region.
    pub peer: &'a str,
}

/// The owner's view of a region (`smr_create`).
#[derive(Debug)]
pub struct Region {
    memory: Memory,
    header: Words,
    sizes: Sizes,
}

impl Region {
    /// Creates a region for one peer and initialises all its parts.
    ///
    /// # Errors
    /// [`Errno::Inval`] for sizes outside the limits; [`Errno::NameTooLong`] for a name that is too
    /// long; the system's error when memory is short.
    pub fn create(attr: &Attr<'_>) -> Result<Self, Error> {
        Self::create_on(None, attr)
    }

    /// As [`Self::create`], with memory on a NUMA node if the node has free pages.
    pub(crate) fn create_on(node: Option<NodeId>, attr: &Attr<'_>) -> Result<Self, Error> {
        let sizes = attr.sizes;
        let name = attr.peer;
        if !sizes.are_sane() || sizes.total() > Sizes::MAX_TOTAL {
            return Err(Error::new(
                Errno::Inval,
                format!("the sizes of a region are out of range: {sizes:?}"),
            ));
        }
        if name.len() > NAME_MAX {
            return Err(Error::new(
                Errno::NameTooLong,
                format!("the peer name {name:?} has more than {NAME_MAX} bytes"),
            ));
        }
        let memory = Memory::create_on(node, sizes.total(), Writers::Owner)?;
        memory.mapping().exclude_from_fork();
        let header = Words::new(memory.mapping().clone(), 0, HEADER_SIZE / 8);
        let region = Self {
            memory,
            header,
            sizes,
        };
        region.write_header();
        region.write_peer_name(name);
        region.set_peer_index(UNSPEC);
        Ok(region)
    }

    fn write_header(&self) {
        let version = u64::from(VERSION) | u64::from(std::process::id()) << 32;
        for (index, value) in [
            (word::MAGIC, MAGIC),
            (word::VERSION, version),
            (word::TOTAL_SIZE, self.sizes.total() as u64),
            (word::RESP_OFFSET, self.sizes.resp_offset() as u64),
            (word::RESP_COUNT, self.sizes.resp_count as u64),
            (word::CMD_OFFSET, self.sizes.cmd_offset() as u64),
            (word::CMD_COUNT, self.sizes.cmd_count as u64),
            (word::INJECT_OFFSET, self.sizes.inject_offset() as u64),
            (word::INJECT_SIZE, self.sizes.inject_size as u64),
            (word::FENCED, u64::from(register_for_fences())),
            (word::POLL_STATE, 1),
        ] {
            self.header.word(index).store(value, Ordering::Relaxed);
        }
    }

    fn write_peer_name(&self, name: &str) {
        let bytes = Bytes::new(self.memory.mapping().clone(), PEER_NAME, NAME_MAX + 1);
        bytes.copy_in(0, name.as_bytes());
    }

    /// Returns the name of the peer for which the region was created.
    pub fn peer_name(&self) -> String {
        read_peer_name(self.memory.mapping())
    }

    /// Publishes the peer's index in the owner's map; [`UNSPEC`] if the peer has none.
    pub fn set_peer_index(&self, index: u64) {
        self.header
            .word(PEER_ADDR / 8)
            .store(index, Ordering::Relaxed);
    }

    /// Returns the sizes with which the region was created.
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Moves the memory to a NUMA node, before the peer maps it.
    pub(crate) fn move_to(&self, node: NodeId) {
        self.memory.move_to(node);
    }

    /// Returns the descriptor to send to the peer.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    /// Returns a new descriptor of the region, and its sizes. The peer maps the region with both.
    ///
    /// # Errors
    /// The system's error when descriptors are short.
    pub fn share(&self) -> Result<(OwnedFd, Sizes), Error> {
        let fd = self.fd().try_clone_to_owned();
        let fd = fd.map_err(|e| failed("sharing a region".into(), e))?;
        Ok((fd, self.sizes))
    }

    /// Returns the number of the descriptor, which identifies the region in logs.
    pub fn id(&self) -> i32 {
        self.memory.fd().as_raw_fd()
    }

    /// Returns the producer of the command queue.
    pub fn cmd_sender(&self) -> Sender {
        Sender::new(self.words(self.sizes.cmd_offset(), self.sizes.cmd_count * SLOT_WORDS))
    }

    /// Returns the producer of the collective channel.
    pub fn coll_sender(&self) -> Sender {
        Sender::new(self.words(self.sizes.coll_offset(), COLL_COUNT * SLOT_WORDS))
    }

    /// Returns the word by which the owner returns the slots of the peer's collective channel.
    pub fn coll_credit(&self) -> Credit {
        Credit::new(self.header.clone(), word::COLL_CREDIT)
    }

    /// Returns the producer of the response queue.
    pub fn resp_sender(&self) -> RespSender {
        RespSender::new(self.words(self.sizes.resp_offset(), self.sizes.resp_count * 2))
    }

    /// Returns the producer of the inject pool.
    pub fn inject_pool(&self) -> InjectPool {
        let (offset, len) = (self.sizes.inject_offset(), self.sizes.inject_size);
        InjectPool::new(Bytes::new(self.memory.mapping().clone(), offset, len))
    }

    /// Returns the word by which the owner returns the peer's command slots.
    pub fn credit(&self) -> Credit {
        Credit::new(self.header.clone(), word::CREDIT)
    }

    /// Requests notifications of reads and writes that the peer executes directly.
    pub fn request_notifications(&self) {
        self.header.word(word::NOTIFY).store(1, Ordering::Relaxed);
    }

    /// Closes the region: memory that the commands in it name must not be used any more. The peer
    /// checks this after every copy out of the owner's memory, and discards the copy if the region
    /// is closed. The owner must call this before it reuses memory that a command names.
    pub fn close(&self) {
        self.header.word(word::CLOSED).store(1, Ordering::Relaxed);
        order::after_withdraw();
    }

    pub(crate) fn header(&self) -> &Words {
        &self.header
    }

    fn words(&self, offset: usize, len: usize) -> Words {
        Words::new(self.memory.mapping().clone(), offset, len)
    }
}

/// Dropping a region closes it, because its owner may then reuse the memory that its commands name.
/// The copy of a region in a forked child closes nothing.
impl Drop for Region {
    fn drop(&mut self) {
        if self.memory.mapping().is_in_creator() {
            self.close();
        }
    }
}

/// A region of a peer, mapped read-only.
#[derive(Debug)]
pub struct PeerRegion {
    mapping: Arc<Mapping>,
    header: Words,
    sizes: Sizes,
}

impl PeerRegion {
    /// Maps a region from the descriptor that a peer has sent.
    ///
    /// # Errors
    /// [`Errno::Proto`] with the defect when the descriptor is not a valid region. Nothing stays
    /// mapped then.
    pub fn attach(fd: OwnedFd, sizes: Sizes) -> Result<Self, Error> {
        if !sizes.are_sane() || sizes.total() > Sizes::MAX_TOTAL {
            return Err(refused(&format!(
                "the sizes in its hello are out of range: {sizes:?}"
            )));
        }
        let mapping = map_peer_memory(fd, sizes.total(), false)?;
        mapping.exclude_from_fork();
        let header = Words::new(mapping.clone(), 0, HEADER_SIZE / 8);
        let region = Self {
            mapping,
            header,
            sizes,
        };
        region.check_header()?;
        Ok(region)
    }

    fn check_header(&self) -> Result<(), Error> {
        let magic = self.header.word(word::MAGIC).load(Ordering::Relaxed);
        if magic != MAGIC {
            return Err(refused(&format!("its first word is {magic:#x}")));
        }
        let version = self.header.word(word::VERSION).load(Ordering::Relaxed) as u32;
        if version != VERSION {
            return Err(refused(&format!(
                "its version is {version}, this library's {VERSION}"
            )));
        }
        Ok(())
    }

    /// Returns the consumer of the peer's command queue.
    pub fn cmd_receiver(&self) -> Receiver {
        Receiver::new(self.words(self.sizes.cmd_offset(), self.sizes.cmd_count * SLOT_WORDS))
    }

    /// Returns the consumer of the peer's collective channel.
    pub fn coll_receiver(&self) -> Receiver {
        Receiver::new(self.words(self.sizes.coll_offset(), COLL_COUNT * SLOT_WORDS))
    }

    /// Returns the peer's credit for this endpoint's collective channel.
    pub fn coll_credit(&self) -> Credit {
        Credit::new(self.header.clone(), word::COLL_CREDIT)
    }

    /// Returns the consumer of the peer's response queue.
    pub fn resp_receiver(&self) -> RespReceiver {
        RespReceiver::new(self.words(self.sizes.resp_offset(), self.sizes.resp_count * 2))
    }

    /// Returns the bytes of the peer's inject pool.
    pub fn inject_bytes(&self) -> Bytes {
        Bytes::new(
            self.mapping.clone(),
            self.sizes.inject_offset(),
            self.sizes.inject_size,
        )
    }

    /// Returns the peer's credit for this endpoint's commands.
    pub fn credit(&self) -> Credit {
        Credit::new(self.header.clone(), word::CREDIT)
    }

    /// Whether the peer requests notifications of reads and writes that this endpoint executes
    /// directly.
    #[inline]
    pub fn wants_notifications(&self) -> bool {
        self.header.word(word::NOTIFY).load(Ordering::Relaxed) != 0
    }

    /// Whether the peer has closed the region. The caller must call this after every copy out of
    /// the peer's memory: `false` means that the copy is valid.
    pub fn is_closed(&self) -> bool {
        is_closed(&self.header)
    }

    /// Returns the answer to [`Self::is_closed`] as an object that can outlive the `PeerRegion`.
    pub(crate) fn closed_flag(&self) -> ClosedFlag {
        let header = self.header.clone();
        ClosedFlag { header }
    }

    /// Returns this endpoint's name and index, as the region's owner has written them.
    pub fn peer_addr(&self) -> Addr {
        let index = self.header.word(PEER_ADDR / 8).load(Ordering::Relaxed);
        Addr {
            name: read_peer_name(&self.mapping),
            index: (index != UNSPEC).then_some(index),
        }
    }

    #[inline(always)]
    pub(crate) fn header(&self) -> &Words {
        &self.header
    }

    fn words(&self, offset: usize, len: usize) -> Words {
        Words::new(self.mapping.clone(), offset, len)
    }
}

/// Whether the owner of a region has closed it, for code that does not hold the region.
#[derive(Debug)]
pub(crate) struct ClosedFlag {
    header: Words,
}

impl ClosedFlag {
    /// As [`PeerRegion::is_closed`].
    pub(crate) fn is_closed(&self) -> bool {
        is_closed(&self.header)
    }
}

fn is_closed(header: &Words) -> bool {
    order::after_copy();
    header.word(word::CLOSED).load(Ordering::Relaxed) != 0
}

/// Reads the name of the peer for which a region was created.
fn read_peer_name(mapping: &Arc<Mapping>) -> String {
    let mut name = [MaybeUninit::uninit(); NAME_MAX];
    let bytes = Bytes::new(mapping.clone(), PEER_NAME, NAME_MAX);
    let name = bytes.copy_out(0, &mut name);
    let len = name.iter().position(|&b| b == 0).unwrap_or(NAME_MAX);
    String::from_utf8_lossy(&name[..len]).into_owned()
}

/// Registers this process with `membarrier(2)`. Returns whether fences of peers take effect in it.
fn register_for_fences() -> bool {
    let is_fenced = barrier::register(Scope::Machine);
    if !is_fenced {
        log::info!(
            target: "selvedge::shm::ep_ctrl",
            "no membarrier(2): senders fence each command themselves, which is slower"
        );
    }
    is_fenced
}
