//! System calls of the heap: memory files, mappings, facts about the machine. None of them
//! allocates.

#![expect(
    unsafe_code,
    reason = "mappings at fixed addresses, and calls of libc that allocate nothing"
)]

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::AtomicU64;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;

/// The size of a page in bytes.
pub(crate) const PAGE: usize = 4096;

/// Arenas begin at multiples of this number of bytes.
pub(crate) const ARENA_ALIGN: usize = 64 << 20;

/// A sealed memory file, by its descriptor and its identity. The program may close any descriptor,
/// and the system may give its number to another file; therefore every use compares the identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryFile {
    fd: RawFd,
    device: u64,
    inode: u64,
}

/// Programs expect the lowest numbers for their own files.
const LOWEST_DESCRIPTOR: RawFd = 500;

impl MemoryFile {
    /// Creates a file of `len` bytes without pages and maps it, aligned to [`ARENA_ALIGN`], for
    /// reading and writing. The file is sealed then: its size is fixed, and other processes can
    /// neither write to it nor make holes. Returns the file and the address.
    pub(crate) fn create(len: usize) -> nix::Result<(Self, usize)> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let fd = move_up(memfd_create(c"selvedge-heap", flags)?);
        ftruncate(&fd, len as i64)?;
        let base = map_aligned(&fd, len)?;
        let seals = SealFlag::F_SEAL_SHRINK
            | SealFlag::F_SEAL_GROW
            | SealFlag::F_SEAL_SEAL
            | SealFlag::from_bits_retain(libc::F_SEAL_FUTURE_WRITE);
        let sealed = fcntl(&fd, FcntlArg::F_ADD_SEALS(seals)).and_then(|_| fstat(&fd));
        match sealed {
            // Another process of the user may have resized the file before the seal.
            Ok(stat) if stat.st_size == len as i64 => {
                let file = Self {
                    fd: fd.into_raw_fd(),
                    device: stat.st_dev,
                    inode: stat.st_ino,
                };
                Ok((file, base))
            }
            Ok(_) => {
                unmap(base, len);
                Err(Errno::ESTALE)
            }
            Err(errno) => {
                unmap(base, len);
                Err(errno)
            }
        }
    }

    /// Commits `len` bytes from `offset` on, so that an access to them cannot fail.
    pub(crate) fn commit(self, offset: usize, len: usize) -> nix::Result<()> {
        let fd = self.verified().ok_or(Errno::EBADF)?;
        loop {
            match fallocate(fd, FallocateFlags::empty(), offset as i64, len as i64) {
                Err(Errno::EINTR) => {}
                result => return result,
            }
        }
    }

    /// Returns a new descriptor of the file.
    pub(crate) fn duplicate(self) -> Option<OwnedFd> {
        let fd = self.verified()?.try_clone_to_owned().ok()?;
        // The program may have replaced the file meanwhile.
        self.is_file_of(&fd).then_some(fd)
    }

    /// Closes the descriptor, unless the program has closed it.
    pub(crate) fn close(self) {
        if self.verified().is_some() {
            // SAFETY: the number belongs to the file that `create` made, and the heap does not use
            // it afterwards.
            unsafe { libc::close(self.fd) };
        }
    }

    /// Maps the file a second time, privately, for [`permit_access`] and [`replace_mapping`]. That
    /// takes addresses and no memory: without access, it counts neither as promised memory nor as
    /// data.
    pub(crate) fn map_private(self, len: usize) -> nix::Result<usize> {
        let fd = self.verified().ok_or(Errno::EBADF)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
        map(0, len, libc::PROT_NONE, flags, Some(fd))
    }

    fn verified(&self) -> Option<BorrowedFd<'_>> {
        if self.fd < 0 {
            return None;
        }
        // SAFETY: the number is not -1. If the program has closed the file, the number is invalid
        // or belongs to another file: the check below finds that, and the descriptor is not used.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        self.is_file_of(&fd).then_some(fd)
    }

    fn is_file_of(&self, fd: &impl std::os::fd::AsFd) -> bool {
        fstat(fd).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (self.device, self.inode))
    }
}

/// Moves a descriptor to a high number, if the limit of descriptors permits it.
fn move_up(fd: OwnedFd) -> OwnedFd {
    match fcntl(&fd, FcntlArg::F_DUPFD_CLOEXEC(LOWEST_DESCRIPTOR)) {
        // SAFETY: a new descriptor, which no other code has.
        Ok(moved) => unsafe { std::os::fd::FromRawFd::from_raw_fd(moved) },
        Err(_) => fd,
    }
}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
const RESERVE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// Maps a file at an address that is a multiple of [`ARENA_ALIGN`].
fn map_aligned(fd: &OwnedFd, len: usize) -> nix::Result<usize> {
    let reserved_len = len.checked_add(ARENA_ALIGN).ok_or(Errno::ENOMEM)?;
    let reserved = map(0, reserved_len, libc::PROT_NONE, RESERVE, None)?;
    let base = reserved.next_multiple_of(ARENA_ALIGN);
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    let fd = std::os::fd::AsFd::as_fd(fd);
    if let Err(errno) = map(base, len, READ_WRITE, flags, Some(fd)) {
        unmap(reserved, reserved_len);
        return Err(errno);
    }
    let (end, reserved_end) = (base + len, reserved + reserved_len);
    unmap(reserved, base - reserved);
    unmap(end, reserved_end - end);
    Ok(base)
}

fn map(
    address: usize,
    len: usize,
    protection: i32,
    flags: i32,
    fd: Option<BorrowedFd<'_>>,
) -> nix::Result<usize> {
    let fd = fd.map_or(-1, |fd| fd.as_raw_fd());
    let address = ptr::with_exposed_provenance_mut(address);
    // SAFETY: without `MAP_FIXED`, the call changes no existing mapping. With it, the callers name
    // a range of their own: the reservation that `map_aligned` has just made, or an arena, whose
    // bytes stay the same.
    let mapped = unsafe { libc::mmap(address, len, protection, flags, fd, 0) };
    match mapped {
        libc::MAP_FAILED => Err(Errno::last()),
        mapped => Ok(mapped.expose_provenance()),
    }
}

/// Makes a mapping of the heap readable and writable.
pub(crate) fn permit_access(address: usize, len: usize) -> nix::Result<()> {
    let address = ptr::with_exposed_provenance_mut(address);
    // SAFETY: a mapping without access, to which no reference exists.
    match unsafe { libc::mprotect(address, len, READ_WRITE) } {
        0 => Ok(()),
        _ => Err(Errno::last()),
    }
}

/// Replaces the mapping at `base` by the one at `other`, which must be of the same file and not be
/// used yet, in one call: the bytes at `base` stay the same.
pub(crate) fn replace_mapping(base: usize, other: usize, len: usize) -> nix::Result<()> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let to = ptr::with_exposed_provenance_mut::<libc::c_void>(base);
    let from = ptr::with_exposed_provenance_mut(other);
    // SAFETY: both ranges are mappings of one arena. Nothing uses addresses of `other`, and the
    // bytes at `base` stay the same, because a private mapping has the file's bytes until it is
    // written.
    let moved = unsafe { libc::mremap(from, len, len, flags, to) };
    match moved {
        libc::MAP_FAILED => Err(Errno::last()),
        _ => Ok(()),
    }
}

/// Unmaps a range that the heap has mapped and does not access any more.
pub(crate) fn unmap(address: usize, len: usize) {
    if len > 0 {
        let address = ptr::with_exposed_provenance_mut(address);
        // SAFETY: the callers own the range and have no reference into it.
        unsafe { libc::munmap(address, len) };
    }
}

/// Maps the committed pages of a range, so that the program's first accesses cause no page faults.
/// Nothing depends on that: the call fails before Linux 5.14.
pub(crate) fn populate(address: usize, len: usize) {
    let address = ptr::with_exposed_provenance_mut(address);
    // SAFETY: the advice changes no byte.
    unsafe { libc::madvise(address, len, libc::MADV_POPULATE_WRITE) };
}

/// Removes a range from the children of later forks. Returns whether that worked.
pub(crate) fn exclude_from_fork(address: usize, len: usize) -> bool {
    let address = ptr::with_exposed_provenance_mut(address);
    // SAFETY: the advice changes nothing in this process.
    unsafe { libc::madvise(address, len, libc::MADV_DONTFORK) == 0 }
}

/// Maps `len` zeroed bytes of private memory for a table of the heap.
pub(crate) fn map_table(len: usize) -> nix::Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    map(0, len, READ_WRITE, flags, None)
}

/// Uses `count` entries at `address` as a table.
///
/// # Safety
/// - The memory is mapped, zeroed or otherwise valid for `T`, and aligned for it.
/// - No other reference to it exists for as long as the result is used, and it stays mapped.
pub(crate) unsafe fn table_at<T>(address: usize, count: usize) -> &'static mut [T] {
    let first = ptr::with_exposed_provenance_mut(address);
    // SAFETY: the conditions of this function.
    unsafe { std::slice::from_raw_parts_mut(first, count) }
}

/// Uses the first word of a mapping.
///
/// # Safety
/// The page at `address` is mapped, committed, and only accessed by atomics, for as long as the
/// result is used.
pub(crate) unsafe fn word_at(address: usize) -> &'static AtomicU64 {
    let word = ptr::with_exposed_provenance_mut(address);
    // SAFETY: the conditions of this function; a page is aligned for a word.
    unsafe { AtomicU64::from_ptr(word) }
}

/// Maps a page that the kernel zeroes in every child with an address space of its own, and returns
/// its first word. `None` before Linux 4.14.
pub(crate) fn map_fork_word() -> Option<&'static AtomicU64> {
    let address = map_table(PAGE).ok()?;
    let page = ptr::with_exposed_provenance_mut(address);
    // SAFETY: the whole mapping made above; no other code has its address yet.
    let is_wiped = unsafe { libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) } == 0;
    if !is_wiped {
        unmap(address, PAGE);
        return None;
    }
    // SAFETY: the mapping made above stays for good, and only this word of it is used.
    Some(unsafe { word_at(address) })
}

/// Reads an environment variable without a copy.
pub(crate) fn environment_variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: `name` ends with a zero byte. As for every reader of the environment, the program
    // must not change it meanwhile in another thread.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: a string that ends with a zero byte. The caller uses it at once.
    Some(unsafe { CStr::from_ptr(value) }.to_bytes())
}

/// Writes a line of several parts to standard error.
pub(crate) fn print_error(parts: &[&[u8]]) {
    let mut line = [0; 512];
    let mut len = 0;
    let prefix: &[u8] = b"selvedge heap: ";
    for part in [prefix].iter().chain(parts).chain([&b"\n".as_slice()]) {
        let part = &part[..part.len().min(line.len() - len)];
        line[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    // SAFETY: the bytes are initialized. A failure to print has no consequence.
    unsafe { libc::write(2, line.as_ptr().cast(), len) };
}

/// Ends the process because of a pointer that no allocation has returned.
pub(crate) fn abort_invalid_pointer() -> ! {
    print_error(&[b"an invalid pointer was passed to free or realloc"]);
    // SAFETY: the call has no conditions.
    unsafe { libc::abort() }
}

/// Runs `action` with `len` zeroed bytes; `None` if there is no memory for them.
pub(crate) fn with_scratch<R>(len: usize, action: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
    let address = map_table(len).ok()?;
    // SAFETY: the mapping made above, of which no other code has the address.
    let scratch = unsafe { table_at(address, len) };
    let result = action(scratch);
    unmap(address, len);
    Some(result)
}

/// Whether the limits of the process permit a file of `len` bytes and mappings of `mapped` bytes.
/// A file beyond its limit ends the process with a signal. Of a limited address space, the heap
/// takes a quarter: addresses that it reserves would be missing elsewhere.
pub(crate) fn permits_file(len: usize, mapped: usize) -> bool {
    let is_within = |resource, needed: usize| {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the pointer is to a local value.
        let result = unsafe { libc::getrlimit(resource, &raw mut limit) };
        result == 0 && (limit.rlim_cur == libc::RLIM_INFINITY || limit.rlim_cur >= needed as u64)
    };
    is_within(libc::RLIMIT_FSIZE, len) && is_within(libc::RLIMIT_AS, mapped.saturating_mul(4))
}

/// The monotonic clock in milliseconds, read without a system call.
pub(crate) fn milliseconds() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a local value.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_cannot_be_resized_written_anew_or_punched() {
        let (file, base) = MemoryFile::create(ARENA_ALIGN).unwrap();
        assert_eq!(base % ARENA_ALIGN, 0);
        file.commit(0, PAGE).unwrap();
        let fd = file.duplicate().unwrap();
        assert_eq!(ftruncate(&fd, 0), Err(Errno::EPERM));
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        assert_eq!(fallocate(&fd, hole, 0, PAGE as i64), Err(Errno::EPERM));
        let flags = libc::MAP_SHARED;
        let borrowed = std::os::fd::AsFd::as_fd(&fd);
        let refused = map(0, PAGE, READ_WRITE, flags, Some(borrowed));
        assert_eq!(refused, Err(Errno::EPERM));
        unmap(base, ARENA_ALIGN);
        file.close();
    }

    #[test]
    fn a_descriptor_that_the_program_has_replaced_is_not_used() {
        let (file, base) = MemoryFile::create(ARENA_ALIGN).unwrap();
        let (other, other_base) = MemoryFile::create(ARENA_ALIGN).unwrap();
        let replaced = MemoryFile {
            fd: other.fd,
            ..file
        };
        assert!(replaced.duplicate().is_none());
        assert_eq!(replaced.commit(0, PAGE), Err(Errno::EBADF));
        replaced.close();
        assert!(other.duplicate().is_some());
        for (file, base) in [(file, base), (other, other_base)] {
            file.close();
            unmap(base, ARENA_ALIGN);
            assert!(file.duplicate().is_none());
        }
    }
}
