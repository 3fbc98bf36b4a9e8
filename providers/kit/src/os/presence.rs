//! Checks whether memory is mapped at addresses that a peer has sent.
//!
//! If a registered region covers the whole address space, a peer may send any address, and an
//! access to unmapped memory would end the process. These functions therefore ask the kernel before
//! the access, by one of two methods:
//!
//! - Page by page: operations of futex(2) read or change a word of the page, as an instruction
//!   would, and fail with `EFAULT` where the instruction would fault. The change is an atomic OR
//!   with zero, which leaves the word as it is. futex(2) is allowed in every sandbox.
//! - Mapping by mapping (`PROCMAP_QUERY`, since Linux 6.11): one query for each mapping,
//!   independent of its length. A query takes as long as the first method takes for three pages.
//!   Mappings of files are also checked page by page, because a file may end before its mapping.
//!
//! The first and the last page are always checked by the first method. Guard pages between them
//! (`MADV_GUARD_INSTALL`) are not detected. If another thread unmaps the memory between the check
//! and the access, the check does not help.

#![expect(unsafe_code, reason = "system calls without safe wrappers")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

/// The smallest page size. On a machine with larger pages, each page is checked several times.
const PAGE: usize = 4096;
/// The maximum length that is checked page by page without a query of its mapping.
const MAX_BY_PAGE: usize = 3 * PAGE;

/// Whether the `len` bytes from `first` on can be read; true if `len` is 0.
pub fn is_readable(first: usize, len: usize) -> bool {
    is_accessible(first, len, Access::Read)
}

/// Whether the `len` bytes from `first` on can be read and written; true if `len` is 0.
pub fn is_writable(first: usize, len: usize) -> bool {
    is_accessible(first, len, Access::Write)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

impl Access {
    /// The permissions that the access needs, as flags of `PROCMAP_QUERY`.
    const fn flags(self) -> u64 {
        match self {
            Self::Read => 1,
            Self::Write => 1 | 2,
        }
    }
}

fn is_accessible(first: usize, len: usize, access: Access) -> bool {
    let Some(end) = first.checked_add(len) else {
        return false;
    };
    if len == 0 {
        return true;
    }
    if len <= MAX_BY_PAGE {
        return are_pages_accessible(first, end, access);
    }
    let last = end - 1;
    are_mappings_accessible(first, end, access)
        && are_pages_accessible(first, first + 1, access)
        && are_pages_accessible(last, end, access)
}

/// Whether all pages of the bytes from `first` to `end` are accessible; the first method.
fn are_pages_accessible(first: usize, end: usize, access: Access) -> bool {
    let mut pages = (first - first % PAGE..end).step_by(PAGE);
    pages.all(|page| match access {
        Access::Read => can_read(page),
        Access::Write => can_write(page),
    })
}

/// A futex on which no thread waits: an operation that needs a second futex gets this one.
static NO_WAITERS: AtomicU32 = AtomicU32::new(0);
/// `FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0x5a5)`: a thread that waits on a word with the value
/// 0x5a5 may be woken spuriously, which every waiter of a futex has to expect.
const OR_ZERO: u32 = 2 << 28 | 0x5a5;

/// Whether the first word of a page can be read. The kernel compares it with a value; the result is
/// ignored.
fn can_read(page: usize) -> bool {
    let page: *mut u32 = std::ptr::without_provenance_mut(page);
    let operation = libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel reads the word or fails with `EFAULT`; it wakes or requeues no waiter.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            page,
            operation,
            0,
            0_usize,
            NO_WAITERS.as_ptr(),
            1,
        )
    };
    result >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}

/// Whether the first word of a page can be written. The kernel writes the value that the word has.
fn can_write(page: usize) -> bool {
    let page: *mut u32 = std::ptr::without_provenance_mut(page);
    let operation = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;
    let futex = NO_WAITERS.as_ptr();
    // SAFETY: the kernel writes the word's own value atomically, or fails with `EFAULT`.
    let result =
        unsafe { libc::syscall(libc::SYS_futex, futex, operation, 0, 0_usize, page, OR_ZERO) };
    result >= 0
}

/// Whether all mappings of the bytes from `first` to `end` are accessible; the second method.
fn are_mappings_accessible(first: usize, end: usize, access: Access) -> bool {
    let mut position = first;
    while position < end {
        match mapping(position) {
            Mapping::None => return false,
            Mapping::Unknown => return are_pages_accessible(position, end, access),
            Mapping::Some {
                end: mapping_end,
                is_file,
                permissions,
            } => {
                let part_end = end.min(mapping_end);
                let is_permitted = permissions & access.flags() == access.flags();
                if !is_permitted || is_file && !are_pages_accessible(position, part_end, access) {
                    return false;
                }
                position = part_end;
            }
        }
    }
    true
}

/// The kernel's record of the mapping that contains an address.
enum Mapping {
    /// The address is not mapped.
    None,
    Some {
        end: usize,
        is_file: bool,
        permissions: u64,
    },
    /// The kernel does not support the query, or the query failed.
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

/// Queries the mapping that contains an address.
fn mapping(address: usize) -> Mapping {
    let Some(maps) = maps() else {
        return Mapping::Unknown;
    };
    let mut query = ProcmapQuery {
        size: size_of::<ProcmapQuery>() as u64,
        query_addr: address as u64,
        ..ProcmapQuery::default()
    };
    // SAFETY: the structure has the kernel's layout and states its size; its buffer addresses are
    // zero.
    let result = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY as _, &raw mut query) };
    if result == 0 {
        return Mapping::Some {
            end: usize::try_from(query.vma_end).unwrap_or(usize::MAX),
            is_file: query.inode != 0,
            permissions: query.vma_flags,
        };
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::ENOENT) => Mapping::None,
        _ => Mapping::Unknown,
    }
}

/// This process's list of mappings. It is `None` in a child that was forked after the first query:
/// there the open file is the list of the parent.
fn maps() -> Option<&'static File> {
    static MAPS: OnceLock<(u32, Option<File>)> = OnceLock::new();
    let pid = std::process::id();
    let (opener, file) = MAPS.get_or_init(|| (pid, File::open("/proc/self/maps").ok()));
    file.as_ref().filter(|_| *opener == pid)
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    /// A length that is checked by mappings.
    const LONG: usize = 4 * MAX_BY_PAGE;

    /// Maps pages, of a file unless `fd` is -1. They stay mapped.
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
        // SAFETY: a page of a mapping without references into it.
        assert_eq!(unsafe { libc::mprotect(page, PAGE, rights) }, 0);
    }

    #[test]
    fn mapped_memory_is_readable_or_writable_by_its_protection() {
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
    fn the_ends_of_the_address_space_are_not_mapped() {
        for nowhere in [0, 8, 1 << 63, usize::MAX - 8, usize::MAX - LONG] {
            for len in [8, LONG] {
                assert!(!is_readable(nowhere, len), "{nowhere:#x}, {len}");
                assert!(!is_writable(nowhere, len), "{nowhere:#x}, {len}");
            }
            assert!(is_readable(nowhere, 0));
        }
    }

    #[test]
    fn a_range_with_a_protected_page_is_not_accessible() {
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
    fn pages_beyond_the_end_of_a_file_are_not_accessible() {
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
    fn pages_are_checked_without_queries_of_mappings() {
        let first = map(LONG, -1);
        protect(first + LONG / 2, libc::PROT_NONE);
        assert!(!are_pages_accessible(first, first + LONG, Access::Read));
        assert!(are_pages_accessible(
            first + 1,
            first + LONG / 2,
            Access::Write
        ));
    }
}
