//! `fi_mcast`: a greeting to all members of a group.
//!
//! Every process names the group; those with `-M` listen, the other one sends. What nobody hears is
//! lost, so listeners are started first, or one of them agrees with the sender beside the fabric
//! (`-b`).

use anyhow::{Context as _, ensure};
use selvedge::eq::{self, Event};
use selvedge::info::EpType;
use selvedge::{Address, Caps, CompletionFlags, Context, FiAddr, Membership, OpFlags};
use selvedge_testkit::domain::{Block, DomainEndpoint, EndpointConfig, Recv, Send, WaitStrategy};
use selvedge_testkit::failure::wrong;

use super::greeting::GREETING;
use super::letters;
use crate::upstream::discover::{hints, toward};
use crate::upstream::ground;
use crate::upstream::oob::OutOfBandChannel;
use crate::upstream::options::{Letters, Options};
use crate::upstream::payload::{CANARY, check_around, poison};

/// Its letters.
pub(in crate::upstream) const LETTERS: Letters = letters("M");

/// Room for the greeting, between canaries.
const ROOM: usize = 256;
const JOINED: Context = Context(9);
const GREETED: u64 = 1;

/// The program.
pub(in crate::upstream) fn mcast(options: &Options) -> anyhow::Result<()> {
    let group = options.server.as_deref();
    let group = group.context("the group's address is missing, as 239.1.2.3")?;
    let hints = hints(options, Caps::MSG | Caps::MULTICAST, EpType::Dgram)?;
    let info = toward(options, &hints, group)?;
    let address = info.dest_addr.clone();
    let address = address.context("discovery gives no address of the group")?;
    let eq = info.fabric()?.eq(&eq::Attr::default())?;
    let ground = ground::open(options, info)?;
    let end = ground.endpoint(EndpointConfig {
        eq: Some(eq.clone()),
        ..EndpointConfig::default()
    })?;
    let group = join(&end, &*eq, &address)?;
    let beside = beside(options)?;
    match options.has("M") {
        true => listen(&end, beside),
        false => greet(&end, group.addr(), beside),
    }
}

fn join(
    end: &DomainEndpoint,
    eq: &dyn selvedge::EventQueue,
    group: &Address,
) -> anyhow::Result<std::sync::Arc<dyn Membership>> {
    let member = end.ep.join(group, JOINED);
    let member = member.with_context(|| format!("cannot join {group}"))?;
    match end
        .context
        .strategy()
        .until("the group", || Ok(eq.read().ok()))?
    {
        Event::JoinComplete { context } if context == JOINED => Ok(member),
        other => Err(wrong(format!("joining {group} is answered with {other:?}"))),
    }
}

/// The connection between the sender and a listener, which waits for it.
fn beside(options: &Options) -> anyhow::Result<Option<OutOfBandChannel>> {
    if options.out_of_band.is_none() {
        return Ok(None);
    }
    let mut options = options.clone();
    options.server = match options.has("M") {
        true => None,
        false => Some("127.0.0.1".into()),
    };
    OutOfBandChannel::meet(&options).map(Some)
}

fn listen(end: &DomainEndpoint, beside: Option<OutOfBandChannel>) -> anyhow::Result<()> {
    let block = end.context.buffers(ROOM + 2 * CANARY)?;
    poison(&block.memory, CANARY, ROOM);
    let recv = Recv::new(GREETED);
    let segment = block.segment(CANARY, ROOM);
    end.push("receive", |end| end.recv(&[segment], &recv))?;
    println!("Waiting for message from client...");
    if let Some(mut line) = beside {
        line.barrier()?;
    }
    let endless = end.rx.with_strategy(WaitStrategy::endless);
    let entry = endless.next()?;
    let is_right = entry.context.0 == GREETED
        && entry.len == GREETING.len()
        && entry.flags == CompletionFlags::MSG | CompletionFlags::RECV;
    ensure!(is_right, "{} bytes: {entry:?}", GREETING.len());
    check(&block, entry.len)?;
    println!("Received data from client: Hello from Client!");
    Ok(())
}

fn check(block: &Block, len: usize) -> anyhow::Result<()> {
    let greeting = block.memory.get(CANARY, len);
    if greeting != GREETING {
        return Err(wrong(format!("the greeting is {greeting:?}")));
    }
    check_around(&block.memory, CANARY, len, ROOM)
}

fn greet(
    end: &DomainEndpoint,
    group: FiAddr,
    beside: Option<OutOfBandChannel>,
) -> anyhow::Result<()> {
    let block = end.context.buffers(GREETING.len())?;
    block.memory.put(0, GREETING);
    if let Some(mut line) = beside {
        line.barrier()?;
    }
    println!("Sending message...");
    let send = Send::new(group, GREETED).flags(OpFlags::MULTICAST | OpFlags::COMPLETION);
    end.push("send", |end| end.send(&[block.whole()], &send))?;
    super::gather(&[&end.tx], [GREETED])?;
    println!("Send completion received");
    Ok(())
}
