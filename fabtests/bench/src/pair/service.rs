//! Round trips over the service layer: requests of one client, and the server's responses.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use selvedge_service::{Connection, Event, Listener, Options, connect_with};
use tokio::runtime::Runtime;

use super::Side;
use super::backend::Backend;
use crate::fabric::{Bench, BenchOrder, OpenOrder, Opened, WaitStrategy, pattern};
use crate::machine::cpu::Idle;
use crate::measure::clock::Clock;
use crate::measure::timing::{Timing, round_trips};

/// The listener of this process, and its connection to the peer's.
#[derive(Debug)]
pub(super) struct Service {
    listener: Listener,
    address: String,
    options: Options,
    peer: Option<String>,
    connection: Option<Connection>,
    /// Runs the futures if the processes wait for a descriptor. Without a runtime, calls block.
    runtime: Option<Runtime>,
    provider: String,
    open_ns: u64,
}

impl Service {
    /// Listens at an address of the order's provider.
    ///
    /// # Errors
    /// When the provider is neither shm nor tcp, or the address cannot be used.
    pub(super) fn open(order: &OpenOrder, idle: Idle) -> anyhow::Result<Self> {
        let start = Instant::now();
        let provider = order.provider.as_deref().unwrap_or("shm").to_owned();
        let address = match provider.as_str() {
            "shm" => format!("shm://selvedge-bench-{}", std::process::id()),
            "tcp" => "tcp://127.0.0.1:0".to_owned(),
            other => bail!("the service layer has no provider {other}: choose shm or tcp"),
        };
        let wait = order.config.wait;
        let is_spinning = wait == WaitStrategy::Spin && idle == Idle::Spin;
        let options = Options::new().spin(if is_spinning { SPIN } else { Duration::ZERO });
        let listener = Listener::bind_with(&address, &options)?;
        let address = listener.addresses()?.join(",");
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_io();
        let runtime = (wait == WaitStrategy::Fd).then(|| runtime.build());
        Ok(Self {
            listener,
            address,
            options,
            peer: None,
            connection: None,
            runtime: runtime.transpose().context("cannot start a runtime")?,
            provider,
            open_ns: start.elapsed().as_nanos() as u64,
        })
    }
}

impl Backend for Service {
    fn describe(&self) -> Opened {
        Opened {
            provider: self.provider.clone(),
            address: self.address.clone(),
            inject_size: 0,
            open_ns: self.open_ns,
        }
    }

    fn set_peer(&mut self, address: &str) -> anyhow::Result<()> {
        self.peer = Some(address.to_owned());
        Ok(())
    }

    fn run(&mut self, side: Side, clock: Clock, order: BenchOrder) -> anyhow::Result<Timing> {
        ensure!(
            matches!(order.bench, Bench::MsgPingpong | Bench::TaggedPingpong),
            "the service layer has no {}: choose msg_pingpong or tagged_pingpong",
            order.bench
        );
        match side {
            Side::Active => self.measure(clock, order),
            Side::Passive => self.respond(clock, order),
        }
    }
}

impl Service {
    /// Times requests, each of which waits for its response.
    fn measure(&mut self, clock: Clock, order: BenchOrder) -> anyhow::Result<Timing> {
        let runtime = self.runtime.as_ref();
        if self.connection.is_none() {
            let peer = self.peer.as_deref().context("no peer")?;
            let connecting = connect_with(peer, &self.options);
            self.connection = Some(match runtime {
                Some(runtime) => runtime.block_on(connecting)?,
                None => connecting.wait()?,
            });
        }
        let connection = self.connection.as_ref().context("no connection")?;
        let (mut bytes, mut number) = (vec![0; order.size], 0);
        let timing = round_trips(clock, order.counts, || {
            number += 1;
            if order.verify {
                pattern::fill(&mut bytes, number);
            }
            let request = connection.request(&bytes);
            let response = wait(runtime, request, |request| request.wait())?;
            ensure!(response.len() == order.size, "a response has another size");
            if order.verify {
                pattern::check(&response, number)?;
            }
            Ok(())
        })?;
        // The server makes progress until this message arrives, also for a large response.
        let end = connection.send(&[]);
        wait(runtime, end, |end| end.wait())?;
        Ok(timing)
    }

    /// Sends each request back as its response, until the client's last message.
    fn respond(&self, clock: Clock, order: BenchOrder) -> anyhow::Result<Timing> {
        let runtime = self.runtime.as_ref();
        let next = || wait(runtime, self.listener.event(), |event| event.wait());
        let timing = round_trips(clock, order.counts, || {
            loop {
                match next()? {
                    Event::Request(request) => {
                        request.respond(&request);
                        return Ok(());
                    }
                    Event::Connected(_) => {}
                    other => bail!("a server that responds has seen {other:?}"),
                }
            }
        })?;
        match next()? {
            Event::Message(..) => Ok(timing),
            other => bail!("a server at the end of a run has seen {other:?}"),
        }
    }
}

/// Waits for an operation by a runtime, or by its blocking call.
fn wait<F: Future>(
    runtime: Option<&Runtime>,
    operation: F,
    block: impl FnOnce(F) -> F::Output,
) -> F::Output {
    match runtime {
        Some(runtime) => runtime.block_on(operation),
        None => block(operation),
    }
}

/// How long a process polls before it parks: longer than any round trip.
const SPIN: Duration = Duration::from_secs(1);
