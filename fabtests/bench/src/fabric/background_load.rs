//! Background load: posted receives and unexpected messages that no benchmark matches, so that
//! matching has to search past them.

use anyhow::ensure;
use selvedge::cq;

use super::endpoint::BenchEndpoint;
use super::messages::message_api::{Purpose, Tagged, channel_tag};
use super::posting::{Completion, Run};

/// Bytes of an unexpected message.
const LEN: usize = 8;
/// First of the channels that no benchmark uses.
const UNUSED_CHANNEL: usize = 1 << 32;

/// Adds the idle peers, posted receives and unexpected messages of the endpoint's configuration.
/// The peer process does so at the same time.
///
/// # Errors
/// The provider's error.
pub fn add_background_load(endpoint: &mut BenchEndpoint) -> anyhow::Result<()> {
    if endpoint.config().idle_peers > 0 {
        endpoint.connect_idle_peers()?;
    }
    match endpoint.config().posted + endpoint.config().unexpected {
        0 => Ok(()),
        _ => add_unmatched(endpoint),
    }
}

/// Posts the receives and sends the unexpected messages to the peer. Both processes call this at
/// the same time.
///
/// # Errors
/// The provider's error.
fn add_unmatched(endpoint: &mut BenchEndpoint) -> anyhow::Result<()> {
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
