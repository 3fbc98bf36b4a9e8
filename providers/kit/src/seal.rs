//! Seals of memory files: what nobody who opens one, by `/proc/PID/fd` or by a descriptor that was
//! handed over, can do to its owner.
//!
//! A file that shrinks under a mapping, or that gets a hole for which there is no memory left, ends
//! its owner with `SIGBUS`.

use std::os::fd::AsFd;

use nix::Result;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};

/// The processes that may write to memory besides its maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// None: new mappings are read-only, and nobody makes holes.
    Owner,
    /// Every process that holds the descriptor.
    Anybody,
}

/// Seals a memory file against changes of its size, and against writers. To be called when its own
/// mapping has been made.
///
/// # Errors
/// The system's: the file was not made for being sealed.
pub fn seal(file: &impl AsFd, writers: Writers) -> Result<()> {
    let sizes = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
    if writers == Writers::Owner {
        // Kernels before 5.1 do not know this seal; others then could write, and only to our loss.
        let _ = fcntl(file, FcntlArg::F_ADD_SEALS(sizes | future_write()));
    }
    fcntl(file, FcntlArg::F_ADD_SEALS(sizes | SealFlag::F_SEAL_SEAL)).map(drop)
}

/// Against new writable mappings, and holes.
pub fn future_write() -> SealFlag {
    SealFlag::from_bits_retain(libc::F_SEAL_FUTURE_WRITE)
}
