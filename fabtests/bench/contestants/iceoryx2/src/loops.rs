//! The loops of `selvedge-bench`, step by step, with samples instead of posted buffers.

use selvedge_bench::clock::Clock;
use selvedge_bench::fabric::BenchOrder;
use selvedge_bench::pair::Side;
use selvedge_bench::timing::{Timing, round_trips, stream as timed_stream};

use crate::ports::{ACK, Ports};

/// Round trips: each side sends when the other side's message has arrived.
pub(crate) fn pingpong(
    ports: &Ports,
    side: Side,
    clock: Clock,
    order: BenchOrder,
) -> anyhow::Result<Timing> {
    let mut number = 0;
    round_trips(clock, order.counts, || {
        number += 1;
        match side {
            Side::Active => {
                ports.send(order.size, number)?;
                ports.receive(order.size, number)
            }
            Side::Passive => {
                ports.receive(order.size, number)?;
                ports.send(order.size, number)
            }
        }
    })
}

/// Windows of messages in one direction, each of which the passive side acknowledges.
pub(crate) fn stream(
    ports: &Ports,
    side: Side,
    clock: Clock,
    order: BenchOrder,
) -> anyhow::Result<Timing> {
    let (mut number, mut windows) = (0, 0);
    timed_stream(clock, order.counts, order.window, || {
        windows += 1;
        let messages = number + 1..=number + order.window as u64;
        number += order.window as u64;
        match side {
            Side::Active => {
                messages
                    .into_iter()
                    .try_for_each(|number| ports.send(order.size, number))?;
                ports.receive(ACK, windows)
            }
            Side::Passive => {
                messages
                    .into_iter()
                    .try_for_each(|number| ports.receive(order.size, number))?;
                ports.send(ACK, windows)
            }
        }
    })
}
