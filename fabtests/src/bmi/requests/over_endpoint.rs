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

use super::server::{self, BATCH, Counts, IDLE};

/// An endpoint, with the entries that were read from its completion queue.
#[derive(Debug)]
struct RequestEndpoint {
    endpoint: DomainEndpoint,
    entries: [Entry; BATCH],
    sources: [FiAddr; BATCH],
}

impl RequestEndpoint {
    fn open(provider: &str) -> anyhow::Result<Self> {
        let caps = Caps::MSG | Caps::TAGGED | Caps::MULTI_RECV | Caps::SOURCE | Caps::SOURCE_ERR;
        let hints = Hints::new()
            .ep_type(EpType::Rdm)
            .caps(caps)
            .provider(provider)
            .cq_data_size(8);
        #[expect(unsafe_code, reason = "the promise that removes locks")]
        // SAFETY: each of these processes has one thread.
        let hints = unsafe { hints.promise_threading(Threading::Domain) };
        let infos = selvedge_providers::builtin().infos(&hints)?;
        let info = infos
            .into_iter()
            .next()
            .context("discovery found no endpoint for requests")?;
        let strategy = WaitStrategy::new(WaitMethod::Sread, IDLE);
        let context = DomainContext::open(&*info.fabric()?, info, strategy, false)?;
        let queue = context.queue(8192)?;
        let endpoint = context.endpoint(EndpointConfig {
            tx: Some(queue.clone()),
            rx: Some(queue),
            ..EndpointConfig::default()
        })?;
        Ok(Self {
            endpoint,
            entries: [Entry::default(); BATCH],
            sources: [FiAddr::UNSPEC; BATCH],
        })
    }

    fn cq(&self) -> &dyn CompletionQueue {
        &**self.endpoint.tx.cq()
    }

    /// Reads completions, and waits up to `idle` for one if there is none. Returns the number of
    /// entries, or `Avail` if the next completion is an error.
    fn read(&mut self, idle: Duration) -> selvedge::Result<usize> {
        let cq = self.endpoint.tx.cq();
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

/// Bytes of each multi-receive buffer.
const BUFFER_LEN: usize = 128 << 10;
/// Bytes of the largest request.
const LARGEST_REQUEST: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct Server {
    endpoint: RequestEndpoint,
    posted_buffers: Vec<Block>,
    /// Responses that could not be posted yet: the client, and the tag.
    unsent: VecDeque<(FiAddr, u64)>,
}

impl Server {
    pub(super) fn open(provider: &str) -> anyhow::Result<Self> {
        let endpoint = RequestEndpoint::open(provider)?;
        endpoint
            .endpoint
            .ep
            .set(EpOption::MinMultiRecv(LARGEST_REQUEST))?;
        let posted_buffers = (0..4).map(|_| endpoint.endpoint.context.buffers(BUFFER_LEN));
        let server = Self {
            posted_buffers: posted_buffers.collect::<Result<_, _>>()?,
            endpoint,
            unsent: VecDeque::new(),
        };
        (0..server.posted_buffers.len()).try_for_each(|index| server.post_buffer(index))?;
        Ok(server)
    }

    fn post_buffer(&self, index: usize) -> anyhow::Result<()> {
        let recv = Recv::new(index as u64).flags(OpFlags::MULTI_RECV);
        Ok(self
            .endpoint
            .endpoint
            .recv(&[self.posted_buffers[index].whole()], &recv)?)
    }

    /// Counts a request and queues its response. The remote data of a request is the response's
    /// tag.
    fn take_request(
        &mut self,
        entry: &Entry,
        src: FiAddr,
        counts: &mut Counts,
    ) -> anyhow::Result<()> {
        if entry.flags.contains(CompletionFlags::RECV) {
            counts.count(src.0);
            self.unsent.push_back((src, entry.data));
        }
        if entry.flags.contains(CompletionFlags::MULTI_RECV) {
            self.post_buffer(entry.context.0 as usize)
        } else {
            Ok(())
        }
    }

    /// Takes an error entry. The first message of a client has an unknown source address, which is
    /// inserted into the address vector.
    fn take_error(&mut self, counts: &mut Counts) -> anyhow::Result<()> {
        let error = self.endpoint.cq().read_err()?;
        let sender = error.sender();
        let Some(sender) = sender.filter(|_| error.errno == Errno::AddrNotAvail) else {
            bail!("{}: {}", error.errno, error.detail);
        };
        let src = self.endpoint.endpoint.av.insert_one(&sender)?;
        self.take_request(&error.entry, src, counts)
    }

    fn send_responses(&mut self) -> anyhow::Result<()> {
        while let Some(&(client, tag)) = self.unsent.front() {
            match self.endpoint.endpoint.ep.tinject(&[], client, tag, None) {
                Ok(()) => self.unsent.pop_front(),
                Err(Errno::Again) => break,
                Err(errno) => return Err(errno.into()),
            };
        }
        Ok(())
    }
}

impl server::Server for Server {
    fn address(&self) -> anyhow::Result<String> {
        Ok(self.endpoint.endpoint.ep.address()?.to_string())
    }

    fn serve_requests(&mut self, counts: &mut Counts) -> anyhow::Result<()> {
        let idle = if self.unsent.is_empty() {
            IDLE
        } else {
            Duration::ZERO
        };
        match self.endpoint.read(idle) {
            Ok(count) => {
                for index in 0..count {
                    let (entry, src) = (self.endpoint.entries[index], self.endpoint.sources[index]);
                    self.take_request(&entry, src, counts)?;
                }
            }
            Err(Errno::Avail) => self.take_error(counts)?,
            Err(errno) => return Err(errno.into()),
        }
        self.send_responses()
    }
}

/// Sends requests until this process is killed.
pub(super) fn send_requests(
    provider: &str,
    address: &str,
    size: usize,
    window: usize,
) -> anyhow::Result<()> {
    let mut endpoint = RequestEndpoint::open(provider)?;
    let address: Address = address.parse()?;
    let server = endpoint.endpoint.av.insert_one(&address)?;
    let inject_size = endpoint.endpoint.context.info().tx_attr.inject_size;
    ensure!(
        size <= inject_size,
        "requests over the raw endpoint have at most {inject_size} bytes"
    );
    let request = vec![0; size];
    let mut tag = 0;
    let mut to_send = window;
    loop {
        while to_send > 0 {
            let response = Recv::new(tag).from(server).tag(TagMatch::exact(tag));
            endpoint
                .endpoint
                .recv(&[], &response.flags(OpFlags::empty()))?;
            match endpoint.endpoint.ep.inject(&request, server, Some(tag)) {
                Ok(()) => (),
                Err(Errno::Again) => {
                    // The next attempt posts the receive again.
                    endpoint.endpoint.ep.cancel(Context(tag))?;
                    break;
                }
                Err(errno) => return Err(errno.into()),
            }
            tag += 1;
            to_send -= 1;
        }
        match endpoint.read(IDLE) {
            Ok(count) => to_send += count,
            // The error entry of a canceled receive.
            Err(Errno::Avail) => drop(endpoint.cq().read_err()?),
            Err(errno) => return Err(errno.into()),
        }
    }
}
