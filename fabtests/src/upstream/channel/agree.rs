//! What the two sides agree upon: when, and where memory is.

use anyhow::Context as _;
use selvedge::OpFlags;
use selvedge_testkit::domain::{Remote, Rights};

use super::Channel;
use crate::upstream::ground;

impl Channel {
    /// Waits for the peer: a message of one byte there and back, or a byte over the connection beside.
    ///
    /// # Errors
    /// When the peer does not answer.
    pub(in crate::upstream) fn sync(&mut self) -> anyhow::Result<()> {
        if let (true, Some(oob)) = (self.syncs_beside(), &mut self.oob) {
            let end = &self.end;
            return oob.barrier_with(ground::timeout(&self.options), || end.progress());
        }
        let flags = self.options.sync_level | self.reported();
        match self.is_client() {
            true => {
                self.post_send(1, flags)?;
                self.await_sends()?;
                self.receive()?;
            }
            false => {
                self.receive()?;
                self.post_send(1, flags)?;
                self.await_sends()?;
            }
        }
        self.forget();
        Ok(())
    }

    /// The client waits until the server has taken what was sent to it: its next message would come
    /// among the others.
    ///
    /// # Errors
    /// When the server does not answer.
    pub(in crate::upstream) fn await_server(&mut self) -> anyhow::Result<()> {
        match self.is_client() {
            true => self.receive()?,
            false => self.send(0)?,
        }
        self.forget();
        Ok(())
    }

    /// The last words: whoever has heard them may close.
    ///
    /// # Errors
    /// When the peer does not answer.
    pub(in crate::upstream) fn finish(&mut self) -> anyhow::Result<()> {
        self.post_send(4, OpFlags::TRANSMIT_COMPLETE | self.reported())?;
        self.await_sends()?;
        self.await_arrivals(self.arrived + 1)?;
        if let Some(oob) = &mut self.oob {
            oob.barrier()?;
        }
        Ok(())
    }

    /// Selective queues report what asks for it; counters count everything.
    fn reported(&self) -> OpFlags {
        match self.counts.is_some() {
            true => OpFlags::empty(),
            false => OpFlags::COMPLETION,
        }
    }

    /// Tells the peer where memory is, and learns the same.
    ///
    /// # Errors
    /// When the peer does not answer, or the memory has no key.
    pub(in crate::upstream) fn exchange_keys(&mut self, own: &Rights) -> anyhow::Result<Remote> {
        let own = own.remote()?.to_bytes();
        let theirs = match self.is_client() {
            true => {
                self.say(&own)?;
                self.take(own.len())?
            }
            false => {
                let theirs = self.take(own.len())?;
                self.say(&own)?;
                theirs
            }
        };
        self.forget();
        Remote::from_bytes(&theirs).context("the peer's key")
    }
}
