//! Background load: posted receives and unexpected messages that no benchmark matches, so that
//! matching has to search past them.

use anyhow::ensure;
use selvedge::cq;

use super::endpoint::BenchEndpoint;
use super::message_api::{Purpose, Tagged};
use super::posting::{Done, Run};

/// Bytes of an unexpected message.
const LEN: usize = 8;
/// First of the channels that no benchmark uses.
const UNUSED_CHANNEL: usize = 1 << 32;

/// Posts the receives and sends the unexpected messages to the peer. Both processes call this at
/// the same time.
///
/// # Errors
/// The provider's.
pub(super) fn apply(endpoint: &mut BenchEndpoint) -> anyhow::Result<()> {
    let (posted, unexpected) = (endpoint.config().posted, endpoint.config().unexpected);
    endpoint.post_unmatched((0..posted).map(|number| channel_tag(UNUSED_CHANNEL + number)))?;
    let (mut run, mut rx, tx) = Run::<Tagged>::begin(endpoint, LEN, 1)?;
    for number in 0..unexpected {
        run.set_channel(UNUSED_CHANNEL + posted + number);
        run.inject(&tx[0], LEN, Purpose::Payload)?;
    }
    // Messages arrive in order: when this one has arrived, so have the earlier ones.
    run.set_channel(0);
    run.inject(&tx[0], LEN, Purpose::Ack)?;
    let slot = rx.pop().expect("there are two receive buffers");
    run.recv(slot, LEN, Purpose::Ack)?;
    let mut entry = [cq::Entry::default()];
    while run.read(&mut entry)? == 0 {}
    let done = run.done(&entry[0])?;
    ensure!(
        matches!(done, Done::Received(_, LEN)),
        "unexpected completion {done:?} instead of the peer's message"
    );
    run.end();
    Ok(())
}

/// The bits of a tag that name a channel.
pub(super) const fn channel_tag(channel: usize) -> u64 {
    (channel as u64) << CHANNEL_SHIFT
}

/// Position of the channel in a tag, above the bits of [`Purpose`].
pub(super) const CHANNEL_SHIFT: u32 = 8;
