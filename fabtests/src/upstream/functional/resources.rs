//! `fi_resmgmt_test`: posts until there is no more room, and takes everything back out of it.
//! Nothing may get lost on the way.

use std::thread::sleep;
use std::time::Duration;

use anyhow::ensure;
use selvedge::cq::Entry;
use selvedge::info::{EpType, ResourceMgmt};
use selvedge::{Caps, Errno, FiAddr, OpFlags, TagMatch};

use crate::upstream::channel::{Channel, Manners};
use crate::upstream::connect;
use crate::upstream::discover::{discover, hints};
use crate::upstream::ground::Block;
use crate::upstream::options::Options;
use crate::upstream::payload::Stamp;
use crate::upstream::post::{Recv, Send};

/// The program: the client sends.
pub(in crate::upstream) fn resmgmt_test(options: &Options) -> anyhow::Result<()> {
    let count = options.iterations.unwrap_or(100) as u64;
    let tagged = options.choice(&["msg", "tagged"])? == "tagged";
    let caps = Caps::MSG | Caps::TAGGED;
    // What the programs say to each other besides is of the other kind.
    let manners = Manners {
        tagged: !tagged,
        ..Manners::default()
    };
    let mut channel = match options.ep_type {
        Some(EpType::Msg) => connect::channel(options, caps, manners)?,
        _ => {
            let hints = hints(options, caps, EpType::Rdm)?;
            let hints = hints.resource_mgmt(ResourceMgmt::Enabled);
            Channel::open(options, discover(options, &hints)?, manners)?
        }
    };
    let size = options.sizes.one().unwrap_or(64);
    let block = channel.ground().buffers(size * count as usize)?;
    channel.sync()?;
    let flow = Flow {
        channel: &channel,
        block,
        size,
        tagged,
    };
    if !options.is_client() {
        sleep(Duration::from_secs(options.number("d", 0)?));
    }
    let full = flow.run(count)?;
    println!("{count} operations of {size} bytes, {full} times without room");
    channel.await_server()?;
    channel.finish()
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
        let piece = self.block.piece(at, self.size);
        if is_sender {
            Stamp::of_pair(true, number).write(&self.block.memory, at, self.size);
            let send = Send {
                dest: self.channel.peer,
                tag: self.tagged.then_some(number),
                data: None,
                flags: OpFlags::DEFAULT,
                context: number,
            };
            return self.channel.end.send(&[piece], &send);
        }
        let recv = Recv {
            src: FiAddr::UNSPEC,
            tag: self.tagged.then(|| TagMatch::exact(number)),
            flags: OpFlags::DEFAULT,
            context: number,
        };
        self.channel.end.recv(&[piece], &recv)
    }

    fn check(&self, number: u64, entry: &Entry) -> anyhow::Result<()> {
        ensure!(entry.len == self.size, "receive {number}: {entry:?}");
        let at = number as usize * self.size;
        Stamp::of_pair(true, number).check(&self.block.memory, at, self.size)
    }
}
