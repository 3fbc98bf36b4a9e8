//! The benchmarks: upstream's loops, and upstream's tables.

mod bandwidth;
mod pingpong;
mod rma;
mod threads;

use selvedge::info::EpType;
use selvedge::{Caps, Info, OpFlags};

use super::channel::{Channel, Manners};
use super::connect::Door;
use super::discover::{discover, hints};
use super::options::{ADDRESS, BENCHMARK, FABRIC, INFO, Letters, Options, PAIR};

pub(super) use bandwidth::{msg_bw, rdm_bw, rdm_tagged_bw};
pub(super) use pingpong::{
    DATAGRAMS, dgram_pingpong, msg_pingpong, rdm_cntr_pingpong, rdm_pingpong, rdm_tagged_pingpong,
};
pub(super) use rma::{rma_bw, rma_pingpong, rma_tx_completion};
pub(super) use threads::{THREADS, rdm_bw_mt};

/// What all benchmarks take.
pub(super) const LETTERS: Letters = Letters {
    common: &[ADDRESS, FABRIC, INFO, PAIR, BENCHMARK],
    own: "Ur",
    long: &[],
};

/// Opens a channel for messages of all sizes that are asked for, and says which these are.
fn open(
    options: &Options,
    caps: Caps,
    ep_type: EpType,
    manners: Manners,
) -> anyhow::Result<(Channel, Vec<usize>)> {
    super::pin(options)?;
    let hints = hints(options, caps, ep_type)?;
    let prepare = |info: &Info| {
        let sizes = options.sizes.list(info.ep_attr.max_msg_size);
        let mut flags = manners.flags;
        flags.set(OpFlags::DELIVERY_COMPLETE, options.has("U"));
        let manners = Manners {
            largest: sizes.iter().copied().max().unwrap_or(0),
            counters: manners.counters || options.counters,
            flags,
            ..manners
        };
        (manners, sizes)
    };
    if options.ep_type.unwrap_or(ep_type) == EpType::Msg {
        let door = Door::with(options, &hints)?;
        let (manners, sizes) = prepare(&door.info);
        return Ok((door.channel(manners)?, sizes));
    }
    let info = discover(options, &hints)?;
    let (manners, sizes) = prepare(&info);
    Ok((Channel::open(options, info, manners)?, sizes))
}
