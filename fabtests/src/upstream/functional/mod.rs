//! The functional programs of upstream's fabtests: each checks one feature of the API.

mod connections;
mod memory;
mod messages;
mod objects;
mod stress;

use std::collections::BTreeSet;

use anyhow::Context as _;
use selvedge::Caps;
use selvedge::info::EpType;
use selvedge_testkit::domain::Queue;
use selvedge_testkit::failure::wrong;

use super::channel::{Channel, ChannelConfig};
use super::options::{
    ADDRESS, FABRIC, INFO, OUT_OF_BAND_PORT, OptionSet, Options, OutOfBand, PAIR,
};
use super::setup::discover::{discover, hints};

pub(super) use connections::cm::cm_data;
pub(super) use connections::sockets::msg_sockets;
pub(super) use memory::atomic::rdm_atomic;
pub(super) use memory::regions::multi_mr;
pub(super) use memory::rma_event::rdm_rma_event;
pub(super) use memory::trigger::{DEFERRED, rdm_deferred_wq, rdm_rma_trigger};
pub(super) use memory::unmap::unmap_mem;
pub(super) use messages::cancel::recv_cancel;
pub(super) use messages::completion_data::cq_data;
pub(super) use messages::flood::flood;
pub(super) use messages::greeting::{dgram, loopback, msg, msg_epoll, rdm};
pub(super) use messages::inject::inject_test;
pub(super) use messages::multi_recv::{OPTIONS as MULTI_RECV, multi_recv};
pub(super) use messages::multicast::{OPTIONS as MULTICAST, mcast};
pub(super) use messages::peek::rdm_tagged_peek;
pub(super) use messages::unexpected::unexpected_msg;
pub(super) use objects::av::av_xfer;
pub(super) use objects::poll::poll;
pub(super) use objects::resources::{OPTIONS as RESOURCES, resmgmt_test};
pub(super) use objects::scalable::{CONTEXTS, scalable_ep};
pub(super) use objects::several::{multi_ep, rdm_multi_client, rdm_multi_domain};
pub(super) use objects::shared::{SHARED_CONTEXTS, shared_ctx};
pub(super) use objects::shared_av::{SHARED_AV, rdm_shared_av};
pub(super) use stress::{OPTIONS as STRESS, rdm_stress};

/// The options of a functional program: those that all of them have, and `own`, which only this one
/// has.
pub(super) const fn option_set(specific: &'static str) -> OptionSet {
    OptionSet {
        common: &[ADDRESS, FABRIC, INFO, PAIR, "o:v"],
        specific,
        long: &[],
    }
}

/// Opens a channel with the endpoint type that the options request; `FI_EP_RDM` by default.
fn open(options: &Options, caps: Caps, config: ChannelConfig) -> anyhow::Result<Channel> {
    match options.ep_type {
        Some(EpType::Msg) => super::channel::open_channel(options, caps, config),
        ep_type => {
            let hints = hints(options, caps, ep_type.unwrap_or(EpType::Rdm))?;
            let info = discover(options, &hints)?;
            Channel::open(options, info, config)
        }
    }
}

/// The options, changed so that addresses are exchanged out of band. With `sync`, barriers use the
/// out-of-band connection too.
fn with_out_of_band(options: &Options, sync: bool) -> Options {
    let mut options = options.clone();
    let out_of_band = options.out_of_band.get_or_insert(OutOfBand {
        port: OUT_OF_BAND_PORT,
        sync: false,
    });
    out_of_band.sync |= sync;
    options
}

/// Reads completion queues until the operations with these contexts have completed, each once. A
/// completion of any other operation is an error.
pub(super) fn wait_for_all(
    queues: &[&Queue],
    contexts: impl IntoIterator<Item = u64>,
) -> anyhow::Result<()> {
    let mut missing: BTreeSet<u64> = contexts.into_iter().collect();
    let strategy = queues[0].strategy();
    let waited = strategy.until("waiting for completions", || {
        for queue in queues {
            let mut entries = [selvedge::cq::Entry::default(); 16];
            let count = queue.poll(&mut entries)?;
            for entry in &entries[..count] {
                if !missing.remove(&entry.context.0) {
                    return Err(wrong(format!(
                        "an unexpected completion {entry:?}; the contexts {missing:?} are outstanding"
                    )));
                }
            }
        }
        Ok(missing.is_empty().then_some(()))
    });
    waited
        .with_context(|| format!("the operations with the contexts {missing:?} have not completed"))
}
