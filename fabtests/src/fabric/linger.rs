//! Waiting for a message that comes late.

use std::time::Duration;

use selvedge::cq;

use super::face::{Purpose, Tagged};
use super::station::Station;
use super::wire::Run;
use crate::pair::Side;

/// The passive side waits for a message; the active one sends it after `pause`, and sleeps before.
///
/// # Errors
/// What the provider says.
pub fn linger(station: &mut Station, side: Side, pause: Duration) -> anyhow::Result<()> {
    let (run, mut rx, tx) = Run::<Tagged>::begin(station, LEN, 1)?;
    match side {
        Side::Active => {
            std::thread::sleep(pause);
            run.inject(&tx[0], LEN, Purpose::Payload)?;
        }
        Side::Passive => {
            let slot = rx.pop().expect("there are two receive buffers");
            run.recv(slot, LEN, Purpose::Payload)?;
            let mut entry = [cq::Entry::default()];
            while run.read(&mut entry)? == 0 {}
            run.done(&entry[0])?;
        }
    }
    run.end();
    Ok(())
}

const LEN: usize = 8;
