//! `fi_recv_cancel`: of two receives one is taken back; the other one, and those posted later, take
//! their messages.

use anyhow::{Context as _, ensure};
use selvedge::{Caps, CompletionFlags, Context, Errno, TagMatch};
use selvedge_testkit::domain::{Block, Recv, Send};
use selvedge_testkit::failure::wrong;

use super::open;
use crate::upstream::channel::{Channel, Manners};
use crate::upstream::options::Options;
use crate::upstream::payload::{POISON, Stamp};

const KEPT: u64 = 0x1000_0001;
const TAKEN_BACK: u64 = 0x1000_0002;

/// The program.
pub(in crate::upstream) fn recv_cancel(options: &Options) -> anyhow::Result<()> {
    let size = options.sizes.one().unwrap_or(64);
    let manners = Manners {
        tagged: true,
        ..Manners::default()
    };
    let mut channel = open(options, Caps::TAGGED, manners)?;
    let ground = channel.ground().clone();
    let blocks = [ground.buffers(size)?, ground.buffers(size)?];
    if channel.is_client() {
        channel.sync()?;
        for tag in [KEPT, TAKEN_BACK] {
            send(&channel, &blocks[0], size, tag)?;
        }
    } else {
        for (block, tag) in blocks.iter().zip([KEPT, TAKEN_BACK]) {
            post(&channel, block, tag)?;
        }
        take_back(&channel)?;
        channel.sync()?;
        take(&channel, &blocks[0], KEPT)?;
        blocks[1].memory.check_fill(0, size, POISON)?;
        post(&channel, &blocks[1], TAKEN_BACK)?;
        take(&channel, &blocks[1], TAKEN_BACK)?;
    }
    channel.await_server()?;
    channel.finish()
}

fn post(channel: &Channel, block: &Block, tag: u64) -> anyhow::Result<()> {
    block.memory.fill(0, block.memory.len(), POISON);
    let recv = Recv::new(tag).tag(TagMatch::exact(tag));
    channel
        .end
        .push("receive", |end| end.recv(&[block.whole()], &recv))
}

fn take_back(channel: &Channel) -> anyhow::Result<()> {
    let end = &channel.end;
    end.ep.cancel(Context(TAKEN_BACK)).context("fi_cancel")?;
    let error = end.rx.next_error()?;
    let is_right = error.errno == Errno::Canceled
        && error.entry.context.0 == TAKEN_BACK
        && error.entry.flags.contains(CompletionFlags::RECV);
    ensure!(is_right, "a receive that is taken back says {error:?}");
    match end.rx.cq().read_err() {
        Err(Errno::Again) => Ok(()),
        other => Err(wrong(format!("behind it there is {other:?}"))),
    }
}

fn take(channel: &Channel, block: &Block, tag: u64) -> anyhow::Result<()> {
    let entry = channel.end.rx.next()?;
    let is_right = entry.context.0 == tag && entry.tag == tag && entry.len == block.memory.len();
    ensure!(is_right, "the message with tag {tag:#x} says {entry:?}");
    Stamp::of_pair(true, tag).check(&block.memory, 0, entry.len)
}

fn send(channel: &Channel, block: &Block, size: usize, tag: u64) -> anyhow::Result<()> {
    Stamp::of_pair(true, tag).write(&block.memory, 0, size);
    let send = Send::new(channel.peer, tag).tag(tag);
    channel
        .end
        .push("send", |end| end.send(&[block.whole()], &send))?;
    super::gather(&[&channel.end.tx], [tag])
}
