//! `fi_scalable_ep`: each context of a scalable endpoint sends to each context of the peer.

use std::sync::Arc;

use anyhow::Context as _;
use selvedge::info::EpType;
use selvedge::{Address, Caps, FiAddr, OpFlags, ScalableEndpoint};
use selvedge_testkit::domain::{DomainContext, DomainEndpoint, EndpointConfig, Memory, Recv, Send};
use selvedge_testkit::failure::wrong;

use crate::upstream::data::payload::{POISON, Stamp};
use crate::upstream::functional::wait_for_all;
use crate::upstream::options::{OptionSet, Options};
use crate::upstream::setup::discover::{discover, hints};
use crate::upstream::setup::domain;
use crate::upstream::setup::oob::OutOfBandChannel;

/// The options of the program.
pub(in crate::upstream) const CONTEXTS: OptionSet = OptionSet {
    long: &["ctx-count="],
    ..crate::upstream::functional::option_set("")
};

/// The number of address bits that select the receive context.
const RX_CTX_BITS: u32 = 8;
/// Bytes of a message.
const LEN: usize = 200;
/// The operation contexts of receives are above those of sends.
const RECEIVES: u64 = 1 << 32;

/// A scalable endpoint with its contexts and the peer's address.
struct ScalableSetup {
    domain: Arc<DomainContext>,
    _sep: Arc<dyn ScalableEndpoint>,
    contexts: Vec<DomainEndpoint>,
    peer: FiAddr,
}

/// Runs the program.
pub(in crate::upstream) fn scalable_ep(options: &Options) -> anyhow::Result<()> {
    let options = crate::upstream::functional::with_out_of_band(options, false);
    let count = options.number("ctx-count", 2)?;
    let mut oob = OutOfBandChannel::establish(&options)?;
    let setup = open(&options, count, &mut oob)?;
    for round in 0..3 {
        exchange(&options, &setup, round, &mut oob)?;
    }
    oob.barrier()
}

fn open(
    options: &Options,
    count: usize,
    oob: &mut OutOfBandChannel,
) -> anyhow::Result<ScalableSetup> {
    let caps = Caps::MSG | Caps::NAMED_RX_CTX | Caps::SOURCE;
    let hints = hints(options, caps, EpType::Rdm)?.edit(|info| {
        info.ep_attr.tx_ctx_cnt = count;
        info.ep_attr.rx_ctx_cnt = count;
    });
    let domain = domain::open(options, discover(options, &hints)?)?;
    let sep = domain.domain().scalable_endpoint(domain.info());
    let sep = sep.context("cannot open a scalable endpoint")?;
    let av = domain.av_with(|attr| attr.rx_ctx_bits = RX_CTX_BITS)?;
    let contexts = (0..count)
        .map(|index| {
            let endpoint_config = EndpointConfig {
                av: Some(Arc::clone(&av)),
                context: Some((Arc::clone(&sep), index)),
                ..EndpointConfig::default()
            };
            domain.endpoint(endpoint_config)
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let from_peer = oob.exchange(&sep.address()?.to_bytes())?;
    let address = Address::from_bytes(&from_peer).context("the peer's address is invalid")?;
    Ok(ScalableSetup {
        peer: av.insert_one(&address)?,
        domain,
        _sep: sep,
        contexts,
    })
}

/// Sends one message from each context to each context of the peer, in both directions.
fn exchange(
    options: &Options,
    setup: &ScalableSetup,
    round: u64,
    oob: &mut OutOfBandChannel,
) -> anyhow::Result<()> {
    let count = setup.contexts.len();
    let len = count * count * LEN;
    let (sent, received) = (setup.domain.buffers(len)?, setup.domain.buffers(len)?);
    received.memory.fill(0, len, POISON);
    let stamp = |from_client, from: usize, to: usize| {
        let number = (round as usize * count + from) * count + to;
        Stamp::of_pair(from_client, number as u64)
    };
    for (to, endpoint) in setup.contexts.iter().enumerate() {
        for slot in to * count..(to + 1) * count {
            let recv = Recv::new(RECEIVES + slot as u64).flags(OpFlags::COMPLETION);
            let segment = [received.segment(slot * LEN, LEN)];
            endpoint
                .recv(&segment, &recv)
                .context("cannot post a receive")?;
        }
    }
    oob.barrier()?;
    for (from, endpoint) in setup.contexts.iter().enumerate() {
        for to in 0..count {
            let offset = (from * count + to) * LEN;
            stamp(options.is_client(), from, to).write(&sent.memory, offset, LEN);
            let send = Send::new(
                setup.peer.rx_addr(to, RX_CTX_BITS),
                (from * count + to) as u64,
            )
            .flags(OpFlags::COMPLETION);
            endpoint.push("send", |endpoint| {
                endpoint.send(&[sent.segment(offset, LEN)], &send)
            })?;
        }
    }
    // Gathers the completions of all queues together: each context needs progress on its own
    // queues, and the peer may wait for any of them.
    let queues = setup
        .contexts
        .iter()
        .flat_map(|endpoint| [&endpoint.tx, &endpoint.rx]);
    let queues: Vec<_> = queues.collect();
    let slots = 0..(count * count) as u64;
    wait_for_all(&queues, slots.flat_map(|slot| [slot, RECEIVES + slot]))?;
    for to in 0..count {
        check(&received.memory, to * count, count, |from| {
            stamp(!options.is_client(), from, to)
        })?;
    }
    oob.barrier()
}

/// Checks that every context of the peer has sent one message to this context. The order is not
/// guaranteed.
fn check(
    memory: &Memory,
    first: usize,
    count: usize,
    stamp: impl Fn(usize) -> Stamp,
) -> anyhow::Result<()> {
    for from in 0..count {
        let holds_message =
            |slot: usize| stamp(from).check(memory, (first + slot) * LEN, LEN).is_ok();
        if !(0..count).any(holds_message) {
            let to = first / count;
            let message = format!("context {to} has no message from context {from} of the peer");
            return Err(wrong(message));
        }
    }
    Ok(())
}
