//! `fi_scalable_ep`: contexts of a scalable endpoint, each of which sends to each of the peer's.

use std::sync::Arc;

use anyhow::Context as _;
use selvedge::info::EpType;
use selvedge::{Address, Caps, FiAddr, OpFlags, ScalableEndpoint};
use selvedge_testkit::domain::{DomainContext, DomainEndpoint, EndpointConfig, Memory, Recv, Send};
use selvedge_testkit::failure::wrong;

use super::gather;
use crate::upstream::discover::{discover, hints};
use crate::upstream::ground;
use crate::upstream::oob::OutOfBandChannel;
use crate::upstream::options::{Letters, Options};
use crate::upstream::payload::{POISON, Stamp};

/// Its letters.
pub(in crate::upstream) const CONTEXTS: Letters = Letters {
    long: &["ctx-count="],
    ..super::letters("")
};

/// Bits of an address that say which context is meant.
const BITS: u32 = 8;
const LEN: usize = 200;
/// Contexts of receives are higher than those of sends.
const RECEIVES: u64 = 1 << 32;

/// A scalable endpoint, its contexts, and the peer's address.
struct Many {
    ground: Arc<DomainContext>,
    _sep: Arc<dyn ScalableEndpoint>,
    contexts: Vec<DomainEndpoint>,
    peer: FiAddr,
}

/// The program.
pub(in crate::upstream) fn scalable_ep(options: &Options) -> anyhow::Result<()> {
    let options = super::beside(options, false);
    let count = options.number("ctx-count", 2)?;
    let mut oob = OutOfBandChannel::meet(&options)?;
    let many = open(&options, count, &mut oob)?;
    for round in 0..3 {
        exchange(&options, &many, round, &mut oob)?;
    }
    oob.barrier()
}

fn open(options: &Options, count: usize, oob: &mut OutOfBandChannel) -> anyhow::Result<Many> {
    let caps = Caps::MSG | Caps::NAMED_RX_CTX | Caps::SOURCE;
    let hints = hints(options, caps, EpType::Rdm)?.edit(|info| {
        info.ep_attr.tx_ctx_cnt = count;
        info.ep_attr.rx_ctx_cnt = count;
    });
    let ground = ground::open(options, discover(options, &hints)?)?;
    let sep = ground.domain().scalable_endpoint(ground.info());
    let sep = sep.context("cannot open a scalable endpoint")?;
    let av = ground.av_with(|attr| attr.rx_ctx_bits = BITS)?;
    let contexts = (0..count)
        .map(|index| {
            let plan = EndpointConfig {
                av: Some(Arc::clone(&av)),
                context: Some((Arc::clone(&sep), index)),
                ..EndpointConfig::default()
            };
            ground.endpoint(plan)
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let theirs = oob.exchange(&sep.address()?.to_bytes())?;
    let address = Address::from_bytes(&theirs).context("the peer's address is none")?;
    Ok(Many {
        peer: av.insert_one(&address)?,
        ground,
        _sep: sep,
        contexts,
    })
}

/// One message from each context to each of the peer's, in both directions.
fn exchange(
    options: &Options,
    many: &Many,
    round: u64,
    oob: &mut OutOfBandChannel,
) -> anyhow::Result<()> {
    let count = many.contexts.len();
    let len = count * count * LEN;
    let (out, room) = (many.ground.buffers(len)?, many.ground.buffers(len)?);
    room.memory.fill(0, len, POISON);
    let stamp = |from_client, from: usize, to: usize| {
        let number = (round as usize * count + from) * count + to;
        Stamp::of_pair(from_client, number as u64)
    };
    for (to, end) in many.contexts.iter().enumerate() {
        for place in to * count..(to + 1) * count {
            let recv = Recv::new(RECEIVES + place as u64).flags(OpFlags::COMPLETION);
            let segment = [room.segment(place * LEN, LEN)];
            end.recv(&segment, &recv).context("posting a receive")?;
        }
    }
    oob.barrier()?;
    for (from, end) in many.contexts.iter().enumerate() {
        for to in 0..count {
            let at = (from * count + to) * LEN;
            stamp(options.is_client(), from, to).write(&out.memory, at, LEN);
            let send = Send::new(many.peer.rx_addr(to, BITS), (from * count + to) as u64)
                .flags(OpFlags::COMPLETION);
            end.push("send", |end| end.send(&[out.segment(at, LEN)], &send))?;
        }
    }
    // All together: each is driven by its own queues, and the peer may wait for any of them.
    let queues = many.contexts.iter().flat_map(|end| [&end.tx, &end.rx]);
    let queues: Vec<_> = queues.collect();
    let places = 0..(count * count) as u64;
    gather(&queues, places.flat_map(|place| [place, RECEIVES + place]))?;
    for to in 0..count {
        check(&room.memory, to * count, count, |from| {
            stamp(!options.is_client(), from, to)
        })?;
    }
    oob.barrier()
}

/// Every context of the peer has sent one message here; in which order is nobody's promise.
fn check(
    memory: &Memory,
    first: usize,
    count: usize,
    stamp: impl Fn(usize) -> Stamp,
) -> anyhow::Result<()> {
    for from in 0..count {
        let is_there = |place: usize| {
            stamp(from)
                .check(memory, (first + place) * LEN, LEN)
                .is_ok()
        };
        if !(0..count).any(is_there) {
            let to = first / count;
            let what = format!("context {to} has nothing from context {from} of the peer");
            return Err(wrong(what));
        }
    }
    Ok(())
}
