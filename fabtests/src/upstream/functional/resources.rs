//! `fi_resmgmt_test`: posts until there is no more room, and takes everything back out of it.
//! Nothing may get lost on the way.

use std::thread::sleep;
use std::time::Duration;

use anyhow::ensure;
use selvedge::cq::Entry;
use selvedge::info::{EpType, ResourceMgmt};
use selvedge::{Caps, Errno, TagMatch, av};
use selvedge_testkit::domain::{Block, Recv, Send};

use crate::upstream::channel::{Channel, Manners};
use crate::upstream::connect::Door;
use crate::upstream::discover::{discover, hints};
use crate::upstream::options::{Letters, Options};
use crate::upstream::payload::Stamp;

/// Its letters. `-c`, `-v`, `-w` and `-V` change nothing: waiting and checking are always the same.
pub(in crate::upstream) const LETTERS: Letters = super::letters("S:R:m:l:T:X:ActdwvV");

/// How long the server leaves the client alone with `-d`.
const DELAY: Duration = Duration::from_secs(1);

/// The program: the client sends.
pub(in crate::upstream) fn resmgmt_test(options: &Options) -> anyhow::Result<()> {
    let count = options.number("m", options.iterations.unwrap_or(100))? as u64;
    let tagged = options.has("t") || options.choice(&["msg", "tagged"])? == "tagged";
    // What the programs say to each other besides is of the other kind.
    let manners = Manners {
        tagged: !tagged,
        queues: [options.number("S", 0)?, options.number("R", 0)?],
        ..Manners::default()
    };
    let mut channel = open(options, manners)?;
    let size = options.number("l", 64)?;
    let block = channel.ground().buffers(size * count as usize)?;
    channel.sync()?;
    let flow = Flow {
        channel: &channel,
        block,
        size,
        tagged,
    };
    if !options.is_client() {
        sleep(if options.has("d") {
            DELAY
        } else {
            Duration::ZERO
        });
    }
    let full = flow.run(count)?;
    println!("{count} operations of {size} bytes, {full} times without room");
    channel.await_server()?;
    channel.finish()
}

/// Opens a channel with transmit and receive contexts of the sizes that are asked for.
fn open(options: &Options, manners: Manners) -> anyhow::Result<Channel> {
    let caps = Caps::MSG | Caps::TAGGED;
    let ep_type = options.ep_type.unwrap_or(EpType::Rdm);
    let (tx, rx) = (options.number("T", 0)?, options.number("X", 0)?);
    let mut hints = hints(options, caps, ep_type)?
        .resource_mgmt(ResourceMgmt::Enabled)
        .tx_size(tx)
        .rx_size(rx);
    if options.has("A") {
        hints = hints.edit(|info| info.domain_attr.av_type = av::Type::Table);
    }
    match ep_type {
        EpType::Msg => Door::with(options, &hints)?.channel(manners),
        _ => Channel::open(options, discover(options, &hints)?, manners),
    }
}

struct Flow<'a> {
    channel: &'a Channel,
    block: Block,
    size: usize,
    tagged: bool,
}

impl Flow<'_> {
    /// Posts all and waits for all; says how often there was no room.
    fn run(&self, count: u64) -> anyhow::Result<usize> {
        let is_sender = self.channel.is_client();
        let end = &self.channel.end;
        let queue = if is_sender { &end.tx } else { &end.rx };
        let mut entries = vec![Entry::default(); 16];
        let (mut posted, mut full) = (0, 0);
        let mut done = vec![false; count as usize];
        let mut missing = count;
        while missing > 0 {
            while posted < count {
                match self.post(posted, is_sender) {
                    Ok(()) => posted += 1,
                    Err(Errno::Again) => {
                        full += 1;
                        break;
                    }
                    Err(errno) => return Err(errno.into()),
                }
            }
            if posted == count - missing {
                // All are complete, and yet there is no room: the peer has to take something.
                queue.progress()?;
                continue;
            }
            let most = (missing as usize).min(entries.len());
            let count = queue.wait(&mut entries[..most])?;
            for entry in &entries[..count] {
                let number = entry.context.0;
                let is_new = number < posted && !done[number as usize];
                ensure!(is_new, "{entry:?} of {posted} operations");
                done[number as usize] = true;
                if !is_sender {
                    self.check(number, entry)?;
                }
            }
            missing -= count as u64;
        }
        Ok(full)
    }

    fn post(&self, number: u64, is_sender: bool) -> Result<(), Errno> {
        let at = number as usize * self.size;
        let segment = self.block.segment(at, self.size);
        if is_sender {
            Stamp::of_pair(true, number).write(&self.block.memory, at, self.size);
            let send = Send::new(self.channel.peer, number).tag(self.tagged.then_some(number));
            return self.channel.end.send(&[segment], &send);
        }
        let recv = Recv::new(number).tag(self.tagged.then(|| TagMatch::exact(number)));
        self.channel.end.recv(&[segment], &recv)
    }

    fn check(&self, number: u64, entry: &Entry) -> anyhow::Result<()> {
        ensure!(entry.len == self.size, "receive {number}: {entry:?}");
        let at = number as usize * self.size;
        Stamp::of_pair(true, number).check(&self.block.memory, at, self.size)
    }
}
