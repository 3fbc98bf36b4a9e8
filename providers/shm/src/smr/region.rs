//! Regions: sealed memory that one endpoint owns and one peer maps read-only.
//!
//! A region is an anonymous file (`memfd_create(2)`): it has no name, so nothing is left when its
//! last user dies, however. Its size is sealed and its memory is committed when it is made, so
//! touching it cannot fail; it is sealed against new writable mappings, so that only its owner
//! writes.

use std::fmt;
use std::fs::File;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use memmap2::{Advice, MmapOptions, MmapRaw};
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::statfs::{HUGETLBFS_MAGIC, fstatfs};
use selvedge::{Errno, Error};
use selvedge_kit::barrier::{self, Scope};
use selvedge_kit::birth::Birth;
use selvedge_kit::seal::{future_write, seal};

pub use selvedge_kit::seal::Writers;

use super::attention::Sleeper;
use super::bytes::Bytes;
use super::cmd_queue::{Credit, Receiver, SLOT_WORDS, Sender};
use super::inject_pool::InjectPool;
use super::layout::{
    HEADER_SIZE, LANE_COUNT, MAGIC, NAME_MAX, PEER_ADDR, PEER_NAME, Sizes, VERSION, word,
};
use super::map::{Addr, UNSPEC};
use super::resp_queue::{RespReceiver, RespSender};
use super::sync::{Ordering, Words, order};
use crate::memory::mappings::{Mapped, Mappings};

/// Memory that is mapped until the last user lets go.
pub struct Mapping {
    memory: ManuallyDrop<MmapRaw>,
    writable: bool,
    birth: Birth,
    /// Whether forked children have a hole in its place.
    withheld: OnceLock<bool>,
    /// Of a peer's memory, its part of the mappings that those may have.
    _mapped: Option<Mapped>,
    #[cfg(loom)]
    content: Arc<super::model::Content>,
}

impl Mapping {
    /// Maps `len` bytes of `file` for reading and writing.
    pub(super) fn writable(file: &File, len: usize) -> Result<Arc<Self>, Error> {
        let memory = MmapOptions::new().len(len).map_raw(file);
        let memory = memory.map_err(|e| failed(format!("mapping {len} bytes"), e))?;
        Ok(Self::new(memory, true, file, None))
    }

    /// Maps `len` bytes of a peer's `file`.
    fn foreign(file: &File, len: usize, writable: bool) -> Result<Arc<Self>, Error> {
        let mapped = Mappings::of_peers().take(0);
        let mapped = mapped.ok_or_else(|| Error::new(Errno::NoMem, TOO_MANY))?;
        let mut options = MmapOptions::new();
        let memory = match writable {
            true => options.len(len).map_raw(file),
            false => options.len(len).map_raw_read_only(file),
        };
        let memory = memory.map_err(|e| failed(format!("mapping {len} bytes of a peer"), e))?;
        Ok(Self::new(memory, writable, file, Some(mapped)))
    }

    #[cfg_attr(
        not(loom),
        expect(unused_variables, reason = "models look at the file")
    )]
    fn new(memory: MmapRaw, writable: bool, file: &File, mapped: Option<Mapped>) -> Arc<Self> {
        Arc::new(Self {
            #[cfg(loom)]
            content: super::model::Content::of(file, memory.len()),
            memory: ManuallyDrop::new(memory),
            writable,
            birth: Birth::here(),
            withheld: OnceLock::new(),
            _mapped: mapped,
        })
    }

    /// Keeps the memory from processes that are forked from this one: they have a hole in its
    /// place, so that nothing they do changes what peers see, and it does not stay when this
    /// process is gone. For memory that nobody gets at without asking where he is
    /// ([`selvedge_kit::birth::Native`]).
    pub(crate) fn withhold(&self) {
        // A kernel that refuses leaves children a mapping that they do not use.
        self.withheld
            .get_or_init(|| self.memory.advise(Advice::DontFork).is_ok());
    }

    /// Whether this process has it: a forked child may not.
    pub(super) fn is_here(&self) -> bool {
        self.birth.is_here()
    }

    /// The address of `len` bytes at `offset`.
    ///
    /// # Panics
    /// When they do not lie inside the mapping.
    #[expect(clippy::expect_used, reason = "where the kernel puts a mapping")]
    #[inline]
    pub(super) fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        let total = self.memory.len();
        assert!(
            offset <= total && len <= total - offset,
            "{len} bytes at {offset} of {total}"
        );
        let first = self.memory.as_mut_ptr().wrapping_add(offset);
        NonNull::new(first).expect("a mapping is never at address zero")
    }

    /// Tells the kernel how the memory will be used.
    pub(super) fn advise(&self, advice: Advice) -> std::io::Result<()> {
        self.memory.advise(advice)
    }

    /// Whether this process may write.
    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    /// What the model checker watches in place of the memory.
    #[cfg(loom)]
    pub(crate) fn content(&self) -> &super::model::Content {
        &self.content
    }

    /// Bytes mapped.
    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // In a child the addresses may be somebody else's by now.
        if self.is_here() || self.withheld.get() != Some(&true) {
            unmap(&mut self.memory);
        }
    }
}

#[expect(unsafe_code, reason = "unmaps unless that is another process's")]
fn unmap(memory: &mut ManuallyDrop<MmapRaw>) {
    // SAFETY: called once, by the end of the mapping that holds it.
    unsafe { ManuallyDrop::drop(memory) };
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping({} bytes)", self.len())
    }
}

/// Sealed anonymous memory of this process, mapped and ready to be handed to a peer.
#[derive(Debug)]
pub struct Memory {
    file: File,
    mapping: Arc<Mapping>,
}

impl Memory {
    /// Makes `len` zeroed bytes, committed and sealed.
    ///
    /// # Errors
    /// The system's, when memory or descriptors are short; nothing is left then.
    pub fn create(len: usize, writers: Writers) -> Result<Self, Error> {
        let what = || format!("shared memory of {len} bytes");
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let fd = memfd_create("selvedge", flags).map_err(|e| failed(what(), e))?;
        fallocate(&fd, FallocateFlags::empty(), 0, len as i64).map_err(|e| failed(what(), e))?;
        let file = File::from(fd);
        let mapping = Mapping::writable(&file, len)?;
        seal(&file, len, writers).map_err(|e| failed(what(), e))?;
        Ok(Self { file, mapping })
    }

    /// The descriptor to hand over.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The memory.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }
}

/// Maps memory that a peer has handed over, after checking that it cannot shrink and is all there:
/// touching it cannot fail then.
///
/// # Errors
/// [`Errno::Proto`] when the descriptor is no sealed memory, is not `len` long, or not committed.
pub(crate) fn map_foreign(fd: OwnedFd, len: usize, writable: bool) -> Result<Arc<Mapping>, Error> {
    let file = File::from(fd);
    let seals = fcntl(&file, FcntlArg::F_GET_SEALS)
        .map_err(|_| refused("its descriptor is no sealable memory"))?;
    let seals = SealFlag::from_bits_retain(seals);
    if !seals.contains(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW) {
        return Err(refused("its memory is not sealed against changes of size"));
    }
    if !seals.contains(future_write()) && is_in_reserved_pages(&file)? {
        return Err(Error::new(Errno::Perm, HOLES));
    }
    let metadata = file
        .metadata()
        .map_err(|e| failed("looking at a peer's memory".into(), e))?;
    let real = metadata.len();
    if real != len as u64 || len < 4096 {
        return Err(refused(&format!(
            "its memory has {real} bytes and should have {len}"
        )));
    }
    if metadata.blocks() * BLOCK < real {
        return Err(refused("its memory is not committed"));
    }
    Mapping::foreign(&file, len, writable)
}

const TOO_MANY: &str = "peers have as many mappings as they may in this process \
                        (three quarters of vm.max_map_count): no more of their memory is mapped";

/// Why memory in reserved huge pages is not mapped: a hole in it takes its page from a pool that may
/// be empty when the memory is touched again, which ends the process. A hole in other memory is
/// filled like a fresh allocation.
const HOLES: &str =
    "a peer's memory is in reserved huge pages and not sealed against holes: it is not mapped";

fn is_in_reserved_pages(file: &File) -> Result<bool, Error> {
    let fs = fstatfs(file).map_err(|e| failed("looking at a peer's memory".into(), e))?;
    Ok(fs.filesystem_type() == HUGETLBFS_MAGIC)
}

/// Bytes of what stat(2) counts as a block.
const BLOCK: u64 = 512;

pub(super) fn failed(what: String, cause: impl Into<std::io::Error>) -> Error {
    let cause = cause.into();
    let errno = cause.raw_os_error().map_or(Errno::NoMem, Errno::from_raw);
    Error::new(errno, what).because(cause)
}

fn refused(why: &str) -> Error {
    Error::new(Errno::Proto, format!("a peer's region was refused: {why}"))
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

    pub(super) fn header(&self) -> &Words {
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

    /// The word that says whether the peer sleeps, apart from the region.
    pub fn sleeper(&self) -> Sleeper {
        Sleeper::new(self.header.clone())
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
    pub(super) fn header(&self) -> &Words {
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
