//! One message from the client to the server, over every type of endpoint, and to oneself.

use anyhow::Context as _;
use selvedge::info::EpType;
use selvedge::{Caps, Errno, OpFlags, TagMatch};
use selvedge_testkit::domain::{EndpointConfig, Recv, Send};
use selvedge_testkit::failure::wrong;

use super::open;
use crate::upstream::channel::{Channel, Manners};
use crate::upstream::connect;
use crate::upstream::discover::{discover, hints};
use crate::upstream::ground;
use crate::upstream::options::{Options, WaitMethod};
use crate::upstream::payload::{POISON, Stamp};

/// What clients of upstream's say.
pub(super) const GREETING: &[u8] = b"Hello from Client!";

/// `fi_rdm`: the client may end as soon as its message is sent; with `-C` the server takes clients
/// one after the other.
pub(in crate::upstream) fn rdm(options: &Options) -> anyhow::Result<()> {
    reliable(options, EpType::Rdm)
}

/// `fi_dgram`.
pub(in crate::upstream) fn dgram(options: &Options) -> anyhow::Result<()> {
    reliable(options, EpType::Dgram)
}

fn reliable(options: &Options, ep_type: EpType) -> anyhow::Result<()> {
    let mut options = options.clone();
    options.ep_type = Some(ep_type);
    let mut flags = OpFlags::empty();
    flags.set(OpFlags::DELIVERY_COMPLETE, options.has("U"));
    let manners = Manners {
        flags,
        ..Manners::default()
    };
    let mut channel = open(&options, Caps::MSG, manners)?;
    greet(&mut channel)?;
    if !options.is_client() {
        for _ in 1..options.connections {
            channel.meet()?;
            greet(&mut channel)?;
        }
    }
    Ok(())
}

pub(super) fn greet(channel: &mut Channel) -> anyhow::Result<()> {
    if channel.is_client() {
        println!("Sending message...");
        channel.say(GREETING)?;
        println!("Send completion received");
        return Ok(());
    }
    println!("Waiting for message from client...");
    let greeting = channel.take_whole()?;
    match greeting == GREETING {
        true => println!("Received data from client: Hello from Client!"),
        false => return Err(wrong(format!("the greeting is {greeting:?}"))),
    }
    Ok(())
}

/// `fi_msg`: over a connection, which is shut down in the end.
pub(in crate::upstream) fn msg(options: &Options) -> anyhow::Result<()> {
    let mut channel = connect::channel(options, Caps::MSG, Manners::default())?;
    greet(&mut channel)?;
    part(&channel)
}

/// Shuts the connection down.
pub(super) fn part(channel: &Channel) -> anyhow::Result<()> {
    let cm = channel.end.ep.cm().context("no connection to shut down")?;
    match cm.shutdown() {
        // The peer may have been faster.
        Ok(()) | Err(Errno::NotConn) => Ok(()),
        Err(errno) => Err(errno).context("fi_shutdown"),
    }
}

/// `fi_msg_epoll`: the same, waiting at the queues' descriptors. The greeting may be there before
/// anybody waits for it; what the two say to each other in turn is not, each time.
pub(in crate::upstream) fn msg_epoll(options: &Options) -> anyhow::Result<()> {
    let mut options = options.clone();
    options.waiting = WaitMethod::Fd;
    let mut channel = connect::channel(&options, Caps::MSG, Manners::default())?;
    greet(&mut channel)?;
    for _ in 0..TURNS {
        channel.sync()?;
    }
    part(&channel)
}

/// How often each waits for the other.
const TURNS: usize = 10;

/// `fi_loopback`: one process, which sends to itself.
pub(in crate::upstream) fn loopback(options: &Options) -> anyhow::Result<()> {
    let mut options = options.clone();
    options.source.get_or_insert_with(|| "127.0.0.1".into());
    let caps = Caps::LOCAL_COMM | Caps::MSG | Caps::TAGGED;
    let info = discover(&options, &hints(&options, caps, EpType::Rdm)?)?;
    let ground = ground::open(&options, info)?;
    let end = ground.endpoint(EndpointConfig::default())?;
    let own = end.av.insert_one(&end.ep.address()?)?;
    let size = options.sizes.one().unwrap_or(1024);
    let (from, to) = (ground.buffers(size)?, ground.buffers(size)?);
    let stamp = Stamp::of_pair(true, 0);
    stamp.write(&from.memory, 0, size);
    to.memory.fill(0, size, POISON);
    let recv = Recv::new(1).tag(TagMatch::exact(7));
    end.push("receive", |end| end.recv(&[to.whole()], &recv))?;
    let send = Send::new(own, 2).tag(7);
    end.push("send", |end| end.send(&[from.whole()], &send))?;
    super::gather(&[&end.tx, &end.rx], [1, 2])?;
    stamp.check(&to.memory, 0, size)
}
