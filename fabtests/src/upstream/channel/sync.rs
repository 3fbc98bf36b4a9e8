//! Synchronisation of the two sides, and exchange of memory keys.

use anyhow::Context as _;
use selvedge::OpFlags;
use selvedge_testkit::domain::{Remote, Rights};

use super::Channel;
use crate::upstream::setup::domain;

impl Channel {
    /// Waits until the peer calls this function, by a message of one byte in each direction, or by
    /// a byte in each direction over the out-of-band connection.
    ///
    /// # Errors
    /// The peer does not respond.
    pub(in crate::upstream) fn sync(&mut self) -> anyhow::Result<()> {
        if let (true, Some(oob)) = (self.syncs_out_of_band(), &mut self.oob) {
            let endpoint = &self.endpoint;
            return oob.barrier_with(domain::timeout(&self.options), || endpoint.progress());
        }
        let flags = self.options.sync_level | self.completion_flag();
        if self.is_client() {
            self.post_send(1, flags)?;
            self.await_sends()?;
            self.receive()?;
        } else {
            self.receive()?;
            self.post_send(1, flags)?;
            self.await_sends()?;
        }
        self.clear_log();
        Ok(())
    }

    /// At the client, waits until the server has received all earlier messages. At the server,
    /// sends that notification.
    ///
    /// # Errors
    /// The server does not respond.
    pub(in crate::upstream) fn await_server(&mut self) -> anyhow::Result<()> {
        if self.is_client() {
            self.receive()?
        } else {
            self.send(0)?
        }
        self.clear_log();
        Ok(())
    }

    /// Exchanges a last message, after which both sides may close.
    ///
    /// # Errors
    /// The peer does not respond.
    pub(in crate::upstream) fn finish(&mut self) -> anyhow::Result<()> {
        self.post_send(4, OpFlags::TRANSMIT_COMPLETE | self.completion_flag())?;
        self.await_sends()?;
        self.await_messages(self.arrived + 1)?;
        if let Some(oob) = &mut self.oob {
            oob.barrier()?;
        }
        Ok(())
    }

    /// Returns the completion flag of selective queues; counters count every operation.
    fn completion_flag(&self) -> OpFlags {
        if self.counts.is_some() {
            OpFlags::empty()
        } else {
            OpFlags::COMPLETION
        }
    }

    /// Sends the address and key of local memory, and returns those of the peer's memory.
    ///
    /// # Errors
    /// The peer does not respond, or the memory has no key.
    pub(in crate::upstream) fn exchange_keys(&mut self, rights: &Rights) -> anyhow::Result<Remote> {
        let key = rights.remote()?.to_bytes();
        let from_peer = if self.is_client() {
            self.send_bytes(&key)?;
            self.receive_bytes(key.len())?
        } else {
            let from_peer = self.receive_bytes(key.len())?;
            self.send_bytes(&key)?;
            from_peer
        };
        self.clear_log();
        Remote::from_bytes(&from_peer).context("the peer's key")
    }
}
