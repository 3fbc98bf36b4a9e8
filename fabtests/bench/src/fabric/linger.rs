//! A wait for a message that is sent late.

use std::time::Duration;

use selvedge::cq;

use super::endpoint::BenchEndpoint;
use super::messages::message_api::{Purpose, Tagged};
use super::posting::Run;
use crate::pair::Side;

/// Runs one side of a late message: the active side sleeps for `pause` and sends, the passive side
/// waits for the message and replies. The active side waits for the reply, because a first message
/// may need its sender's progress.
///
/// # Errors
/// The provider's error.
pub fn linger(endpoint: &mut BenchEndpoint, side: Side, pause: Duration) -> anyhow::Result<()> {
    let (run, mut rx, tx) = Run::<Tagged>::begin(endpoint, LEN, 1)?;
    let slot = rx.pop().expect("there are two receive buffers");
    run.recv(slot, LEN, Purpose::Payload)?;
    match side {
        Side::Active => {
            std::thread::sleep(pause);
            run.inject(&tx[0], LEN, Purpose::Payload)?;
            receive_one(&run)?;
        }
        Side::Passive => {
            receive_one(&run)?;
            run.inject(&tx[0], LEN, Purpose::Payload)?;
        }
    }
    run.end();
    Ok(())
}

fn receive_one(run: &Run<'_, Tagged>) -> anyhow::Result<()> {
    let mut entry = [cq::Entry::default()];
    while run.read(&mut entry)? == 0 {}
    run.completion(&entry[0]).map(|_| ())
}

/// Bytes of a message.
const LEN: usize = 8;
