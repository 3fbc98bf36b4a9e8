//! `fi_recv_cancel`: one of two receives is cancelled; the other one, and later ones, match their
//! messages.

use anyhow::{Context as _, ensure};
use selvedge::{Caps, CompletionFlags, Context, Errno, TagMatch};
use selvedge_testkit::domain::{Block, Recv, Send};
use selvedge_testkit::failure::wrong;

use crate::upstream::channel::{Channel, ChannelConfig};
use crate::upstream::data::payload::{POISON, Stamp};
use crate::upstream::functional::open;
use crate::upstream::options::Options;

/// The tag of the receive that is not cancelled.
const KEPT: u64 = 0x1000_0001;
/// The tag of the receive that is cancelled.
const CANCELLED: u64 = 0x1000_0002;

/// Runs the program.
pub(in crate::upstream) fn recv_cancel(options: &Options) -> anyhow::Result<()> {
    let size = options.sizes.one().unwrap_or(64);
    let config = ChannelConfig {
        tagged: true,
        ..ChannelConfig::default()
    };
    let mut channel = open(options, Caps::TAGGED, config)?;
    let domain = channel.domain().clone();
    let blocks = [domain.buffers(size)?, domain.buffers(size)?];
    if channel.is_client() {
        channel.sync()?;
        for tag in [KEPT, CANCELLED] {
            send(&channel, &blocks[0], size, tag)?;
        }
    } else {
        for (block, tag) in blocks.iter().zip([KEPT, CANCELLED]) {
            post(&channel, block, tag)?;
        }
        cancel(&channel)?;
        channel.sync()?;
        receive(&channel, &blocks[0], KEPT)?;
        blocks[1].memory.check_fill(0, size, POISON)?;
        post(&channel, &blocks[1], CANCELLED)?;
        receive(&channel, &blocks[1], CANCELLED)?;
    }
    channel.await_server()?;
    channel.finish()
}

fn post(channel: &Channel, block: &Block, tag: u64) -> anyhow::Result<()> {
    block.memory.fill(0, block.memory.len(), POISON);
    let recv = Recv::new(tag).tag(TagMatch::exact(tag));
    channel
        .endpoint
        .push("receive", |endpoint| endpoint.recv(&[block.whole()], &recv))
}

fn cancel(channel: &Channel) -> anyhow::Result<()> {
    let endpoint = &channel.endpoint;
    endpoint
        .ep
        .cancel(Context(CANCELLED))
        .context("fi_cancel")?;
    let error = endpoint.rx.next_error()?;
    let is_expected = error.errno == Errno::Canceled
        && error.entry.context.0 == CANCELLED
        && error.entry.flags.contains(CompletionFlags::RECV);
    ensure!(is_expected, "a cancelled receive completed with {error:?}");
    match endpoint.rx.cq().read_err() {
        Err(Errno::Again) => Ok(()),
        other => Err(wrong(format!("the error queue then has {other:?}"))),
    }
}

fn receive(channel: &Channel, block: &Block, tag: u64) -> anyhow::Result<()> {
    let entry = channel.endpoint.rx.next()?;
    let is_expected = entry.context.0 == tag && entry.tag == tag && entry.len == block.memory.len();
    ensure!(
        is_expected,
        "the message with tag {tag:#x} completed with {entry:?}"
    );
    Stamp::of_pair(true, tag).check(&block.memory, 0, entry.len)
}

fn send(channel: &Channel, block: &Block, size: usize, tag: u64) -> anyhow::Result<()> {
    Stamp::of_pair(true, tag).write(&block.memory, 0, size);
    let send = Send::new(channel.peer, tag).tag(tag);
    channel
        .endpoint
        .push("send", |endpoint| endpoint.send(&[block.whole()], &send))?;
    crate::upstream::functional::wait_for_all(&[&channel.endpoint.tx], [tag])
}
