//! `fi_shared_ctx`: endpoints that share a receive context, a transmit context, or both.

use std::sync::Arc;

use anyhow::Context as _;
use selvedge::info::{EpType, Info};
use selvedge::{Address, Caps, FiAddr, OpFlags, SharedReceives};
use selvedge_testkit::domain::{DomainContext, DomainEndpoint, EndpointConfig, Queue, Recv, Send};

use crate::upstream::data::payload::{POISON, Stamp};
use crate::upstream::functional::wait_for_all;
use crate::upstream::options::{OptionSet, Options};
use crate::upstream::setup::connector::Connector;
use crate::upstream::setup::discover::{discover, hints};
use crate::upstream::setup::domain;
use crate::upstream::setup::oob::OutOfBandChannel;

/// The options of the program.
pub(in crate::upstream) const SHARED_CONTEXTS: OptionSet = OptionSet {
    long: &["no-tx-shared-ctx", "no-rx-shared-ctx", "ep-count="],
    ..crate::upstream::functional::option_set("")
};

/// The resources that the endpoints share.
struct SharedResources {
    domain: Arc<DomainContext>,
    srx: Option<Arc<dyn SharedReceives>>,
    tx: Queue,
    rx: Queue,
}

/// Runs the program.
pub(in crate::upstream) fn shared_ctx(options: &Options) -> anyhow::Result<()> {
    let options = crate::upstream::functional::with_out_of_band(options, false);
    let count = options.number("ep-count", 4)?;
    let mut oob = OutOfBandChannel::establish(&options)?;
    let (shared, endpoints) = match options.ep_type {
        Some(EpType::Msg) => open_connected(&options, count)?,
        ep_type => open_unconnected(&options, ep_type.unwrap_or(EpType::Rdm), count, &mut oob)?,
    };
    for round in 0..3 {
        exchange(&options, &shared, &endpoints, round, &mut oob)?;
    }
    oob.barrier()
}

/// `FI_SHARED_CONTEXT` as a number of contexts.
const SHARED_CONTEXT: usize = usize::MAX;

/// Requests the shared contexts in the endpoint attributes.
fn request_shared(options: &Options, info: &mut Info) {
    if !options.has("no-tx-shared-ctx") {
        info.ep_attr.tx_ctx_cnt = SHARED_CONTEXT;
    }
    if !options.has("no-rx-shared-ctx") {
        info.ep_attr.rx_ctx_cnt = SHARED_CONTEXT;
    }
}

impl SharedResources {
    fn open(options: &Options, domain: Arc<DomainContext>) -> anyhow::Result<Self> {
        let srx = if options.has("no-rx-shared-ctx") {
            None
        } else {
            let srx = domain.domain().srx(&domain.info().rx_attr);
            Some(srx.context("cannot open a shared receive context")?)
        };
        let (tx, rx) = (domain.queue(64)?, domain.queue(64)?);
        Ok(Self {
            domain,
            srx,
            tx,
            rx,
        })
    }

    fn endpoint_config(&self) -> EndpointConfig {
        EndpointConfig {
            tx: Some(self.tx.clone()),
            rx: Some(self.rx.clone()),
            srx: self.srx.clone(),
            ..EndpointConfig::default()
        }
    }
}

/// The endpoints, each with its peer's address.
type Endpoints = Vec<(DomainEndpoint, FiAddr)>;

fn open_unconnected(
    options: &Options,
    ep_type: EpType,
    count: usize,
    oob: &mut OutOfBandChannel,
) -> anyhow::Result<(SharedResources, Endpoints)> {
    let hints = hints(options, Caps::MSG, ep_type)?.edit(|info| request_shared(options, info));
    let domain = domain::open(options, discover(options, &hints)?)?;
    let av = domain.av()?;
    let shared = SharedResources::open(options, domain)?;
    let mut endpoints = Vec::new();
    for _ in 0..count {
        let endpoint = shared.domain.endpoint(EndpointConfig {
            av: Some(Arc::clone(&av)),
            ..shared.endpoint_config()
        })?;
        let from_peer = oob.exchange(&endpoint.name()?)?;
        let address = Address::from_bytes(&from_peer).context("the peer's address is invalid")?;
        let peer = endpoint.av.insert_one(&address)?;
        endpoints.push((endpoint, peer));
    }
    Ok((shared, endpoints))
}

fn open_connected(options: &Options, count: usize) -> anyhow::Result<(SharedResources, Endpoints)> {
    let mut options = options.clone();
    // The client reaches the server by its fabric address; the out-of-band connection is for
    // barriers only.
    options.out_of_band = None;
    let connector = Connector::open(&options, Caps::MSG)?;
    let mut shared: Option<SharedResources> = None;
    let mut endpoints = Vec::new();
    for _ in 0..count {
        let mut info = match connector.pep {
            Some(_) => connector.wait_for_request()?.0,
            None => connector.info.clone(),
        };
        request_shared(&options, &mut info);
        let shared = match &shared {
            Some(shared) => shared,
            None => {
                let domain = domain::open_on(&options, &*info.fabric()?, info.clone())?;
                shared.insert(SharedResources::open(&options, domain)?)
            }
        };
        let endpoint = connector.retry_until_listening(|| {
            let endpoint = shared.domain.endpoint(EndpointConfig {
                eq: connector.endpoint_config(info.clone()).eq,
                info: Some(info.clone()),
                ..shared.endpoint_config()
            })?;
            connector.connect(&endpoint, &[])?;
            connector.wait_for_connection(&endpoint)?;
            Ok(endpoint)
        })?;
        endpoints.push((endpoint, FiAddr(0)));
    }
    Ok((
        shared.context("--ep-count 0: no endpoint was opened")?,
        endpoints,
    ))
}

/// Bytes of a message.
const LEN: usize = 200;

/// Sends one message from each endpoint to its peer, in both directions.
fn exchange(
    options: &Options,
    shared: &SharedResources,
    endpoints: &Endpoints,
    round: u64,
    oob: &mut OutOfBandChannel,
) -> anyhow::Result<()> {
    let count = endpoints.len();
    let (sent, received) = (
        shared.domain.buffers(count * LEN)?,
        shared.domain.buffers(count * LEN)?,
    );
    received.memory.fill(0, count * LEN, POISON);
    let stamp = |from_client, number: usize| {
        Stamp::of_pair(from_client, round * count as u64 + number as u64)
    };
    for (number, (endpoint, _)) in endpoints.iter().enumerate() {
        let recv = Recv::new(100 + number as u64).flags(OpFlags::COMPLETION);
        let segment = [received.segment(number * LEN, LEN)];
        match &shared.srx {
            Some(srx) => endpoint.recv_at(&**srx, &segment, &recv),
            None => endpoint.recv(&segment, &recv),
        }
        .context("cannot post a receive")?;
    }
    oob.barrier()?;
    for (number, (endpoint, peer)) in endpoints.iter().enumerate() {
        stamp(options.is_client(), number).write(&sent.memory, number * LEN, LEN);
        let send = Send::new(*peer, number as u64).flags(OpFlags::COMPLETION);
        let segment = [sent.segment(number * LEN, LEN)];
        endpoint.push("send", |endpoint| endpoint.send(&segment, &send))?;
    }
    let contexts = (0..count as u64).flat_map(|number| [number, 100 + number]);
    wait_for_all(&[&shared.tx, &shared.rx], contexts)?;
    // A shared receive context chooses which receive matches which message.
    let mut missing: Vec<_> = (0..count).collect();
    for slot in 0..count {
        let matches_slot = |number: &usize| {
            stamp(!options.is_client(), *number).check(&received.memory, slot * LEN, LEN)
        };
        let found = missing
            .iter()
            .position(|number| matches_slot(number).is_ok());
        let found =
            found.with_context(|| format!("receive buffer {slot} holds no message of the peer"))?;
        missing.swap_remove(found);
    }
    oob.barrier()
}
