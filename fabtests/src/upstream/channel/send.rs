//! Sending, and waiting until what was sent is complete.

use anyhow::ensure;
use selvedge::OpFlags;
use selvedge::cq::Entry;
use selvedge_testkit::domain::Send;

use super::{CONTROL, Channel};
use crate::upstream::payload::Stamp;

/// Distinguishes the contexts of sends from those of receives.
const SENT: u64 = 1 << 63;

impl Channel {
    /// Posts a message, with a completion.
    #[inline]
    pub(in crate::upstream) fn post_send(
        &mut self,
        size: usize,
        flags: OpFlags,
    ) -> anyhow::Result<()> {
        let at = self.place_of_send(size);
        let segment = self.tx.block.segment(at, size);
        let send = self.order(flags, SENT | self.sent);
        self.end.push("send", |end| end.send(&[segment], &send))?;
        self.sent += 1;
        self.completing += 1;
        Ok(())
    }

    /// Sends a message by inject: no completion, but a counter counts it.
    #[inline]
    pub(in crate::upstream) fn inject(&mut self, size: usize) -> anyhow::Result<()> {
        let at = self.place_of_send(size);
        let (peer, tag) = (self.peer, self.sent);
        let tagged = self.manners.tagged;
        let tx = &self.tx.block.memory;
        self.end.push("inject", |end| {
            tx.with(at, size, |bytes| match tagged {
                true => end.ep.tinject(bytes, peer, tag, None),
                false => end.ep.inject(bytes, peer, None),
            })
        })?;
        self.sent += 1;
        self.completing += u64::from(self.counts.is_some());
        Ok(())
    }

    /// What the short forms promise: the endpoint's default flags.
    #[inline]
    fn order(&self, flags: OpFlags, context: u64) -> Send {
        Send::new(self.peer, context)
            .tag(self.manners.tagged.then_some(self.sent))
            .flags(flags)
    }

    /// Where the next message is sent from, written under `-v`.
    #[inline]
    fn place_of_send(&self, size: usize) -> usize {
        let at = match self.tx.slots > 1 {
            true => self.tx.at_slot(self.sent).start,
            false => self.tx.rest((self.sent % 2) as usize).start,
        };
        if self.options.verify {
            Stamp::of_pair(self.options.is_client(), self.sent).write(
                &self.tx.block.memory,
                at,
                size,
            );
        }
        at
    }

    /// Waits until all sends are complete.
    #[inline]
    pub(in crate::upstream) fn await_sends(&mut self) -> anyhow::Result<()> {
        if let Some([tx, _]) = &self.counts {
            tx.wait(self.completing)?;
            self.completed = self.completing;
            return Ok(());
        }
        let mut entries = [Entry::default(); 16];
        while self.completed < self.completing {
            let most = (self.completing - self.completed).min(16) as usize;
            let count = self.end.tx.wait(&mut entries[..most])?;
            for entry in &entries[..count] {
                let number = entry.context.0 ^ SENT;
                ensure!(
                    number < self.sent,
                    "{entry:?} completes, which was not sent"
                );
            }
            self.completed += count as u64;
        }
        Ok(())
    }

    /// Sends a message and waits until it is sent.
    #[inline]
    pub(in crate::upstream) fn send(&mut self, size: usize) -> anyhow::Result<()> {
        self.post_send(size, OpFlags::DEFAULT)?;
        self.await_sends()
    }

    /// Sends some bytes.
    pub(in crate::upstream) fn say(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        ensure!(bytes.len() <= CONTROL, "{} bytes at once", bytes.len());
        let at = self.tx.rest((self.sent % 2) as usize).start;
        self.tx.block.memory.put(at, bytes);
        let segment = self.tx.block.segment(at, bytes.len());
        let send = self.order(OpFlags::DEFAULT, SENT | self.sent);
        self.end.push("send", |end| end.send(&[segment], &send))?;
        self.sent += 1;
        self.completing += 1;
        self.await_sends()
    }

    /// Posts a message without waiting, by inject where it is small enough.
    #[inline]
    pub(in crate::upstream) fn pass(
        &mut self,
        size: usize,
        inject_size: usize,
    ) -> anyhow::Result<()> {
        match size <= inject_size {
            true => self.inject(size),
            false => self.post_send(size, OpFlags::DEFAULT),
        }
    }

    /// How many messages were sent, to go back to.
    pub(in crate::upstream) fn mark(&self) -> (u64, u64) {
        (self.sent, self.completing)
    }

    /// What was sent since then was not sent after all.
    pub(in crate::upstream) fn go_back_to(&mut self, (sent, completing): (u64, u64)) {
        self.sent = sent;
        self.completing = completing;
    }

    /// The program has sent a message itself.
    pub(in crate::upstream) fn skip(&mut self) {
        self.sent += 1;
    }
}
