//! `fi_pingpong`, compatible with libfabric's tool of this name: the same options, table, control
//! protocol and messages, so that either side may be libfabric's.

mod control;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use selvedge::info::EpType;
use selvedge::{Address, Caps, Errno, FiAddr, Hints, OpFlags, Registry, TagMatch};
use selvedge_testkit::domain::{Block, DomainContext, DomainEndpoint, EndpointConfig, Recv, Send};
use selvedge_testkit::failure::{unsupported, wrong};

use crate::upstream::data::perf::{BINARY, DECIMAL, format_short};
use crate::upstream::options::{OptionSet, Options, Sizes};
use crate::upstream::setup::connector::Connector;
use crate::upstream::setup::discover::hints;
use crate::upstream::setup::domain;
use control::Control;

/// The options of the program.
pub(in crate::upstream) const OPTIONS: OptionSet = OptionSet {
    common: &["B:P:d:p:e:I:S:"],
    specific: "cm:v6",
    long: &[],
};

/// The port of the control connection.
const PORT: u16 = 47592;
/// The tag of all messages with `-m tagged`.
const TAG: u64 = 1234;
/// The largest message of a run without `-S`.
const LARGEST: usize = 6 << 20;
/// The minimum size of a buffer, for messages that are not measured.
const MIN_BUFFER: usize = 64;
/// The number of round trips without `-I`.
const ITERATIONS: usize = 10;
/// The last message of either side.
const FINAL_MESSAGE: &[u8] = b"fin\0";

/// Runs the program.
pub(in crate::upstream) fn run(options: &Options) -> anyhow::Result<()> {
    let mut pingpong = Pingpong::open(options)?;
    let sizes = sizes(options, pingpong.largest);
    println!("{}", heading());
    for size in sizes {
        pingpong.run_size(size, options.iterations.unwrap_or(ITERATIONS))?;
    }
    pingpong.finish()
}

/// Returns the sizes of a run.
fn sizes(options: &Options, limit: usize) -> Vec<usize> {
    if options.sizes != Sizes::All {
        return options.sizes.list(limit);
    }
    let powers = (1..).map(|power| 1_usize << power);
    let pairs = powers.flat_map(|size| [size, size + size / 2]);
    let all = [0, 1].into_iter().chain(pairs);
    all.take_while(|&size| size <= limit).collect()
}

/// One side of the test.
#[derive(Debug)]
struct Pingpong {
    control: Control,
    is_client: bool,
    endpoint: DomainEndpoint,
    peer: FiAddr,
    /// The connector of a connected endpoint.
    connector: Option<Connector>,
    tag: Option<u64>,
    verify: bool,
    inject_size: usize,
    /// The largest message.
    largest: usize,
    tx: Block,
    rx: Block,
    /// Number of posted receives.
    posted: u64,
    /// Number of received messages.
    received: u64,
    /// Number of sent messages.
    sent: u64,
    /// Number of messages that were sent with the pattern.
    filled: usize,
    /// Number of received messages whose pattern was checked.
    checked: usize,
}

impl Pingpong {
    /// Connects to the peer and opens the endpoint.
    fn open(options: &Options) -> anyhow::Result<Self> {
        let ep_type = options.ep_type.unwrap_or(EpType::Dgram);
        let tag = match options.text("m") {
            None | Some("msg") => None,
            Some("tagged") => Some(TAG),
            Some(other) => bail!("-m {other:?}: unknown mode; use msg or tagged"),
        };
        let caps = if tag.is_some() {
            Caps::TAGGED
        } else {
            Caps::MSG
        };
        let hints = hints(options, caps, ep_type)?;
        let control = connect_control(options)?;
        let setup = Setup {
            options,
            hints,
            tag,
            control,
        };
        match ep_type {
            EpType::Msg => setup.connect(),
            _ => setup.exchange(),
        }
    }

    fn post_recv(&mut self) -> anyhow::Result<()> {
        let capacity = self.largest.max(MIN_BUFFER);
        let segment = self
            .rx
            .segment((self.posted % 2) as usize * capacity, capacity);
        let recv = Recv::new(self.posted).tag(self.tag.map(TagMatch::exact));
        self.endpoint
            .push("receive", |endpoint| endpoint.recv(&[segment], &recv))?;
        self.posted += 1;
        Ok(())
    }

    fn send(&mut self, size: usize, flags: OpFlags) -> anyhow::Result<()> {
        let send = Send::new(self.peer, self.sent).tag(self.tag).flags(flags);
        let segment = self.tx.segment(0, size);
        self.endpoint
            .push("send", |endpoint| endpoint.send(&[segment], &send))?;
        let completion = self.endpoint.tx.next()?;
        ensure!(
            completion.context.0 == self.sent,
            "send {} completes before send {}",
            completion.context.0,
            self.sent
        );
        self.sent += 1;
        Ok(())
    }

    fn send_payload(&mut self, size: usize) -> anyhow::Result<()> {
        if self.verify {
            self.tx.memory.put(0, &pattern(self.filled, size));
            self.filled += 1;
        }
        let mut flags = OpFlags::DEFAULT;
        flags.set(OpFlags::INJECT, size < self.inject_size);
        self.send(size, flags)
    }

    /// Waits for the next message, and returns its offset in the receive buffer.
    fn await_message(&mut self, size: usize) -> anyhow::Result<usize> {
        let completion = self.endpoint.rx.next()?;
        if (completion.context.0, completion.len) != (self.received, size) {
            return Err(wrong(format!(
                "received message {} with {} bytes, expected message {} with {size}",
                completion.context.0, completion.len, self.received
            )));
        }
        self.received += 1;
        Ok((completion.context.0 % 2) as usize * self.largest.max(MIN_BUFFER))
    }

    fn receive_payload(&mut self, size: usize) -> anyhow::Result<()> {
        let offset = self.await_message(size)?;
        if self.verify {
            let expected = pattern(self.checked, size);
            if self.rx.memory.get(offset, size) != expected {
                let number = self.checked;
                return Err(wrong(format!(
                    "message {number} of {size} bytes has wrong contents"
                )));
            }
            self.checked += 1;
        }
        self.post_recv()
    }

    /// Runs and measures the round trips of one size.
    fn run_size(&mut self, size: usize, iterations: usize) -> anyhow::Result<()> {
        self.sync()?;
        let start = Instant::now();
        for _ in 0..iterations {
            if self.is_client {
                self.send_payload(size)?;
                self.receive_payload(size)?;
            } else {
                self.receive_payload(size)?;
                self.send_payload(size)?;
            }
        }
        let time = start.elapsed();
        let endpoint = &self.endpoint;
        let acked = self
            .control
            .count(iterations, &mut || endpoint.progress())?;
        if iterations > 0 {
            println!("{}", row(size, iterations, acked, time));
        }
        Ok(())
    }

    fn sync(&mut self) -> anyhow::Result<()> {
        let endpoint = &self.endpoint;
        self.control.sync(&mut || endpoint.progress())
    }

    /// Sends the final message, and receives the peer's.
    fn finish(mut self) -> anyhow::Result<()> {
        self.tx.memory.put(0, FINAL_MESSAGE);
        self.send(
            FINAL_MESSAGE.len(),
            OpFlags::INJECT | OpFlags::TRANSMIT_COMPLETE,
        )?;
        let offset = self.await_message(FINAL_MESSAGE.len())?;
        ensure!(
            self.rx.memory.get(offset, FINAL_MESSAGE.len()) == FINAL_MESSAGE,
            "the peer's final message has wrong contents"
        );
        let Some(cm) = self.endpoint.ep.cm() else {
            return Ok(());
        };
        match cm.shutdown() {
            // The peer may have shut the connection down first.
            Ok(()) | Err(Errno::NotConn) => Ok(()),
            Err(errno) => Err(errno).context("fi_shutdown"),
        }
    }
}

/// Establishes the control connection according to the role.
fn connect_control(options: &Options) -> anyhow::Result<Control> {
    let port = |text: &Option<String>, default| match text {
        None => Ok(default),
        Some(text) => text
            .parse()
            .with_context(|| format!("{text:?} is no port number")),
    };
    let is_ipv6 = options.has("6");
    let Some(server) = &options.server else {
        let unspecified: IpAddr = if is_ipv6 {
            Ipv6Addr::UNSPECIFIED.into()
        } else {
            Ipv4Addr::UNSPECIFIED.into()
        };
        return Control::accept(SocketAddr::new(
            unspecified,
            port(&options.source_port, PORT)?,
        ));
    };
    let address = (server.as_str(), port(&options.port, PORT)?).to_socket_addrs();
    let mut address = address
        .map_err(|cause| unsupported(format!("cannot resolve the host {server:?}: {cause}")))?;
    let address = address.find(|addr| addr.is_ipv6() == is_ipv6);
    let address =
        address.ok_or_else(|| unsupported(format!("{server:?} has no address of this family")))?;
    Control::connect(address, port(&options.source_port, 0)?)
}

/// The settings before the fabric is opened.
struct Setup<'a> {
    options: &'a Options,
    hints: Hints,
    tag: Option<u64>,
    control: Control,
}

impl Setup<'_> {
    /// Exchanges the addresses of unconnected endpoints. The server sends first.
    fn exchange(mut self) -> anyhow::Result<Pingpong> {
        let peer = if self.options.is_client() {
            Some(self.control.receive_name()?)
        } else {
            None
        };
        let domain = domain::open(self.options, self.discover(peer.as_ref())?)?;
        let endpoint = domain.endpoint(EndpointConfig::default())?;
        let is_datagram = domain.info().ep_attr.ep_type == EpType::Dgram;
        let mut pingpong = self.into_pingpong(&domain, endpoint)?;
        pingpong.post_recv()?;
        if is_datagram {
            // A second receive is posted for the peer's final message.
            pingpong.post_recv()?;
        }
        pingpong
            .control
            .send_name(&pingpong.endpoint.ep.address()?)?;
        let peer = match peer {
            Some(name) => name,
            None => pingpong.control.receive_name()?,
        };
        pingpong.peer = pingpong.endpoint.av.insert_one(&peer)?;
        Ok(pingpong)
    }

    /// Connects endpoints: the server sends the address at which it listens.
    fn connect(mut self) -> anyhow::Result<Pingpong> {
        let is_client = self.options.is_client();
        let connector = if is_client {
            let server = self.control.receive_name()?;
            Connector::for_info(self.options, self.discover(Some(&server))?)?
        } else {
            let connector = Connector::for_info(self.options, self.discover(None)?)?;
            let pep = connector
                .pep
                .as_ref()
                .context("the server has no passive endpoint")?;
            self.control.send_name(&pep.address()?)?;
            connector
        };
        let domain = connector.open_domain()?;
        let endpoint = domain.endpoint(connector.endpoint_config(domain.info().clone()))?;
        let mut pingpong = self.into_pingpong(&domain, endpoint)?;
        pingpong.peer = FiAddr(0);
        pingpong.post_recv()?;
        connector.connect(&pingpong.endpoint, &[])?;
        connector.wait_for_connection(&pingpong.endpoint)?;
        pingpong.connector = Some(connector);
        Ok(pingpong)
    }

    fn discover(&self, peer: Option<&Address>) -> anyhow::Result<selvedge::Info> {
        let registry: Registry = selvedge_providers::builtin();
        let hints = match peer {
            Some(peer) => self.hints.clone().dest_addr(peer.clone()),
            None => self.hints.clone(),
        };
        let first = registry.infos(&hints)?.into_iter().next();
        first.context("fi_getinfo returned an empty list")
    }

    fn into_pingpong(
        self,
        domain: &DomainContext,
        endpoint: DomainEndpoint,
    ) -> anyhow::Result<Pingpong> {
        let max = domain.info().ep_attr.max_msg_size;
        let largest = self.options.sizes.one().unwrap_or(LARGEST).min(max);
        let capacity = largest.max(MIN_BUFFER);
        Ok(Pingpong {
            is_client: self.options.is_client(),
            control: self.control,
            endpoint,
            peer: FiAddr::UNSPEC,
            connector: None,
            tag: self.tag,
            verify: self.options.has("c"),
            inject_size: domain.info().tx_attr.inject_size,
            largest,
            tx: domain.buffers(capacity)?,
            rx: domain.buffers(2 * capacity)?,
            posted: 0,
            received: 0,
            sent: 0,
            filled: 0,
            checked: 0,
        })
    }
}

/// Returns the contents of message `number` of a side.
fn pattern(number: usize, size: usize) -> Vec<u8> {
    let digits = (b'0'..=b'9').chain(b'a'..=b'z').chain(b'A'..=b'Z');
    let start = number * 7 % 62;
    digits.cycle().skip(start).take(size).collect()
}

fn heading() -> String {
    format!(
        "{:<8}{:<8}{:<9}{:<8}{:>8} {:>10}{:>13}{:>13}",
        "bytes", "#sent", "#ack", "total", "time", "MB/sec", "usec/xfer", "Mxfers/sec"
    )
}

fn row(size: usize, sent: usize, acked: usize, time: Duration) -> String {
    let bytes = size * sent * 2;
    let total_microseconds = (time.as_secs_f64() * 1e6).max(1e-3);
    let microseconds = total_microseconds / (sent * 2) as f64;
    let acks = match sent.cmp(&acked) {
        std::cmp::Ordering::Equal => format!("={:<8}", format_short(acked, &DECIMAL)),
        std::cmp::Ordering::Less => format!("-{:<8}", format_short(acked - sent, &DECIMAL)),
        std::cmp::Ordering::Greater => format!("+{:<8}", format_short(sent - acked, &DECIMAL)),
    };
    format!(
        "{:<8}{:<8}{acks}{:<8}{:>8.2}s{:>10.2}{:>11.2}{:>11.2}",
        format_short(size, &BINARY),
        format_short(sent, &DECIMAL),
        format_short(bytes, &BINARY),
        total_microseconds / 1e6,
        bytes as f64 / total_microseconds,
        microseconds,
        1.0 / microseconds
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_format_of_libfabric() {
        let upstream_heading =
            "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec";
        assert_eq!(heading(), upstream_heading);
        let upstream_row =
            "1m      10      =10      20m         0.08s    277.85    3773.85       0.00";
        let time = Duration::from_nanos(75_477_000);
        assert_eq!(row(1 << 20, 10, 10, time), upstream_row);
    }

    #[test]
    fn message_contents_are_those_of_libfabric() {
        assert_eq!(pattern(0, 12), b"0123456789ab");
        assert_eq!(pattern(1, 4), b"789a");
        assert_eq!(pattern(8, 8), b"UVWXYZ01");
        assert_eq!(pattern(9, 2), b"12");
    }
}
