//! A channel between a client and a server: numbered messages in both directions, over one endpoint
//! at each side.
//!
//! Between benchmarks, each side has one *preposted* receive posted, into one of two buffers.
//! Benchmarks with windows post more receives, into *slots* of the messages' size.

mod buffers;
mod config;
mod connect;
mod handshake;
mod receive;
mod send;
mod sync;

pub(super) use config::{CONTROL, ChannelConfig};
pub(super) use connect::open_channel;

use std::sync::Arc;

use selvedge::cq::Entry;
use selvedge::{Counters, EventQueue, FiAddr, Info};
use selvedge_testkit::domain::{Count, DomainContext, DomainEndpoint, EndpointConfig};

use self::buffers::Buffers;
use super::data::payload::CANARY;
use super::options::Options;
use super::setup::connector::Connector;
use super::setup::domain;
use super::setup::oob::OutOfBandChannel;

/// One side of the channel.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) endpoint: DomainEndpoint,
    pub(super) peer: FiAddr,
    pub(super) options: Options,
    pub(super) oob: Option<OutOfBandChannel>,
    /// The objects of the connection, if there is one.
    pub(super) connector: Option<Connector>,
    config: ChannelConfig,
    counts: Option<[Count; 2]>,
    rx: Buffers,
    tx: Buffers,
    /// The number of posted receives.
    pub(super) posted: u64,
    /// The number of messages that have arrived.
    pub(super) arrived: u64,
    /// The number of posted sends.
    pub(super) sent: u64,
    /// The number of posted sends that report their completion.
    completing: u64,
    /// The number of reported completions of sends.
    completed: u64,
    /// The entries of messages that have arrived since the last check.
    log: Vec<Entry>,
    /// The number of bytes that have arrived.
    bytes: u64,
    /// The client's first message, which may be repeated over datagrams.
    pub(super) handshake_message: Option<Vec<u8>>,
}

impl Channel {
    /// Opens an endpoint and connects to the peer.
    ///
    /// # Errors
    /// An object cannot be opened, or the peer does not respond.
    pub(super) fn open(
        options: &Options,
        info: Info,
        config: ChannelConfig,
    ) -> anyhow::Result<Self> {
        let oob = match options.out_of_band {
            Some(_) => Some(OutOfBandChannel::establish(options)?),
            None => None,
        };
        let domain = domain::open(options, info)?;
        Self::in_domain(options, &domain, config, oob)
    }

    /// As [`Self::open`], in an open domain, with the out-of-band connection `oob` if there is one.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn in_domain(
        options: &Options,
        domain: &Arc<DomainContext>,
        config: ChannelConfig,
        oob: Option<OutOfBandChannel>,
    ) -> anyhow::Result<Self> {
        let mut channel = Self::without_receive(options, domain, config, oob, None)?;
        channel.prepost()?;
        channel.handshake()?;
        Ok(channel)
    }

    /// As [`Self::open`], in an open domain, with the counters that `bind` adds to the endpoint.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn with_counters(
        options: &Options,
        domain: &Arc<DomainContext>,
        config: ChannelConfig,
        bind: impl FnOnce(&mut Counters),
    ) -> anyhow::Result<Self> {
        let mut endpoint_config = EndpointConfig::default();
        bind(&mut endpoint_config.counters);
        let mut channel = Self::with_config(options, domain, config, endpoint_config)?;
        if options.out_of_band.is_some() {
            channel.oob = Some(OutOfBandChannel::establish(options)?);
        }
        channel.prepost()?;
        channel.handshake()?;
        Ok(channel)
    }

    /// As [`Self::open`], without a posted receive and without the peer's address.
    ///
    /// # Errors
    /// An object cannot be opened.
    pub(super) fn without_receive(
        options: &Options,
        domain: &Arc<DomainContext>,
        config: ChannelConfig,
        oob: Option<OutOfBandChannel>,
        eq: Option<Arc<dyn EventQueue>>,
    ) -> anyhow::Result<Self> {
        let endpoint_config = EndpointConfig {
            eq,
            ..EndpointConfig::default()
        };
        let mut channel = Self::with_config(options, domain, config, endpoint_config)?;
        channel.oob = oob;
        Ok(channel)
    }

    fn with_config(
        options: &Options,
        domain: &Arc<DomainContext>,
        config: ChannelConfig,
        mut endpoint_config: EndpointConfig,
    ) -> anyhow::Result<Self> {
        let enough = (2 * config.window).max(1024);
        let [tx, rx] = config.queues.map(|size| match size {
            0 => enough,
            size => size,
        });
        endpoint_config.tx = Some(domain.queue(tx)?);
        endpoint_config.rx = Some(domain.queue(rx)?);
        let counts = if config.counters {
            Some([domain.count()?, domain.count()?])
        } else {
            None
        };
        if let Some([tx, rx]) = &counts {
            endpoint_config.tx_selective = true;
            endpoint_config.rx_selective = true;
            endpoint_config.counters.send = Some(Arc::clone(tx.cntr()));
            endpoint_config.counters.recv = Some(Arc::clone(rx.cntr()));
        }
        let mut info = domain.info().clone();
        info.tx_attr.op_flags |= config.flags;
        endpoint_config.info = Some(info);
        Ok(Self {
            endpoint: domain.endpoint(endpoint_config)?,
            peer: FiAddr::UNSPEC,
            options: options.clone(),
            oob: None,
            connector: None,
            config,
            counts,
            rx: Buffers::new(domain, &config)?,
            tx: Buffers::new(domain, &config)?,
            posted: 0,
            arrived: 0,
            sent: 0,
            completing: 0,
            completed: 0,
            log: Vec::new(),
            bytes: 0,
            handshake_message: None,
        })
    }

    pub(super) fn is_client(&self) -> bool {
        self.options.is_client()
    }

    /// Returns whether counters replace completion queues.
    pub(super) fn counts(&self) -> bool {
        self.counts.is_some()
    }

    pub(super) fn domain(&self) -> &Arc<DomainContext> {
        &self.endpoint.context
    }

    /// Returns the size of the largest message that is injected, in bytes.
    pub(super) fn inject_size(&self) -> usize {
        let most = self.domain().info().tx_attr.inject_size;
        self.options.inject.map_or(most, |size| size.min(most))
    }

    /// Returns whether barriers use the out-of-band connection.
    fn syncs_out_of_band(&self) -> bool {
        self.options.out_of_band.is_some_and(|oob| oob.sync)
    }

    /// Divides the buffers into slots for messages of `size` bytes, and returns the maximum number
    /// of outstanding messages.
    pub(super) fn lay_out(&mut self, size: usize) -> usize {
        let window = self.config.window;
        self.rx.lay_out(size, window);
        self.tx.lay_out(size, window);
        if self.syncs_out_of_band() {
            // An out-of-band barrier does not consume the preposted receive, which then takes a
            // message of the next size: it must be poisoned for any size.
            self.rx.poison_size = self.rx.preposted_size - 2 * CANARY;
        }
        if self.options.verify {
            // Verification needs a slot for each outstanding message.
            window.min(self.rx.slot_count.saturating_sub(1)).max(1)
        } else {
            window
        }
    }

    /// Returns the number of bytes that have arrived.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}
