//! `fi_resmgmt_test`: posts operations until the queue is full and reads all completions. No
//! operation may be lost.

use std::thread::sleep;
use std::time::Duration;

use anyhow::ensure;
use selvedge::cq::Entry;
use selvedge::info::{EpType, ResourceMgmt};
use selvedge::{Caps, Errno, TagMatch, av};
use selvedge_testkit::domain::{Block, Recv, Send};

use crate::upstream::channel::{Channel, ChannelConfig};
use crate::upstream::data::payload::Stamp;
use crate::upstream::options::{OptionSet, Options};
use crate::upstream::setup::connector::Connector;
use crate::upstream::setup::discover::{discover, hints};

/// The options of the program. `-c`, `-v`, `-w` and `-V` have no effect: the program always waits
/// and checks in the same way.
pub(in crate::upstream) const OPTIONS: OptionSet =
    crate::upstream::functional::option_set("S:R:m:l:T:X:ActdwvV");

/// The delay of the server with `-d`.
const DELAY: Duration = Duration::from_secs(1);

/// Runs the program: the client sends.
pub(in crate::upstream) fn resmgmt_test(options: &Options) -> anyhow::Result<()> {
    let count = options.number("m", options.iterations.unwrap_or(100))? as u64;
    let tagged = options.has("t") || options.operation_of(&["msg", "tagged"])? == "tagged";
    // Control messages are tagged if the tested messages are untagged, and untagged otherwise.
    let config = ChannelConfig {
        tagged: !tagged,
        queues: [options.number("S", 0)?, options.number("R", 0)?],
        ..ChannelConfig::default()
    };
    let mut channel = open(options, config)?;
    let size = options.number("l", 64)?;
    let block = channel.domain().buffers(size * count as usize)?;
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
    let refusals = flow.run(count)?;
    println!("{count} operations of {size} bytes, {refusals} times FI_EAGAIN");
    channel.await_server()?;
    channel.finish()
}

/// Opens a channel with the requested sizes of the transmit and receive contexts.
fn open(options: &Options, config: ChannelConfig) -> anyhow::Result<Channel> {
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
        EpType::Msg => Connector::with_hints(options, &hints)?.open_channel(config),
        _ => Channel::open(options, discover(options, &hints)?, config),
    }
}

/// The operations of one side.
struct Flow<'a> {
    channel: &'a Channel,
    block: Block,
    size: usize,
    tagged: bool,
}

impl Flow<'_> {
    /// Posts all operations and waits for all completions. Returns the number of times that posting
    /// failed with `FI_EAGAIN`.
    fn run(&self, count: u64) -> anyhow::Result<usize> {
        let is_sender = self.channel.is_client();
        let endpoint = &self.channel.endpoint;
        let queue = if is_sender {
            &endpoint.tx
        } else {
            &endpoint.rx
        };
        let mut entries = vec![Entry::default(); 16];
        let (mut posted, mut refusals) = (0, 0);
        let mut is_completed = vec![false; count as usize];
        let mut missing = count;
        while missing > 0 {
            while posted < count {
                match self.post(posted, is_sender) {
                    Ok(()) => posted += 1,
                    Err(Errno::Again) => {
                        refusals += 1;
                        break;
                    }
                    Err(errno) => return Err(errno.into()),
                }
            }
            if posted == count - missing {
                // All posted operations have completed and posting still fails: the peer has to
                // receive first.
                queue.progress()?;
                continue;
            }
            let max = (missing as usize).min(entries.len());
            let count = queue.wait(&mut entries[..max])?;
            for entry in &entries[..count] {
                let number = entry.context.0;
                let is_expected = number < posted && !is_completed[number as usize];
                ensure!(
                    is_expected,
                    "unexpected or repeated completion of {posted} posted operations: {entry:?}"
                );
                is_completed[number as usize] = true;
                if !is_sender {
                    self.check(number, entry)?;
                }
            }
            missing -= count as u64;
        }
        Ok(refusals)
    }

    fn post(&self, number: u64, is_sender: bool) -> Result<(), Errno> {
        let offset = number as usize * self.size;
        let segment = self.block.segment(offset, self.size);
        if is_sender {
            Stamp::of_pair(true, number).write(&self.block.memory, offset, self.size);
            let send = Send::new(self.channel.peer, number).tag(self.tagged.then_some(number));
            return self.channel.endpoint.send(&[segment], &send);
        }
        let recv = Recv::new(number).tag(self.tagged.then(|| TagMatch::exact(number)));
        self.channel.endpoint.recv(&[segment], &recv)
    }

    fn check(&self, number: u64, entry: &Entry) -> anyhow::Result<()> {
        ensure!(
            entry.len == self.size,
            "receive {number} of {} bytes completes with {entry:?}",
            self.size
        );
        let offset = number as usize * self.size;
        Stamp::of_pair(true, number).check(&self.block.memory, offset, self.size)
    }
}
