//! The attack of peers that announce blocks of memory until the target can map no more. A target
//! withstands it by a limit on the blocks of each peer.

use std::os::fd::BorrowedFd;

use anyhow::{Context as _, ensure};
use selvedge_testkit::random::Random;
use selvedge_testkit::shm_peer::{BLOCK, PACKET_SIZE, RawMemory, outbox_seals};
use selvedge_testkit::timeout::Timeout;

use super::adversary::{AttackStats, Config};
use super::packet;
use super::raw_peer::RawPeer;

/// Number of attacking peers. `PEERS * BLOCKS` is more than the default maximum number of mappings
/// of a process.
const PEERS: usize = 4;
/// Number of blocks that each attacking peer announces.
const BLOCKS: u64 = 17_000;
/// Bytes of a block.
const LEN: u64 = 4096;

/// Connects [`PEERS`] peers under different names, announces blocks from each, and checks that one
/// more peer can connect.
///
/// # Errors
/// The target cannot be reached, refuses a peer, or does not take an announcement in time.
pub(super) fn exhaust_mappings(
    config: &Config,
    random: &mut Random,
    mut progress: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<AttackStats> {
    let memory = RawMemory::create(LEN as usize, outbox_seals())?;
    let nonce = Box::new(random.word());
    let mut stats = AttackStats::default();
    let mut peers = Vec::new();
    for index in 0..=PEERS {
        let name = format!("{}-{index}-{:x}", config.name, random.word());
        let connected = RawPeer::connect(&config.target, &name, &nonce, random, &mut progress);
        let peer = connected.with_context(|| format!("after {index} other peers"))?;
        ensure!(
            peer.is_connected(),
            "the target refused the peer after {index} others"
        );
        if index < PEERS {
            announce(&peer, memory.fd(), &mut progress)?;
            stats.inputs += BLOCKS;
        }
        peers.push(peer);
    }
    stats.is_cut_off = peers.iter().any(RawPeer::is_cut_off);
    Ok(stats)
}

/// Announces [`BLOCKS`] blocks, or fewer if the target disconnects the peer.
fn announce(
    peer: &RawPeer,
    fd: BorrowedFd<'_>,
    mut progress: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut timeout = Timeout::new("room for another block");
    for block in 1..=BLOCKS {
        let mut bytes = packet(BLOCK);
        for field in [block, block << 20, LEN, 0] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.resize(PACKET_SIZE, 0);
        while !peer.socket.try_send(&bytes, &[fd]) {
            if peer.is_cut_off() {
                return Ok(());
            }
            timeout.check()?;
            progress()?;
        }
        timeout.renew();
    }
    Ok(())
}
