//! A peer that announces a block and releases it again without end. Each packet is valid and makes
//! the target map memory.

use std::time::{Duration, Instant};

use anyhow::ensure;
use selvedge_testkit::random::Random;
use selvedge_testkit::shm_peer::{BLOCK, PACKET_SIZE, RELEASE, RawMemory, outbox_seals};

use super::adversary::{AttackStats, Config};
use super::packet;
use super::raw_peer::RawPeer;

/// Duration of the attack.
const DURATION: Duration = Duration::from_secs(1);
/// Bytes of a block.
const BLOCK_LEN: u64 = 4096;

/// Connects, and sends packets as fast as the target reads them.
///
/// # Errors
/// The target cannot be reached, or refuses the connection.
pub(super) fn announce_and_release(
    config: &Config,
    random: &mut Random,
    mut progress: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<AttackStats> {
    let memory = RawMemory::create(BLOCK_LEN as usize, outbox_seals())?;
    let nonce = Box::new(random.word());
    let peer = RawPeer::connect(&config.target, &config.name, &nonce, random, &mut progress)?;
    ensure!(peer.is_connected(), "the target refused the connection");
    let (began, mut stats) = (Instant::now(), AttackStats::default());
    while began.elapsed() < DURATION && !peer.is_cut_off() {
        let block = stats.inputs / 2 + 1;
        let is_sent = match stats.inputs.is_multiple_of(2) {
            true => {
                let fields = [block, block << 20, BLOCK_LEN, 0];
                peer.socket
                    .try_send(&encode(BLOCK, &fields), &[memory.fd()])
            }
            false => peer.socket.try_send(&encode(RELEASE, &[block]), &[]),
        };
        match is_sent {
            true => stats.inputs += 1,
            false => progress()?,
        }
    }
    stats.is_cut_off = peer.is_cut_off();
    Ok(stats)
}

fn encode(kind: u32, fields: &[u64]) -> Vec<u8> {
    let mut bytes = packet(kind);
    fields
        .iter()
        .for_each(|field| bytes.extend(field.to_le_bytes()));
    bytes.resize(PACKET_SIZE, 0);
    bytes
}
