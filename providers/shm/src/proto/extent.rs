//! Extents: how much memory a peer's process can have at all.
//!
//! An offer names memory of its sender, and takes a receive when it is matched. An offer of more than
//! the sender's process can have would hold the receive until the sender ends.

use nix::unistd::{SysconfVar, sysconf};

use crate::peer::Peer;
use crate::rendezvous::Link;

/// No process has memory beyond this address: x86-64 with five levels of page tables has the
/// largest space of those that Linux gives to processes.
const SPACE: u64 = 1 << 56;
/// Stretches from this length on are compared with the sender's mapped memory. Asking the kernel
/// for that takes some ten microseconds, and copying as many bytes ten milliseconds.
const CHECKED: u64 = 1 << 28;

/// Whether the peer's process can have `len` bytes at `addr`. Nothing is said of a process that
/// cannot be seen from here, but that its addresses end somewhere.
pub(super) fn is_possible(peer: &Peer, addr: u64, len: u64) -> bool {
    let is_in_space = addr.checked_add(len).is_some_and(|end| end <= SPACE);
    is_in_space && (len < CHECKED || mapped_by(peer).is_none_or(|mapped| len <= mapped))
}

/// Bytes of address space that the peer's process has mapped, where the kernel tells.
#[cold]
fn mapped_by(peer: &Peer) -> Option<u64> {
    let pid = peer.links.first().map(Link::peer_pid)?;
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split_whitespace().next()?.parse().ok()?;
    let page = sysconf(SysconfVar::PAGE_SIZE).ok()??;
    // A process that is over has none, and what it has offered ends with it.
    (pages > 0).then_some(pages.checked_mul(u64::try_from(page).ok()?)?)
}
