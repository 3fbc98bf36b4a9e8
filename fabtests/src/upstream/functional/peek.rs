//! `fi_rdm_tagged_peek`: the server's messages are looked at, claimed and dropped by the client, as
//! they wait.

use anyhow::{Context as _, ensure};
use selvedge::cq::Entry;
use selvedge::info::EpType;
use selvedge::{Caps, CompletionFlags, Errno, FiAddr, MsgOrder, OpFlags, TagMatch};
use selvedge_testkit::domain::{Block, Recv, Send};
use selvedge_testkit::failure::errno;

use crate::upstream::channel::{Channel, Manners};
use crate::upstream::discover::{discover, hints};
use crate::upstream::options::Options;
use crate::upstream::payload::{POISON, Stamp};

/// The first tag; the server sends this one and the next nine.
const FIRST: u64 = 0x900d;
const MESSAGES: u64 = 10;
const ABSENT: u64 = 0xbad;

/// The program.
pub(in crate::upstream) fn rdm_tagged_peek(options: &Options) -> anyhow::Result<()> {
    let options = super::beside(options, true);
    let hints = hints(&options, Caps::TAGGED, EpType::Rdm)?.msg_order(MsgOrder::SAS);
    let info = discover(&options, &hints)?;
    let manners = Manners {
        tagged: true,
        ..Manners::default()
    };
    let mut channel = Channel::open(&options, info, manners)?;
    let size = options.sizes.one().unwrap_or(1024);
    let block = channel.ground().buffers(size * MESSAGES as usize)?;
    let mut side = Side {
        channel: &mut channel,
        block,
        size,
    };
    match options.is_client() {
        true => side.look()?,
        false => side.send()?,
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
                .end
                .push("send", |end| end.send(&[segment], &send))?;
        }
        self.channel.sync()?;
        super::gather(&[&self.channel.end.tx], FIRST..FIRST + MESSAGES)
    }

    fn look(&mut self) -> anyhow::Result<()> {
        self.finds_nothing(ABSENT, OpFlags::PEEK)?;
        self.finds_nothing(ABSENT, OpFlags::PEEK | OpFlags::CLAIM)?;
        // The first receive at rest has tag 0: nothing here is for it.
        self.channel.sync()?;
        self.channel.sync()?;

        self.finds(FIRST, OpFlags::PEEK)?;
        self.takes(FIRST, OpFlags::empty())?;

        self.finds(FIRST + 1, OpFlags::PEEK | OpFlags::CLAIM)?;
        self.finds_nothing(FIRST + 1, OpFlags::PEEK)?;
        self.takes(FIRST + 1, OpFlags::CLAIM)?;

        self.finds(FIRST + 2, OpFlags::PEEK | OpFlags::DISCARD)?;
        self.finds_nothing(FIRST + 2, OpFlags::PEEK)?;

        self.finds(FIRST + 3, OpFlags::PEEK | OpFlags::CLAIM)?;
        self.drops(FIRST + 3)?;
        self.finds_nothing(FIRST + 3, OpFlags::PEEK)?;

        for number in [4, 5, 9, 7, 8, 6] {
            self.takes(FIRST + number, OpFlags::empty())?;
        }
        (FIRST..FIRST + MESSAGES).try_for_each(|tag| self.finds_nothing(tag, OpFlags::PEEK))
    }

    fn post(&self, tag: u64, flags: OpFlags) -> anyhow::Result<()> {
        let src = match flags.contains(OpFlags::PEEK) {
            true => FiAddr::UNSPEC,
            false => self.channel.peer,
        };
        let recv = Recv::new(tag)
            .from(src)
            .tag(TagMatch::exact(tag))
            .flags(flags);
        let segment = self.block.segment(0, self.size);
        let end = &self.channel.end;
        end.push("receive", |end| end.recv(&[segment], &recv))
            .with_context(|| format!("tag {tag:#x}, {flags}"))
    }

    fn finds_nothing(&self, tag: u64, flags: OpFlags) -> anyhow::Result<()> {
        self.post(tag, flags)?;
        let error = self.channel.end.rx.next_error();
        let error = error.with_context(|| format!("tag {tag:#x}, {flags}"))?;
        let is_right = error.errno == Errno::NoMsg && error.entry.context.0 == tag;
        ensure!(is_right, "a look for tag {tag:#x} says {error:?}");
        Ok(())
    }

    /// Waits for an entry of a message with this tag.
    fn entry(&self, tag: u64, flags: OpFlags) -> anyhow::Result<Entry> {
        let entry = self.channel.end.rx.next();
        let entry = entry.with_context(|| format!("tag {tag:#x}, {flags}"))?;
        let is_right = entry.context.0 == tag
            && entry.tag == tag
            && entry.len == self.size
            && entry
                .flags
                .contains(CompletionFlags::TAGGED | CompletionFlags::RECV);
        ensure!(is_right, "tag {tag:#x}, {flags}: {entry:?}");
        Ok(entry)
    }

    /// A message that was sent is found sooner or later: a look does not wait for it.
    fn finds(&self, tag: u64, flags: OpFlags) -> anyhow::Result<()> {
        self.block.memory.fill(0, self.size, POISON);
        self.channel.ground().strategy().until("looking", || {
            self.post(tag, flags)?;
            match self.entry(tag, flags) {
                Ok(_) => Ok(Some(())),
                Err(error) if errno(&error) == Errno::NoMsg => Ok(None),
                Err(error) => Err(error),
            }
        })?;
        self.block.memory.check_fill(0, self.size, POISON)
    }

    fn takes(&self, tag: u64, flags: OpFlags) -> anyhow::Result<()> {
        self.block.memory.fill(0, self.size, POISON);
        self.post(tag, flags)?;
        self.entry(tag, flags)?;
        Stamp::of_pair(false, tag).check(&self.block.memory, 0, self.size)
    }

    /// Drops a claimed message; what its completion says of the length is the provider's affair.
    fn drops(&self, tag: u64) -> anyhow::Result<()> {
        self.post(tag, OpFlags::CLAIM | OpFlags::DISCARD)?;
        let entry = self.channel.end.rx.next()?;
        ensure!(entry.context.0 == tag, "a dropped message says {entry:?}");
        Ok(())
    }
}
