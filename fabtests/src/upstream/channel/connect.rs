//! Channels over connected endpoints (FI_EP_MSG).

use std::sync::Arc;

use selvedge::{Caps, FiAddr};

use super::Channel;
use super::config::ChannelConfig;
use crate::upstream::options::Options;
use crate::upstream::setup::connector::Connector;
use crate::upstream::setup::oob::OutOfBandChannel;

/// Opens a channel over connected endpoints.
///
/// # Errors
/// An object cannot be opened or connected.
pub(in crate::upstream) fn open_channel(
    options: &Options,
    caps: Caps,
    config: ChannelConfig,
) -> anyhow::Result<Channel> {
    Connector::open(options, caps)?.open_channel(config)
}

impl Connector {
    /// Opens the channel of the next connection.
    ///
    /// # Errors
    /// An object cannot be opened or connected.
    pub(in crate::upstream) fn open_channel(
        self,
        config: ChannelConfig,
    ) -> anyhow::Result<Channel> {
        let domain = self.open_domain()?;
        let mut channel = self.retry_until_listening(|| {
            let eq = Some(Arc::clone(&self.eq));
            let mut channel = Channel::without_receive(&self.options, &domain, config, None, eq)?;
            channel.peer = FiAddr(0);
            channel.prepost()?;
            self.connect(&channel.endpoint, &[])?;
            self.wait_for_connection(&channel.endpoint)?;
            Ok(channel)
        })?;
        if self.options.out_of_band.is_some_and(|oob| oob.sync) {
            channel.oob = Some(OutOfBandChannel::establish(&self.options)?);
        }
        channel.connector = Some(self);
        Ok(channel)
    }
}
