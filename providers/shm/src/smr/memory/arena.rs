//! `PeerArena`: an arena of a peer's shared heap (`selvedge-heap`), mapped for reading.
//!
//! An arena is a memory file of which the owner commits more and more pages. A page that was never
//! written is a hole: an access to it would take memory of this process, and could end the process
//! if there is none. Therefore each range is checked before its first use. A page that was there
//! once stays, because the file is sealed against holes.
//!
//! The first word of an arena says whether its bytes are still the owner's memory. After a fork
//! the owner has a separate copy, and the file keeps the bytes of before.

use std::fs::File;
use std::os::fd::OwnedFd;

use nix::unistd::{Whence, lseek};
use selvedge::Error;
use selvedge_heap::table::OFFERED;

use super::bytes::{Bytes, Span};
use super::mapping::map_peer_arena;
use crate::smr::sync::order;

/// An arena of a peer, mapped.
#[derive(Debug)]
pub struct PeerArena {
    bytes: Bytes,
    header: Span,
    file: File,
}

/// Bytes of the header's word.
const WORD: usize = size_of::<u64>();

impl PeerArena {
    /// Maps `len` bytes that a peer has sent.
    ///
    /// # Errors
    /// `Errno::Proto` when the descriptor is not memory of this length that is sealed against
    /// changes of size, writing and holes; the system's error when the address space has no room.
    pub fn attach(fd: OwnedFd, len: usize) -> Result<Self, Error> {
        let (mapping, file) = map_peer_arena(fd, len)?;
        mapping.exclude_from_fork();
        let bytes = Bytes::new(mapping, 0, len);
        let header = bytes.first(WORD);
        Ok(Self {
            bytes,
            header,
            file,
        })
    }

    /// Returns the bytes of the arena. The caller accesses only ranges without a hole.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Whether a range has no hole, and will never have one. The header has none either then.
    pub fn is_whole(&self, offset: usize, len: usize) -> bool {
        let first_hole = |from: usize| {
            let hole = lseek(&self.file, i64::try_from(from).ok()?, Whence::SeekHole);
            usize::try_from(hole.ok()?).ok()
        };
        let end = offset
            .checked_add(len)
            .filter(|end| *end <= self.bytes.len());
        let is_range_whole = end.is_some_and(|end| first_hole(offset) >= Some(end));
        is_range_whole && first_hole(0) >= Some(WORD)
    }

    /// Whether the bytes that were copied before this call were the owner's memory until after the
    /// copy. The caller has checked some range by [`Self::is_whole`].
    pub fn is_offered(&self) -> bool {
        order::after_copy();
        self.header.word(0) == Some(OFFERED)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::os::fd::AsFd;

    use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use nix::unistd::ftruncate;
    use selvedge::Errno;

    use super::*;
    use crate::smr::Mapping;

    const LEN: usize = 1 << 20;

    /// A file of `LEN` bytes with the seals, and the owner's mapping.
    fn create(seals: SealFlag) -> (Bytes, OwnedFd) {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create(c"arena", flags).unwrap());
        ftruncate(&file, LEN as i64).unwrap();
        let mapping = Mapping::writable(&file, LEN).unwrap();
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).unwrap();
        (Bytes::new(mapping, 0, LEN), file.into())
    }

    fn all_seals() -> SealFlag {
        SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | selvedge_kit::seal::future_write()
    }

    #[test]
    fn only_written_pages_are_read() {
        let (owner, fd) = create(all_seals());
        fallocate(&fd, FallocateFlags::empty(), 0, 8 * 4096).unwrap();
        owner.copy_in(0, &OFFERED.to_ne_bytes());
        owner.copy_in(4096, b"page one");
        owner.copy_in(2 * 4096, b"page two");
        let peer = PeerArena::attach(fd.try_clone().unwrap(), LEN).unwrap();
        assert!(peer.is_whole(4096, 2 * 4096));
        for (offset, len) in [
            (4096, 2 * 4096 + 1),
            (3 * 4096, 1),
            (LEN - 1, 1),
            (LEN, 1),
            (usize::MAX, 2),
        ] {
            assert!(!peer.is_whole(offset, len), "{len} at {offset}");
        }
        owner.copy_in(3 * 4096, b"page three");
        assert!(peer.is_whole(3 * 4096, 10));
        let mut copied = [MaybeUninit::uninit(); 10];
        assert_eq!(peer.bytes().copy_out(3 * 4096, &mut copied), b"page three");
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        assert!(fallocate(&fd, hole, 4096, 4096).is_err());
    }

    #[test]
    fn an_arena_is_offered_until_its_owner_withdraws_it() {
        let (owner, fd) = create(all_seals());
        owner.copy_in(0, &OFFERED.to_ne_bytes());
        let peer = PeerArena::attach(fd, LEN).unwrap();
        assert!(peer.is_whole(0, 4096) && peer.is_offered());
        owner.copy_in(0, &[0; 8]);
        assert!(!peer.is_offered());
    }

    #[test]
    fn files_in_which_holes_can_appear_are_refused() {
        for seals in [
            SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW,
            SealFlag::F_SEAL_SHRINK | selvedge_kit::seal::future_write(),
            SealFlag::F_SEAL_GROW | selvedge_kit::seal::future_write(),
        ] {
            let (_owner, fd) = create(seals);
            let refused = PeerArena::attach(fd, LEN).unwrap_err();
            assert_eq!(refused.errno(), Errno::Proto, "{seals:?}");
        }
        let (_owner, fd) = create(all_seals());
        for len in [0, LEN - 4096, LEN + 4096, usize::MAX] {
            let fd = fd.as_fd().try_clone_to_owned().unwrap();
            let refused = PeerArena::attach(fd, len).unwrap_err();
            assert_eq!(refused.errno(), Errno::Proto, "{len}");
        }
    }
}
