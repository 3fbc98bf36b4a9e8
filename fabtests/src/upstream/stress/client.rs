//! A client: plays its script, and checks what it gets.

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
use super::wire::{ANSWER, Kind, LONGEST, Request};
use crate::upstream::options::Options;
use crate::upstream::payload::{POISON, Stamp};

struct Client {
    end: DomainEndpoint,
    server: FiAddr,
    number: u32,
    requests: u64,
    request: Block,
    answer: Block,
    /// What has been asked for and not come yet.
    pending: VecDeque<Pending>,
}

/// Something that was asked for.
struct Pending {
    kind: Kind,
    number: u64,
    size: usize,
    /// Where it goes, or where it is read.
    block: Block,
    offset: usize,
}

/// How long to try to reach a server that has not opened its endpoint yet.
const PATIENCE: Duration = Duration::from_secs(10);

/// Plays a script.
pub(super) fn play(
    options: &Options,
    ground: &Arc<DomainContext>,
    steps: &[Step],
) -> anyhow::Result<()> {
    let mut client = Client::open(options, ground)?;
    client.hello()?;
    for (number, step) in steps.iter().enumerate() {
        let step_failed = || format!("step {number}, {step:?}");
        client.step(*step).with_context(step_failed)?;
    }
    client.ask_and_wait(Kind::Goodbye)
}

/// Says that it is enough.
pub(super) fn stop(options: &Options, ground: &Arc<DomainContext>) -> anyhow::Result<()> {
    let mut client = Client::open(options, ground)?;
    client.hello()?;
    client.ask_and_wait(Kind::Stop)
}

impl Client {
    fn open(options: &Options, ground: &Arc<DomainContext>) -> anyhow::Result<Self> {
        let end = ground.endpoint(EndpointConfig::default())?;
        let server = ground.info().dest_addr.as_ref();
        let server = server.context("the server's address is not known")?;
        Ok(Self {
            server: end.av.insert_one(server)?,
            number: options.number("child", 0)?,
            requests: 0,
            request: ground.buffers(LONGEST)?,
            answer: ground.buffers(ANSWER)?,
            pending: VecDeque::new(),
            end,
        })
    }

    /// Reaches the server, which may not be there yet.
    fn hello(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            match self.ask_and_wait(Kind::Hello) {
                Err(error)
                    if [Errno::ConnRefused, Errno::NotConn].contains(&errno(&error))
                        && start.elapsed() < PATIENCE =>
                {
                    sleep(Duration::from_millis(20));
                }
                answer => return answer,
            }
        }
    }

    fn step(&mut self, step: Step) -> anyhow::Result<()> {
        match step {
            Step::Noop => Ok(()),
            Step::Sleep { .. } => {
                sleep(step.pause());
                Ok(())
            }
            // Without a word, and without closing anything.
            Step::Exit => std::process::exit(0),
            Step::Hello => self.ask_and_wait(Kind::Hello),
            Step::Goodbye => self.ask_and_wait(Kind::Goodbye),
            Step::MsgReq { size } | Step::MsgInjectReq { size } => {
                let is_injected = matches!(step, Step::MsgInjectReq { .. });
                self.ask(Kind::Msg, size, 0, is_injected).map(drop)
            }
            Step::TagReq { size } => self.ask(Kind::Tag, size, 0, false).map(drop),
            Step::ReadReq { size, offset } => self.ask(Kind::Read, size, offset, false).map(drop),
            Step::WriteReq { size, offset } => self.ask(Kind::Write, size, offset, false).map(drop),
            Step::MsgResp => self.message(),
            Step::TagResp => self.tagged(),
            Step::ReadResp => self.accessed(Kind::Read),
            Step::WriteResp => self.accessed(Kind::Write),
        }
    }

    fn ask_and_wait(&mut self, kind: Kind) -> anyhow::Result<()> {
        let number = self.ask(kind, 0, 0, false)?;
        self.await_answer(number)
    }

    /// Asks for something, which is pending from now on.
    fn ask(&mut self, kind: Kind, size: usize, offset: usize, inject: bool) -> anyhow::Result<u64> {
        self.requests += 1;
        let number = (u64::from(self.number) << 32) | self.requests;
        let mut remote = Remote::default();
        if size > 0 {
            let block = self.end.context.memory(size + offset, SHARED)?;
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
                Kind::Hello => self.end.name()?,
                _ => Vec::new(),
            },
        };
        self.send(&request.to_bytes(), inject)?;
        Ok(number)
    }

    fn send(&self, bytes: &[u8], inject: bool) -> anyhow::Result<()> {
        ensure!(bytes.len() <= LONGEST, "a request of {} bytes", bytes.len());
        let (end, dest) = (&self.end, self.server);
        if inject {
            return end.push("inject", |end| end.ep.inject(bytes, dest, None));
        }
        self.request.memory.put(0, bytes);
        let segment = self.request.segment(0, bytes.len());
        let send = Send::new(dest, 0);
        end.push("send", |end| end.send(&[segment], &send))?;
        end.tx.next().map(drop)
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
        self.end
            .push("receive", |end| end.recv(&[segment], &recv))?;
        Ok(self.end.rx.next()?.len)
    }

    fn await_answer(&self, number: u64) -> anyhow::Result<()> {
        let len = self.receive(&self.answer, 0, ANSWER, Some(number))?;
        ensure!(len == ANSWER, "an answer of {len} bytes");
        Ok(())
    }

    fn next(&mut self, kind: Kind) -> anyhow::Result<Pending> {
        let place = self.pending.iter().position(|it| it.kind == kind);
        let pending = place.and_then(|place| self.pending.remove(place));
        pending.with_context(|| format!("nothing was asked for: {kind:?}"))
    }

    /// The server's threads answer in no order: the message is one of those that are pending.
    fn message(&mut self) -> anyhow::Result<()> {
        let sizes = self.pending.iter().filter(|it| it.kind == Kind::Msg);
        let largest = sizes
            .max_by_key(|it| it.size)
            .context("no message was asked for")?;
        let block = largest.block.clone();
        let len = self.receive(&block, 0, largest.size, None)?;
        let bytes = block.memory.get(0, len);
        let is_it = |it: &Pending| {
            it.kind == Kind::Msg
                && it.size == len
                && Stamp::of_pair(false, it.number).check_bytes(&bytes).is_ok()
        };
        match self.pending.iter().position(is_it) {
            Some(place) => {
                self.pending.remove(place);
                Ok(())
            }
            None => Err(wrong(format!(
                "a message of {len} bytes that nobody asked for"
            ))),
        }
    }

    fn tagged(&mut self) -> anyhow::Result<()> {
        let Pending {
            number,
            size,
            block,
            ..
        } = self.next(Kind::Tag)?;
        let len = self.receive(&block, 0, size, Some(number))?;
        ensure!(len == size, "{len} bytes instead of {size}");
        Stamp::of_pair(false, number).check(&block.memory, 0, size)
    }

    fn accessed(&mut self, kind: Kind) -> anyhow::Result<()> {
        let pending = self.next(kind)?;
        self.await_answer(pending.number)?;
        if kind == Kind::Write {
            let stamp = Stamp::of_pair(false, pending.number);
            stamp.check(&pending.block.memory, pending.offset, pending.size)?;
            pending.block.memory.check_fill(0, pending.offset, POISON)?;
        }
        Ok(())
    }
}
