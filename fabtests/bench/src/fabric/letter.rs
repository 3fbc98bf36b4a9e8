//! Text between two stations, over the fabric itself: how two commands in two terminals agree.

use anyhow::{Context as _, bail, ensure};
use selvedge::cq;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::face::{Purpose, Untagged};
use super::station::Station;
use super::wire::{Done, Run};

/// Bytes of a letter, the rest of which is spaces.
pub(super) const LETTER: usize = 1024;

/// Sends a value as an untagged message.
///
/// # Errors
/// What the provider says; that the value is too long.
pub fn post(station: &mut Station, value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_vec(value)?;
    ensure!(
        text.len() <= LETTER,
        "a letter of {} bytes is too long",
        text.len()
    );
    let (run, _, mut tx) = Run::<Untagged>::begin(station, LETTER, 1)?;
    let slot = tx.pop().context("there is one buffer")?;
    run.write(&slot, LETTER, &text);
    run.send(slot, LETTER, Purpose::Payload)?;
    let mut entry = [cq::Entry::default()];
    while run.read(&mut entry)? == 0 {}
    run.done(&entry[0])?;
    run.end();
    Ok(())
}

/// Receives what [`post`] sent; calls `wait` whenever it has not come yet.
///
/// # Errors
/// What the provider says; that something else came.
pub fn receive<T: DeserializeOwned>(
    station: &mut Station,
    mut wait: impl FnMut(),
) -> anyhow::Result<T> {
    let (run, mut rx, _) = Run::<Untagged>::begin(station, LETTER, 1)?;
    let slot = rx.pop().context("there are two buffers")?;
    run.recv(slot, LETTER, Purpose::Payload)?;
    let mut entry = [cq::Entry::default()];
    while run.read(&mut entry)? == 0 {
        wait();
    }
    let done = run.done(&entry[0])?;
    let Done::Received(slot, len) = done else {
        bail!("a send completed where none was posted")
    };
    let text = run.text(&slot, len);
    run.end();
    serde_json::from_slice(&text).context("the peer speaks another language: is it this command?")
}
