//! Streams of several senders to one receiver, each in a lane of its own.
//!
//! A sender does what it does in a stream to somebody else's alone: a window of messages, and then
//! it waits for the acknowledgement. The receiver takes messages of all lanes with receives that do
//! not tell them apart, and acknowledges each lane's window when it is there. It has two windows of
//! receives posted for each sender, so that every message finds one. The receiver measures: the
//! time of a message, whosever.

use anyhow::ensure;
use selvedge::cq;

use super::BenchOrder;
use super::burden::LANE_SHIFT;
use super::face::{Purpose, Tagged};
use super::station::Station;
use super::wire::{Done, Run, RxSlot};
use crate::clock::{Clock, ticks};
use crate::pair::Side;
use crate::timing::Timing;

/// Bytes of an acknowledgement.
const ACK: usize = 4;

pub(super) fn run(
    station: &mut Station,
    side: Side,
    clock: Clock,
    order: BenchOrder,
) -> anyhow::Result<Timing> {
    ensure!(!order.verify, "several senders' messages are not checked");
    match side {
        Side::Active => send(station, order).map(|()| Timing::default()),
        Side::Passive => receive(station, clock, order),
    }
}

fn send(station: &mut Station, order: BenchOrder) -> anyhow::Result<()> {
    let inject = order.inject && order.size <= station.inject_size();
    let (mut run, mut rx, mut tx) =
        Run::<Tagged>::begin(station, order.size.max(ACK), order.window)?;
    run.set_lane(order.sender + 1);
    let mut entries = vec![cq::Entry::default(); order.window];
    for _ in 0..order.counts.total() {
        let slot = rx.pop().expect("the last window gave its receive back");
        run.recv(slot, ACK, Purpose::Ack)?;
        if inject {
            for slot in &tx {
                run.inject(slot, order.size, Purpose::Payload)?;
            }
        } else {
            for slot in tx.drain(..) {
                run.send(slot, order.size, Purpose::Payload)?;
            }
        }
        let mut acknowledged = false;
        while !acknowledged || tx.len() < order.window {
            let count = run.read(&mut entries)?;
            for entry in &entries[..count] {
                match run.done(entry)? {
                    Done::Sent(slot) => tx.push(slot),
                    Done::Received(slot, _) => {
                        acknowledged = true;
                        rx.push(slot);
                    }
                }
            }
        }
    }
    run.end();
    Ok(())
}

fn receive(station: &mut Station, clock: Clock, order: BenchOrder) -> anyhow::Result<Timing> {
    let peers = station.peers().to_vec();
    ensure!(
        peers.len() == order.senders,
        "{} senders are known, not {}",
        peers.len(),
        order.senders
    );
    let all = order.window * order.senders;
    let (mut run, mut free, tx) = Run::<Tagged>::begin(station, order.size.max(ACK), all)?;
    run.hear_all_lanes();
    let mut to_post = all * order.counts.total();
    let mut post = |run: &Run<'_, Tagged>, free: &mut Vec<RxSlot>, count: usize| {
        let count = count.min(to_post);
        to_post -= count;
        let first = free.len() - count;
        let mut slots = free.drain(first..);
        slots.try_for_each(|slot| run.recv(slot, order.size, Purpose::Payload))
    };
    post(&run, &mut free, 2 * all)?;
    let mut arrived = vec![0_usize; order.senders];
    let mut entries = vec![cq::Entry::default(); order.window];
    let (mut received, mut start, mut first) = (0, ticks(), 0);
    while received < all * order.counts.total() {
        let count = run.read(&mut entries)?;
        for entry in &entries[..count] {
            let lane = (entry.tag >> LANE_SHIFT) as usize;
            if let Done::Received(slot, len) = run.done(entry)? {
                ensure!(
                    len == order.size && (1..=order.senders).contains(&lane),
                    "{len} bytes arrived in lane {lane}"
                );
                free.push(slot);
            }
            received += 1;
            arrived[lane - 1] += 1;
            if arrived[lane - 1].is_multiple_of(order.window) {
                run.set_peer(peers[lane - 1]);
                run.set_lane(lane);
                run.inject(&tx[0], ACK, Purpose::Ack)?;
                post(&run, &mut free, order.window)?;
            }
        }
        if first == 0 && received >= all * order.counts.warmup {
            (start, first) = (ticks(), received.max(1));
        }
    }
    let messages = (received - first).max(1);
    let taken = [clock.ns(ticks() - start) / messages as f64];
    run.end();
    Ok(Timing::of(&taken))
}
