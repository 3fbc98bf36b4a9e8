//! Requests over the endpoint below BMI.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use selvedge::cq::Entry;
use selvedge::info::{EpType, Threading};
use selvedge::{
    Address, Caps, CompletionFlags, CompletionQueue, Context, EpOption, Errno, FiAddr, Hints,
    OpFlags, TagMatch,
};
use selvedge_testkit::domain::{
    Block, DomainContext, DomainEndpoint, EndpointConfig, Recv, WaitMethod, WaitStrategy,
};

use super::{BATCH, IDLE, Tally};

/// An endpoint, and what was read of its queue.
#[derive(Debug)]
struct End {
    end: DomainEndpoint,
    entries: [Entry; BATCH],
    sources: [FiAddr; BATCH],
}

impl End {
    fn open(provider: &str) -> anyhow::Result<Self> {
        let caps = Caps::MSG | Caps::TAGGED | Caps::MULTI_RECV | Caps::SOURCE | Caps::SOURCE_ERR;
        let hints = Hints::new()
            .ep_type(EpType::Rdm)
            .caps(caps)
            .provider(provider)
            .cq_data_size(8);
        #[expect(unsafe_code, reason = "the promise that removes locks")]
        // SAFETY: each process here has one thread.
        let hints = unsafe { hints.promise_threading(Threading::Domain) };
        let infos = selvedge_providers::builtin().infos(&hints)?;
        let info = infos.into_iter().next().context("nothing was found")?;
        let strategy = WaitStrategy::new(WaitMethod::Sread, IDLE);
        let context = DomainContext::open(&*info.fabric()?, info, strategy, false)?;
        let queue = context.queue(8192)?;
        let end = context.endpoint(EndpointConfig {
            tx: Some(queue.clone()),
            rx: Some(queue),
            ..EndpointConfig::default()
        })?;
        Ok(Self {
            end,
            entries: [Entry::default(); BATCH],
            sources: [FiAddr::UNSPEC; BATCH],
        })
    }

    fn cq(&self) -> &dyn CompletionQueue {
        &**self.end.tx.cq()
    }

    /// Reads what has completed, and sleeps for a little when nothing has: how many entries there
    /// are, the first of which may stand for an error.
    fn read(&mut self, idle: Duration) -> selvedge::Result<usize> {
        let cq = self.end.tx.cq();
        let read = cq.read_from(&mut self.entries, &mut self.sources);
        if read != Ok(0) || idle.is_zero() {
            return read;
        }
        match cq.wait(&mut [], Some(idle)) {
            Ok(_) | Err(Errno::Again | Errno::Intr) => {}
            Err(errno) => return Err(errno),
        }
        cq.read_from(&mut self.entries, &mut self.sources)
    }
}

/// Bytes of a buffer for requests, of which there are several, and of the largest request.
const SLAB: usize = 128 << 10;
const LARGEST: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct Server {
    end: End,
    slabs: Vec<Block>,
    /// Answers for which there was no room: to whom, with which tag.
    held: VecDeque<(FiAddr, u64)>,
}

impl Server {
    pub(super) fn open(provider: &str) -> anyhow::Result<Self> {
        let end = End::open(provider)?;
        end.end.ep.set(EpOption::MinMultiRecv(LARGEST))?;
        let slabs = (0..4).map(|_| end.end.context.buffers(SLAB));
        let server = Self {
            slabs: slabs.collect::<Result<_, _>>()?,
            end,
            held: VecDeque::new(),
        };
        (0..server.slabs.len()).try_for_each(|slab| server.post(slab))?;
        Ok(server)
    }

    fn post(&self, slab: usize) -> anyhow::Result<()> {
        let recv = Recv::new(slab as u64).flags(OpFlags::MULTI_RECV);
        Ok(self.end.end.recv(&[self.slabs[slab].whole()], &recv)?)
    }

    /// A request has come: its tag is its data.
    fn asked(&mut self, entry: &Entry, src: FiAddr, tally: &mut Tally) -> anyhow::Result<()> {
        if entry.flags.contains(CompletionFlags::RECV) {
            tally.count(src.0);
            self.held.push_back((src, entry.data));
        }
        match entry.flags.contains(CompletionFlags::MULTI_RECV) {
            true => self.post(entry.context.0 as usize),
            false => Ok(()),
        }
    }

    /// Somebody is heard for the first time.
    fn failed(&mut self, tally: &mut Tally) -> anyhow::Result<()> {
        let error = self.end.cq().read_err()?;
        let sender = error.sender();
        let Some(sender) = sender.filter(|_| error.errno == Errno::AddrNotAvail) else {
            bail!("{}: {}", error.errno, error.detail);
        };
        let src = self.end.end.av.insert_one(&sender)?;
        self.asked(&error.entry, src, tally)
    }

    fn answer(&mut self) -> anyhow::Result<()> {
        while let Some(&(client, tag)) = self.held.front() {
            match self.end.end.ep.tinject(&[], client, tag, None) {
                Ok(()) => self.held.pop_front(),
                Err(Errno::Again) => break,
                Err(errno) => return Err(errno.into()),
            };
        }
        Ok(())
    }
}

impl super::Server for Server {
    fn address(&self) -> anyhow::Result<String> {
        Ok(self.end.end.ep.address()?.to_string())
    }

    fn turn(&mut self, tally: &mut Tally) -> anyhow::Result<()> {
        let idle = match self.held.is_empty() {
            true => IDLE,
            false => Duration::ZERO,
        };
        match self.end.read(idle) {
            Ok(count) => {
                for place in 0..count {
                    let (entry, src) = (self.end.entries[place], self.end.sources[place]);
                    self.asked(&entry, src, tally)?;
                }
            }
            Err(Errno::Avail) => self.failed(tally)?,
            Err(errno) => return Err(errno.into()),
        }
        self.answer()
    }
}

/// Sends requests until it is killed.
pub(super) fn ask(provider: &str, address: &str, size: usize, window: usize) -> anyhow::Result<()> {
    let mut end = End::open(provider)?;
    let address: Address = address.parse()?;
    let server = end.end.av.insert_one(&address)?;
    let inject_size = end.end.context.info().tx_attr.inject_size;
    ensure!(
        size <= inject_size,
        "requests over the raw endpoint have at most {inject_size} bytes"
    );
    let request = vec![0; size];
    let mut tag = 0;
    let mut due = window;
    loop {
        while due > 0 {
            let answer = Recv::new(tag).from(server).tag(TagMatch::exact(tag));
            end.end.recv(&[], &answer.flags(OpFlags::empty()))?;
            match end.end.ep.inject(&request, server, Some(tag)) {
                Ok(()) => (),
                Err(Errno::Again) => {
                    // Its receive is taken back: it is posted with the next try.
                    end.end.ep.cancel(Context(tag))?;
                    break;
                }
                Err(errno) => return Err(errno.into()),
            }
            tag += 1;
            due -= 1;
        }
        match end.read(IDLE) {
            Ok(count) => due += count,
            // What was taken back.
            Err(Errno::Avail) => drop(end.cq().read_err()?),
            Err(errno) => return Err(errno.into()),
        }
    }
}
