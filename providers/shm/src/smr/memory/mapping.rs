//! `Mapping` and `Memory`: sealed memory of this process, and mapped memory of its peers.
//!
//! Memory of this process is an anonymous file (`memfd_create(2)`). The file has no name, so the
//! kernel frees it when the last process that uses it dies. Its size is sealed and its pages are
//! committed at its creation, so accesses to the memory cannot fail.

use std::fmt;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::sync::{Arc, Once, OnceLock};

use memmap2::{Advice, MmapOptions, MmapRaw};
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::statfs::{HUGETLBFS_MAGIC, fstatfs};
use selvedge::{Errno, Error};
use selvedge_kit::fork_guard::ForkGuard;
use selvedge_kit::numa::{NodeId, Pages, prefer_node};
use selvedge_kit::seal::{future_write, seal};

pub use selvedge_kit::seal::Writers;

use crate::memory::mapping_quota::{MappingPermit, MappingQuota};

/// A mapping of a file, unmapped when the last reference is dropped.
pub struct Mapping {
    memory: ManuallyDrop<MmapRaw>,
    writable: bool,
    fork_guard: ForkGuard,
    /// Whether the mapping is excluded from forked children.
    is_excluded_from_fork: OnceLock<bool>,
    /// The permit for a mapping of a peer's memory.
    _permit: Option<MappingPermit>,
    #[cfg(loom)]
    content: Arc<crate::smr::model::Content>,
}

impl Mapping {
    /// Maps `len` bytes of `file` for reading and writing.
    pub(crate) fn writable(file: &File, len: usize) -> Result<Arc<Self>, Error> {
        let memory = MmapOptions::new().len(len).map_raw(file);
        let memory = memory.map_err(|e| failed(format!("mapping {len} bytes"), e))?;
        Ok(Self::new(memory, true, file, None))
    }

    /// Maps `len` bytes of a peer's `file`.
    fn of_peer(file: &File, len: usize, writable: bool) -> Result<Arc<Self>, Error> {
        let permit = MappingQuota::of_peers().take(0);
        let permit = permit.ok_or_else(|| Error::new(Errno::NoMem, QUOTA_EXCEEDED))?;
        let mut options = MmapOptions::new();
        let memory = if writable {
            options.len(len).map_raw(file)
        } else {
            options.len(len).map_raw_read_only(file)
        };
        let memory = memory.map_err(|e| failed(format!("mapping {len} bytes of a peer"), e))?;
        Ok(Self::new(memory, writable, file, Some(permit)))
    }

    #[cfg_attr(
        not(loom),
        expect(unused_variables, reason = "the model checker uses the file")
    )]
    fn new(
        memory: MmapRaw,
        writable: bool,
        file: &File,
        permit: Option<MappingPermit>,
    ) -> Arc<Self> {
        Arc::new(Self {
            #[cfg(loom)]
            content: crate::smr::model::Content::of(file, memory.len()),
            memory: ManuallyDrop::new(memory),
            writable,
            fork_guard: ForkGuard::current(),
            is_excluded_from_fork: OnceLock::new(),
            _permit: permit,
        })
    }

    /// Excludes the memory from forked children (`MADV_DONTFORK`), which have a hole at its
    /// addresses. A child then cannot change memory that peers read, and does not keep the memory
    /// after this process has exited. Only for memory that is accessed behind a fork guard
    /// ([`selvedge_kit::fork_guard::ForkGuarded`]).
    pub(crate) fn exclude_from_fork(&self) {
        // If the kernel refuses, children have a mapping that they never access.
        self.is_excluded_from_fork
            .get_or_init(|| self.memory.advise(Advice::DontFork).is_ok());
    }

    /// Whether this process created the mapping; a forked child did not.
    pub(crate) fn is_in_creator(&self) -> bool {
        self.fork_guard.is_owner()
    }

    /// Returns the address of the `len` bytes at `offset`.
    ///
    /// # Panics
    /// If the bytes are not all inside the mapping.
    #[expect(
        clippy::expect_used,
        reason = "the kernel chooses the address of a mapping"
    )]
    #[inline]
    pub(crate) fn address_of(&self, offset: usize, len: usize) -> NonNull<u8> {
        let total = self.memory.len();
        assert!(
            offset <= total && len <= total - offset,
            "{len} bytes at {offset} of {total}"
        );
        let first = self.memory.as_mut_ptr().wrapping_add(offset);
        NonNull::new(first).expect("a mapping is never at address zero")
    }

    /// Tells the kernel how the memory will be used.
    pub(crate) fn advise(&self, advice: Advice) -> std::io::Result<()> {
        self.memory.advise(advice)
    }

    /// Asks for pages on a NUMA node. If the kernel refuses, the pages lie where it places them. The
    /// first refusal of the process is logged.
    fn prefer_node(&self, node: NodeId, pages: Pages) {
        static REFUSED: Once = Once::new();
        let first = self.address_of(0, 0);
        if let Err(cause) = prefer_node(first, self.len(), node, pages) {
            REFUSED.call_once(|| {
                log::warn!(
                    target: "selvedge::shm::mr",
                    "shared memory is not placed on NUMA node {node}: mbind fails: {cause}; the \
                     kernel chooses the node: permit mbind(2) and this node, or set FI_SHM_NUMA=off"
                );
            });
        }
    }

    /// Whether this process may write.
    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns the content that replaces the memory under the model checker.
    #[cfg(loom)]
    pub(crate) fn content(&self) -> &crate::smr::model::Content {
        &self.content
    }

    /// Returns the number of mapped bytes.
    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // In a forked child, another mapping may be at these addresses by now.
        if self.is_in_creator() || self.is_excluded_from_fork.get() != Some(&true) {
            unmap(&mut self.memory);
        }
    }
}

#[expect(
    unsafe_code,
    reason = "unmaps memory, except in a forked child without the mapping"
)]
fn unmap(memory: &mut ManuallyDrop<MmapRaw>) {
    // SAFETY: called only by the drop of `Mapping`, which does not access the memory afterwards.
    unsafe { ManuallyDrop::drop(memory) };
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping({} bytes)", self.len())
    }
}

/// Sealed anonymous memory of this process, mapped, with a descriptor for peers.
#[derive(Debug)]
pub struct Memory {
    file: File,
    mapping: Arc<Mapping>,
}

impl Memory {
    /// Creates a file of `len` zeroed bytes, committed and sealed, and maps it.
    ///
    /// # Errors
    /// The system's error when memory or descriptors are short; nothing is allocated then.
    pub fn create(len: usize, writers: Writers) -> Result<Self, Error> {
        Self::create_on(None, len, writers)
    }

    /// As [`Self::create`], with pages on a NUMA node if the node has free ones.
    pub(crate) fn create_on(
        node: Option<NodeId>,
        len: usize,
        writers: Writers,
    ) -> Result<Self, Error> {
        let action = || format!("shared memory of {len} bytes");
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let fd = memfd_create("selvedge", flags).map_err(|e| failed(action(), e))?;
        let file = File::from(fd);
        // The file gets its pages last, on the node that is requested before.
        let mapping = Mapping::writable(&file, len)?;
        if let Some(node) = node {
            mapping.prefer_node(node, Pages::Later);
        }
        fallocate(&file, FallocateFlags::empty(), 0, len as i64)
            .map_err(|e| failed(action(), e))?;
        seal(&file, len, writers).map_err(|e| failed(action(), e))?;
        Ok(Self { file, mapping })
    }

    /// Returns the descriptor to send to a peer.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Moves the pages to a NUMA node, before a peer maps them.
    pub(crate) fn move_to(&self, node: NodeId) {
        // The kernel moves the pages that this process has accessed through the mapping. Before
        // Linux 5.14 the call fails, and pages that were not written yet stay.
        let _ = self.mapping.advise(Advice::PopulateWrite);
        self.mapping.prefer_node(node, Pages::Existing);
    }

    /// Returns the mapping of the memory.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }
}

/// Maps memory that a peer has sent. Checks first that the memory cannot shrink and is committed,
/// so that accesses to it cannot fail.
///
/// # Errors
/// [`Errno::Proto`] when the descriptor is not sealed memory, has not `len` bytes, or is not
/// committed; [`Errno::Perm`] for reserved huge pages in which the peer may make holes;
/// [`Errno::NoMem`] beyond the quota of mappings.
pub(crate) fn map_peer_memory(
    fd: OwnedFd,
    len: usize,
    writable: bool,
) -> Result<Arc<Mapping>, Error> {
    let file = File::from(fd);
    let seals = seals_of(&file)?;
    if !seals.contains(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW) {
        return Err(refused("its memory is not sealed against changes of size"));
    }
    if !seals.contains(future_write()) && is_in_reserved_pages(&file)? {
        return Err(Error::new(Errno::Perm, NOT_SEALED_AGAINST_HOLES));
    }
    let metadata = file
        .metadata()
        .map_err(|e| failed("reading the status of a peer's memory".into(), e))?;
    let actual = metadata.len();
    if actual != len as u64 || len < 4096 {
        return Err(refused(&format!(
            "its memory has {actual} bytes and should have {len}"
        )));
    }
    if metadata.blocks() * STAT_BLOCK < actual {
        return Err(refused("its memory is not committed"));
    }
    Mapping::of_peer(&file, len, writable)
}

/// Maps an arena of a peer's heap for reading. Checks first that its size cannot change and that no
/// holes can appear in it. It may have holes now: callers check each range.
///
/// # Errors
/// [`Errno::Proto`] when the descriptor is not memory with the seals, has not `len` bytes, or is
/// larger than an arena may be; [`Errno::NoMem`] beyond the quota of mappings.
pub(crate) fn map_peer_arena(fd: OwnedFd, len: usize) -> Result<(Arc<Mapping>, File), Error> {
    let file = File::from(fd);
    let needed = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | future_write();
    if !seals_of(&file)?.contains(needed) || is_in_reserved_pages(&file)? {
        return Err(refused("its arena is not sealed against holes"));
    }
    let actual = file
        .metadata()
        .map_err(|e| failed("reading the status of a peer's memory".into(), e))?
        .len();
    if actual != len as u64 || !(4096..=ARENA_MAX).contains(&len) {
        return Err(refused(&format!(
            "its arena has {actual} bytes and should have {len}, at most {ARENA_MAX}"
        )));
    }
    let mapping = Mapping::of_peer(&file, len, false)?;
    Ok((mapping, file))
}

/// The longest arena of a peer that is mapped. An arena costs its owner no memory, and this
/// process addresses.
const ARENA_MAX: usize = 4 << 30;

fn seals_of(file: &File) -> Result<SealFlag, Error> {
    let seals = fcntl(file, FcntlArg::F_GET_SEALS)
        .map_err(|_| refused("its descriptor is not sealable memory"))?;
    Ok(SealFlag::from_bits_retain(seals))
}

const QUOTA_EXCEEDED: &str = "the quota of mappings for peers is used up (three quarters of \
                        vm.max_map_count): no more memory of peers is mapped";

/// The error text for memory in reserved huge pages without the seal against holes. An access to a
/// hole takes a page from a pool that may be empty, and the kernel then kills the process. A hole
/// in other memory is filled like a fresh allocation.
const NOT_SEALED_AGAINST_HOLES: &str =
    "a peer's memory was refused: it is in reserved huge pages and not sealed against holes";

fn is_in_reserved_pages(file: &File) -> Result<bool, Error> {
    let fs =
        fstatfs(file).map_err(|e| failed("reading the status of a peer's memory".into(), e))?;
    Ok(fs.filesystem_type() == HUGETLBFS_MAGIC)
}

/// The unit in which stat(2) counts blocks, in bytes.
const STAT_BLOCK: u64 = 512;

pub(crate) fn failed(action: String, cause: impl Into<std::io::Error>) -> Error {
    let cause = cause.into();
    let errno = cause.raw_os_error().map_or(Errno::NoMem, Errno::from_raw);
    Error::new(errno, action).because(cause)
}

pub(crate) fn refused(reason: &str) -> Error {
    Error::new(
        Errno::Proto,
        format!("a peer's region was refused: {reason}"),
    )
}
