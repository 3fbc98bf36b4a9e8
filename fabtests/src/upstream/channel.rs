//! A client and a server that talk: numbered messages in both directions over one endpoint each.
//!
//! At rest each side has one receive posted, into one of two *rest* buffers. Benchmarks with
//! windows post more, into *slots* whose size fits the messages.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use selvedge::cq::Entry;
use selvedge::{CompletionFlags, Counters, EventQueue, FiAddr, Info, OpFlags, TagMatch};

use super::connect::Door;
use super::failure::wrong;
use super::ground::{Block, End, Ground, Plan};
use super::memory::{Remote, Rights};
use super::oob::OutOfBandChannel;
use super::options::Options;
use super::payload::{CANARY, Stamp, check_around, poison};
use super::post::{Recv, Send};
use super::wait::Count;

/// Room for what the programs say to each other besides.
pub(super) const CONTROL: usize = 1024;
/// Most memory of all slots of one direction.
const SLOTS: usize = 64 << 20;
/// Distinguishes the contexts of sends from those of receives.
const SENT: u64 = 1 << 63;

/// How a program uses its channel.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Manners {
    /// Tagged messages: a message's number is its tag.
    pub(super) tagged: bool,
    /// The largest message.
    pub(super) largest: usize,
    /// Messages at once, at most; 0 for one after the other.
    pub(super) window: usize,
    /// Counters in place of queues.
    pub(super) counters: bool,
    /// Default flags of sends (`tx_attr.op_flags`), besides.
    pub(super) flags: OpFlags,
}

/// One side.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) end: End,
    pub(super) peer: FiAddr,
    pub(super) options: Options,
    pub(super) oob: Option<OutOfBandChannel>,
    /// What the connection was made with, if there is one.
    pub(super) door: Option<Door>,
    manners: Manners,
    counts: Option<[Count; 2]>,
    rx: Buffers,
    tx: Buffers,
    /// Receives posted and messages arrived.
    pub(super) posted: u64,
    pub(super) arrived: u64,
    /// Sends posted, those of them that complete, and those that have.
    pub(super) sent: u64,
    completing: u64,
    completed: u64,
    /// The last entries of arrived messages.
    log: Vec<Entry>,
    /// Bytes that have arrived.
    bytes: u64,
}

/// Memory of one direction: the buffers at rest, then the slots.
#[derive(Clone, Debug)]
struct Buffers {
    block: Block,
    rest: usize,
    slot: usize,
    slots: usize,
    /// Which receive each buffer at rest was last posted for, and how much of it was poisoned.
    posted: [(u64, usize); 2],
    /// How much of the next one will be.
    size: usize,
}

impl Buffers {
    fn new(ground: &Ground, manners: &Manners) -> anyhow::Result<Self> {
        let rest = room(manners.largest);
        let window = match manners.window {
            0 => 0,
            window => ((window + 1) * rest).min(SLOTS.max(2 * rest)),
        };
        Ok(Self {
            block: ground.buffers(2 * rest + window)?,
            rest,
            slot: rest,
            slots: window / rest,
            posted: [(0, 0); 2],
            size: rest - 2 * CANARY,
        })
    }

    /// Lays the slots out for messages of a size.
    fn lay_out(&mut self, size: usize, window: usize) {
        self.slot = room(size);
        self.size = self.slot - 2 * CANARY;
        self.slots = ((self.block.memory.len() - 2 * self.rest) / self.slot).min(window + 1);
    }

    fn rest(&self, which: usize) -> Range<usize> {
        let at = which * self.rest + CANARY;
        at..at + self.rest - 2 * CANARY
    }

    /// Which buffer at rest a receive was posted with.
    fn which(&self, number: u64) -> usize {
        usize::from(self.posted[1].0 == number)
    }

    /// The buffer at rest for the next receive: not the one that was posted last.
    fn next_rest(&mut self, number: u64) -> Range<usize> {
        let which = usize::from(self.posted[0] >= self.posted[1]);
        self.posted[which] = (number, self.size);
        self.rest(which)
    }

    fn at_rest(&self, number: u64) -> Range<usize> {
        self.rest(self.which(number))
    }

    /// The part of a buffer at rest that was poisoned.
    fn poisoned(&self, number: u64) -> Range<usize> {
        let which = self.which(number);
        let at = self.rest(which).start;
        at..at + self.posted[which].1
    }

    fn at_slot(&self, number: u64) -> Range<usize> {
        let slots = self.slots.max(1) as u64;
        let at = 2 * self.rest + (number % slots) as usize * self.slot + CANARY;
        at..at + self.slot - 2 * CANARY
    }
}

/// A message with its canaries, in whole lines.
fn room(size: usize) -> usize {
    size.max(CONTROL).next_multiple_of(64) + 2 * CANARY
}

impl Channel {
    /// Opens an endpoint and meets the peer.
    ///
    /// # Errors
    /// When something does not open, or the peer does not answer.
    pub(super) fn open(options: &Options, info: Info, manners: Manners) -> anyhow::Result<Self> {
        let oob = match options.out_of_band {
            Some(_) => Some(OutOfBandChannel::meet(options)?),
            None => None,
        };
        let ground = Ground::open(options, info)?;
        Self::over(options, &ground, manners, oob)
    }

    /// The same in a domain that is open, with a connection beside it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn over(
        options: &Options,
        ground: &Arc<Ground>,
        manners: Manners,
        oob: Option<OutOfBandChannel>,
    ) -> anyhow::Result<Self> {
        let mut channel = Self::deaf(options, ground, manners, oob, None)?;
        channel.post_rest()?;
        channel.meet()?;
        Ok(channel)
    }

    /// The same with more counters.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn counting(
        options: &Options,
        ground: &Arc<Ground>,
        manners: Manners,
        bind: impl FnOnce(&mut Counters),
    ) -> anyhow::Result<Self> {
        let mut plan = Plan::default();
        bind(&mut plan.counters);
        let mut channel = Self::planned(options, ground, manners, plan)?;
        if options.out_of_band.is_some() {
            channel.oob = Some(OutOfBandChannel::meet(options)?);
        }
        channel.post_rest()?;
        channel.meet()?;
        Ok(channel)
    }

    /// The same without a receive, and before the peer is known.
    ///
    /// # Errors
    /// When something does not open.
    pub(super) fn deaf(
        options: &Options,
        ground: &Arc<Ground>,
        manners: Manners,
        oob: Option<OutOfBandChannel>,
        eq: Option<Arc<dyn EventQueue>>,
    ) -> anyhow::Result<Self> {
        let plan = Plan {
            eq,
            ..Plan::default()
        };
        let mut channel = Self::planned(options, ground, manners, plan)?;
        channel.oob = oob;
        Ok(channel)
    }

    fn planned(
        options: &Options,
        ground: &Arc<Ground>,
        manners: Manners,
        mut plan: Plan,
    ) -> anyhow::Result<Self> {
        let queue = (2 * manners.window).max(1024);
        plan.tx = Some(ground.queue(queue)?);
        plan.rx = Some(ground.queue(queue)?);
        let counts = match manners.counters {
            true => Some([ground.count()?, ground.count()?]),
            false => None,
        };
        if let Some([tx, rx]) = &counts {
            plan.selective = true;
            plan.counters.send = Some(Arc::clone(tx.cntr()));
            plan.counters.recv = Some(Arc::clone(rx.cntr()));
        }
        let mut info = ground.info().clone();
        info.tx_attr.op_flags |= manners.flags;
        plan.info = Some(info);
        Ok(Self {
            end: ground.end(plan)?,
            peer: FiAddr::UNSPEC,
            options: options.clone(),
            oob: None,
            door: None,
            manners,
            counts,
            rx: Buffers::new(ground, &manners)?,
            tx: Buffers::new(ground, &manners)?,
            posted: 0,
            arrived: 0,
            sent: 0,
            completing: 0,
            completed: 0,
            log: Vec::new(),
            bytes: 0,
        })
    }

    pub(super) fn is_client(&self) -> bool {
        self.options.is_client()
    }

    /// Whether counters stand in for queues.
    pub(super) fn counts(&self) -> bool {
        self.counts.is_some()
    }

    /// The domain.
    pub(super) fn ground(&self) -> &Arc<Ground> {
        &self.end.ground
    }

    /// The largest message that is injected.
    pub(super) fn inject_size(&self) -> usize {
        let most = self.ground().info().tx_attr.inject_size;
        self.options.inject.map_or(most, |size| size.min(most))
    }

    /// Whether barriers go beside the fabric.
    fn syncs_beside(&self) -> bool {
        self.options.out_of_band.is_some_and(|oob| oob.sync)
    }

    /// Prepares for messages of a size, and says how many of them may be on the way.
    pub(super) fn lay_out(&mut self, size: usize) -> usize {
        let window = self.manners.window;
        self.rx.lay_out(size, window);
        self.tx.lay_out(size, window);
        if self.syncs_beside() {
            // The receive at rest is not used up by a barrier: it has to do for the next size.
            self.rx.size = self.rx.rest - 2 * CANARY;
        }
        match self.options.verify {
            // Each message has a buffer of its own.
            true => window.min(self.rx.slots.saturating_sub(1)).max(1),
            false => window,
        }
    }

    // ---- receiving ----

    /// Posts the receive that is there at rest.
    #[inline]
    pub(super) fn post_rest(&mut self) -> anyhow::Result<()> {
        let place = self.rx.next_rest(self.posted);
        if self.options.verify {
            poison(&self.rx.block.memory, place.start, self.rx.size);
        }
        self.post(place)
    }

    /// Posts a receive of a window.
    #[inline]
    pub(super) fn post_slot(&mut self) -> anyhow::Result<()> {
        let place = self.rx.at_slot(self.posted);
        if self.options.verify {
            poison(&self.rx.block.memory, place.start, place.len());
        }
        self.post(place)
    }

    #[inline]
    fn post(&mut self, place: Range<usize>) -> anyhow::Result<()> {
        let piece = self.rx.block.piece(place.start, place.len());
        let recv = Recv {
            src: FiAddr::UNSPEC,
            tag: self.manners.tagged.then(|| TagMatch::exact(self.posted)),
            flags: OpFlags::DEFAULT,
            context: self.posted,
        };
        self.end.push("receive", |end| end.recv(&[piece], &recv))?;
        self.posted += 1;
        Ok(())
    }

    /// Waits until so many messages have arrived.
    #[inline]
    pub(super) fn await_arrivals(&mut self, total: u64) -> anyhow::Result<()> {
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
                self.note(entry)?;
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
    pub(super) fn receive(&mut self) -> anyhow::Result<()> {
        self.await_arrivals(self.arrived + 1)?;
        self.post_rest()
    }

    /// Waits for the next message and answers its completion.
    ///
    /// # Errors
    /// When none comes, or another one completes.
    pub(super) fn next_entry(&mut self) -> anyhow::Result<Entry> {
        let entry = self.end.rx.next()?;
        ensure!(
            entry.context.0 == self.arrived,
            "receive {} completes before {}",
            entry.context.0,
            self.arrived
        );
        self.note(&entry)?;
        self.forget();
        Ok(entry)
    }

    /// Waits for the next message, posts the next receive, and answers all bytes of the message.
    ///
    /// # Errors
    /// As [`Self::next_entry`].
    pub(super) fn take_whole(&mut self) -> anyhow::Result<Vec<u8>> {
        let entry = self.next_entry()?;
        let place = self.rx.at_rest(entry.context.0);
        let bytes = self.rx.block.memory.get(place.start, entry.len);
        self.post_rest()?;
        Ok(bytes)
    }

    /// Checks that the last message is what the peer has sent as that number.
    ///
    /// # Errors
    /// What it is instead.
    pub(super) fn check_last(&self, size: usize) -> anyhow::Result<()> {
        let number = self.arrived - 1;
        let stamp = Stamp::of_pair(!self.is_client(), number);
        stamp.check(&self.rx.block.memory, self.rx.at_rest(number).start, size)
    }

    /// The same, and answers the message.
    pub(super) fn take(&mut self, len: usize) -> anyhow::Result<Vec<u8>> {
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
    pub(super) fn check_rest(&mut self, numbers: Range<u64>, size: usize) -> anyhow::Result<()> {
        self.check(numbers, size, Buffers::poisoned)
    }

    /// Checks the messages of a window, of which the first came into a buffer at rest.
    ///
    /// # Errors
    /// What is wrong with the first.
    pub(super) fn check_window(
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
    pub(super) fn forget(&mut self) {
        self.log.clear();
    }

    // ---- sending ----

    /// Posts a message, with a completion.
    #[inline]
    pub(super) fn post_send(&mut self, size: usize, flags: OpFlags) -> anyhow::Result<()> {
        let at = self.place_of_send(size);
        let piece = self.tx.block.piece(at, size);
        let send = self.order(flags, SENT | self.sent);
        self.end.push("send", |end| end.send(&[piece], &send))?;
        self.sent += 1;
        self.completing += 1;
        Ok(())
    }

    /// Sends a message by inject: no completion, but a counter counts it.
    #[inline]
    pub(super) fn inject(&mut self, size: usize) -> anyhow::Result<()> {
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
        Send {
            dest: self.peer,
            tag: self.manners.tagged.then_some(self.sent),
            data: None,
            flags,
            context,
        }
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
    pub(super) fn await_sends(&mut self) -> anyhow::Result<()> {
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
    pub(super) fn send(&mut self, size: usize) -> anyhow::Result<()> {
        self.post_send(size, OpFlags::DEFAULT)?;
        self.await_sends()
    }

    /// Sends some bytes.
    pub(super) fn say(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        ensure!(bytes.len() <= CONTROL, "{} bytes at once", bytes.len());
        let at = self.tx.rest((self.sent % 2) as usize).start;
        self.tx.block.memory.put(at, bytes);
        let piece = self.tx.block.piece(at, bytes.len());
        let send = self.order(OpFlags::DEFAULT, SENT | self.sent);
        self.end.push("send", |end| end.send(&[piece], &send))?;
        self.sent += 1;
        self.completing += 1;
        self.await_sends()
    }

    /// Posts a message without waiting, by inject where it is small enough.
    #[inline]
    pub(super) fn pass(&mut self, size: usize, inject_size: usize) -> anyhow::Result<()> {
        match size <= inject_size {
            true => self.inject(size),
            false => self.post_send(size, OpFlags::DEFAULT),
        }
    }

    // ---- agreeing ----

    /// Waits for the peer: an empty message there and back, or a byte over the connection beside.
    ///
    /// # Errors
    /// When the peer does not answer.
    pub(super) fn sync(&mut self) -> anyhow::Result<()> {
        if let (true, Some(oob)) = (self.syncs_beside(), &mut self.oob) {
            return oob.barrier();
        }
        let flags = self.options.sync_level | self.reported();
        match self.is_client() {
            true => {
                self.post_send(0, flags)?;
                self.await_sends()?;
                self.receive()?;
            }
            false => {
                self.receive()?;
                self.post_send(0, flags)?;
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
    pub(super) fn await_server(&mut self) -> anyhow::Result<()> {
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
    pub(super) fn finish(&mut self) -> anyhow::Result<()> {
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
    pub(super) fn exchange_keys(&mut self, own: &Rights) -> anyhow::Result<Remote> {
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

    /// The bytes that have arrived.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
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

impl Channel {
    /// How many messages were sent, to go back to.
    pub(super) fn mark(&self) -> (u64, u64) {
        (self.sent, self.completing)
    }

    /// What was sent since then was not sent after all.
    pub(super) fn go_back_to(&mut self, (sent, completing): (u64, u64)) {
        self.sent = sent;
        self.completing = completing;
    }

    /// The program has sent a message itself.
    pub(super) fn skip(&mut self) {
        self.sent += 1;
    }
}
