//! Regions: sealed memory that one endpoint owns and one peer maps read-only.
//!
//! A region is sealed against new writable mappings, so that only its owner writes.

use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use selvedge::{Errno, Error};
use selvedge_kit::barrier::{self, Scope};

use super::layout::{
    HEADER_SIZE, LANE_COUNT, MAGIC, NAME_MAX, PEER_ADDR, PEER_NAME, Sizes, UNSPEC, VERSION, word,
};
use super::memory::bytes::Bytes;
use super::memory::mapping::{Mapping, Memory, Writers, failed, map_foreign, refused};
use super::queues::cmd_queue::{Credit, Receiver, SLOT_WORDS, Sender};
use super::queues::inject_pool::InjectPool;
use super::queues::resp_queue::{RespReceiver, RespSender};
use super::sync::{Ordering, Words, order};

/// A peer's name, and the index by which the peer knows us (`smr_addr`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Addr {
    /// The peer's name.
    pub name: String,
    /// Our index in the peer's map; `None` (UNSPEC) while the peer has none for us, or has not told.
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

/// What a region is made with.
#[derive(Clone, Debug)]
pub struct Attr<'a> {
    /// How large its parts are.
    pub sizes: Sizes,
    /// The name of the peer that it is for.
    pub peer: &'a str,
}

/// The owner's end of a region (`smr_create`).
#[derive(Debug)]
pub struct Region {
    memory: Memory,
    header: Words,
    sizes: Sizes,
}

impl Region {
    /// Makes a region for one peer and initialises all its parts.
    ///
    /// # Errors
    /// [`Errno::Inval`] for sizes that no region may have or a name that is too long; the
    /// system's, when memory is short.
    pub fn create(attr: &Attr<'_>) -> Result<Self, Error> {
        let sizes = attr.sizes;
        let name = attr.peer;
        if !sizes.are_sane() || sizes.total() > Sizes::MAX_TOTAL {
            return Err(Error::new(Errno::Inval, format!("region with {sizes:?}")));
        }
        if name.len() > NAME_MAX {
            return Err(Error::new(
                Errno::NameTooLong,
                format!("peer name {name:?}"),
            ));
        }
        let memory = Memory::create(sizes.total(), Writers::Owner)?;
        memory.mapping().withhold();
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
            (word::FENCED, u64::from(is_fenced())),
            (word::ATTENTION, 1),
        ] {
            self.header.at(index).store(value, Ordering::Relaxed);
        }
    }

    fn write_peer_name(&self, name: &str) {
        let bytes = Bytes::new(self.memory.mapping().clone(), PEER_NAME, NAME_MAX + 1);
        bytes.copy_in(0, name.as_bytes());
    }

    /// The name of the peer that it was made for.
    pub fn peer_name(&self) -> String {
        name_in(self.memory.mapping())
    }

    /// Tells the peer its index in the owner's map; [`UNSPEC`] when it has none.
    pub fn set_peer_index(&self, index: u64) {
        self.header
            .at(PEER_ADDR / 8)
            .store(index, Ordering::Relaxed);
    }

    /// The sizes it was made with.
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// The descriptor to hand to the peer.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    /// What the peer needs to map it: a descriptor of its own, and the layout.
    ///
    /// # Errors
    /// The system's, when descriptors are short.
    pub fn share(&self) -> Result<(OwnedFd, Sizes), Error> {
        let fd = self.fd().try_clone_to_owned();
        let fd = fd.map_err(|e| failed("sharing a region".into(), e))?;
        Ok((fd, self.sizes))
    }

    /// A number of the descriptor, to tell regions apart in logs.
    pub fn id(&self) -> i32 {
        self.memory.fd().as_raw_fd()
    }

    /// The producing end of the command queue.
    pub fn cmd_sender(&self) -> Sender {
        Sender::new(self.words(self.sizes.cmd_offset(), self.sizes.cmd_count * SLOT_WORDS))
    }

    /// The producing end of the lane.
    pub fn lane_sender(&self) -> Sender {
        Sender::new(self.words(self.sizes.lane_offset(), LANE_COUNT * SLOT_WORDS))
    }

    /// The word through which the owner gives the slots of the peer's lane back.
    pub fn lane_credit(&self) -> Credit {
        Credit::new(self.header.clone(), word::LANE_CREDIT)
    }

    /// The producing end of the response queue.
    pub fn resp_sender(&self) -> RespSender {
        RespSender::new(self.words(self.sizes.resp_offset(), self.sizes.resp_count * 2))
    }

    /// The allocating end of the inject pool.
    pub fn inject_pool(&self) -> InjectPool {
        let (offset, len) = (self.sizes.inject_offset(), self.sizes.inject_size);
        InjectPool::new(Bytes::new(self.memory.mapping().clone(), offset, len))
    }

    /// The word through which the owner gives the peer's command slots back.
    pub fn credit(&self) -> Credit {
        Credit::new(self.header.clone(), word::CREDIT)
    }

    /// Says that the owner wants to be told of what the peer reads or writes without it.
    pub fn want_notices(&self) {
        self.header.at(word::WANTS).store(1, Ordering::Relaxed);
    }

    /// Says that nothing named by this region may be used any more: the peer checks this after
    /// every copy out of the owner's memory, and throws the copy away. To be called before the
    /// owner reuses memory that a command names.
    pub fn close(&self) {
        self.header.at(word::CLOSED).store(1, Ordering::Relaxed);
        order::withdrawn();
    }

    pub(crate) fn header(&self) -> &Words {
        &self.header
    }

    fn words(&self, offset: usize, len: usize) -> Words {
        Words::new(self.memory.mapping().clone(), offset, len)
    }
}

/// A region that is no more is closed: whoever forgets it lets go of what it names. The copy that a
/// forked child has is not the region.
impl Drop for Region {
    fn drop(&mut self) {
        if self.memory.mapping().is_here() {
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
    /// Maps a region that a peer has handed over, if it is one.
    ///
    /// # Errors
    /// [`Errno::Proto`] saying what is wrong with it. Nothing stays mapped then.
    pub fn attach(fd: OwnedFd, sizes: Sizes) -> Result<Self, Error> {
        if !sizes.are_sane() || sizes.total() > Sizes::MAX_TOTAL {
            return Err(refused(&format!("it should have {sizes:?}")));
        }
        let mapping = map_foreign(fd, sizes.total(), false)?;
        mapping.withhold();
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
        let magic = self.header.at(word::MAGIC).load(Ordering::Relaxed);
        if magic != MAGIC {
            return Err(refused(&format!("its first word is {magic:#x}")));
        }
        let version = self.header.at(word::VERSION).load(Ordering::Relaxed) as u32;
        if version != VERSION {
            return Err(refused(&format!(
                "its version is {version}, ours {VERSION}"
            )));
        }
        Ok(())
    }

    /// The consuming end of the peer's command queue.
    pub fn cmd_receiver(&self) -> Receiver {
        Receiver::new(self.words(self.sizes.cmd_offset(), self.sizes.cmd_count * SLOT_WORDS))
    }

    /// The consuming end of the peer's lane.
    pub fn lane_receiver(&self) -> Receiver {
        Receiver::new(self.words(self.sizes.lane_offset(), LANE_COUNT * SLOT_WORDS))
    }

    /// How far the peer has consumed our lane.
    pub fn lane_credit(&self) -> Credit {
        Credit::new(self.header.clone(), word::LANE_CREDIT)
    }

    /// The consuming end of the peer's response queue.
    pub fn resp_receiver(&self) -> RespReceiver {
        RespReceiver::new(self.words(self.sizes.resp_offset(), self.sizes.resp_count * 2))
    }

    /// The peer's payloads.
    pub fn inject_bytes(&self) -> Bytes {
        Bytes::new(
            self.mapping.clone(),
            self.sizes.inject_offset(),
            self.sizes.inject_size,
        )
    }

    /// How far the peer has consumed our commands.
    pub fn credit(&self) -> Credit {
        Credit::new(self.header.clone(), word::CREDIT)
    }

    /// Whether the peer wants to be told of what is read or written without it.
    #[inline]
    pub fn wants_notices(&self) -> bool {
        self.header.at(word::WANTS).load(Ordering::Relaxed) != 0
    }

    /// Whether the peer has closed. Read after a copy out of its memory: `false` says that the
    /// copy is good.
    pub fn is_closed(&self) -> bool {
        order::copied();
        self.header.at(word::CLOSED).load(Ordering::Relaxed) != 0
    }

    /// The name that the region's owner calls us by, and our index in its map.
    pub fn peer_addr(&self) -> Addr {
        let index = self.header.at(PEER_ADDR / 8).load(Ordering::Relaxed);
        Addr {
            name: name_in(&self.mapping),
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

/// The name of the peer that a region was made for.
fn name_in(mapping: &Arc<Mapping>) -> String {
    let mut name = [MaybeUninit::uninit(); NAME_MAX];
    let bytes = Bytes::new(mapping.clone(), PEER_NAME, NAME_MAX);
    let name = bytes.copy_out(0, &mut name);
    let len = name.iter().position(|&b| b == 0).unwrap_or(NAME_MAX);
    String::from_utf8_lossy(&name[..len]).into_owned()
}

/// Whether peers can fence this process by `membarrier(2)`.
fn is_fenced() -> bool {
    let is_fenced = barrier::register(Scope::Machine);
    if !is_fenced {
        log::info!(
            target: "selvedge::shm::ep_ctrl",
            "no membarrier(2): senders fence each command themselves, which is slower"
        );
    }
    is_fenced
}
