//! `fi_poll`: a poll set reports the queue that has a completion, and no other.

use anyhow::ensure;
use selvedge::cq::Entry;
use selvedge::poll::{Member, Set};
use selvedge::{Caps, Context};
use selvedge_testkit::domain::{Queue, Send};
use selvedge_testkit::failure::wrong;

use crate::upstream::channel::{Channel, ChannelConfig};
use crate::upstream::functional::messages::greeting::GREETING;
use crate::upstream::functional::open;
use crate::upstream::options::Options;

/// The context by which the poll set names the transmit queue.
const TX: Context = Context(1);
/// The context by which the poll set names the receive queue.
const RX: Context = Context(2);
/// The number of messages in each direction.
const ROUNDS: usize = 10;

/// Runs the program: the client sends greetings to the server, which returns each of them.
pub(in crate::upstream) fn poll(options: &Options) -> anyhow::Result<()> {
    let mut channel = open(options, Caps::MSG, ChannelConfig::default())?;
    let set = Set::new();
    set.add(Member::Cq(channel.endpoint.tx.cq().clone()), TX)?;
    set.add(Member::Cq(channel.endpoint.rx.cq().clone()), RX)?;
    for round in 0..ROUNDS {
        let greeting = [GREETING, &[round as u8]].concat();
        if channel.is_client() {
            send(&mut channel, &set, &greeting)?;
        }
        let entry = next_reported(&channel, &set, RX)?;
        let received = channel.accept(&entry)?;
        if received != greeting {
            return Err(wrong(format!(
                "received the greeting {received:?}, expected {greeting:?}"
            )));
        }
        if !channel.is_client() {
            send(&mut channel, &set, &greeting)?;
        }
    }
    println!("Polled {} messages", 2 * ROUNDS);
    channel.finish()
}

fn send(channel: &mut Channel, set: &Set, bytes: &[u8]) -> anyhow::Result<()> {
    let block = channel.domain().buffers(bytes.len())?;
    block.memory.put(0, bytes);
    let send = Send::new(channel.peer, 77);
    let endpoint = &channel.endpoint;
    endpoint.push("send", |endpoint| endpoint.send(&[block.whole()], &send))?;
    let entry = next_reported(channel, set, TX)?;
    ensure!(
        entry.context.0 == 77,
        "the completion is of another send: {entry:?}"
    );
    channel.skip();
    Ok(())
}

/// Polls the set until it reports the queue with the context `queue_context`, and reads one
/// completion from that queue. Afterwards the set reports the queue only if another completion has
/// arrived.
fn next_reported(channel: &Channel, set: &Set, queue_context: Context) -> anyhow::Result<Entry> {
    let is_reported = || {
        let mut out = [Context(0); 2];
        let count = set.poll(&mut out);
        Ok(out[..count].contains(&queue_context).then_some(()))
    };
    let strategy = channel.domain().strategy();
    strategy.until("polling the poll set", is_reported)?;
    let queue: &Queue = match queue_context {
        TX => &channel.endpoint.tx,
        _ => &channel.endpoint.rx,
    };
    let mut entry = [Entry::default()];
    match queue.poll(&mut entry)? {
        0 => Err(wrong("the poll set reports a queue that has no completion")),
        _ => Ok(entry[0]),
    }
}
