//! `fi_shared_ctx`: endpoints that share a receive context, a transmit context, or both.

use std::sync::Arc;

use anyhow::Context as _;
use selvedge::info::{EpType, Info};
use selvedge::{Address, Caps, FiAddr, OpFlags, SharedReceives};
use selvedge_testkit::domain::{DomainContext, DomainEndpoint, EndpointConfig, Queue, Recv, Send};

use super::gather;
use crate::upstream::connect::Door;
use crate::upstream::discover::{discover, hints};
use crate::upstream::ground;
use crate::upstream::oob::OutOfBandChannel;
use crate::upstream::options::{Letters, Options};
use crate::upstream::payload::{POISON, Stamp};

/// Its letters.
pub(in crate::upstream) const SHARED_CONTEXTS: Letters = Letters {
    long: &["no-tx-shared-ctx", "no-rx-shared-ctx", "ep-count="],
    ..super::letters("")
};

/// What the endpoints have in common.
struct Common {
    ground: Arc<DomainContext>,
    srx: Option<Arc<dyn SharedReceives>>,
    tx: Queue,
    rx: Queue,
}

/// The program.
pub(in crate::upstream) fn shared_ctx(options: &Options) -> anyhow::Result<()> {
    let options = super::beside(options, false);
    let count = options.number("ep-count", 4)?;
    let mut oob = OutOfBandChannel::meet(&options)?;
    let (common, ends) = match options.ep_type {
        Some(EpType::Msg) => connected(&options, count)?,
        ep_type => unconnected(&options, ep_type.unwrap_or(EpType::Rdm), count, &mut oob)?,
    };
    for round in 0..3 {
        exchange(&options, &common, &ends, round, &mut oob)?;
    }
    oob.barrier()
}

/// `FI_SHARED_CONTEXT`, as a number of contexts.
const SHARED_CONTEXT: usize = usize::MAX;

/// Asks for the contexts that are to be shared.
fn ask(options: &Options, info: &mut Info) {
    if !options.has("no-tx-shared-ctx") {
        info.ep_attr.tx_ctx_cnt = SHARED_CONTEXT;
    }
    if !options.has("no-rx-shared-ctx") {
        info.ep_attr.rx_ctx_cnt = SHARED_CONTEXT;
    }
}

impl Common {
    fn of(options: &Options, ground: Arc<DomainContext>) -> anyhow::Result<Self> {
        let srx = match options.has("no-rx-shared-ctx") {
            true => None,
            false => {
                let srx = ground.domain().srx(&ground.info().rx_attr);
                Some(srx.context("cannot open a shared receive context")?)
            }
        };
        let (tx, rx) = (ground.queue(64)?, ground.queue(64)?);
        Ok(Self {
            ground,
            srx,
            tx,
            rx,
        })
    }

    fn plan(&self) -> EndpointConfig {
        EndpointConfig {
            tx: Some(self.tx.clone()),
            rx: Some(self.rx.clone()),
            srx: self.srx.clone(),
            ..EndpointConfig::default()
        }
    }
}

type Ends = Vec<(DomainEndpoint, FiAddr)>;

fn unconnected(
    options: &Options,
    ep_type: EpType,
    count: usize,
    oob: &mut OutOfBandChannel,
) -> anyhow::Result<(Common, Ends)> {
    let hints = hints(options, Caps::MSG, ep_type)?.edit(|info| ask(options, info));
    let ground = ground::open(options, discover(options, &hints)?)?;
    let av = ground.av()?;
    let common = Common::of(options, ground)?;
    let mut ends = Vec::new();
    for _ in 0..count {
        let end = common.ground.endpoint(EndpointConfig {
            av: Some(Arc::clone(&av)),
            ..common.plan()
        })?;
        let theirs = oob.exchange(&end.name()?)?;
        let address = Address::from_bytes(&theirs).context("the peer's address is none")?;
        let peer = end.av.insert_one(&address)?;
        ends.push((end, peer));
    }
    Ok((common, ends))
}

fn connected(options: &Options, count: usize) -> anyhow::Result<(Common, Ends)> {
    let mut options = options.clone();
    // The server is known by its address; the connection beside is for barriers.
    options.out_of_band = None;
    let door = Door::open(&options, Caps::MSG)?;
    let mut common: Option<Common> = None;
    let mut ends = Vec::new();
    for _ in 0..count {
        let mut info = match door.pep {
            Some(_) => door.request()?.0,
            None => door.info.clone(),
        };
        ask(&options, &mut info);
        let common = match &common {
            Some(common) => common,
            None => {
                let ground = ground::on(&options, &*info.fabric()?, info.clone())?;
                common.insert(Common::of(&options, ground)?)
            }
        };
        let end = door.patiently(|| {
            let end = common.ground.endpoint(EndpointConfig {
                eq: door.plan(info.clone()).eq,
                info: Some(info.clone()),
                ..common.plan()
            })?;
            door.connect(&end, &[])?;
            door.connected(&end)?;
            Ok(end)
        })?;
        ends.push((end, FiAddr(0)));
    }
    Ok((common.context("no endpoint")?, ends))
}

const LEN: usize = 200;

/// One message of each endpoint to its peer, in both directions.
fn exchange(
    options: &Options,
    common: &Common,
    ends: &Ends,
    round: u64,
    oob: &mut OutOfBandChannel,
) -> anyhow::Result<()> {
    let count = ends.len();
    let (out, room) = (
        common.ground.buffers(count * LEN)?,
        common.ground.buffers(count * LEN)?,
    );
    room.memory.fill(0, count * LEN, POISON);
    let stamp = |from_client, number: usize| {
        Stamp::of_pair(from_client, round * count as u64 + number as u64)
    };
    for (number, (end, _)) in ends.iter().enumerate() {
        let recv = Recv::new(100 + number as u64).flags(OpFlags::COMPLETION);
        let segment = [room.segment(number * LEN, LEN)];
        match &common.srx {
            Some(srx) => end.recv_at(&**srx, &segment, &recv),
            None => end.recv(&segment, &recv),
        }
        .context("posting a receive")?;
    }
    oob.barrier()?;
    for (number, (end, peer)) in ends.iter().enumerate() {
        stamp(options.is_client(), number).write(&out.memory, number * LEN, LEN);
        let send = Send::new(*peer, number as u64).flags(OpFlags::COMPLETION);
        let segment = [out.segment(number * LEN, LEN)];
        end.push("send", |end| end.send(&segment, &send))?;
    }
    let contexts = (0..count as u64).flat_map(|number| [number, 100 + number]);
    gather(&[&common.tx, &common.rx], contexts)?;
    // Which receive took which message is the context's affair.
    let mut missing: Vec<_> = (0..count).collect();
    for place in 0..count {
        let is_in_place = |number: &usize| {
            stamp(!options.is_client(), *number).check(&room.memory, place * LEN, LEN)
        };
        let found = missing
            .iter()
            .position(|number| is_in_place(number).is_ok());
        let found = found.with_context(|| format!("what is in buffer {place} was not sent"))?;
        missing.swap_remove(found);
    }
    oob.barrier()
}
