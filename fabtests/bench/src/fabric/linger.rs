//! Waiting for a message that comes late.

use std::time::Duration;

use selvedge::cq;

use super::face::{Purpose, Tagged};
use super::station::Station;
use super::wire::Run;
use crate::pair::Side;

/// The passive side waits for a message; the active one sends it after `pause`, sleeps before, and
/// hears that it has arrived: a first message may need its sender's progress.
///
/// # Errors
/// What the provider says.
pub fn linger(station: &mut Station, side: Side, pause: Duration) -> anyhow::Result<()> {
    let (run, mut rx, tx) = Run::<Tagged>::begin(station, LEN, 1)?;
    let slot = rx.pop().expect("there are two receive buffers");
    run.recv(slot, LEN, Purpose::Payload)?;
    match side {
        Side::Active => {
            std::thread::sleep(pause);
            run.inject(&tx[0], LEN, Purpose::Payload)?;
            hear(&run)?;
        }
        Side::Passive => {
            hear(&run)?;
            run.inject(&tx[0], LEN, Purpose::Payload)?;
        }
    }
    run.end();
    Ok(())
}

fn hear(run: &Run<'_, Tagged>) -> anyhow::Result<()> {
    let mut entry = [cq::Entry::default()];
    while run.read(&mut entry)? == 0 {}
    run.done(&entry[0]).map(|_| ())
}

const LEN: usize = 8;
