//! The benchmarks, with upstream's loops and upstream's tables.

mod bandwidth;
pub(super) mod fi_pingpong;
mod pingpong;
mod rma;
mod threads;

use selvedge::info::EpType;
use selvedge::{Caps, Info, OpFlags};
use selvedge_bench::cpu;

use super::channel::{Channel, ChannelConfig};
use super::options::{ADDRESS, BENCHMARK, FABRIC, INFO, OptionSet, Options, PAIR};
use super::setup::connector::Connector;
use super::setup::discover::{discover, hints};

pub(super) use bandwidth::{msg_bw, rdm_bw, rdm_tagged_bw};
pub(super) use pingpong::{
    DGRAM_PINGPONG_OPTIONS, dgram_pingpong, msg_pingpong, rdm_cntr_pingpong, rdm_pingpong,
    rdm_tagged_pingpong,
};
pub(super) use rma::{rma_bw, rma_pingpong, rma_tx_completion};
pub(super) use threads::{THREADS, rdm_bw_mt};

/// The options of all benchmarks.
pub(super) const OPTIONS: OptionSet = OptionSet {
    common: &[ADDRESS, FABRIC, INFO, PAIR, BENCHMARK],
    specific: "Ur",
    long: &[],
};

/// Opens a channel for messages of all requested sizes, and returns the sizes.
fn open(
    options: &Options,
    caps: Caps,
    ep_type: EpType,
    config: ChannelConfig,
) -> anyhow::Result<(Channel, Vec<usize>)> {
    pin(options)?;
    let hints = hints(options, caps, ep_type)?;
    let prepare = |info: &Info| {
        let sizes = options.sizes.list(info.ep_attr.max_msg_size);
        let mut flags = config.flags;
        flags.set(OpFlags::DELIVERY_COMPLETE, options.has("U"));
        let config = ChannelConfig {
            largest: sizes.iter().copied().max().unwrap_or(0),
            counters: config.counters || options.counters,
            flags,
            ..config
        };
        (config, sizes)
    };
    if options.ep_type.unwrap_or(ep_type) == EpType::Msg {
        let connector = Connector::with_hints(options, &hints)?;
        let (config, sizes) = prepare(&connector.info);
        return Ok((connector.open_channel(config)?, sizes));
    }
    let info = discover(options, &hints)?;
    let (config, sizes) = prepare(&info);
    Ok((Channel::open(options, info, config)?, sizes))
}

/// Binds the process to a core of `--pin-core`: the server to the first, the client to the last.
fn pin(options: &Options) -> anyhow::Result<()> {
    let core = if options.is_client() {
        options.cores.last()
    } else {
        options.cores.first()
    };
    core.map_or(Ok(()), |core| cpu::pin(*core))
}
