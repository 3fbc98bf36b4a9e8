//! Background load: posted receives and unexpected messages that no benchmark matches, so that
//! matching has to search past them.

use anyhow::ensure;
use selvedge::cq;

use super::endpoint::BenchEndpoint;
use super::message_api::{Purpose, Tagged};
use super::posting::{Completion, Run};

/// Bytes of an unexpected message.
const LEN: usize = 8;
/// First of the channels that no benchmark uses.
const UNUSED_CHANNEL: usize = 1 << 32;

/// Posts the receives and sends the unexpected messages to the peer. Both processes call this at
/// the same time.
///
/// # Errors
/// The provider's error.
pub(super) fn apply(endpoint: &mut BenchEndpoint) -> anyhow::Result<()> {
    let (posted, unexpected) = (endpoint.config().posted, endpoint.config().unexpected);
    endpoint.post_unmatched((0..posted).map(|index| channel_tag(UNUSED_CHANNEL + index)))?;
    let (mut run, mut rx, tx) = Run::<Tagged>::begin(endpoint, LEN, 1)?;
    for index in 0..unexpected {
        run.set_channel(UNUSED_CHANNEL + posted + index);
        run.inject(&tx[0], LEN, Purpose::Payload)?;
    }
    // Messages arrive in order: the peer has received the earlier ones when this message arrives.
    run.set_channel(0);
    run.inject(&tx[0], LEN, Purpose::Ack)?;
    let slot = rx.pop().expect("there are two receive buffers");
    run.recv(slot, LEN, Purpose::Ack)?;
    let mut entry = [cq::Entry::default()];
    while run.read(&mut entry)? == 0 {}
    let completion = run.completion(&entry[0])?;
    ensure!(
        matches!(completion, Completion::Received(_, LEN)),
        "unexpected completion {completion:?} instead of the peer's message"
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
