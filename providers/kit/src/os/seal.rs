//! Seals of memory files (memfd_create(2)). They protect the process that owns a file from other
//! processes that received its descriptor or opened the file through `/proc/PID/fd`.
//!
//! Without seals, another process could shrink the file, or punch a hole into it. The owner's next
//! access to the missing bytes terminates the owner with `SIGBUS`; in a hole, if there is no memory
//! left to fill it.

use std::os::fd::AsFd;

use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::stat::fstat;

/// The processes that may write to a memory file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// Only the owner, which has mapped the file already: new mappings are read-only, and no
    /// process can punch holes.
    Owner,
    /// The owner, and every other process that has the descriptor.
    AnyProcess,
}

/// Seals a memory file of `len` committed bytes against changes of its size, and against all
/// writers except `writers`. The owner calls it after it has mapped the file.
///
/// # Errors
/// The error of fcntl(2), if the file was created without `MFD_ALLOW_SEALING`. `ESTALE` if another
/// process has changed the file's size, or punched a hole into it, before it was sealed.
pub fn seal(file: &impl AsFd, len: usize, writers: Writers) -> Result<()> {
    let size_seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
    if writers == Writers::Owner {
        // Kernels before 5.1 refuse this seal. Other processes can then write to the file, which
        // corrupts data of this process but cannot terminate it.
        let _ = fcntl(file, FcntlArg::F_ADD_SEALS(size_seals | future_write()));
    }
    fcntl(
        file,
        FcntlArg::F_ADD_SEALS(size_seals | SealFlag::F_SEAL_SEAL),
    )?;
    let stat = fstat(file)?;
    let is_whole = stat.st_size == len as i64 && stat.st_blocks * BLOCK >= stat.st_size;
    is_whole.then_some(()).ok_or(Errno::ESTALE)
}

/// The size of the blocks that `st_blocks` of stat(2) counts, in bytes.
const BLOCK: i64 = 512;

/// The seal against new writable mappings and against holes.
pub fn future_write() -> SealFlag {
    SealFlag::from_bits_retain(libc::F_SEAL_FUTURE_WRITE)
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::os::fd::AsRawFd;

    use nix::fcntl::{FallocateFlags, fallocate};
    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    const LEN: usize = 8192;

    #[test]
    fn a_size_change_or_hole_made_before_sealing_is_detected() {
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        for writers in [Writers::Owner, Writers::AnyProcess] {
            let (file, _) = opened_twice();
            seal(&file, LEN, writers).unwrap();
            for len in [4096, LEN as u64 + 4096] {
                let (file, other) = opened_twice();
                other.set_len(len).unwrap();
                assert_eq!(seal(&file, LEN, writers), Err(Errno::ESTALE), "{len} bytes");
            }
            let (file, other) = opened_twice();
            fallocate(&other, hole, 0, 4096).unwrap();
            assert_eq!(seal(&file, LEN, writers), Err(Errno::ESTALE), "a hole");
        }
    }

    /// A memory file with committed bytes, and a second descriptor of it, opened through `/proc` as
    /// another process would open it.
    fn opened_twice() -> (File, File) {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create(c"seal", flags).unwrap());
        fallocate(&file, FallocateFlags::empty(), 0, LEN as i64).unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let other = OpenOptions::new().write(true).open(path).unwrap();
        (file, other)
    }
}
