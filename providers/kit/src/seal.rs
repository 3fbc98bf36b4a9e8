//! Seals of memory files: what nobody who opens one, by `/proc/PID/fd` or by a descriptor that was
//! handed over, can do to its owner.
//!
//! A file that shrinks under a mapping, or that gets a hole for which there is no memory left, ends
//! its owner with `SIGBUS`.

use std::os::fd::AsFd;

use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::stat::fstat;

/// The processes that may write to memory besides its maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// None: new mappings are read-only, and nobody makes holes.
    Owner,
    /// Every process that holds the descriptor.
    Anybody,
}

/// Seals a memory file of `len` committed bytes against changes of its size, and against writers. To
/// be called when its own mapping has been made.
///
/// # Errors
/// The system's: the file was not made for being sealed. `ESTALE` when another process has changed its
/// size or made a hole in it before it was sealed.
pub fn seal(file: &impl AsFd, len: usize, writers: Writers) -> Result<()> {
    let sizes = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
    if writers == Writers::Owner {
        // Kernels before 5.1 do not know this seal; others then could write, and only to our loss.
        let _ = fcntl(file, FcntlArg::F_ADD_SEALS(sizes | future_write()));
    }
    fcntl(file, FcntlArg::F_ADD_SEALS(sizes | SealFlag::F_SEAL_SEAL))?;
    let stat = fstat(file)?;
    let is_whole = stat.st_size == len as i64 && stat.st_blocks * BLOCK >= stat.st_size;
    is_whole.then_some(()).ok_or(Errno::ESTALE)
}

/// Bytes of what stat(2) counts as a block.
const BLOCK: i64 = 512;

/// Against new writable mappings, and holes.
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
    fn what_another_process_does_to_memory_before_it_is_sealed_is_noticed() {
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        for writers in [Writers::Owner, Writers::Anybody] {
            let (file, _) = found();
            seal(&file, LEN, writers).unwrap();
            for len in [4096, LEN as u64 + 4096] {
                let (file, found) = found();
                found.set_len(len).unwrap();
                assert_eq!(seal(&file, LEN, writers), Err(Errno::ESTALE), "{len} bytes");
            }
            let (file, found) = found();
            fallocate(&found, hole, 0, 4096).unwrap();
            assert_eq!(seal(&file, LEN, writers), Err(Errno::ESTALE), "a hole");
        }
    }

    /// Committed memory, and what a process has that found it.
    fn found() -> (File, File) {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create(c"seal", flags).unwrap());
        fallocate(&file, FallocateFlags::empty(), 0, LEN as i64).unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let found = OpenOptions::new().write(true).open(path).unwrap();
        (file, found)
    }
}
