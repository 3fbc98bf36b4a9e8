//! `Block` and `PeerBlock`: memory that the owner's application uses directly and that peers map.
//!
//! A block is one sealed file, committed in full at its creation. The owner accesses it by address,
//! as any other memory. Peers map the block for reading, or also for writing if the owner has
//! created it for that. A freed block is never reused: a peer that still maps it accesses pages
//! that no other process uses. The mapping is excluded from forked children, which would otherwise
//! change the parent's memory.
//!
//! # Examples
//!
//! ```
//! use selvedge_shm::smr::special::{PageSize, PeerBlock, Block};
//! use selvedge_shm::smr::Writers;
//!
//! let (block, fd) = Block::create(100, Writers::AnyProcess, PageSize::Ordinary)?;
//! let attached = PeerBlock::attach(fd, block.len(), true)?;
//! attached.bytes().copy_in(92, b"from a peer");
//! # Ok::<(), selvedge::Error>(())
//! ```

use std::fs::File;
use std::os::fd::OwnedFd;

use memmap2::Advice;
use nix::errno::Errno as Sys;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;
use selvedge::{Errno, Error};
use selvedge_kit::seal::seal;

use super::bytes::Bytes;
use super::mapping::{Mapping, Writers, failed, map_peer_memory};

/// The size of a page in bytes.
const PAGE: usize = 4096;
/// The size of a huge page in bytes.
const HUGE_PAGE: usize = 2 << 20;

/// The kind of pages in which memory is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSize {
    /// Pages of 4 KiB.
    Ordinary,
    /// Huge pages of 2 MiB, if the system has free ones and the memory is at least as large as one.
    /// Reserved huge pages (`vm.nr_hugepages`) are used only for memory that peers do not write.
    Huge,
}

/// The owner's view of a block.
#[derive(Debug)]
pub struct Block {
    bytes: Bytes,
}

impl Block {
    /// Creates a block of at least `len` zeroed bytes. Returns the block, and the descriptor to
    /// send to peers.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a length of zero; [`Errno::NoMem`] for more than the system has; the
    /// system's error when memory or descriptors are short. Nothing is allocated then.
    pub fn create(len: usize, writers: Writers, pages: PageSize) -> Result<(Self, OwnedFd), Error> {
        check_available(len)?;
        let (file, len) = match pages {
            PageSize::Huge if len >= HUGE_PAGE => match writers {
                Writers::Owner => create_in_reserved_pages(len).or_else(|cause| {
                    log::info!(
                        target: "selvedge::shm::mr",
                        "no reserved huge pages for {len} bytes ({cause}), see vm.nr_hugepages: \
                         the kernel may use transparent ones"
                    );
                    create_in_advised_pages(len)
                }),
                // A peer with write access can also punch holes. If the pool of reserved pages is
                // empty at the next access to a hole, the kernel kills this process.
                Writers::AnyProcess => create_in_advised_pages(len),
            },
            _ => create_memory_file(MFdFlags::empty()).and_then(|fd| commit(fd, len, PAGE)),
        }
        .map_err(|cause| failed(format!("special memory of {len} bytes"), cause))?;
        let mapping = Mapping::writable(&file, len)?;
        mapping.exclude_from_fork();
        seal(&file, len, writers)
            .map_err(|cause| failed("sealing special memory".into(), cause))?;
        let bytes = Bytes::new(mapping, 0, len);
        Ok((Self { bytes }, file.into()))
    }

    /// Returns the address of the first byte. The caller is responsible for all accesses.
    pub fn base(&self) -> *mut u8 {
        self.bytes.as_ptr()
    }

    /// Returns the length in bytes, which is a multiple of the page size.
    #[expect(clippy::len_without_is_empty, reason = "no block is empty")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Checks that the system has `len` bytes of memory. Without the check the kernel would overcommit,
/// and later kill a process.
fn check_available(len: usize) -> Result<(), Error> {
    if len == 0 {
        return Err(Error::new(Errno::Inval, "special memory of 0 bytes"));
    }
    let available = available_memory().unwrap_or(isize::MAX as u64);
    if len as u64 > available {
        let reason = format!("special memory of {len} bytes, of which {available} are available");
        return Err(Error::new(Errno::NoMem, reason));
    }
    Ok(())
}

/// Reads the kernel's estimate of the memory that is available without swapping. Returns it plus
/// the free swap space, in bytes.
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let swap = kibibytes("SwapFree:").unwrap_or(0);
    Some((kibibytes("MemAvailable:")? + swap) << 10)
}

fn create_memory_file(extra_flags: MFdFlags) -> nix::Result<OwnedFd> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    memfd_create("selvedge-special", flags | extra_flags)
}

/// Creates memory in huge pages that the administrator has reserved.
fn create_in_reserved_pages(len: usize) -> nix::Result<(File, usize)> {
    let fd = create_memory_file(MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_2MB)?;
    commit(fd, len, HUGE_PAGE)
}

/// Creates memory with a request for transparent huge pages. The kernel grants them if it is
/// configured to (`shmem_enabled`) and has free ones. It decides at the first access to a page, so
/// the pages are populated before they are committed.
fn create_in_advised_pages(len: usize) -> nix::Result<(File, usize)> {
    let file = File::from(create_memory_file(MFdFlags::empty())?);
    let whole = len.checked_next_multiple_of(HUGE_PAGE).ok_or(Sys::ENOMEM)?;
    ftruncate(&file, whole as i64)?;
    if let Ok(mapping) = Mapping::writable(&file, whole) {
        // Both calls are hints: `commit` allocates the pages that they did not.
        let _ = mapping.advise(Advice::HugePage);
        let _ = mapping.advise(Advice::PopulateWrite);
    }
    commit(file.into(), whole, HUGE_PAGE)
}

/// Commits `len` bytes, rounded up to whole pages of `page_size` bytes. Returns the rounded length.
fn commit(fd: OwnedFd, len: usize, page_size: usize) -> nix::Result<(File, usize)> {
    let len = len.checked_next_multiple_of(page_size).ok_or(Sys::ENOMEM)?;
    let size = i64::try_from(len).map_err(|_| Sys::ENOMEM)?;
    loop {
        match fallocate(&fd, FallocateFlags::empty(), 0, size) {
            Err(Sys::EINTR) => {}
            result => return result.map(|()| (fd.into(), len)),
        }
    }
}

/// A block of a peer, mapped.
#[derive(Debug)]
pub struct PeerBlock {
    bytes: Bytes,
}

impl PeerBlock {
    /// Maps `len` bytes that a peer has sent.
    ///
    /// # Errors
    /// [`Errno::Proto`] when the descriptor is not sealed memory of this length; the system's error
    /// when the address space has no room.
    pub fn attach(fd: OwnedFd, len: usize, writable: bool) -> Result<Self, Error> {
        let mapping = map_peer_memory(fd, len, writable)?;
        mapping.exclude_from_fork();
        Ok(Self {
            bytes: Bytes::new(mapping, 0, len),
        })
    }

    /// Returns the bytes of the block.
    #[inline]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Whether this process may write to the block.
    pub fn is_writable(&self) -> bool {
        self.bytes.is_writable()
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use selvedge_testkit::skip::{Need, skip};

    use super::*;

    fn create(len: usize, writers: Writers) -> (Block, OwnedFd) {
        Block::create(len, writers, PageSize::Ordinary).unwrap()
    }

    #[test]
    fn owner_and_peer_access_the_same_bytes() {
        let (local, fd) = create(5000, Writers::AnyProcess);
        assert_eq!((local.len(), local.base().addr() % 4096), (8192, 0));
        let remote = PeerBlock::attach(fd, 8192, true).unwrap();
        remote.bytes().copy_in(4998, b"hello");
        let mut copied = [MaybeUninit::uninit(); 7];
        assert_eq!(local.bytes.copy_out(4997, &mut copied), b"\0hello\0");
    }

    #[test]
    fn memory_that_peers_may_not_write_cannot_be_mapped_for_writing() {
        let (local, fd) = create(4096, Writers::Owner);
        let other = fd.try_clone().unwrap();
        let refused = PeerBlock::attach(other, 4096, true).unwrap_err();
        assert_eq!(refused.errno(), Errno::Perm);
        let remote = PeerBlock::attach(fd, 4096, false).unwrap();
        assert!(!remote.is_writable());
        local.bytes.copy_in(0, b"data");
        let mut copied = [MaybeUninit::uninit(); 4];
        assert_eq!(remote.bytes().copy_out(0, &mut copied), b"data");
    }

    #[test]
    fn a_block_of_another_length_is_refused() {
        let (_local, fd) = create(8192, Writers::Owner);
        let refused = PeerBlock::attach(fd, 4096, false).unwrap_err();
        assert_eq!(refused.errno(), Errno::Proto);
    }

    #[test]
    fn memory_that_is_not_committed_is_refused() {
        let file = File::from(create_memory_file(MFdFlags::empty()).unwrap());
        ftruncate(&file, 8192).unwrap();
        seal(&file, 8192, Writers::AnyProcess).unwrap_err();
        let refused = PeerBlock::attach(file.into(), 8192, true).unwrap_err();
        assert_eq!(refused.errno(), Errno::Proto);
        assert!(refused.message().contains("committed"), "{refused}");
    }

    #[test]
    fn reserved_pages_in_which_a_peer_may_make_holes_are_not_mapped() {
        let huge = MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_2MB;
        let Ok(fd) = create_memory_file(huge) else {
            return skip(Need::System, "memfd_create(MFD_HUGETLB)");
        };
        let file = File::from(fd);
        ftruncate(&file, HUGE_PAGE as i64).unwrap();
        seal(&file, HUGE_PAGE, Writers::AnyProcess).unwrap_err();
        for writable in [false, true] {
            let fd = file.try_clone().unwrap().into();
            let refused = PeerBlock::attach(fd, HUGE_PAGE, writable).unwrap_err();
            assert_eq!(refused.errno(), Errno::Perm, "{refused}");
            assert!(refused.message().contains("holes"), "{refused}");
        }
    }

    #[test]
    fn memory_that_peers_write_is_never_in_reserved_pages() {
        if create_in_reserved_pages(HUGE_PAGE).is_err() {
            return skip(Need::System, "a reserved huge page");
        }
        let (_local, fd) = Block::create(HUGE_PAGE, Writers::AnyProcess, PageSize::Huge).unwrap();
        let fs = nix::sys::statfs::fstatfs(&fd).unwrap();
        assert_ne!(fs.filesystem_type(), nix::sys::statfs::HUGETLBFS_MAGIC);
    }

    #[test]
    fn more_memory_than_is_available_is_refused_with_the_length() {
        for len in [1 << 46, isize::MAX as usize, usize::MAX] {
            let refused = Block::create(len, Writers::Owner, PageSize::Huge).unwrap_err();
            assert_eq!(refused.errno(), Errno::NoMem, "{refused}");
            assert!(refused.message().contains(&len.to_string()), "{refused}");
        }
        let refused = Block::create(0, Writers::Owner, PageSize::Ordinary).unwrap_err();
        assert_eq!(refused.errno(), Errno::Inval);
    }

    #[test]
    fn huge_pages_are_a_hint() {
        for len in [1, HUGE_PAGE, HUGE_PAGE + 1] {
            let (local, fd) = Block::create(len, Writers::AnyProcess, PageSize::Huge).unwrap();
            let expected_len = len.next_multiple_of(if len < HUGE_PAGE { PAGE } else { HUGE_PAGE });
            assert_eq!(local.len(), expected_len);
            let remote = PeerBlock::attach(fd, local.len(), true).unwrap();
            remote.bytes().copy_in(len - 1, b"x");
            let mut copied = [MaybeUninit::uninit(); 1];
            assert_eq!(local.bytes.copy_out(len - 1, &mut copied), b"x");
        }
    }
}
