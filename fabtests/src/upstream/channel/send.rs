//! Sending, and waiting for completions.

use anyhow::ensure;
use selvedge::OpFlags;
use selvedge::cq::Entry;
use selvedge_testkit::domain::Send;

use super::{CONTROL, Channel};
use crate::upstream::data::payload::Stamp;

/// The bit that distinguishes the contexts of sends from those of receives.
const SENT: u64 = 1 << 63;

impl Channel {
    /// Posts a message with a completion.
    #[inline]
    pub(in crate::upstream) fn post_send(
        &mut self,
        size: usize,
        flags: OpFlags,
    ) -> anyhow::Result<()> {
        let offset = self.send_offset(size);
        let segment = self.tx.block.segment(offset, size);
        let send = self.send_args(flags, SENT | self.sent);
        self.endpoint
            .push("send", |endpoint| endpoint.send(&[segment], &send))?;
        self.sent += 1;
        self.completing += 1;
        Ok(())
    }

    /// Sends a message by inject, which has no completion but is counted.
    #[inline]
    pub(in crate::upstream) fn inject(&mut self, size: usize) -> anyhow::Result<()> {
        let offset = self.send_offset(size);
        let (peer, tag) = (self.peer, self.sent);
        let tagged = self.config.tagged;
        let tx = &self.tx.block.memory;
        self.endpoint.push("inject", |endpoint| {
            tx.with(offset, size, |bytes| {
                if tagged {
                    endpoint.ep.tinject(bytes, peer, tag, None)
                } else {
                    endpoint.ep.inject(bytes, peer, None)
                }
            })
        })?;
        self.sent += 1;
        self.completing += u64::from(self.counts.is_some());
        Ok(())
    }

    /// Returns the arguments of a send.
    #[inline]
    fn send_args(&self, flags: OpFlags, context: u64) -> Send {
        Send::new(self.peer, context)
            .tag(self.config.tagged.then_some(self.sent))
            .flags(flags)
    }

    /// Returns the offset of the next message. With `-v`, also writes the message there.
    #[inline]
    fn send_offset(&self, size: usize) -> usize {
        let offset = if self.tx.slot_count > 1 {
            self.tx.slot_of(self.sent).start
        } else {
            self.tx.preposted((self.sent % 2) as usize).start
        };
        if self.options.verify {
            Stamp::of_pair(self.options.is_client(), self.sent).write(
                &self.tx.block.memory,
                offset,
                size,
            );
        }
        offset
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
            let max_count = (self.completing - self.completed).min(16) as usize;
            let count = self.endpoint.tx.wait(&mut entries[..max_count])?;
            for entry in &entries[..count] {
                let number = entry.context.0 ^ SENT;
                ensure!(
                    number < self.sent,
                    "a completion of a send that was not posted: {entry:?}"
                );
            }
            self.completed += count as u64;
        }
        Ok(())
    }

    /// Sends a message and waits for its completion.
    #[inline]
    pub(in crate::upstream) fn send(&mut self, size: usize) -> anyhow::Result<()> {
        self.post_send(size, OpFlags::DEFAULT)?;
        self.await_sends()
    }

    /// Sends `bytes` and waits for the completion.
    pub(in crate::upstream) fn send_bytes(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        ensure!(
            bytes.len() <= CONTROL,
            "a control message of {} bytes is too long",
            bytes.len()
        );
        let offset = self.tx.preposted((self.sent % 2) as usize).start;
        self.tx.block.memory.put(offset, bytes);
        let segment = self.tx.block.segment(offset, bytes.len());
        let send = self.send_args(OpFlags::DEFAULT, SENT | self.sent);
        self.endpoint
            .push("send", |endpoint| endpoint.send(&[segment], &send))?;
        self.sent += 1;
        self.completing += 1;
        self.await_sends()
    }

    /// Posts a message without waiting, by inject if it is small enough.
    #[inline]
    pub(in crate::upstream) fn post_or_inject(
        &mut self,
        size: usize,
        inject_size: usize,
    ) -> anyhow::Result<()> {
        if size <= inject_size {
            self.inject(size)
        } else {
            self.post_send(size, OpFlags::DEFAULT)
        }
    }

    /// Returns the counts of sends, for [`Self::restore_sends`].
    pub(in crate::upstream) fn sent_counts(&self) -> (u64, u64) {
        (self.sent, self.completing)
    }

    /// Restores the counts of sends, after sends that failed.
    pub(in crate::upstream) fn restore_sends(&mut self, (sent, completing): (u64, u64)) {
        self.sent = sent;
        self.completing = completing;
    }

    /// Counts a message that the program has sent without the functions of this type.
    pub(in crate::upstream) fn skip(&mut self) {
        self.sent += 1;
    }
}
