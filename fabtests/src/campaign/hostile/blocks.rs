//! Attacks by valid announcements of blocks, each of which makes the target map memory: by several
//! peers until the target can map no more, and by one peer that releases each block again.
//!
//! The target withstands the first attack by a limit on the blocks of each peer.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use selvedge_testkit::random::Random;
use selvedge_testkit::shm_peer::{BLOCK, RELEASE, RawMemory, outbox_seals};
use selvedge_testkit::timeout::Timeout;

use super::attack::{AttackStats, Config};
use super::dictionary::packet;
use super::raw_peer::RawPeer;

/// Number of attacking peers. `PEERS * BLOCKS` is more than the default maximum number of mappings
/// of a process.
const PEERS: usize = 4;
/// Number of blocks that each attacking peer announces.
const BLOCKS: u64 = 17_000;
/// Bytes of a block.
const LEN: u64 = 4096;
/// Duration of the attack of one peer.
const DURATION: Duration = Duration::from_secs(1);

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
        let bytes = packet(BLOCK, &[block, block << 20, LEN, 0]);
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

/// Connects, and announces and releases blocks, as fast as the target reads the packets.
///
/// # Errors
/// The target cannot be reached, or refuses the connection.
pub(super) fn announce_and_release(
    config: &Config,
    random: &mut Random,
    mut progress: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<AttackStats> {
    let memory = RawMemory::create(LEN as usize, outbox_seals())?;
    let nonce = Box::new(random.word());
    let peer = RawPeer::connect(&config.target, &config.name, &nonce, random, &mut progress)?;
    ensure!(peer.is_connected(), "the target refused the connection");
    let (began, mut stats) = (Instant::now(), AttackStats::default());
    while began.elapsed() < DURATION && !peer.is_cut_off() {
        let block = stats.inputs / 2 + 1;
        let is_sent = if stats.inputs.is_multiple_of(2) {
            let fields = [block, block << 20, LEN, 0];
            peer.socket
                .try_send(&packet(BLOCK, &fields), &[memory.fd()])
        } else {
            peer.socket.try_send(&packet(RELEASE, &[block]), &[])
        };
        if is_sent {
            stats.inputs += 1
        } else {
            progress()?
        }
    }
    stats.is_cut_off = peer.is_cut_off();
    Ok(stats)
}
