//! `fi_unexpected_msg`: messages that are there before their receives, and before their sender is
//! in the address vector.

use anyhow::{Context as _, ensure};
use selvedge::info::EpType;
use selvedge::{Caps, FiAddr, TagMatch};
use selvedge_testkit::domain::{Block, Recv, Send};

use crate::upstream::channel::{Channel, Manners};
use crate::upstream::connect;
use crate::upstream::discover::{discover, hints};
use crate::upstream::ground;
use crate::upstream::oob::OutOfBandChannel;
use crate::upstream::options::Options;
use crate::upstream::payload::{POISON, Stamp};

/// The program: the client sends.
pub(in crate::upstream) fn unexpected_msg(options: &Options) -> anyhow::Result<()> {
    let options = super::beside(options, true);
    let size = options.sizes.one().unwrap_or(1024);
    let count: usize = options.number("M", 4)?;
    let manners = Manners {
        tagged: true,
        ..Manners::default()
    };
    let is_connected = options.ep_type == Some(EpType::Msg);
    let mut channel = match is_connected {
        true => connect::channel(&options, Caps::TAGGED, manners)?,
        false => one_sided(&options, manners)?,
    };
    let block = channel.ground().buffers(size * count.max(2))?;
    let mut side = Side {
        channel: &mut channel,
        block,
        size,
        data: options.has("C"),
        next: FIRST,
    };
    if !is_connected {
        side.strangers()?;
    }
    for _ in 0..options.iterations.unwrap_or(10) {
        side.round(count as u64)?;
    }
    side.channel.sync()
}

/// No tag of the channel's own messages.
const FIRST: u64 = 1 << 32;

/// An endpoint that knows its peer only if it is the sender.
fn one_sided(options: &Options, manners: Manners) -> anyhow::Result<Channel> {
    let caps = Caps::TAGGED | Caps::DIRECTED_RECV;
    let info = discover(options, &hints(options, caps, EpType::Rdm)?)?;
    let oob = OutOfBandChannel::meet(options)?;
    let ground = ground::open(options, info)?;
    Channel::deaf(options, &ground, manners, Some(oob), None)
}

struct Side<'a> {
    channel: &'a mut Channel,
    block: Block,
    size: usize,
    data: bool,
    next: u64,
}

impl Side<'_> {
    /// Two messages of a sender that the receiver does not know yet: the first one for a receive
    /// from anybody, the second for one that names the sender, which is known by then.
    fn strangers(&mut self) -> anyhow::Result<()> {
        let own = self.channel.end.name()?;
        let oob = self.channel.oob.as_mut().context("no connection beside")?;
        let theirs = oob.exchange(&own)?;
        if self.channel.is_client() {
            self.channel.know(&theirs)?;
            self.send(2)?;
            self.channel.sync()?;
            self.complete(2)?;
        } else {
            self.channel.sync()?;
            self.receive(0, FiAddr::UNSPEC)?;
            self.channel.know(&theirs)?;
            self.receive(1, self.channel.peer)?;
        }
        self.next += 2;
        Ok(())
    }

    /// Messages that are received in the reverse order of their tags.
    fn round(&mut self, count: u64) -> anyhow::Result<()> {
        if self.channel.is_client() {
            self.send(count)?;
            self.channel.sync()?;
            self.complete(count)?;
        } else {
            self.channel.sync()?;
            for number in (0..count).rev() {
                self.receive(number, FiAddr::UNSPEC)?;
            }
        }
        self.next += count;
        self.channel.sync()
    }

    fn send(&mut self, count: u64) -> anyhow::Result<()> {
        for number in 0..count {
            let (tag, at) = (self.next + number, number as usize * self.size);
            Stamp::of_pair(true, tag).write(&self.block.memory, at, self.size);
            let send = Send::new(self.channel.peer, tag)
                .tag(tag)
                .data(self.data.then_some(self.size as u64));
            let segment = self.block.segment(at, self.size);
            self.channel
                .end
                .push("send", |end| end.send(&[segment], &send))?;
        }
        Ok(())
    }

    fn complete(&self, count: u64) -> anyhow::Result<()> {
        super::gather(&[&self.channel.end.tx], self.next..self.next + count)
    }

    fn receive(&mut self, number: u64, src: FiAddr) -> anyhow::Result<()> {
        let tag = self.next + number;
        self.block.memory.fill(0, self.size, POISON);
        let recv = Recv::new(tag).from(src).tag(TagMatch::exact(tag));
        let segment = self.block.segment(0, self.size);
        let end = &self.channel.end;
        end.push("receive", |end| end.recv(&[segment], &recv))?;
        let entry = end.rx.next()?;
        let data = if self.data {
            self.size as u64
        } else {
            entry.data
        };
        let is_right = entry.context.0 == tag
            && entry.tag == tag
            && entry.len == self.size
            && entry.data == data;
        ensure!(is_right, "tag {tag:#x} of {} bytes: {entry:?}", self.size);
        Stamp::of_pair(true, tag).check(&self.block.memory, 0, self.size)
    }
}
