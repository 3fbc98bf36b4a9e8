//! A client of the stress test: it runs its script and checks the server's responses.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use selvedge::{Errno, FiAddr, TagMatch};
use selvedge_testkit::domain::{
    Block, DomainContext, DomainEndpoint, EndpointConfig, Recv, Remote, SHARED, Send,
};
use selvedge_testkit::failure::{errno, wrong};

use super::script::Step;
use super::wire::{Kind, LONGEST, RESPONSE, Request};
use crate::upstream::data::payload::{POISON, Stamp};
use crate::upstream::options::Options;

struct Client {
    endpoint: DomainEndpoint,
    server: FiAddr,
    /// The number of this client, which all of its requests carry.
    number: u32,
    /// The number of requests so far.
    requests: u64,
    request: Block,
    response: Block,
    /// The requests for data that have no response yet, oldest first.
    pending: VecDeque<Pending>,
}

/// A request for data that has no response yet.
struct Pending {
    kind: Kind,
    number: u64,
    size: usize,
    /// The memory for the response, or the memory that the server accesses.
    block: Block,
    offset: usize,
}

/// How long a client retries its first request to a server that has not opened its endpoint yet.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a script.
pub(super) fn run(
    options: &Options,
    domain: &Arc<DomainContext>,
    steps: &[Step],
) -> anyhow::Result<()> {
    let mut client = Client::open(options, domain)?;
    client.introduce()?;
    for (number, step) in steps.iter().enumerate() {
        let step_failed = || format!("step {number} of the script, {step:?}");
        client.run_step(*step).with_context(step_failed)?;
    }
    client.request_and_wait(Kind::Leave)
}

/// Requests that the server stops.
pub(super) fn stop(options: &Options, domain: &Arc<DomainContext>) -> anyhow::Result<()> {
    let mut client = Client::open(options, domain)?;
    client.introduce()?;
    client.request_and_wait(Kind::Stop)
}

impl Client {
    fn open(options: &Options, domain: &Arc<DomainContext>) -> anyhow::Result<Self> {
        let endpoint = domain.endpoint(EndpointConfig::default())?;
        let server = domain.info().dest_addr.as_ref();
        let server = server.context("fi_getinfo gives no address of the server")?;
        Ok(Self {
            server: endpoint.av.insert_one(server)?,
            number: options.number("child", 0)?,
            requests: 0,
            request: domain.buffers(LONGEST)?,
            response: domain.buffers(RESPONSE)?,
            pending: VecDeque::new(),
            endpoint,
        })
    }

    /// Introduces the client to the server. Retries for [`CONNECT_TIMEOUT`] while the server is not
    /// reachable.
    fn introduce(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            match self.request_and_wait(Kind::Hello) {
                Err(error)
                    if [Errno::ConnRefused, Errno::NotConn].contains(&errno(&error))
                        && start.elapsed() < CONNECT_TIMEOUT =>
                {
                    sleep(Duration::from_millis(20));
                }
                response => return response,
            }
        }
    }

    fn run_step(&mut self, step: Step) -> anyhow::Result<()> {
        match step {
            Step::Noop => Ok(()),
            Step::Sleep { .. } => {
                sleep(step.pause());
                Ok(())
            }
            // Exits without a message and without closing anything.
            Step::Exit => std::process::exit(0),
            Step::Hello => self.request_and_wait(Kind::Hello),
            Step::Leave => self.request_and_wait(Kind::Leave),
            Step::MsgReq { size } | Step::MsgInjectReq { size } => {
                let is_injected = matches!(step, Step::MsgInjectReq { .. });
                self.send_request(Kind::Msg, size, 0, is_injected).map(drop)
            }
            Step::TagReq { size } => self.send_request(Kind::Tag, size, 0, false).map(drop),
            Step::ReadReq { size, offset } => {
                self.send_request(Kind::Read, size, offset, false).map(drop)
            }
            Step::WriteReq { size, offset } => self
                .send_request(Kind::Write, size, offset, false)
                .map(drop),
            Step::MsgResp => self.receive_message(),
            Step::TagResp => self.receive_tagged(),
            Step::ReadResp => self.await_access(Kind::Read),
            Step::WriteResp => self.await_access(Kind::Write),
        }
    }

    fn request_and_wait(&mut self, kind: Kind) -> anyhow::Result<()> {
        let number = self.send_request(kind, 0, 0, false)?;
        self.await_response(number)
    }

    /// Sends a request, and returns its number. A request with a size other than 0 joins `pending`.
    fn send_request(
        &mut self,
        kind: Kind,
        size: usize,
        offset: usize,
        inject: bool,
    ) -> anyhow::Result<u64> {
        self.requests += 1;
        let number = (u64::from(self.number) << 32) | self.requests;
        let mut remote = Remote::default();
        if size > 0 {
            let block = self.endpoint.context.memory(size + offset, SHARED)?;
            block.memory.fill(0, size + offset, POISON);
            if kind == Kind::Read {
                Stamp::of_pair(true, number).write(&block.memory, offset, size);
            }
            if matches!(kind, Kind::Read | Kind::Write) {
                remote = block.rights.remote()?;
                remote.addr = remote.addr.wrapping_add(offset as u64);
            }
            self.pending.push_back(Pending {
                kind,
                number,
                size,
                block,
                offset,
            });
        }
        let request = Request {
            kind,
            client: self.number,
            number,
            size,
            remote,
            name: match kind {
                Kind::Hello => self.endpoint.name()?,
                _ => Vec::new(),
            },
        };
        self.send(&request.to_bytes(), inject)?;
        Ok(number)
    }

    fn send(&self, bytes: &[u8], inject: bool) -> anyhow::Result<()> {
        ensure!(
            bytes.len() <= LONGEST,
            "a request of {} bytes exceeds the limit of {LONGEST}",
            bytes.len()
        );
        let (endpoint, dest) = (&self.endpoint, self.server);
        if inject {
            return endpoint.push("inject", |endpoint| endpoint.ep.inject(bytes, dest, None));
        }
        self.request.memory.put(0, bytes);
        let segment = self.request.segment(0, bytes.len());
        let send = Send::new(dest, 0);
        endpoint.push("send", |endpoint| endpoint.send(&[segment], &send))?;
        endpoint.tx.next().map(drop)
    }

    fn receive(
        &self,
        block: &Block,
        at: usize,
        size: usize,
        tag: Option<u64>,
    ) -> anyhow::Result<usize> {
        let segment = block.segment(at, size);
        let recv = Recv::new(0).tag(tag.map(TagMatch::exact));
        self.endpoint
            .push("receive", |endpoint| endpoint.recv(&[segment], &recv))?;
        Ok(self.endpoint.rx.next()?.len)
    }

    fn await_response(&self, number: u64) -> anyhow::Result<()> {
        let len = self.receive(&self.response, 0, RESPONSE, Some(number))?;
        ensure!(
            len == RESPONSE,
            "the response has {len} bytes, expected {RESPONSE}"
        );
        Ok(())
    }

    /// Takes the oldest pending request of a kind.
    fn next(&mut self, kind: Kind) -> anyhow::Result<Pending> {
        let at = self.pending.iter().position(|pending| pending.kind == kind);
        let pending = at.and_then(|at| self.pending.remove(at));
        pending
            .with_context(|| format!("the script waits for a {kind:?} response without a request"))
    }

    /// Receives the response to any pending request for a message: the server's threads respond in
    /// any order.
    fn receive_message(&mut self) -> anyhow::Result<()> {
        let sizes = self
            .pending
            .iter()
            .filter(|pending| pending.kind == Kind::Msg);
        let largest = sizes
            .max_by_key(|pending| pending.size)
            .context("the script waits for a message without a request")?;
        let block = largest.block.clone();
        let len = self.receive(&block, 0, largest.size, None)?;
        let bytes = block.memory.get(0, len);
        let is_response = |pending: &Pending| {
            pending.kind == Kind::Msg
                && pending.size == len
                && Stamp::of_pair(false, pending.number)
                    .check_bytes(&bytes)
                    .is_ok()
        };
        match self.pending.iter().position(is_response) {
            Some(at) => {
                self.pending.remove(at);
                Ok(())
            }
            None => Err(wrong(format!(
                "a message of {len} bytes is the response to no request"
            ))),
        }
    }

    fn receive_tagged(&mut self) -> anyhow::Result<()> {
        let Pending {
            number,
            size,
            block,
            ..
        } = self.next(Kind::Tag)?;
        let len = self.receive(&block, 0, size, Some(number))?;
        ensure!(
            len == size,
            "the tagged message has {len} bytes, expected {size}"
        );
        Stamp::of_pair(false, number).check(&block.memory, 0, size)
    }

    fn await_access(&mut self, kind: Kind) -> anyhow::Result<()> {
        let pending = self.next(kind)?;
        self.await_response(pending.number)?;
        if kind == Kind::Write {
            let stamp = Stamp::of_pair(false, pending.number);
            stamp.check(&pending.block.memory, pending.offset, pending.size)?;
            pending.block.memory.check_fill(0, pending.offset, POISON)?;
        }
        Ok(())
    }
}
