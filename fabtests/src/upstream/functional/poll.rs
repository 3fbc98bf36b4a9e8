//! `fi_poll`: a poll set names the queue in which something has completed, and no other.

use anyhow::ensure;
use selvedge::cq::Entry;
use selvedge::poll::{Member, Set};
use selvedge::{Caps, Context};
use selvedge_testkit::domain::{Queue, Send};
use selvedge_testkit::failure::wrong;

use super::greeting::GREETING;
use super::open;
use crate::upstream::channel::{Channel, Manners};
use crate::upstream::options::Options;

const TX: Context = Context(1);
const RX: Context = Context(2);
/// Messages in each direction.
const ROUNDS: usize = 10;

/// The program: greetings from the client to the server, each of which is sent back.
pub(in crate::upstream) fn poll(options: &Options) -> anyhow::Result<()> {
    let mut channel = open(options, Caps::MSG, Manners::default())?;
    let set = Set::new();
    set.add(Member::Cq(channel.end.tx.cq().clone()), TX)?;
    set.add(Member::Cq(channel.end.rx.cq().clone()), RX)?;
    for round in 0..ROUNDS {
        let greeting = [GREETING, &[round as u8]].concat();
        if channel.is_client() {
            send(&mut channel, &set, &greeting)?;
        }
        let entry = ready(&channel, &set, RX)?;
        let heard = channel.accept(&entry)?;
        if heard != greeting {
            return Err(wrong(format!("the greeting is {heard:?}")));
        }
        if !channel.is_client() {
            send(&mut channel, &set, &greeting)?;
        }
    }
    println!("Polled {} messages", 2 * ROUNDS);
    channel.finish()
}

fn send(channel: &mut Channel, set: &Set, bytes: &[u8]) -> anyhow::Result<()> {
    let block = channel.ground().buffers(bytes.len())?;
    block.memory.put(0, bytes);
    let send = Send::new(channel.peer, 77);
    let end = &channel.end;
    end.push("send", |end| end.send(&[block.whole()], &send))?;
    let entry = ready(channel, set, TX)?;
    ensure!(entry.context.0 == 77, "another send completes: {entry:?}");
    channel.skip();
    Ok(())
}

/// Polls until a queue is named, and reads it: then it is not named any more, unless something else
/// has come.
fn ready(channel: &Channel, set: &Set, selection: Context) -> anyhow::Result<Entry> {
    let named = || {
        let mut out = [Context(0); 2];
        let count = set.poll(&mut out);
        Ok(out[..count].contains(&selection).then_some(()))
    };
    let manner = channel.ground().strategy();
    manner.until("polling", named)?;
    let queue: &Queue = match selection {
        TX => &channel.end.tx,
        _ => &channel.end.rx,
    };
    let mut entry = [Entry::default()];
    match queue.poll(&mut entry)? {
        0 => Err(wrong("a queue is ready that has nothing to read")),
        _ => Ok(entry[0]),
    }
}
