//! Receives and messages that are there all the time and that no benchmark takes: what matching has
//! to find its way through.

use anyhow::ensure;
use selvedge::cq;

use super::face::{Purpose, Tagged};
use super::station::Station;
use super::wire::{Done, Run};

/// Bytes of a message that nobody takes.
const LEN: usize = 8;
/// The first of the lanes that no benchmark uses.
const NOBODY: usize = 1 << 32;

/// Posts the receives and sends the peer its messages; both processes do it at the same time.
///
/// # Errors
/// What the provider says.
pub(super) fn lay(station: &mut Station) -> anyhow::Result<()> {
    let (posted, unexpected) = (station.manner().posted, station.manner().unexpected);
    station.post_for_nobody((0..posted).map(|number| lane_tag(NOBODY + number)))?;
    let (mut run, mut rx, tx) = Run::<Tagged>::begin(station, LEN, 1)?;
    for number in 0..unexpected {
        run.set_lane(NOBODY + posted + number);
        run.inject(&tx[0], LEN, Purpose::Payload)?;
    }
    // Messages arrive in order: when this one is here, so are those before it.
    run.set_lane(0);
    run.inject(&tx[0], LEN, Purpose::Ack)?;
    let slot = rx.pop().expect("there are two receive buffers");
    run.recv(slot, LEN, Purpose::Ack)?;
    let mut entry = [cq::Entry::default()];
    while run.read(&mut entry)? == 0 {}
    let done = run.done(&entry[0])?;
    ensure!(
        matches!(done, Done::Received(_, LEN)),
        "an odd answer: {done:?}"
    );
    run.end();
    Ok(())
}

/// The part of a tag that tells lanes apart.
pub(super) const fn lane_tag(lane: usize) -> u64 {
    (lane as u64) << LANE_SHIFT
}

/// Above every [`Purpose`].
pub(super) const LANE_SHIFT: u32 = 8;
