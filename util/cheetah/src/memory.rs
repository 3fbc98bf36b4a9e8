//! This process's own memory, by addresses that others have named.
//!
//! A peer may name any address. Before it is touched, the kernel is asked what is there, so that a
//! bad one becomes an error of whoever named it. Since one thread uses a context, nobody unmaps it
//! between the question and the copy.

#![expect(unsafe_code, reason = "addresses that other contexts have named")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

/// Whether all of these bytes may be read.
pub(crate) fn is_readable(address: u64, len: u64) -> bool {
    allows(address, len, Access::Read)
}

/// Whether all of these bytes may be written.
pub(crate) fn is_writable(address: u64, len: u64) -> bool {
    allows(address, len, Access::Write)
}

/// Copies `bytes` to where a peer wants them.
///
/// # Errors
/// `Err(())` if that is no writable memory; nothing was copied then.
#[inline]
pub(crate) fn store(address: u64, bytes: &[u8]) -> Result<(), ()> {
    if !is_writable(address, bytes.len() as u64) {
        return Err(());
    }
    let place = ptr::with_exposed_provenance_mut::<u8>(address as usize);
    // SAFETY: the kernel has just said that the bytes are mapped and writable, and the one thread
    // that uses this context is here and not unmapping them. They are not `bytes`, which lie in a
    // receive buffer or belong to the caller, unless somebody put them onto themselves: `copy`.
    unsafe { ptr::copy(bytes.as_ptr(), place, bytes.len()) };
    Ok(())
}

/// Appends what is at `address`.
///
/// # Errors
/// `Err(())` if that is no readable memory; nothing was appended then.
pub(crate) fn load(address: u64, len: usize, into: &mut Vec<u8>) -> Result<(), ()> {
    if !is_readable(address, len as u64) {
        return Err(());
    }
    into.reserve(len);
    let from = ptr::with_exposed_provenance::<u8>(address as usize);
    let end = into.as_mut_ptr().wrapping_add(into.len());
    // SAFETY: the source is readable, as above, and the room was reserved.
    unsafe { ptr::copy(from, end, len) };
    // SAFETY: as many bytes were just written behind the others.
    unsafe { into.set_len(into.len() + len) };
    Ok(())
}

/// Copies `len` bytes within this process.
///
/// # Errors
/// `Err(())` if either end is no such memory; nothing was copied then.
pub(crate) fn copy_within(from: u64, to: u64, len: u64) -> Result<(), ()> {
    if !is_readable(from, len) || !is_writable(to, len) {
        return Err(());
    }
    let source = ptr::with_exposed_provenance::<u8>(from as usize);
    let place = ptr::with_exposed_provenance_mut::<u8>(to as usize);
    // SAFETY: both ends were found to be what they have to be; they may overlap.
    unsafe { ptr::copy(source, place, len as usize) };
    Ok(())
}

/// Counts up the integer at `address`, which the caller knows to be mapped, or has it found out.
///
/// # Errors
/// `Err(())` if there is no integer.
pub(crate) fn increment(address: u64, is_known: bool) -> Result<(), ()> {
    let count = ptr::with_exposed_provenance_mut::<i32>(address as usize);
    if !count.is_aligned() || !is_known && !is_writable(address, 4) {
        return Err(());
    }
    // SAFETY: aligned, and writable memory: either special memory of this context, which is mapped
    // while it is in the table of such, or the kernel has just said so. Where the application reads
    // it meanwhile, it does so through a volatile int or within calls of the library.
    let count = unsafe { AtomicI32::from_ptr(count) };
    count.fetch_add(1, Ordering::Release);
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

fn allows(address: u64, len: u64, access: Access) -> bool {
    if len == 0 {
        return true;
    }
    let Some(end) = address.checked_add(len) else {
        return false;
    };
    let mut at = address;
    while at < end {
        match mapping(at) {
            Mapping::None => return false,
            Mapping::Unknown => return populates(at, end, access),
            Mapping::Some {
                end: next,
                is_file,
                can,
            } => {
                let may = can & access.flag() != 0;
                // The end of a file may lie before that of its mapping: have it looked at.
                if !may || is_file && !populates(at, end.min(next), access) {
                    return false;
                }
                at = next;
            }
        }
    }
    true
}

impl Access {
    const fn flag(self) -> u64 {
        match self {
            Self::Read => 1,
            Self::Write => 2,
        }
    }

    const fn advice(self) -> i32 {
        match self {
            Self::Read => libc::MADV_POPULATE_READ,
            Self::Write => libc::MADV_POPULATE_WRITE,
        }
    }
}

/// What the kernel knows of an address.
enum Mapping {
    None,
    Some {
        end: u64,
        is_file: bool,
        can: u64,
    },
    /// It is too old to say.
    Unknown,
}

/// `struct procmap_query` of <linux/fs.h>, since Linux 6.11.
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

/// One question takes about 0.7 us here, for a mapping of any size; populating takes as long for one
/// page and 60 us for 1 MiB.
fn mapping(address: u64) -> Mapping {
    let Some(maps) = maps() else {
        return Mapping::Unknown;
    };
    let mut query = ProcmapQuery {
        size: size_of::<ProcmapQuery>() as u64,
        query_addr: address,
        ..ProcmapQuery::default()
    };
    // SAFETY: the structure is the kernel's, with its size; it has no room for names.
    let answer = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY as _, &raw mut query) };
    if answer == 0 {
        return Mapping::Some {
            end: query.vma_end,
            is_file: query.inode != 0,
            can: query.vma_flags,
        };
    }
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::ENOENT) => Mapping::None,
        _ => Mapping::Unknown,
    }
}

/// This process's list of mappings, opened once in each: a forked child would ask of its parent's.
fn maps() -> Option<&'static File> {
    static MAPS: OnceLock<(u32, Option<File>)> = OnceLock::new();
    let (owner, file) = MAPS.get_or_init(|| {
        let file = File::open("/proc/self/maps").ok();
        (std::process::id(), file)
    });
    debug_assert_eq!(*owner, std::process::id(), "used before the fork");
    file.as_ref()
}

/// Has the kernel fault in the pages as an access would (madvise(2), since Linux 5.14).
fn populates(start: u64, end: u64, access: Access) -> bool {
    const PAGE: u64 = 4096;
    let start = start & !(PAGE - 1);
    let place = ptr::with_exposed_provenance_mut(start as usize);
    // SAFETY: populating changes no contents; it answers with an error where there is no memory.
    unsafe { libc::madvise(place, (end - start) as usize, access.advice()) == 0 }
}

const _: () = assert!(size_of::<ProcmapQuery>() == 0x68);

#[cfg(test)]
mod tests {
    use super::*;

    static CONSTANT: [u8; 8192] = [1; 8192];

    #[test]
    fn memory_is_told_from_what_is_none() {
        let mut stack = [0_u8; 100];
        let heap = vec![0_u8; 1 << 20];
        let stack = stack.as_mut_ptr().expose_provenance() as u64;
        let heap = heap.as_ptr().expose_provenance() as u64;
        let text = CONSTANT.as_ptr().expose_provenance() as u64;
        let table = [
            (stack, 100, true, true),
            (heap, 1 << 20, true, true),
            (text, 8192, true, false),
            (0, 1, false, false),
            (0x1000, 8, false, false),
            (u64::MAX - 3, 8, false, false),
            (0x7fff_ffff_f000, 8192, false, false),
            (heap, 1 << 45, false, false),
            (1, 0, true, true),
        ];
        for (address, len, readable, writable) in table {
            assert_eq!(is_readable(address, len), readable, "{address:#x}");
            assert_eq!(is_writable(address, len), writable, "{address:#x}");
        }
    }

    #[test]
    fn an_integer_that_is_not_aligned_is_not_counted_up() {
        let mut ints = [0_i32; 2];
        let address = ints.as_mut_ptr().expose_provenance() as u64;
        assert_eq!(increment(address, false), Ok(()));
        assert_eq!(increment(address + 1, false), Err(()));
        assert_eq!(increment(8, false), Err(()));
        assert_eq!(ints, [1, 0]);
    }
}
