//! Receiving: posts, waits and checks.

use std::ops::Range;

use anyhow::ensure;
use selvedge::cq::Entry;
use selvedge::{CompletionFlags, TagMatch};
use selvedge_testkit::domain::Recv;
use selvedge_testkit::failure::wrong;

use super::Channel;
use super::buffers::Buffers;
use crate::upstream::data::payload::{Stamp, check_around, poison};

impl Channel {
    /// Posts the next preposted receive.
    #[inline]
    pub(in crate::upstream) fn prepost(&mut self) -> anyhow::Result<()> {
        let range = self.rx.next_preposted(self.posted);
        if self.options.verify {
            poison(&self.rx.block.memory, range.start, self.rx.poison_size);
        }
        self.post(range)
    }

    /// Posts a preposted receive again under its number, after it has received a message that does
    /// not count.
    ///
    /// # Errors
    /// The error of the endpoint.
    #[cold]
    pub(in crate::upstream) fn repost(&mut self, number: u64) -> anyhow::Result<()> {
        let range = self.rx.preposted_of(number);
        if self.options.verify {
            poison(&self.rx.block.memory, range.start, self.rx.poison_size);
        }
        self.post_as(range, number)
    }

    /// Posts a receive of a window.
    #[inline]
    pub(in crate::upstream) fn post_slot(&mut self) -> anyhow::Result<()> {
        let range = self.rx.slot_of(self.posted);
        if self.options.verify {
            poison(&self.rx.block.memory, range.start, range.len());
        }
        self.post(range)
    }

    #[inline]
    fn post(&mut self, range: Range<usize>) -> anyhow::Result<()> {
        self.post_as(range, self.posted)?;
        self.posted += 1;
        Ok(())
    }

    #[inline]
    fn post_as(&mut self, range: Range<usize>, number: u64) -> anyhow::Result<()> {
        let segment = self.rx.block.segment(range.start, range.len());
        let recv = Recv::new(number).tag(self.config.tagged.then(|| TagMatch::exact(number)));
        self.endpoint
            .push("receive", |endpoint| endpoint.recv(&[segment], &recv))
    }

    /// Waits until `total` messages have arrived.
    #[inline]
    pub(in crate::upstream) fn await_messages(&mut self, total: u64) -> anyhow::Result<()> {
        if let Some([_, rx]) = &self.counts {
            rx.wait(total)?;
            self.arrived = self.arrived.max(total);
            return Ok(());
        }
        let mut entries = [Entry::default(); 16];
        while self.arrived < total {
            let max_count = (total - self.arrived).min(16) as usize;
            let count = self.endpoint.rx.wait(&mut entries[..max_count])?;
            for entry in &entries[..count] {
                if !self.is_repeated_handshake(entry)? {
                    self.record(entry)?;
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn record(&mut self, entry: &Entry) -> anyhow::Result<()> {
        ensure!(
            entry.context.0 < self.posted,
            "context {:#x} completed, but only {} receives are posted",
            entry.context.0,
            self.posted
        );
        self.arrived += 1;
        self.bytes += entry.len as u64;
        if self.options.verify {
            self.log.push(*entry);
        }
        Ok(())
    }

    /// Waits for the next message, and posts the next receive.
    #[inline]
    pub(in crate::upstream) fn receive(&mut self) -> anyhow::Result<()> {
        self.await_messages(self.arrived + 1)?;
        self.prepost()
    }

    /// Waits for the next message and returns its completion.
    ///
    /// # Errors
    /// No message arrives, or another receive completes.
    pub(in crate::upstream) fn next_entry(&mut self) -> anyhow::Result<Entry> {
        let mut entry = self.endpoint.rx.next()?;
        while self.is_repeated_handshake(&entry)? {
            entry = self.endpoint.rx.next()?;
        }
        self.record_in_order(&entry)?;
        Ok(entry)
    }

    fn record_in_order(&mut self, entry: &Entry) -> anyhow::Result<()> {
        ensure!(
            entry.context.0 == self.arrived,
            "receive {} completed before {}",
            entry.context.0,
            self.arrived
        );
        self.record(entry)?;
        self.clear_log();
        Ok(())
    }

    /// Returns the bytes of a message whose completion was read, and posts the next receive.
    ///
    /// # Errors
    /// The message is not the next one.
    pub(in crate::upstream) fn accept(&mut self, entry: &Entry) -> anyhow::Result<Vec<u8>> {
        self.record_in_order(entry)?;
        let bytes = self.preposted_bytes(entry);
        self.prepost()?;
        Ok(bytes)
    }

    /// Waits for the next message, posts the next receive, and returns the bytes of the message.
    ///
    /// # Errors
    /// As [`Self::next_entry`].
    pub(in crate::upstream) fn receive_whole(&mut self) -> anyhow::Result<Vec<u8>> {
        let entry = self.next_entry()?;
        let bytes = self.preposted_bytes(&entry);
        self.prepost()?;
        Ok(bytes)
    }

    /// Returns the bytes of a message in its preposted buffer.
    pub(in crate::upstream) fn preposted_bytes(&self, entry: &Entry) -> Vec<u8> {
        let range = self.rx.preposted_of(entry.context.0);
        self.rx.block.memory.get(range.start, entry.len)
    }

    /// Checks that the last message is the peer's message of that number.
    ///
    /// # Errors
    /// The bytes differ.
    pub(in crate::upstream) fn check_last(&self, size: usize) -> anyhow::Result<()> {
        let number = self.arrived - 1;
        let stamp = Stamp::of_pair(!self.is_client(), number);
        stamp.check(
            &self.rx.block.memory,
            self.rx.preposted_of(number).start,
            size,
        )
    }

    /// Waits for the next message and returns its first `len` bytes.
    pub(in crate::upstream) fn receive_bytes(&mut self, len: usize) -> anyhow::Result<Vec<u8>> {
        let number = self.arrived;
        let offset = self.rx.preposted_of(number).start;
        self.await_messages(number + 1)?;
        let bytes = self.rx.block.memory.get(offset, len);
        self.prepost()?;
        Ok(bytes)
    }

    /// Checks the messages since the last check: each of `numbers` was received once, with `size`
    /// bytes and the expected fields of its completion. `range_of` returns the range of a message.
    ///
    /// # Errors
    /// The first difference.
    fn check(
        &mut self,
        numbers: Range<u64>,
        size: usize,
        range_of: impl Fn(&Buffers, u64) -> Range<usize>,
    ) -> anyhow::Result<()> {
        if self.counts.is_none() {
            let flags = if self.config.tagged {
                CompletionFlags::RECV | CompletionFlags::TAGGED
            } else {
                CompletionFlags::RECV | CompletionFlags::MSG
            };
            let mut contexts: Vec<_> = self.log.iter().map(|entry| entry.context.0).collect();
            contexts.sort_unstable();
            ensure!(
                contexts.iter().copied().eq(numbers.clone()),
                "receives {contexts:?} completed instead of {numbers:?}"
            );
            for entry in &self.log {
                check_entry(entry, size, flags, self.config.tagged)?;
            }
        }
        self.log.clear();
        for number in numbers {
            let range = range_of(&self.rx, number);
            let stamp = Stamp::of_pair(!self.options.is_client(), number);
            stamp.check(&self.rx.block.memory, range.start, size)?;
            check_around(&self.rx.block.memory, range.start, size, range.len())?;
        }
        Ok(())
    }

    /// Checks messages that were received in preposted buffers.
    ///
    /// # Errors
    /// The first difference.
    pub(in crate::upstream) fn check_preposted(
        &mut self,
        numbers: Range<u64>,
        size: usize,
    ) -> anyhow::Result<()> {
        self.check(numbers, size, Buffers::poisoned)
    }

    /// Checks the messages of a window; the first one is in a preposted buffer.
    ///
    /// # Errors
    /// The first difference.
    pub(in crate::upstream) fn check_window(
        &mut self,
        numbers: Range<u64>,
        size: usize,
        preposted_number: u64,
    ) -> anyhow::Result<()> {
        self.check(numbers, size, |buffers, number| {
            if number == preposted_number {
                buffers.poisoned(number)
            } else {
                buffers.slot_of(number)
            }
        })
    }

    /// Drops the log of messages that are not checked.
    pub(in crate::upstream) fn clear_log(&mut self) {
        self.log.clear();
    }
}

fn check_entry(
    entry: &Entry,
    size: usize,
    flags: CompletionFlags,
    tagged: bool,
) -> anyhow::Result<()> {
    let tag = if tagged { entry.context.0 } else { entry.tag };
    let is_expected = entry.len == size && entry.flags == flags && entry.tag == tag;
    if is_expected {
        Ok(())
    } else {
        Err(wrong(format!(
            "the completion of a message of {size} bytes with flags {flags} and tag {tag} is {entry:?}"
        )))
    }
}
