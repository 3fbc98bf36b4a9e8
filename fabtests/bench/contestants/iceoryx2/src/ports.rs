//! The ports of one run: a publisher to the peer, and a subscriber to the peer's publisher.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::{
    Alignment, BackpressureStrategy, Node, NodeBuilder, PortFactory as _, ServiceName,
    SignalHandlingMode, ipc,
};
use iceoryx2::service::builder::publish_subscribe::Builder;
use iceoryx2::service::builder::request_response;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;
use selvedge_bench::fabric::{BenchOrder, ends};

/// This process's node and its name.
#[derive(Debug)]
pub(crate) struct Participant {
    node: Node<ipc::Service>,
    name: String,
}

impl Participant {
    pub(crate) fn open() -> anyhow::Result<Self> {
        let node = NodeBuilder::new()
            .signal_handling_mode(SignalHandlingMode::Disabled)
            .create::<ipc::Service>()?;
        let name = format!("selvedge-bench/{}", std::process::id());
        Ok(Self { node, name })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Removes the files and the shared memory of processes that have died.
    pub(crate) fn clean(&self) {
        self.node.try_cleanup_dead_nodes();
    }

    /// The service through which the process `name` publishes in this run.
    fn service(&self, name: &str, run: u64, buffered: usize) -> anyhow::Result<Service> {
        let name: ServiceName = format!("{name}/{run}").as_str().try_into()?;
        let service = self.node.service_builder(&name);
        Ok(service
            .publish_subscribe::<[u8]>()
            .payload_alignment(Alignment::new(LINE).context("a power of two")?)
            .enable_safe_overflow(false)
            .history_size(0)
            .subscriber_max_buffer_size(buffered)
            .subscriber_max_borrowed_samples(2)
            .max_publishers(1)
            .max_subscribers(1)
            .max_nodes(2))
    }
}

impl Participant {
    /// The service through which the process `name` responds to requests in this run.
    pub(crate) fn requests(&self, name: &str, run: u64) -> anyhow::Result<RequestService> {
        let name: ServiceName = format!("{name}/requests/{run}").as_str().try_into()?;
        let line = Alignment::new(LINE).context("a power of two")?;
        let service = self.node.service_builder(&name);
        Ok(service
            .request_response::<[u8], [u8]>()
            .request_payload_alignment(line)
            .response_payload_alignment(line)
            .enable_safe_overflow_for_requests(false)
            .enable_safe_overflow_for_responses(false)
            .max_active_requests_per_client(2)
            .max_servers(1)
            .max_clients(1)
            .max_nodes(2))
    }
}

type Service = Builder<[u8], (), ipc::Service>;
type RequestService = request_response::Builder<[u8], (), [u8], (), ipc::Service>;

/// The ports of one run.
#[derive(Debug)]
pub(crate) struct Ports {
    publisher: Publisher<ipc::Service, [u8], ()>,
    subscriber: Subscriber<ipc::Service, [u8], ()>,
}

impl Ports {
    /// Opens the ports for a run, and waits until the peer has opened its own.
    pub(crate) fn open(
        participant: &Participant,
        peer: &str,
        run: u64,
        order: BenchOrder,
    ) -> anyhow::Result<Self> {
        let buffered = order.window + 1;
        let own = participant.service(participant.name(), run, buffered)?;
        let own = own
            .create()
            .context("cannot create the service of this process")?;
        let publisher = own
            .publisher_builder()
            .initial_max_slice_len(order.size.max(ACK))
            .max_loaned_samples(2)
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .create()?;
        let subscriber = wait_for("the peer's service", || {
            let service = participant.service(peer, run, buffered)?;
            let Ok(service) = service.open() else {
                return Ok(None);
            };
            Ok(Some(service.subscriber_builder().create()?))
        })?;
        wait_for("the peer's subscriber", || {
            Ok(has_subscriber(&own).then_some(()))
        })?;
        Ok(Self {
            publisher,
            subscriber,
        })
    }

    /// Lends memory for a message of `len` bytes, writes its ends and sends it.
    #[inline]
    #[expect(
        unsafe_code,
        reason = "a sample that is filled completely would be a copy"
    )]
    pub(crate) fn send(&self, len: usize, number: u64) -> anyhow::Result<()> {
        let sample = self.publisher.loan_slice_uninit(len)?;
        // SAFETY: a sample is a `u8` slice in memory that the publisher has mapped: the kernel has
        // filled its pages with zeros, and bytes of earlier samples are bytes as well.
        let mut sample = unsafe { sample.assume_init() };
        ends::write(sample.payload_mut(), number);
        let receivers = sample.send()?;
        ensure!(
            receivers == 1,
            "{receivers} subscribers have received a sample"
        );
        Ok(())
    }

    /// Receives a message if there is one, checks its length and its ends, and gives it back.
    #[inline]
    pub(crate) fn try_receive(&self, len: usize, number: u64) -> anyhow::Result<bool> {
        let Some(sample) = self.subscriber.receive()? else {
            return Ok(false);
        };
        let received = sample.payload().len();
        ensure!(
            received == len,
            "received {received} bytes of a message of {len}"
        );
        ends::check(sample.payload(), number)?;
        Ok(true)
    }

    /// Polls until a message arrives.
    #[inline]
    pub(crate) fn receive(&self, len: usize, number: u64) -> anyhow::Result<()> {
        wait_until(|| Ok(self.try_receive(len, number)?.then_some(())))
    }
}

/// Polls until there is a value. Yields the processor after many polls, which may be that of the
/// peer.
#[inline]
pub(crate) fn wait_until<T>(
    mut poll: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let mut polls = 0_u32;
    loop {
        if let Some(value) = poll()? {
            return Ok(value);
        }
        polls += 1;
        if polls.is_multiple_of(POLLS_BEFORE_YIELD) {
            std::thread::yield_now();
        }
    }
}

fn has_subscriber(service: &PortFactory<ipc::Service, [u8], ()>) -> bool {
    service.dynamic_config().number_of_subscribers() == 1
}

/// Polls until `find` returns a value.
pub(crate) fn wait_for<T>(
    name: &str,
    mut find: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + PEER_TIMEOUT;
    loop {
        if let Some(found) = find()? {
            return Ok(found);
        }
        if Instant::now() > deadline {
            bail!("{name} was not there within {PEER_TIMEOUT:?}");
        }
        std::thread::yield_now();
    }
}

/// Bytes of an acknowledgement.
pub(crate) const ACK: usize = 4;
/// Polls between two yields: several round trips.
const POLLS_BEFORE_YIELD: u32 = 4096;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Time within which the peer opens its ports.
const PEER_TIMEOUT: Duration = Duration::from_secs(20);
