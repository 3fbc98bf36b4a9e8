//! Presence: whether there is memory at addresses that somebody else names.
//!
//! A peer may name any address of a region over the whole address space, and an access to nothing
//! would end the process. The kernel is asked first, in one of two ways:
//!
//! - page by page, by operations of futex(2) that read or change a word there as any instruction
//!   would, and answer `EFAULT` where that would fault. What they change is nothing: an atomic *or*
//!   with zero. It is allowed in every sandbox.
//! - mapping by mapping (`PROCMAP_QUERY`, since Linux 6.11): one question, whatever the length. It
//!   takes as long as three pages by the other way do. Mappings of files are asked about page by page
//!   all the same, since a file may end before its mapping.
//!
//! The first and the last page are always asked for. In between, pages that `MADV_GUARD_INSTALL` has
//! closed inside an open mapping are not seen. Memory that another thread unmaps between the question
//! and the access is beyond this, as it is beyond that thread's own accesses.

#![expect(unsafe_code, reason = "system calls without safe wrappers")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

/// Pages may be larger, and are asked about several times then.
const PAGE: usize = 4096;
/// The longest stretch that is asked about page by page without a look at its mapping.
const FEW: usize = 3 * PAGE;

/// Whether the `len` bytes from `first` on can be read. No bytes always can.
pub fn is_readable(first: usize, len: usize) -> bool {
    is_there(first, len, Access::Read)
}

/// As [`is_readable`], for bytes that are to be written, too.
pub fn is_writable(first: usize, len: usize) -> bool {
    is_there(first, len, Access::Write)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

impl Access {
    /// As `PROCMAP_QUERY` says what may be done.
    const fn flags(self) -> u64 {
        match self {
            Self::Read => 1,
            Self::Write => 1 | 2,
        }
    }
}

fn is_there(first: usize, len: usize, access: Access) -> bool {
    let Some(end) = first.checked_add(len) else {
        return false;
    };
    if len == 0 {
        return true;
    }
    if len <= FEW {
        return has_pages(first, end, access);
    }
    let last = end - 1;
    is_open(first, end, access)
        && has_pages(first, first + 1, access)
        && has_pages(last, end, access)
}

/// Asks for all pages that the bytes from `first` up to `end` lie in.
fn has_pages(first: usize, end: usize, access: Access) -> bool {
    let mut pages = (first - first % PAGE..end).step_by(PAGE);
    pages.all(|page| match access {
        Access::Read => can_read(page),
        Access::Write => can_write(page),
    })
}

/// The futex that nobody sleeps on.
static NOBODY: AtomicU32 = AtomicU32::new(0);
/// `FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0x5a5)`: who sleeps on a word that happens to be
/// 0x5a5 may be woken for nothing, as any sleeper on a futex may.
const OR_ZERO: u32 = 2 << 28 | 0x5a5;

/// Compares the first word of a page with something, to no end.
fn can_read(page: usize) -> bool {
    let page: *mut u32 = std::ptr::without_provenance_mut(page);
    let what = libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel reads the word or answers `EFAULT`; nobody is woken or moved.
    let asked =
        unsafe { libc::syscall(libc::SYS_futex, page, what, 0, 0_usize, NOBODY.as_ptr(), 1) };
    asked >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}

/// Changes the first word of a page to what it is.
fn can_write(page: usize) -> bool {
    let page: *mut u32 = std::ptr::without_provenance_mut(page);
    let what = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;
    let nobody = NOBODY.as_ptr();
    // SAFETY: the kernel changes the word atomically to what it is, or answers `EFAULT`.
    let asked = unsafe { libc::syscall(libc::SYS_futex, nobody, what, 0, 0_usize, page, OR_ZERO) };
    asked >= 0
}

/// Asks for the mappings that the bytes from `first` up to `end` lie in.
fn is_open(first: usize, end: usize, access: Access) -> bool {
    let mut at = first;
    while at < end {
        match mapping(at) {
            Mapping::None => return false,
            Mapping::Unknown => return has_pages(at, end, access),
            Mapping::Some {
                end: next,
                is_file,
                can,
            } => {
                let part = end.min(next);
                let may = can & access.flags() == access.flags();
                if !may || is_file && !has_pages(at, part, access) {
                    return false;
                }
                at = part;
            }
        }
    }
    true
}

/// What the kernel knows of an address.
enum Mapping {
    None,
    Some {
        end: usize,
        is_file: bool,
        can: u64,
    },
    /// It is too old to say, or does not.
    Unknown,
}

/// `struct procmap_query` of <linux/fs.h>.
#[repr(C)]
#[derive(Default)]
struct ProcmapQuery {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

const PROCMAP_QUERY: libc::c_ulong = 0xc068_6611;

const _: () = assert!(size_of::<ProcmapQuery>() == 0x68);

fn mapping(address: usize) -> Mapping {
    let Some(maps) = maps() else {
        return Mapping::Unknown;
    };
    let mut query = ProcmapQuery {
        size: size_of::<ProcmapQuery>() as u64,
        query_addr: address as u64,
        ..ProcmapQuery::default()
    };
    // SAFETY: the structure is the kernel's, with its size; it has no room for names.
    let answer = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY as _, &raw mut query) };
    if answer == 0 {
        return Mapping::Some {
            end: usize::try_from(query.vma_end).unwrap_or(usize::MAX),
            is_file: query.inode != 0,
            can: query.vma_flags,
        };
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::ENOENT) => Mapping::None,
        _ => Mapping::Unknown,
    }
}

/// This process's list of mappings. A child that was forked after the first question has none: the
/// list is its parent's.
fn maps() -> Option<&'static File> {
    static MAPS: OnceLock<(u32, Option<File>)> = OnceLock::new();
    let here = std::process::id();
    let (owner, file) = MAPS.get_or_init(|| (here, File::open("/proc/self/maps").ok()));
    file.as_ref().filter(|_| *owner == here)
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    const LONG: usize = 4 * FEW;

    /// Pages that are mapped for the rest of the test.
    fn map(len: usize, fd: i32) -> usize {
        let (rights, flags) = match fd {
            -1 => (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            ),
            _ => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED),
        };
        // SAFETY: a new mapping anywhere.
        let first = unsafe { libc::mmap(ptr::null_mut(), len, rights, flags, fd, 0) };
        assert_ne!(first, libc::MAP_FAILED);
        first.expose_provenance()
    }

    fn protect(page: usize, rights: i32) {
        let page = ptr::with_exposed_provenance_mut(page);
        // SAFETY: a page of a mapping that nobody looks at.
        assert_eq!(unsafe { libc::mprotect(page, PAGE, rights) }, 0);
    }

    #[test]
    fn memory_is_what_can_be_read_and_written() {
        let mut words = vec![0x5a5_u32; 10_000];
        let first = words.as_mut_ptr().expose_provenance();
        for len in [1, 39_999] {
            assert!(is_readable(first + 1, len));
            assert!(is_writable(first + 1, len));
        }
        assert!(words.iter().all(|&word| word == 0x5a5));
        let constant = ptr::from_ref("constant").addr();
        assert!(is_readable(constant, 8));
        assert!(!is_writable(constant, 8));
        assert!(!is_readable(first, 1 << 45));
    }

    #[test]
    fn there_is_nothing_at_the_ends_of_the_address_space() {
        for nowhere in [0, 8, 1 << 63, usize::MAX - 8, usize::MAX - LONG] {
            for len in [8, LONG] {
                assert!(!is_readable(nowhere, len), "{nowhere:#x}, {len}");
                assert!(!is_writable(nowhere, len), "{nowhere:#x}, {len}");
            }
            assert!(is_readable(nowhere, 0));
        }
    }

    #[test]
    fn a_stretch_with_a_hole_is_no_memory_however_long_it_is() {
        let first = map(LONG, -1);
        let middle = first + LONG / 2;
        for (rights, can_be_read) in [(libc::PROT_NONE, false), (libc::PROT_READ, true)] {
            protect(middle, rights);
            for (start, end) in [(first, first + LONG), (middle - 1, middle + 1)] {
                assert_eq!(is_readable(start, end - start), can_be_read);
                assert!(!is_writable(start, end - start));
            }
            assert!(is_writable(first, LONG / 2));
            assert!(is_writable(middle + PAGE, LONG / 2 - PAGE));
        }
    }

    #[test]
    fn beyond_the_end_of_a_file_is_no_memory() {
        // SAFETY: a file without a name.
        let fd = unsafe { libc::memfd_create(c"presence".as_ptr(), 0) };
        // SAFETY: the file was just made.
        assert_eq!(unsafe { libc::ftruncate(fd, (LONG / 2) as i64) }, 0);
        let first = map(LONG, fd);
        assert!(is_writable(first, LONG / 2));
        assert!(!is_readable(first, LONG));
        assert!(!is_readable(first + LONG / 2 - PAGE, 2 * PAGE));
    }

    #[test]
    fn what_the_system_does_not_say_is_asked_page_by_page() {
        let first = map(LONG, -1);
        protect(first + LONG / 2, libc::PROT_NONE);
        assert!(!has_pages(first, first + LONG, Access::Read));
        assert!(has_pages(first + 1, first + LONG / 2, Access::Write));
    }
}
