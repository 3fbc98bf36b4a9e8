//! Peers that announce blocks of memory without end, until the victim has no mapping left for anybody
//! else, unless each has its share.

use std::os::fd::BorrowedFd;

use anyhow::{Context as _, ensure};
use selvedge_testkit::random::Random;
use selvedge_testkit::shm_peer::{BLOCK, PACKET, RawMemory, outbox_seals};
use selvedge_testkit::timeout::Timeout;

use super::adversary::{Harm, Order};
use super::intruder::Intruder;
use super::packet;

/// Peers, and blocks of each: all together are more than a process can map by default.
const PEERS: usize = 4;
const BLOCKS: u64 = 17_000;
/// Bytes of a block.
const LEN: u64 = 4096;

/// Announces blocks under several names. Somebody else is let in all the same.
///
/// # Errors
/// When the victim cannot be reached, or lets nobody in any more.
pub(super) fn blocks(
    order: &Order,
    random: &mut Random,
    mut meanwhile: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Harm> {
    let memory = RawMemory::create(LEN as usize, outbox_seals())?;
    let nonce = Box::new(random.word());
    let mut harm = Harm::default();
    let mut peers = Vec::new();
    for peer in 0..=PEERS {
        let name = format!("{}-{peer}-{:x}", order.name, random.word());
        let let_in = Intruder::enter(&order.victim, &name, &nonce, random, &mut meanwhile);
        let intruder = let_in.with_context(|| format!("behind {peer} others"))?;
        ensure!(intruder.is_met(), "not let in behind {peer} others");
        if peer < PEERS {
            announce(&intruder, memory.fd(), &mut meanwhile)?;
            harm.inputs += BLOCKS;
        }
        peers.push(intruder);
    }
    harm.is_cut_off = peers.iter().any(Intruder::is_cut_off);
    Ok(harm)
}

/// Announces blocks one behind the other.
fn announce(
    intruder: &Intruder,
    fd: BorrowedFd<'_>,
    mut meanwhile: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut timeout = Timeout::new("room for another block");
    for block in 1..=BLOCKS {
        let mut bytes = packet(BLOCK);
        for field in [block, block << 20, LEN, 0] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.resize(PACKET, 0);
        while !intruder.line.try_send(&bytes, &[fd]) {
            if intruder.is_cut_off() {
                return Ok(());
            }
            timeout.check()?;
            meanwhile()?;
        }
        timeout.renew();
    }
    Ok(())
}
