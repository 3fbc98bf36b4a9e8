//! `fi_rdm_tagged_peek`: the client peeks at, claims and discards unexpected messages of the
//! server.

use anyhow::{Context as _, ensure};
use selvedge::cq::Entry;
use selvedge::info::EpType;
use selvedge::{Caps, CompletionFlags, Errno, FiAddr, MsgOrder, OpFlags, TagMatch};
use selvedge_testkit::domain::{Block, Recv, Send};
use selvedge_testkit::failure::errno;

use crate::upstream::channel::{Channel, ChannelConfig};
use crate::upstream::data::payload::{POISON, Stamp};
use crate::upstream::options::Options;
use crate::upstream::setup::discover::{discover, hints};

/// The first tag; the server sends messages with this tag and the next nine.
const FIRST: u64 = 0x900d;
const MESSAGES: u64 = 10;
const ABSENT: u64 = 0xbad;

/// Runs the program.
pub(in crate::upstream) fn rdm_tagged_peek(options: &Options) -> anyhow::Result<()> {
    let options = crate::upstream::functional::with_out_of_band(options, true);
    let hints = hints(&options, Caps::TAGGED, EpType::Rdm)?.msg_order(MsgOrder::SAS);
    let info = discover(&options, &hints)?;
    let config = ChannelConfig {
        tagged: true,
        ..ChannelConfig::default()
    };
    let mut channel = Channel::open(&options, info, config)?;
    let size = options.sizes.one().unwrap_or(1024);
    let block = channel.domain().buffers(size * MESSAGES as usize)?;
    let mut side = Side {
        channel: &mut channel,
        block,
        size,
    };
    if options.is_client() {
        side.peek_messages()?
    } else {
        side.send()?
    }
    side.channel.sync()
}

struct Side<'a> {
    channel: &'a mut Channel,
    block: Block,
    size: usize,
}

impl Side<'_> {
    fn send(&mut self) -> anyhow::Result<()> {
        self.channel.sync()?;
        for number in 0..MESSAGES {
            let at = number as usize * self.size;
            let tag = FIRST + number;
            Stamp::of_pair(false, tag).write(&self.block.memory, at, self.size);
            let send = Send::new(self.channel.peer, tag).tag(tag);
            let segment = self.block.segment(at, self.size);
            self.channel
                .endpoint
                .push("send", |endpoint| endpoint.send(&[segment], &send))?;
        }
        self.channel.sync()?;
        crate::upstream::functional::wait_for_all(
            &[&self.channel.endpoint.tx],
            FIRST..FIRST + MESSAGES,
        )
    }

    fn peek_messages(&mut self) -> anyhow::Result<()> {
        self.expect_no_match(ABSENT, OpFlags::PEEK)?;
        self.expect_no_match(ABSENT, OpFlags::PEEK | OpFlags::CLAIM)?;
        // The server sends its messages between these two barriers. The preposted receive has tag
        // 0 and therefore matches none of them.
        self.channel.sync()?;
        self.channel.sync()?;

        self.expect_match(FIRST, OpFlags::PEEK)?;
        self.receive(FIRST, OpFlags::empty())?;

        self.expect_match(FIRST + 1, OpFlags::PEEK | OpFlags::CLAIM)?;
        self.expect_no_match(FIRST + 1, OpFlags::PEEK)?;
        self.receive(FIRST + 1, OpFlags::CLAIM)?;

        self.expect_match(FIRST + 2, OpFlags::PEEK | OpFlags::DISCARD)?;
        self.expect_no_match(FIRST + 2, OpFlags::PEEK)?;

        self.expect_match(FIRST + 3, OpFlags::PEEK | OpFlags::CLAIM)?;
        self.discard(FIRST + 3)?;
        self.expect_no_match(FIRST + 3, OpFlags::PEEK)?;

        for number in [4, 5, 9, 7, 8, 6] {
            self.receive(FIRST + number, OpFlags::empty())?;
        }
        (FIRST..FIRST + MESSAGES).try_for_each(|tag| self.expect_no_match(tag, OpFlags::PEEK))
    }

    fn post(&self, tag: u64, flags: OpFlags) -> anyhow::Result<()> {
        let src = if flags.contains(OpFlags::PEEK) {
            FiAddr::UNSPEC
        } else {
            self.channel.peer
        };
        let recv = Recv::new(tag)
            .from(src)
            .tag(TagMatch::exact(tag))
            .flags(flags);
        let segment = self.block.segment(0, self.size);
        let endpoint = &self.channel.endpoint;
        endpoint
            .push("receive", |endpoint| endpoint.recv(&[segment], &recv))
            .with_context(|| format!("tag {tag:#x}, {flags}"))
    }

    fn expect_no_match(&self, tag: u64, flags: OpFlags) -> anyhow::Result<()> {
        self.post(tag, flags)?;
        let error = self.channel.endpoint.rx.next_error();
        let error = error.with_context(|| format!("tag {tag:#x}, {flags}"))?;
        let is_expected = error.errno == Errno::NoMsg && error.entry.context.0 == tag;
        ensure!(
            is_expected,
            "a peek for tag {tag:#x} fails with {error:?}, not FI_ENOMSG"
        );
        Ok(())
    }

    /// Waits for the completion of a message with this tag.
    fn entry(&self, tag: u64, flags: OpFlags) -> anyhow::Result<Entry> {
        let entry = self.channel.endpoint.rx.next();
        let entry = entry.with_context(|| format!("tag {tag:#x}, {flags}"))?;
        let is_expected = entry.context.0 == tag
            && entry.tag == tag
            && entry.len == self.size
            && entry
                .flags
                .contains(CompletionFlags::TAGGED | CompletionFlags::RECV);
        ensure!(is_expected, "tag {tag:#x}, {flags}: {entry:?}");
        Ok(entry)
    }

    /// Peeks until the message has arrived: a peek does not wait for it.
    fn expect_match(&self, tag: u64, flags: OpFlags) -> anyhow::Result<()> {
        self.block.memory.fill(0, self.size, POISON);
        self.channel
            .domain()
            .strategy()
            .until("peeking for a message", || {
                self.post(tag, flags)?;
                match self.entry(tag, flags) {
                    Ok(_) => Ok(Some(())),
                    Err(error) if errno(&error) == Errno::NoMsg => Ok(None),
                    Err(error) => Err(error),
                }
            })?;
        self.block.memory.check_fill(0, self.size, POISON)
    }

    fn receive(&self, tag: u64, flags: OpFlags) -> anyhow::Result<()> {
        self.block.memory.fill(0, self.size, POISON);
        self.post(tag, flags)?;
        self.entry(tag, flags)?;
        Stamp::of_pair(false, tag).check(&self.block.memory, 0, self.size)
    }

    /// Discards a claimed message. The length in its completion is the provider's choice.
    fn discard(&self, tag: u64) -> anyhow::Result<()> {
        self.post(tag, OpFlags::CLAIM | OpFlags::DISCARD)?;
        let entry = self.channel.endpoint.rx.next()?;
        ensure!(
            entry.context.0 == tag,
            "discarding the message with tag {tag:#x} completes with {entry:?}"
        );
        Ok(())
    }
}
