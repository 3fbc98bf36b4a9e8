//! `fi_unexpected_msg`: messages that arrive before their receives are posted and before the sender
//! is in the address vector.

use anyhow::{Context as _, ensure};
use selvedge::info::EpType;
use selvedge::{Caps, FiAddr, TagMatch};
use selvedge_testkit::domain::{Block, Recv, Send};

use crate::upstream::channel::{Channel, ChannelConfig, open_channel};
use crate::upstream::data::payload::{POISON, Stamp};
use crate::upstream::options::Options;
use crate::upstream::setup::discover::{discover, hints};
use crate::upstream::setup::domain;
use crate::upstream::setup::oob::OutOfBandChannel;

/// Runs the program: the client sends.
pub(in crate::upstream) fn unexpected_msg(options: &Options) -> anyhow::Result<()> {
    let options = crate::upstream::functional::with_out_of_band(options, true);
    let size = options.sizes.one().unwrap_or(1024);
    let count: usize = options.number("M", 4)?;
    let config = ChannelConfig {
        tagged: true,
        ..ChannelConfig::default()
    };
    let is_connected = options.ep_type == Some(EpType::Msg);
    let mut channel = if is_connected {
        open_channel(&options, Caps::TAGGED, config)?
    } else {
        open_one_sided(&options, config)?
    };
    let block = channel.domain().buffers(size * count.max(2))?;
    let mut side = Side {
        channel: &mut channel,
        block,
        size,
        data: options.has("C"),
        next: FIRST,
    };
    if !is_connected {
        side.unknown_sender()?;
    }
    for _ in 0..options.iterations.unwrap_or(10) {
        side.round(count as u64)?;
    }
    side.channel.sync()
}

/// The tag of the first message; later messages have higher tags. No control message has such a
/// tag.
const FIRST: u64 = 1 << 32;

/// Opens an endpoint without the peer's address, which only the sender needs before it sends.
fn open_one_sided(options: &Options, config: ChannelConfig) -> anyhow::Result<Channel> {
    let caps = Caps::TAGGED | Caps::DIRECTED_RECV;
    let info = discover(options, &hints(options, caps, EpType::Rdm)?)?;
    let oob = OutOfBandChannel::establish(options)?;
    let domain = domain::open(options, info)?;
    Channel::without_receive(options, &domain, config, Some(oob), None)
}

struct Side<'a> {
    channel: &'a mut Channel,
    block: Block,
    size: usize,
    data: bool,
    next: u64,
}

impl Side<'_> {
    /// Receives two messages that arrive before their sender is in the address vector. A receive
    /// from any source matches the first. Then the receiver inserts the sender's address, and a
    /// directed receive matches the second.
    fn unknown_sender(&mut self) -> anyhow::Result<()> {
        let address = self.channel.endpoint.name()?;
        let oob = self
            .channel
            .oob
            .as_mut()
            .context("there is no out-of-band connection")?;
        let from_peer = oob.exchange(&address)?;
        if self.channel.is_client() {
            self.channel.insert_peer(&from_peer)?;
            self.send(2)?;
            self.channel.sync()?;
            self.gather_sends(2)?;
        } else {
            self.channel.sync()?;
            self.receive(0, FiAddr::UNSPEC)?;
            self.channel.insert_peer(&from_peer)?;
            self.receive(1, self.channel.peer)?;
        }
        self.next += 2;
        Ok(())
    }

    /// Receives the messages in the reverse order of their tags.
    fn round(&mut self, count: u64) -> anyhow::Result<()> {
        if self.channel.is_client() {
            self.send(count)?;
            self.channel.sync()?;
            self.gather_sends(count)?;
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
                .endpoint
                .push("send", |endpoint| endpoint.send(&[segment], &send))?;
        }
        Ok(())
    }

    fn gather_sends(&self, count: u64) -> anyhow::Result<()> {
        crate::upstream::functional::wait_for_all(
            &[&self.channel.endpoint.tx],
            self.next..self.next + count,
        )
    }

    fn receive(&mut self, number: u64, src: FiAddr) -> anyhow::Result<()> {
        let tag = self.next + number;
        self.block.memory.fill(0, self.size, POISON);
        let recv = Recv::new(tag).from(src).tag(TagMatch::exact(tag));
        let segment = self.block.segment(0, self.size);
        let endpoint = &self.channel.endpoint;
        endpoint.push("receive", |endpoint| endpoint.recv(&[segment], &recv))?;
        let entry = endpoint.rx.next()?;
        let data = if self.data {
            self.size as u64
        } else {
            entry.data
        };
        let is_expected = entry.context.0 == tag
            && entry.tag == tag
            && entry.len == self.size
            && entry.data == data;
        ensure!(
            is_expected,
            "receive with tag {tag:#x} and {} bytes completes with {entry:?}",
            self.size
        );
        Stamp::of_pair(true, tag).check(&self.block.memory, 0, self.size)
    }
}
