//! `fi_pingpong`, the tool that comes with libfabric itself: its options, its table, its words
//! beside the fabric, and over the fabric the same messages, so that either end may be libfabric's.

mod control;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use selvedge::info::EpType;
use selvedge::{Address, Caps, Errno, FiAddr, Hints, OpFlags, Registry, TagMatch};
use selvedge_testkit::domain::{Block, DomainContext, DomainEndpoint, EndpointConfig, Recv, Send};
use selvedge_testkit::failure::{unsupported, wrong};

use super::connect::Door;
use super::discover::hints;
use super::options::{Letters, Options, Sizes};
use super::perf::{BINARY, DECIMAL, short};
use crate::upstream::ground;
use control::Control;

pub(super) const LETTERS: Letters = Letters {
    common: &["B:P:d:p:e:I:S:"],
    own: "cm:v6",
    long: &[],
};

/// The port of the control connection.
const PORT: u16 = 47592;
/// The tag of all messages with `-m tagged`.
const TAG: u64 = 1234;
/// The largest message of all.
const LARGEST: usize = 6 << 20;
/// Room for a message that is none of the measured ones.
const LEAST: usize = 64;
const ITERATIONS: usize = 10;
/// The last message of either side.
const FAREWELL: &[u8] = b"fin\0";

/// Runs it.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let mut game = Game::begin(options)?;
    let sizes = sizes(options, game.largest);
    println!("{}", heading());
    for size in sizes {
        game.play(size, options.iterations.unwrap_or(ITERATIONS))?;
    }
    game.finish()
}

/// The sizes of a run.
fn sizes(options: &Options, limit: usize) -> Vec<usize> {
    if options.sizes != Sizes::All {
        return options.sizes.list(limit);
    }
    let powers = (1..).map(|power| 1_usize << power);
    let pairs = powers.flat_map(|size| [size, size + size / 2]);
    let all = [0, 1].into_iter().chain(pairs);
    all.take_while(|&size| size <= limit).collect()
}

/// One side.
#[derive(Debug)]
struct Game {
    control: Control,
    is_client: bool,
    end: DomainEndpoint,
    peer: FiAddr,
    /// What connections are made with, of connected endpoints.
    door: Option<Door>,
    tag: Option<u64>,
    verify: bool,
    inject_size: usize,
    /// The largest message.
    largest: usize,
    tx: Block,
    rx: Block,
    /// Receives posted, messages received, and sends.
    posted: u64,
    received: u64,
    sent: u64,
    /// Messages with the pattern, either way.
    filled: usize,
    checked: usize,
}

impl Game {
    /// Meets the peer.
    fn begin(options: &Options) -> anyhow::Result<Self> {
        let ep_type = options.ep_type.unwrap_or(EpType::Dgram);
        let tag = match options.text("m") {
            None | Some("msg") => None,
            Some("tagged") => Some(TAG),
            Some(other) => bail!("-m {other:?}: it has msg and tagged"),
        };
        let caps = if tag.is_some() {
            Caps::TAGGED
        } else {
            Caps::MSG
        };
        let hints = hints(options, caps, ep_type)?;
        let control = meet(options)?;
        let start = Start {
            options,
            hints,
            tag,
            control,
        };
        match ep_type {
            EpType::Msg => start.connect(),
            _ => start.exchange(),
        }
    }

    fn post_recv(&mut self) -> anyhow::Result<()> {
        let room = self.largest.max(LEAST);
        let segment = self.rx.segment((self.posted % 2) as usize * room, room);
        let recv = Recv::new(self.posted).tag(self.tag.map(TagMatch::exact));
        self.end
            .push("receive", |end| end.recv(&[segment], &recv))?;
        self.posted += 1;
        Ok(())
    }

    fn send(&mut self, size: usize, flags: OpFlags) -> anyhow::Result<()> {
        let send = Send::new(self.peer, self.sent).tag(self.tag).flags(flags);
        let segment = self.tx.segment(0, size);
        self.end.push("send", |end| end.send(&[segment], &send))?;
        let done = self.end.tx.next()?;
        ensure!(
            done.context.0 == self.sent,
            "send {} completes before {}",
            done.context.0,
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

    /// Waits for the next message; where it lies.
    fn arrived(&mut self, size: usize) -> anyhow::Result<usize> {
        let done = self.end.rx.next()?;
        if (done.context.0, done.len) != (self.received, size) {
            return Err(wrong(format!(
                "message {} has {} bytes, expected number {} with {size}",
                done.context.0, done.len, self.received
            )));
        }
        self.received += 1;
        Ok((done.context.0 % 2) as usize * self.largest.max(LEAST))
    }

    fn receive_payload(&mut self, size: usize) -> anyhow::Result<()> {
        let at = self.arrived(size)?;
        if self.verify {
            let selection = pattern(self.checked, size);
            if self.rx.memory.get(at, size) != selection {
                let number = self.checked;
                return Err(wrong(format!(
                    "message {number} of {size} bytes is garbled"
                )));
            }
            self.checked += 1;
        }
        self.post_recv()
    }

    /// Messages of one size there and back.
    fn play(&mut self, size: usize, iterations: usize) -> anyhow::Result<()> {
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
        let end = &self.end;
        let acked = self.control.count(iterations, &mut || end.progress())?;
        if iterations > 0 {
            println!("{}", row(size, iterations, acked, time));
        }
        Ok(())
    }

    fn sync(&mut self) -> anyhow::Result<()> {
        let end = &self.end;
        self.control.sync(&mut || end.progress())
    }

    /// Says farewell, and hears the peer's.
    fn finish(mut self) -> anyhow::Result<()> {
        self.tx.memory.put(0, FAREWELL);
        self.send(FAREWELL.len(), OpFlags::INJECT | OpFlags::TRANSMIT_COMPLETE)?;
        let at = self.arrived(FAREWELL.len())?;
        ensure!(
            self.rx.memory.get(at, FAREWELL.len()) == FAREWELL,
            "the last message is no farewell"
        );
        let Some(cm) = self.end.ep.cm() else {
            return Ok(());
        };
        match cm.shutdown() {
            // The peer may have been faster.
            Ok(()) | Err(Errno::NotConn) => Ok(()),
            Err(errno) => Err(errno).context("fi_shutdown"),
        }
    }
}

/// The control connection, by the role.
fn meet(options: &Options) -> anyhow::Result<Control> {
    let port = |text: &Option<String>, default| match text {
        None => Ok(default),
        Some(text) => text
            .parse()
            .with_context(|| format!("{text:?} is no number of a port")),
    };
    let is_six = options.has("6");
    let Some(server) = &options.server else {
        let any: IpAddr = match is_six {
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => Ipv4Addr::UNSPECIFIED.into(),
        };
        return Control::answer(SocketAddr::new(any, port(&options.source_port, PORT)?));
    };
    let to = (server.as_str(), port(&options.port, PORT)?).to_socket_addrs();
    let mut to = to.map_err(|cause| unsupported(format!("no host {server:?}: {cause}")))?;
    let to = to.find(|addr| addr.is_ipv6() == is_six);
    let to = to.ok_or_else(|| unsupported(format!("{server:?} has no address of this family")))?;
    Control::call(to, port(&options.source_port, 0)?)
}

/// What is known before the fabric is opened.
struct Start<'a> {
    options: &'a Options,
    hints: Hints,
    tag: Option<u64>,
    control: Control,
}

impl Start<'_> {
    /// Endpoints without connections tell each other where they are; the server speaks first.
    fn exchange(mut self) -> anyhow::Result<Game> {
        let theirs = match self.options.is_client() {
            true => Some(self.control.receive_name()?),
            false => None,
        };
        let ground = ground::open(self.options, self.discover(theirs.as_ref())?)?;
        let end = ground.endpoint(EndpointConfig::default())?;
        let is_datagram = ground.info().ep_attr.ep_type == EpType::Dgram;
        let mut game = self.game(&ground, end)?;
        game.post_recv()?;
        if is_datagram {
            // The farewell must not find nothing posted.
            game.post_recv()?;
        }
        game.control.send_name(&game.end.ep.address()?)?;
        let theirs = match theirs {
            Some(name) => name,
            None => game.control.receive_name()?,
        };
        game.peer = game.end.av.insert_one(&theirs)?;
        Ok(game)
    }

    /// Connected endpoints: the server tells where it listens.
    fn connect(mut self) -> anyhow::Result<Game> {
        let is_client = self.options.is_client();
        let door = match is_client {
            true => {
                let server = self.control.receive_name()?;
                Door::of(self.options, self.discover(Some(&server))?)?
            }
            false => {
                let door = Door::of(self.options, self.discover(None)?)?;
                let pep = door.pep.as_ref().context("a server listens")?;
                self.control.send_name(&pep.address()?)?;
                door
            }
        };
        let ground = door.ground()?;
        let end = ground.endpoint(door.plan(ground.info().clone()))?;
        let mut game = self.game(&ground, end)?;
        game.peer = FiAddr(0);
        game.post_recv()?;
        door.connect(&game.end, &[])?;
        door.connected(&game.end)?;
        game.door = Some(door);
        Ok(game)
    }

    fn discover(&self, peer: Option<&Address>) -> anyhow::Result<selvedge::Info> {
        let registry: Registry = selvedge_providers::builtin();
        let hints = match peer {
            Some(peer) => self.hints.clone().dest_addr(peer.clone()),
            None => self.hints.clone(),
        };
        let first = registry.infos(&hints)?.into_iter().next();
        first.context("discovery found nothing and gave no reason")
    }

    fn game(self, ground: &DomainContext, end: DomainEndpoint) -> anyhow::Result<Game> {
        let most = ground.info().ep_attr.max_msg_size;
        let largest = self.options.sizes.one().unwrap_or(LARGEST).min(most);
        let room = largest.max(LEAST);
        Ok(Game {
            is_client: self.options.is_client(),
            control: self.control,
            end,
            peer: FiAddr::UNSPEC,
            door: None,
            tag: self.tag,
            verify: self.options.has("c"),
            inject_size: ground.info().tx_attr.inject_size,
            largest,
            tx: ground.buffers(room)?,
            rx: ground.buffers(2 * room)?,
            posted: 0,
            received: 0,
            sent: 0,
            filled: 0,
            checked: 0,
        })
    }
}

/// What message `number` of a side has to contain.
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
    let micros = (time.as_secs_f64() * 1e6).max(1e-3);
    let each = micros / (sent * 2) as f64;
    let acks = match sent.cmp(&acked) {
        std::cmp::Ordering::Equal => format!("={:<8}", short(acked, &DECIMAL)),
        std::cmp::Ordering::Less => format!("-{:<8}", short(acked - sent, &DECIMAL)),
        std::cmp::Ordering::Greater => format!("+{:<8}", short(sent - acked, &DECIMAL)),
    };
    format!(
        "{:<8}{:<8}{acks}{:<8}{:>8.2}s{:>10.2}{:>11.2}{:>11.2}",
        short(size, &BINARY),
        short(sent, &DECIMAL),
        short(bytes, &BINARY),
        micros / 1e6,
        bytes as f64 / micros,
        each,
        1.0 / each
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_those_of_libfabric_s_tool() {
        let heading_of_theirs =
            "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec";
        assert_eq!(heading(), heading_of_theirs);
        let theirs = "1m      10      =10      20m         0.08s    277.85    3773.85       0.00";
        let time = Duration::from_nanos(75_477_000);
        assert_eq!(row(1 << 20, 10, 10, time), theirs);
    }

    #[test]
    fn messages_are_filled_as_by_libfabric_s_tool() {
        assert_eq!(pattern(0, 12), b"0123456789ab");
        assert_eq!(pattern(1, 4), b"789a");
        assert_eq!(pattern(8, 8), b"UVWXYZ01");
        assert_eq!(pattern(9, 2), b"12");
    }
}
