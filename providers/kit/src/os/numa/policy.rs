//! The placement of memory: `mbind(2)`.

#![expect(unsafe_code, reason = "no wrapper for mbind(2)")]

use std::ffi::c_ulong;
use std::io;
use std::ptr::NonNull;

use super::node::NodeId;
use super::sysfs::NODES_MAX;

/// The pages that [`prefer_node`] places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Pages that are allocated later.
    Later,
    /// Also pages that exist. The kernel moves those that this process alone has mapped.
    Existing,
}

/// Moves pages that exist (`MPOL_MF_MOVE` of mbind(2)).
const MOVE: libc::c_int = 1 << 1;
/// The number of bits of a word of the kernel's node masks.
const WORD_BITS: usize = c_ulong::BITS as usize;

/// Asks for pages on `node` for the mapped memory of `len` bytes from `first` on, which begins at a
/// page. The kernel takes pages of other nodes if `node` has none free. In a shared mapping of a
/// memory file the request belongs to the file: it holds for every process, and also for
/// fallocate(2). No byte of the memory changes.
///
/// # Errors
/// `EINVAL` for a node that does not exist, or that the control group excludes; `EPERM` or
/// `ENOSYS` where a system call filter or the kernel has no such call.
pub fn prefer_node(first: NonNull<u8>, len: usize, node: NodeId, pages: Pages) -> io::Result<()> {
    let node = node.0 as usize;
    let mut mask: [c_ulong; NODES_MAX / WORD_BITS] = [0; _];
    let word = mask.get_mut(node / WORD_BITS);
    *word.ok_or(io::ErrorKind::InvalidInput)? |= 1 << (node % WORD_BITS);
    let flags = match pages {
        Pages::Later => 0,
        Pages::Existing => MOVE,
    };
    // SAFETY: the kernel reads the mask, which has as many bits as are stated, and changes only
    // where the pages of the range lie.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            first.as_ptr(),
            len,
            libc::MPOL_PREFERRED,
            mask.as_ptr(),
            NODES_MAX + 1,
            flags,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::num::NonZeroUsize;
    use std::os::fd::{AsFd, OwnedFd};

    use nix::fcntl::{FallocateFlags, fallocate};
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

    use super::*;

    const LEN: usize = 1 << 16;
    /// `MPOL_F_NODE` of get_mempolicy(2): the node of a page.
    const NODE_OF_PAGE: libc::c_int = 1 << 0;
    /// `MPOL_F_ADDR`: the policy of an address.
    const OF_ADDRESS: libc::c_int = 1 << 1;

    /// Memory of a file without pages, mapped.
    struct Mapped {
        file: OwnedFd,
        first: NonNull<u8>,
    }

    impl Mapped {
        fn new() -> Self {
            let file = memfd_create(c"numa", MFdFlags::empty()).unwrap();
            let first = map(&file);
            Self { file, first }
        }
    }

    impl Drop for Mapped {
        fn drop(&mut self) {
            // SAFETY: the mapping is not used any more.
            unsafe { munmap(self.first.cast(), LEN) }.unwrap();
        }
    }

    fn map(file: &impl AsFd) -> NonNull<u8> {
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let len = NonZeroUsize::new(LEN).unwrap();
        // SAFETY: a new mapping, at an address that the kernel chooses.
        unsafe { mmap(None, len, access, MapFlags::MAP_SHARED, file, 0) }
            .unwrap()
            .cast()
    }

    /// The policy of the memory at `address`, with the first word of its node mask; or, with
    /// [`NODE_OF_PAGE`], the node of the page.
    fn policy(address: NonNull<u8>, flags: libc::c_int) -> (libc::c_int, c_ulong) {
        let mut mode = -1;
        let mut mask: [c_ulong; NODES_MAX / WORD_BITS] = [0; _];
        // SAFETY: the kernel writes the number and the mask, which have the stated sizes.
        let result = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut mode,
                mask.as_mut_ptr(),
                NODES_MAX + 1,
                address.as_ptr(),
                flags | OF_ADDRESS,
            )
        };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        (mode, mask[0])
    }

    #[test]
    fn a_memory_file_keeps_the_node_for_every_mapping_and_for_later_pages() {
        let memory = Mapped::new();
        prefer_node(memory.first, LEN, NodeId(0), Pages::Later).unwrap();
        fallocate(&memory.file, FallocateFlags::empty(), 0, LEN as i64).unwrap();
        let other = Mapped {
            first: map(&memory.file),
            file: File::open("/dev/null").unwrap().into(),
        };
        for mapped in [&memory, &other] {
            assert_eq!(policy(mapped.first, 0), (libc::MPOL_PREFERRED, 1));
            let (node, _) = policy(mapped.first, NODE_OF_PAGE);
            assert_eq!(node, 0);
        }
    }

    #[test]
    fn pages_that_exist_can_be_moved() {
        let memory = Mapped::new();
        fallocate(&memory.file, FallocateFlags::empty(), 0, LEN as i64).unwrap();
        assert_eq!(policy(memory.first, 0).0, libc::MPOL_DEFAULT);
        prefer_node(memory.first, LEN, NodeId(0), Pages::Existing).unwrap();
        assert_eq!(policy(memory.first, 0), (libc::MPOL_PREFERRED, 1));
    }

    #[test]
    fn a_node_that_does_not_exist_is_refused() {
        let memory = Mapped::new();
        for node in [NodeId(1000), NodeId(NODES_MAX as u32), NodeId(u32::MAX)] {
            let refused = prefer_node(memory.first, LEN, node, Pages::Later).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{node}");
        }
    }
}
