//! A peer that announces a block and frees it again without end: each packet is in order, and keeps
//! its reader busy with mapping memory.

use std::time::{Duration, Instant};

use anyhow::ensure;
use selvedge_testkit::random::Random;
use selvedge_testkit::shm_peer::{BLOCK, PACKET, RELEASE, RawMemory, outbox_seals};

use super::adversary::{Harm, Order};
use super::intruder::Intruder;
use super::packet;

/// For how long.
const TIME: Duration = Duration::from_secs(1);
/// Bytes of a block.
const LEN: u64 = 4096;

/// Connects, and sends packets as fast as the victim takes them.
///
/// # Errors
/// When the victim cannot be reached, or does not let the peer in.
pub(super) fn packets(
    order: &Order,
    random: &mut Random,
    mut meanwhile: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Harm> {
    let memory = RawMemory::create(LEN as usize, outbox_seals())?;
    let nonce = Box::new(random.word());
    let intruder = Intruder::enter(&order.victim, &order.name, &nonce, random, &mut meanwhile)?;
    ensure!(intruder.is_met(), "not let in");
    let (began, mut harm) = (Instant::now(), Harm::default());
    while began.elapsed() < TIME && !intruder.is_cut_off() {
        let block = harm.inputs / 2 + 1;
        let is_said = match harm.inputs.is_multiple_of(2) {
            true => {
                let fields = [block, block << 20, LEN, 0];
                intruder
                    .line
                    .try_send(&said(BLOCK, &fields), &[memory.fd()])
            }
            false => intruder.line.try_send(&said(RELEASE, &[block]), &[]),
        };
        match is_said {
            true => harm.inputs += 1,
            false => meanwhile()?,
        }
    }
    harm.is_cut_off = intruder.is_cut_off();
    Ok(harm)
}

fn said(kind: u32, fields: &[u64]) -> Vec<u8> {
    let mut bytes = packet(kind);
    fields
        .iter()
        .for_each(|field| bytes.extend(field.to_le_bytes()));
    bytes.resize(PACKET, 0);
    bytes
}
