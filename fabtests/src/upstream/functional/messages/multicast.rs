//! `fi_mcast`: a greeting to all members of a group.
//!
//! Every process names the group; processes with `-M` receive, the other one sends. A message
//! without a receiver is lost, so receivers are started first, or one of them synchronises with the
//! sender outside the fabric (`-b`).

use anyhow::{Context as _, ensure};
use selvedge::eq::{self, Event};
use selvedge::info::EpType;
use selvedge::{Address, Caps, CompletionFlags, Context, FiAddr, Membership, OpFlags};
use selvedge_testkit::domain::{Block, DomainEndpoint, EndpointConfig, Recv, Send, WaitStrategy};
use selvedge_testkit::failure::wrong;

use super::greeting::GREETING;
use crate::upstream::data::payload::{CANARY, check_around, poison};
use crate::upstream::functional::option_set;
use crate::upstream::options::{OptionSet, Options};
use crate::upstream::setup::discover::{discover_peer, hints};
use crate::upstream::setup::domain;
use crate::upstream::setup::oob::OutOfBandChannel;

/// The options of the program.
pub(in crate::upstream) const OPTIONS: OptionSet = option_set("M");

/// Size of the receive buffer, between canaries.
const CAPACITY: usize = 256;
const JOIN_CONTEXT: Context = Context(9);
const GREETING_CONTEXT: u64 = 1;

/// Runs the program.
pub(in crate::upstream) fn mcast(options: &Options) -> anyhow::Result<()> {
    let group = options.server.as_deref();
    let group = group.context("the group's address is missing, as 239.1.2.3")?;
    let hints = hints(options, Caps::MSG | Caps::MULTICAST, EpType::Dgram)?;
    let info = discover_peer(options, &hints, group)?;
    let address = info.dest_addr.clone();
    let address = address.context("discovery gives no address of the group")?;
    let eq = info.fabric()?.eq(&eq::Attr::default())?;
    let domain = domain::open(options, info)?;
    let endpoint = domain.endpoint(EndpointConfig {
        eq: Some(eq.clone()),
        ..EndpointConfig::default()
    })?;
    let group = join(&endpoint, &*eq, &address)?;
    let oob = connect_out_of_band(options)?;
    if options.has("M") {
        receive_greeting(&endpoint, oob)
    } else {
        send_greeting(&endpoint, group.addr(), oob)
    }
}

fn join(
    endpoint: &DomainEndpoint,
    eq: &dyn selvedge::EventQueue,
    group: &Address,
) -> anyhow::Result<std::sync::Arc<dyn Membership>> {
    let member = endpoint.ep.join(group, JOIN_CONTEXT);
    let member = member.with_context(|| format!("cannot join {group}"))?;
    match endpoint
        .context
        .strategy()
        .until("the group", || Ok(eq.read().ok()))?
    {
        Event::JoinComplete { context } if context == JOIN_CONTEXT => Ok(member),
        other => Err(wrong(format!("joining {group} returned {other:?}"))),
    }
}

/// Opens the out-of-band connection between the sender and a receiver; the receiver listens.
fn connect_out_of_band(options: &Options) -> anyhow::Result<Option<OutOfBandChannel>> {
    if options.out_of_band.is_none() {
        return Ok(None);
    }
    let mut options = options.clone();
    options.server = if options.has("M") {
        None
    } else {
        Some("127.0.0.1".into())
    };
    OutOfBandChannel::establish(&options).map(Some)
}

fn receive_greeting(
    endpoint: &DomainEndpoint,
    oob: Option<OutOfBandChannel>,
) -> anyhow::Result<()> {
    let block = endpoint.context.buffers(CAPACITY + 2 * CANARY)?;
    poison(&block.memory, CANARY, CAPACITY);
    let recv = Recv::new(GREETING_CONTEXT);
    let segment = block.segment(CANARY, CAPACITY);
    endpoint.push("receive", |endpoint| endpoint.recv(&[segment], &recv))?;
    println!("Waiting for message from client...");
    if let Some(mut oob) = oob {
        oob.barrier()?;
    }
    let endless = endpoint.rx.with_strategy(WaitStrategy::endless);
    let entry = endless.next()?;
    let is_expected = entry.context.0 == GREETING_CONTEXT
        && entry.len == GREETING.len()
        && entry.flags == CompletionFlags::MSG | CompletionFlags::RECV;
    ensure!(
        is_expected,
        "the greeting of {} bytes completed with {entry:?}",
        GREETING.len()
    );
    check(&block, entry.len)?;
    println!("Received data from client: Hello from Client!");
    Ok(())
}

fn check(block: &Block, len: usize) -> anyhow::Result<()> {
    let greeting = block.memory.get(CANARY, len);
    if greeting != GREETING {
        return Err(wrong(format!(
            "the greeting is {greeting:?} instead of \"Hello from Client!\""
        )));
    }
    check_around(&block.memory, CANARY, len, CAPACITY)
}

fn send_greeting(
    endpoint: &DomainEndpoint,
    group: FiAddr,
    oob: Option<OutOfBandChannel>,
) -> anyhow::Result<()> {
    let block = endpoint.context.buffers(GREETING.len())?;
    block.memory.put(0, GREETING);
    if let Some(mut oob) = oob {
        oob.barrier()?;
    }
    println!("Sending message...");
    let send = Send::new(group, GREETING_CONTEXT).flags(OpFlags::MULTICAST | OpFlags::COMPLETION);
    endpoint.push("send", |endpoint| endpoint.send(&[block.whole()], &send))?;
    crate::upstream::functional::wait_for_all(&[&endpoint.tx], [GREETING_CONTEXT])?;
    println!("Send completion received");
    Ok(())
}
