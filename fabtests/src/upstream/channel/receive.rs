//! Receiving: what is posted, what has arrived, and whether it is what the peer has sent.

use std::ops::Range;

use anyhow::ensure;
use selvedge::cq::Entry;
use selvedge::{CompletionFlags, TagMatch};
use selvedge_testkit::domain::Recv;
use selvedge_testkit::failure::wrong;

use super::Channel;
use super::buffers::Buffers;
use crate::upstream::payload::{Stamp, check_around, poison};

impl Channel {
    /// Posts the receive that is there at rest.
    #[inline]
    pub(in crate::upstream) fn post_rest(&mut self) -> anyhow::Result<()> {
        let place = self.rx.next_rest(self.posted);
        if self.options.verify {
            poison(&self.rx.block.memory, place.start, self.rx.size);
        }
        self.post(place)
    }

    /// Posts the receive at rest once more that had this number: what it took was no message.
    ///
    /// # Errors
    /// The endpoint's.
    #[cold]
    pub(in crate::upstream) fn post_rest_again(&mut self, number: u64) -> anyhow::Result<()> {
        let place = self.rx.at_rest(number);
        if self.options.verify {
            poison(&self.rx.block.memory, place.start, self.rx.size);
        }
        self.post_as(place, number)
    }

    /// Posts a receive of a window.
    #[inline]
    pub(in crate::upstream) fn post_slot(&mut self) -> anyhow::Result<()> {
        let place = self.rx.at_slot(self.posted);
        if self.options.verify {
            poison(&self.rx.block.memory, place.start, place.len());
        }
        self.post(place)
    }

    #[inline]
    fn post(&mut self, place: Range<usize>) -> anyhow::Result<()> {
        self.post_as(place, self.posted)?;
        self.posted += 1;
        Ok(())
    }

    #[inline]
    fn post_as(&mut self, place: Range<usize>, number: u64) -> anyhow::Result<()> {
        let segment = self.rx.block.segment(place.start, place.len());
        let recv = Recv::new(number).tag(self.manners.tagged.then(|| TagMatch::exact(number)));
        self.end.push("receive", |end| end.recv(&[segment], &recv))
    }

    /// Waits until so many messages have arrived.
    #[inline]
    pub(in crate::upstream) fn await_arrivals(&mut self, total: u64) -> anyhow::Result<()> {
        if let Some([_, rx]) = &self.counts {
            rx.wait(total)?;
            self.arrived = self.arrived.max(total);
            return Ok(());
        }
        let mut entries = [Entry::default(); 16];
        while self.arrived < total {
            let most = (total - self.arrived).min(16) as usize;
            let count = self.end.rx.wait(&mut entries[..most])?;
            for entry in &entries[..count] {
                if !self.heard_before(entry)? {
                    self.note(entry)?;
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn note(&mut self, entry: &Entry) -> anyhow::Result<()> {
        ensure!(
            entry.context.0 < self.posted,
            "context {:#x} completes, but {} receives are posted",
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
        self.await_arrivals(self.arrived + 1)?;
        self.post_rest()
    }

    /// Waits for the next message and answers its completion.
    ///
    /// # Errors
    /// When none comes, or another one completes.
    pub(in crate::upstream) fn next_entry(&mut self) -> anyhow::Result<Entry> {
        let mut entry = self.end.rx.next()?;
        while self.heard_before(&entry)? {
            entry = self.end.rx.next()?;
        }
        self.in_turn(&entry)?;
        Ok(entry)
    }

    fn in_turn(&mut self, entry: &Entry) -> anyhow::Result<()> {
        ensure!(
            entry.context.0 == self.arrived,
            "receive {} completes before {}",
            entry.context.0,
            self.arrived
        );
        self.note(entry)?;
        self.forget();
        Ok(())
    }

    /// Answers all bytes of a message whose completion was read, and posts the next receive.
    ///
    /// # Errors
    /// When it is not the next one.
    pub(in crate::upstream) fn accept(&mut self, entry: &Entry) -> anyhow::Result<Vec<u8>> {
        self.in_turn(entry)?;
        let bytes = self.bytes_at_rest(entry);
        self.post_rest()?;
        Ok(bytes)
    }

    /// Waits for the next message, posts the next receive, and answers all bytes of the message.
    ///
    /// # Errors
    /// As [`Self::next_entry`].
    pub(in crate::upstream) fn take_whole(&mut self) -> anyhow::Result<Vec<u8>> {
        let entry = self.next_entry()?;
        let bytes = self.bytes_at_rest(&entry);
        self.post_rest()?;
        Ok(bytes)
    }

    /// What has come into a buffer at rest.
    pub(in crate::upstream) fn bytes_at_rest(&self, entry: &Entry) -> Vec<u8> {
        let place = self.rx.at_rest(entry.context.0);
        self.rx.block.memory.get(place.start, entry.len)
    }

    /// Checks that the last message is what the peer has sent as that number.
    ///
    /// # Errors
    /// What it is instead.
    pub(in crate::upstream) fn check_last(&self, size: usize) -> anyhow::Result<()> {
        let number = self.arrived - 1;
        let stamp = Stamp::of_pair(!self.is_client(), number);
        stamp.check(&self.rx.block.memory, self.rx.at_rest(number).start, size)
    }

    /// The same, and answers the message.
    pub(in crate::upstream) fn take(&mut self, len: usize) -> anyhow::Result<Vec<u8>> {
        let number = self.arrived;
        let at = self.rx.at_rest(number).start;
        self.await_arrivals(number + 1)?;
        let bytes = self.rx.block.memory.get(at, len);
        self.post_rest()?;
        Ok(bytes)
    }

    /// Checks the messages that have arrived since the last time: those of `numbers`, each of `size`
    /// bytes, each once, with everything that their completions say. `place` says where each is.
    ///
    /// # Errors
    /// What is wrong with the first.
    fn check(
        &mut self,
        numbers: Range<u64>,
        size: usize,
        place: impl Fn(&Buffers, u64) -> Range<usize>,
    ) -> anyhow::Result<()> {
        if self.counts.is_none() {
            let flags = match self.manners.tagged {
                true => CompletionFlags::RECV | CompletionFlags::TAGGED,
                false => CompletionFlags::RECV | CompletionFlags::MSG,
            };
            let mut contexts: Vec<_> = self.log.iter().map(|entry| entry.context.0).collect();
            contexts.sort_unstable();
            ensure!(
                contexts.iter().copied().eq(numbers.clone()),
                "receives {contexts:?} have completed, expected {numbers:?}"
            );
            for entry in &self.log {
                check_entry(entry, size, flags, self.manners.tagged)?;
            }
        }
        self.log.clear();
        for number in numbers {
            let place = place(&self.rx, number);
            let stamp = Stamp::of_pair(!self.options.is_client(), number);
            stamp.check(&self.rx.block.memory, place.start, size)?;
            check_around(&self.rx.block.memory, place.start, size, place.len())?;
        }
        Ok(())
    }

    /// Checks messages that came one at a time.
    ///
    /// # Errors
    /// What is wrong with the first.
    pub(in crate::upstream) fn check_rest(
        &mut self,
        numbers: Range<u64>,
        size: usize,
    ) -> anyhow::Result<()> {
        self.check(numbers, size, Buffers::poisoned)
    }

    /// Checks the messages of a window, of which the first came into a buffer at rest.
    ///
    /// # Errors
    /// What is wrong with the first.
    pub(in crate::upstream) fn check_window(
        &mut self,
        numbers: Range<u64>,
        size: usize,
        at_rest: u64,
    ) -> anyhow::Result<()> {
        self.check(numbers, size, |buffers, number| match number == at_rest {
            true => buffers.poisoned(number),
            false => buffers.at_slot(number),
        })
    }

    /// Forgets what has arrived without a check.
    pub(in crate::upstream) fn forget(&mut self) {
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
    let same = entry.len == size && entry.flags == flags && entry.tag == tag;
    match same {
        true => Ok(()),
        false => Err(wrong(format!(
            "the completion of a message of {size} bytes with flags {flags} and tag {tag}: {entry:?}"
        ))),
    }
}
