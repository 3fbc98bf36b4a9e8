//! Streams of several senders to one receiver. Each sender has its own tag channel.
//!
//! As in the stream of a pair, a sender sends a window of messages and waits for the
//! acknowledgement. The receiver's posted receives match all channels. The receiver acknowledges
//! each channel's window as soon as the window is complete. Two windows of receives are posted for
//! each sender, so that every message matches a posted receive. The receiver measures the time per
//! message over all senders.

use anyhow::ensure;
use selvedge::cq;

use super::message_api::{CHANNEL_SHIFT, Purpose, Tagged};
use crate::fabric::endpoint::BenchEndpoint;
use crate::fabric::order::BenchOrder;
use crate::fabric::posting::{Completion, Run, RxSlot};
use crate::measure::clock::{Clock, ticks};
use crate::measure::timing::Timing;
use crate::pair::Side;

/// Bytes of an acknowledgement.
const ACK: usize = 4;

pub(in crate::fabric) fn run(
    endpoint: &mut BenchEndpoint,
    side: Side,
    clock: Clock,
    order: BenchOrder,
) -> anyhow::Result<Timing> {
    ensure!(
        !order.verify,
        "messages of several senders cannot be verified: leave out the check"
    );
    match side {
        Side::Active => send(endpoint, order).map(|()| Timing::default()),
        Side::Passive => receive(endpoint, clock, order),
    }
}

fn send(endpoint: &mut BenchEndpoint, order: BenchOrder) -> anyhow::Result<()> {
    let inject = order.inject && order.size <= endpoint.inject_size();
    let (mut run, mut rx, mut tx) =
        Run::<Tagged>::begin(endpoint, order.size.max(ACK), order.window)?;
    run.set_channel(order.sender + 1);
    let mut entries = vec![cq::Entry::default(); order.window];
    for _ in 0..order.counts.total() {
        let slot = rx
            .pop()
            .expect("the last window has returned its receive buffer");
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
                match run.completion(entry)? {
                    Completion::Sent(slot) => tx.push(slot),
                    Completion::Received(slot, _) => {
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

fn receive(
    endpoint: &mut BenchEndpoint,
    clock: Clock,
    order: BenchOrder,
) -> anyhow::Result<Timing> {
    let peers = endpoint.peers().to_vec();
    ensure!(
        peers.len() == order.senders,
        "{} senders are connected, not {}",
        peers.len(),
        order.senders
    );
    let all_windows = order.window * order.senders;
    let (mut run, mut free, tx) = Run::<Tagged>::begin(endpoint, order.size.max(ACK), all_windows)?;
    run.accept_all_channels();
    let mut to_post = all_windows * order.counts.total();
    let mut post = |run: &Run<'_, Tagged>, free: &mut Vec<RxSlot>, count: usize| {
        let count = count.min(to_post);
        to_post -= count;
        let first = free.len() - count;
        let mut slots = free.drain(first..);
        slots.try_for_each(|slot| run.recv(slot, order.size, Purpose::Payload))
    };
    post(&run, &mut free, 2 * all_windows)?;
    let mut arrived_by_sender = vec![0_usize; order.senders];
    let mut entries = vec![cq::Entry::default(); order.window];
    let (mut received, mut start, mut warmup_messages) = (0, ticks(), 0);
    while received < all_windows * order.counts.total() {
        let count = run.read(&mut entries)?;
        for entry in &entries[..count] {
            let channel = (entry.tag >> CHANNEL_SHIFT) as usize;
            if let Completion::Received(slot, len) = run.completion(entry)? {
                ensure!(
                    len == order.size && (1..=order.senders).contains(&channel),
                    "received {len} bytes in channel {channel}"
                );
                free.push(slot);
            }
            received += 1;
            arrived_by_sender[channel - 1] += 1;
            if arrived_by_sender[channel - 1].is_multiple_of(order.window) {
                run.set_peer(peers[channel - 1]);
                run.set_channel(channel);
                run.inject(&tx[0], ACK, Purpose::Ack)?;
                post(&run, &mut free, order.window)?;
            }
        }
        if warmup_messages == 0 && received >= all_windows * order.counts.warmup {
            (start, warmup_messages) = (ticks(), received.max(1));
        }
    }
    let messages = (received - warmup_messages).max(1);
    let message_ns = [clock.ns(ticks() - start) / messages as f64];
    run.end();
    Ok(Timing::from_means(&message_ns))
}
