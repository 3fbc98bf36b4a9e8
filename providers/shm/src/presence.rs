//! Presence: whether there is memory at addresses that a peer names.
//!
//! A region over the whole address space says nothing of that, and an access to nothing would end
//! the process. The kernel is asked first, page by page, by operations of futex(2) that read or
//! change a word there as any instruction would, and answer `EFAULT` where that would fault. It is
//! allowed in every sandbox, and what it changes is nothing: an atomic *or* with zero.
//!
//! Memory that another thread of the application unmaps between the question and the access is
//! beyond this: no system calls an owner's own accesses safe either.

#![expect(unsafe_code, reason = "a system call without a safe wrapper")]

use std::sync::atomic::AtomicU32;

use crate::smr::keys::RIGHT_WRITE;

/// Pages may be larger, and are asked about several times then.
const PAGE: usize = 4096;
/// The futex that nobody sleeps on.
static NOBODY: AtomicU32 = AtomicU32::new(0);
/// `FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0x5a5)`: who sleeps on a word that happens to be
/// 0x5a5 may be woken for nothing, as any sleeper on a futex may.
const OR_ZERO: u32 = 2 << 28 | 0x5a5;

/// Whether the `len` bytes from `first` on can be read, or with [`RIGHT_WRITE`] among the rights
/// also written.
pub(crate) fn is_memory(first: usize, len: usize, rights: u32) -> bool {
    let Some(end) = first.checked_add(len) else {
        return false;
    };
    let mut pages = (first - first % PAGE..end).step_by(PAGE);
    pages.all(|page| match rights & RIGHT_WRITE {
        0 => is_readable(page),
        _ => is_writable(page),
    })
}

/// Compares the first word of a page with something, to no end.
fn is_readable(page: usize) -> bool {
    let page: *mut u32 = std::ptr::without_provenance_mut(page);
    let what = libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel reads the word or answers `EFAULT`; nobody is woken or moved.
    let asked =
        unsafe { libc::syscall(libc::SYS_futex, page, what, 0, 0_usize, NOBODY.as_ptr(), 1) };
    asked >= 0 || nix::errno::Errno::last() != nix::errno::Errno::EFAULT
}

/// Changes the first word of a page to what it is.
fn is_writable(page: usize) -> bool {
    let page: *mut u32 = std::ptr::without_provenance_mut(page);
    let what = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;
    let nobody = NOBODY.as_ptr();
    // SAFETY: the kernel changes the word atomically to what it is, or answers `EFAULT`.
    let asked = unsafe { libc::syscall(libc::SYS_futex, nobody, what, 0, 0_usize, page, OR_ZERO) };
    asked >= 0
}

#[cfg(test)]
mod tests {
    use memmap2::MmapOptions;

    use super::*;
    use crate::smr::keys::RIGHT_READ;

    #[test]
    fn memory_is_what_can_be_read_and_written() {
        let both = RIGHT_READ | RIGHT_WRITE;
        let mut words = vec![0x5a5_u32; 10_000];
        let first = words.as_mut_ptr().expose_provenance();
        assert!(is_memory(first + 1, 39_999, both));
        assert!(words.iter().all(|&word| word == 0x5a5));
        let constant = std::ptr::from_ref("constant").addr();
        assert!(is_memory(constant, 1, RIGHT_READ));
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        // SAFETY: the program's file does not change.
        let map = unsafe { MmapOptions::new().len(PAGE).map(&file) }.unwrap();
        let page = map.as_ptr().addr();
        assert!(is_memory(page, PAGE, RIGHT_READ));
        assert!(!is_memory(page, 1, RIGHT_WRITE));
        for nowhere in [0, 8, 1 << 63, usize::MAX - 8] {
            assert!(!is_memory(nowhere, 8, RIGHT_READ), "{nowhere:#x}");
            assert!(!is_memory(nowhere, 8, RIGHT_WRITE), "{nowhere:#x}");
        }
        assert!(!is_memory(first, usize::MAX, RIGHT_READ));
    }

    #[test]
    fn a_stretch_with_a_hole_is_no_memory() {
        let mut map = MmapOptions::new().len(3 * PAGE).map_anon().unwrap();
        let first = map.as_mut_ptr();
        let hole = first.wrapping_add(PAGE).cast();
        // SAFETY: a page of the mapping, which nobody looks at.
        let result = unsafe { libc::mprotect(hole, PAGE, libc::PROT_NONE) };
        assert_eq!(result, 0);
        for rights in [RIGHT_READ, RIGHT_WRITE] {
            assert!(is_memory(first.addr(), PAGE, rights));
            assert!(is_memory(first.addr() + 2 * PAGE, PAGE, rights));
            assert!(!is_memory(first.addr(), PAGE + 1, rights));
            assert!(!is_memory(first.addr() + PAGE - 1, PAGE + 2, rights));
        }
    }
}
