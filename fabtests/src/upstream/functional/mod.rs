//! The functional programs: each checks one thing that applications rely on.

mod absent;
mod atomic;
mod av;
mod cancel;
mod cm;
mod completion_data;
mod flood;
mod greeting;
mod inject;
mod many;
mod multi_recv;
mod multicast;
mod peek;
mod poll;
mod regions;
mod resources;
mod rma_event;
mod scalable;
mod shared;
mod shared_av;
mod sockets;
mod trigger;
mod unexpected;
mod unmap;

use std::collections::BTreeSet;

use anyhow::Context as _;
use selvedge::Caps;
use selvedge::info::EpType;
use selvedge_testkit::domain::Queue;
use selvedge_testkit::failure::wrong;

use super::channel::{Channel, Manners};
use super::discover::{discover, hints};
use super::options::{ADDRESS, FABRIC, INFO, Letters, OUT_OF_BAND_PORT, Options, OutOfBand, PAIR};

pub(super) use absent::*;
pub(super) use atomic::rdm_atomic;
pub(super) use av::av_xfer;
pub(super) use cancel::recv_cancel;
pub(super) use cm::cm_data;
pub(super) use completion_data::cq_data;
pub(super) use flood::flood;
pub(super) use greeting::{dgram, loopback, msg, msg_epoll, rdm};
pub(super) use inject::inject_test;
pub(super) use many::{multi_ep, rdm_multi_client, rdm_multi_domain};
pub(super) use multi_recv::{LETTERS as MULTI_RECV, multi_recv};
pub(super) use multicast::{LETTERS as MULTICAST, mcast};
pub(super) use peek::rdm_tagged_peek;
pub(super) use poll::poll;
pub(super) use regions::multi_mr;
pub(super) use resources::{LETTERS as RESOURCES, resmgmt_test};
pub(super) use rma_event::rdm_rma_event;
pub(super) use scalable::{CONTEXTS, scalable_ep};
pub(super) use shared::{SHARED_CONTEXTS, shared_ctx};
pub(super) use shared_av::{SHARED_AV, rdm_shared_av};
pub(super) use sockets::msg_sockets;
pub(super) use trigger::{DEFERRED, rdm_deferred_wq, rdm_rma_trigger};
pub(super) use unexpected::unexpected_msg;
pub(super) use unmap::unmap_mem;

/// The letters of a program with some of its own.
pub(super) const fn letters(own: &'static str) -> Letters {
    Letters {
        common: &[ADDRESS, FABRIC, INFO, PAIR, "o:v"],
        own,
        long: &[],
    }
}

/// Opens a channel, of the type of endpoint that is asked for.
fn open(options: &Options, caps: Caps, manners: Manners) -> anyhow::Result<Channel> {
    match options.ep_type {
        Some(EpType::Msg) => super::connect::channel(options, caps, manners),
        ep_type => {
            let hints = hints(options, caps, ep_type.unwrap_or(EpType::Rdm))?;
            let info = discover(options, &hints)?;
            Channel::open(options, info, manners)
        }
    }
}

/// The options, with addresses exchanged beside the fabric.
fn beside(options: &Options, sync: bool) -> Options {
    let mut options = options.clone();
    let oob = options.out_of_band.get_or_insert(OutOfBand {
        port: OUT_OF_BAND_PORT,
        sync: false,
    });
    oob.sync |= sync;
    options
}

/// Waits at some queues until each of some operations has completed, once, and nothing else has.
pub(super) fn gather(
    queues: &[&Queue],
    contexts: impl IntoIterator<Item = u64>,
) -> anyhow::Result<()> {
    let mut missing: BTreeSet<u64> = contexts.into_iter().collect();
    let manner = queues[0].strategy();
    let waited = manner.until("waiting for completions", || {
        for queue in queues {
            let mut entries = [selvedge::cq::Entry::default(); 16];
            let count = queue.poll(&mut entries)?;
            for entry in &entries[..count] {
                if !missing.remove(&entry.context.0) {
                    return Err(wrong(format!("nobody waits for {entry:?}: {missing:?}")));
                }
            }
        }
        Ok(missing.is_empty().then_some(()))
    });
    waited.with_context(|| format!("{missing:?} are to complete"))
}
