//! One message from the client to the server, over every type of endpoint, and to the sender
//! itself.

use anyhow::Context as _;
use selvedge::info::EpType;
use selvedge::{Caps, Errno, OpFlags, TagMatch};
use selvedge_testkit::domain::{EndpointConfig, Recv, Send};
use selvedge_testkit::failure::wrong;

use crate::upstream::channel::{Channel, ChannelConfig, open_channel};
use crate::upstream::data::payload::{POISON, Stamp};
use crate::upstream::functional::open;
use crate::upstream::options::{Options, WaitMethod};
use crate::upstream::setup::discover::{discover, hints};
use crate::upstream::setup::domain;

/// The message of upstream's clients.
pub(in crate::upstream) const GREETING: &[u8] = b"Hello from Client!";

/// `fi_rdm`: the client may end as soon as its message is sent; with `-C`, the server serves
/// clients one after the other.
pub(in crate::upstream) fn rdm(options: &Options) -> anyhow::Result<()> {
    run_unconnected(options, EpType::Rdm)
}

/// `fi_dgram`.
pub(in crate::upstream) fn dgram(options: &Options) -> anyhow::Result<()> {
    run_unconnected(options, EpType::Dgram)
}

fn run_unconnected(options: &Options, ep_type: EpType) -> anyhow::Result<()> {
    let mut options = options.clone();
    options.ep_type = Some(ep_type);
    let mut flags = OpFlags::empty();
    flags.set(OpFlags::DELIVERY_COMPLETE, options.has("U"));
    let config = ChannelConfig {
        flags,
        ..ChannelConfig::default()
    };
    let mut channel = open(&options, Caps::MSG, config)?;
    exchange_greeting(&mut channel)?;
    if !options.is_client() {
        for _ in 1..options.connections {
            channel.handshake()?;
            exchange_greeting(&mut channel)?;
        }
    }
    Ok(())
}

pub(in crate::upstream) fn exchange_greeting(channel: &mut Channel) -> anyhow::Result<()> {
    if channel.is_client() {
        println!("Sending message...");
        channel.send_bytes(GREETING)?;
        println!("Send completion received");
        return Ok(());
    }
    println!("Waiting for message from client...");
    let greeting = channel.receive_whole()?;
    if greeting == GREETING {
        println!("Received data from client: Hello from Client!")
    } else {
        return Err(wrong(format!(
            "the greeting is {greeting:?} instead of \"Hello from Client!\""
        )));
    }
    Ok(())
}

/// `fi_msg`: over a connection, which is shut down at the end.
pub(in crate::upstream) fn msg(options: &Options) -> anyhow::Result<()> {
    let mut channel = open_channel(options, Caps::MSG, ChannelConfig::default())?;
    exchange_greeting(&mut channel)?;
    shut_down(&channel)
}

/// Shuts the connection down.
pub(in crate::upstream) fn shut_down(channel: &Channel) -> anyhow::Result<()> {
    let cm = channel
        .endpoint
        .ep
        .cm()
        .context("no connection to shut down")?;
    match cm.shutdown() {
        // The peer may have shut the connection down first.
        Ok(()) | Err(Errno::NotConn) => Ok(()),
        Err(errno) => Err(errno).context("fi_shutdown"),
    }
}

/// `fi_msg_epoll`: as `fi_msg`, with waits at the queues' descriptors. The greeting may arrive
/// before the wait begins, so synchronisations follow: some of their messages arrive during a wait.
pub(in crate::upstream) fn msg_epoll(options: &Options) -> anyhow::Result<()> {
    let mut options = options.clone();
    options.waiting = WaitMethod::Fd;
    let mut channel = open_channel(&options, Caps::MSG, ChannelConfig::default())?;
    exchange_greeting(&mut channel)?;
    for _ in 0..SYNCS {
        channel.sync()?;
    }
    shut_down(&channel)
}

/// Number of synchronisations.
const SYNCS: usize = 10;

/// `fi_loopback`: one process, which sends to itself.
pub(in crate::upstream) fn loopback(options: &Options) -> anyhow::Result<()> {
    let mut options = options.clone();
    options.source.get_or_insert_with(|| "127.0.0.1".into());
    let caps = Caps::LOCAL_COMM | Caps::MSG | Caps::TAGGED;
    let info = discover(&options, &hints(&options, caps, EpType::Rdm)?)?;
    let domain = domain::open(&options, info)?;
    let endpoint = domain.endpoint(EndpointConfig::default())?;
    let self_addr = endpoint.av.insert_one(&endpoint.ep.address()?)?;
    let size = options.sizes.one().unwrap_or(1024);
    let (tx, rx) = (domain.buffers(size)?, domain.buffers(size)?);
    let stamp = Stamp::of_pair(true, 0);
    stamp.write(&tx.memory, 0, size);
    rx.memory.fill(0, size, POISON);
    let recv = Recv::new(1).tag(TagMatch::exact(7));
    endpoint.push("receive", |endpoint| endpoint.recv(&[rx.whole()], &recv))?;
    let send = Send::new(self_addr, 2).tag(7);
    endpoint.push("send", |endpoint| endpoint.send(&[tx.whole()], &send))?;
    crate::upstream::functional::wait_for_all(&[&endpoint.tx, &endpoint.rx], [1, 2])?;
    stamp.check(&rx.memory, 0, size)
}
