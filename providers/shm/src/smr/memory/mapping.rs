//! Mappings: sealed memory of this process, and memory of peers that is mapped here.
//!
//! Memory of this process is an anonymous file (`memfd_create(2)`): it has no name, so nothing is left
//! when its last user dies, however. Its size is sealed and its memory is committed when it is made,
//! so touching it cannot fail.

use std::fmt;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use memmap2::{Advice, MmapOptions, MmapRaw};
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::statfs::{HUGETLBFS_MAGIC, fstatfs};
use selvedge::{Errno, Error};
use selvedge_kit::fork_guard::ForkGuard;
use selvedge_kit::seal::{future_write, seal};

pub use selvedge_kit::seal::Writers;

use crate::memory::mapping_quota::{MappingPermit, MappingQuota};

/// Memory that is mapped until the last user lets go.
pub struct Mapping {
    memory: ManuallyDrop<MmapRaw>,
    writable: bool,
    fork_guard: ForkGuard,
    /// Whether forked children have a hole in its place.
    withheld: OnceLock<bool>,
    /// Of a peer's memory, its part of the mappings that those may have.
    _mapped: Option<MappingPermit>,
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
    fn foreign(file: &File, len: usize, writable: bool) -> Result<Arc<Self>, Error> {
        let mapped = MappingQuota::of_peers().take(0);
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
    fn new(
        memory: MmapRaw,
        writable: bool,
        file: &File,
        mapped: Option<MappingPermit>,
    ) -> Arc<Self> {
        Arc::new(Self {
            #[cfg(loom)]
            content: crate::smr::model::Content::of(file, memory.len()),
            memory: ManuallyDrop::new(memory),
            writable,
            fork_guard: ForkGuard::current(),
            withheld: OnceLock::new(),
            _mapped: mapped,
        })
    }

    /// Keeps the memory from processes that are forked from this one: they have a hole in its
    /// place, so that nothing they do changes what peers see, and it does not stay when this
    /// process is gone. For memory that nobody gets at without asking where he is
    /// ([`selvedge_kit::fork_guard::ForkGuarded`]).
    pub(crate) fn withhold(&self) {
        // A kernel that refuses leaves children a mapping that they do not use.
        self.withheld
            .get_or_init(|| self.memory.advise(Advice::DontFork).is_ok());
    }

    /// Whether this process has it: a forked child may not.
    pub(crate) fn is_here(&self) -> bool {
        self.fork_guard.is_owner()
    }

    /// The address of `len` bytes at `offset`.
    ///
    /// # Panics
    /// When they do not lie inside the mapping.
    #[expect(clippy::expect_used, reason = "where the kernel puts a mapping")]
    #[inline]
    pub(crate) fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
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

    /// Whether this process may write.
    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    /// The content that the model checker watches in place of the memory.
    #[cfg(loom)]
    pub(crate) fn content(&self) -> &crate::smr::model::Content {
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

pub(crate) fn failed(what: String, cause: impl Into<std::io::Error>) -> Error {
    let cause = cause.into();
    let errno = cause.raw_os_error().map_or(Errno::NoMem, Errno::from_raw);
    Error::new(errno, what).because(cause)
}

pub(crate) fn refused(why: &str) -> Error {
    Error::new(Errno::Proto, format!("a peer's region was refused: {why}"))
}
