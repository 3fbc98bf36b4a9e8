//! Text messages between two endpoints over the fabric itself. Two commands in two terminals
//! exchange them to control a run.

use anyhow::{Context as _, bail, ensure};
use selvedge::cq;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::endpoint::BenchEndpoint;
use super::messages::message_api::{Purpose, Untagged};
use super::order::TEXT_LEN;
use super::posting::{Completion, Run};

/// Sends a value as an untagged message.
///
/// # Errors
/// The provider's error; an error for a value that is too long.
pub fn post(endpoint: &mut BenchEndpoint, value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_vec(value)?;
    ensure!(
        text.len() <= TEXT_LEN,
        "a text message of {} bytes is longer than {TEXT_LEN}",
        text.len()
    );
    let (run, _, mut tx) = Run::<Untagged>::begin(endpoint, TEXT_LEN, 1)?;
    let slot = tx.pop().context("there is one buffer")?;
    run.write_text(&slot, TEXT_LEN, &text);
    run.send(slot, TEXT_LEN, Purpose::Payload)?;
    let mut entry = [cq::Entry::default()];
    while run.read(&mut entry)? == 0 {}
    run.completion(&entry[0])?;
    run.end();
    Ok(())
}

/// Receives the value of a [`post`]. Calls `wait` after each poll without a message.
///
/// # Errors
/// The provider's error; an error for a message that is not a `T`.
pub fn receive<T: DeserializeOwned>(
    endpoint: &mut BenchEndpoint,
    mut wait: impl FnMut(),
) -> anyhow::Result<T> {
    let (run, mut rx, _) = Run::<Untagged>::begin(endpoint, TEXT_LEN, 1)?;
    let slot = rx.pop().context("there are two buffers")?;
    run.recv(slot, TEXT_LEN, Purpose::Payload)?;
    let mut entry = [cq::Entry::default()];
    while run.read(&mut entry)? == 0 {
        wait();
    }
    let completion = run.completion(&entry[0])?;
    let Completion::Received(slot, len) = completion else {
        bail!("a send completed although none was posted")
    };
    let text = run.copy_text(&slot, len);
    run.end();
    serde_json::from_slice(&text).context(
        "the peer's message is not a message of this command: start the same version on both sides",
    )
}
