//! Interoperability with a stock libfabric, in both roles. Without a C compiler and an installed
//! libfabric (on Debian: gcc, libfabric-dev) the tests print the reason and are skipped.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[expect(dead_code, reason = "not every helper is for every test")]
#[path = "../one_process/endpoint.rs"]
mod endpoint;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

use selvedge::info::EpType;
use selvedge::{Errno, FiAddr, MrAccess, OpFlags};
use selvedge_testkit::domain::{Access, Remote};
use selvedge_testkit::local::{open_domain, until};
use selvedge_testkit::long::part;
use selvedge_testkit::skip::{Need, skip};

use endpoint::{CopyingEndpoint, info};

const LARGE: usize = 300_000;

/// A process of the program `peer.c`, which uses the stock libfabric.
struct Stock {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Stock {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Stock {
    /// Starts the program, if libfabric is installed to compile it.
    fn start(role: &str) -> Option<Self> {
        Self::start_over("net", role)
    }

    /// Starts the program over a provider of libfabric.
    fn start_over(provider: &str, role: &str) -> Option<Self> {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/peer.c");
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let program = format!(
            "{}/interop-{}-{}",
            env!("CARGO_TARGET_TMPDIR"),
            std::process::id(),
            STARTED.fetch_add(1, Ordering::Relaxed)
        );
        let compiled = Command::new("cc")
            .args(["-O1", "-o", &program, source, "-lfabric"])
            .output();
        if !compiled.is_ok_and(|output| output.status.success()) {
            skip(
                Need::Libfabric,
                "no C compiler, or no libfabric to compile with",
            );
            return None;
        }
        let mut child = Command::new(&program)
            .args([role, provider])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::fs::remove_file(&program).unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Some(Self { child, lines })
    }

    /// Waits for the next line of the program's output, while `side` makes progress.
    fn read_line(&mut self, side: &CopyingEndpoint) -> String {
        until(|| {
            side.progress();
            self.lines.try_recv().ok()
        })
    }

    /// Sends the address of `side` and returns the program's address, or `None` if the installed
    /// libfabric lacks the provider.
    fn exchange_addresses(&mut self, side: &CopyingEndpoint) -> Option<SocketAddr> {
        let line = self.read_line(side);
        let Some(addr) = line.strip_prefix("at ") else {
            assert!(line.contains("getinfo"), "{line}");
            skip(
                Need::Libfabric,
                format_args!("the installed libfabric lacks the provider: {line}"),
            );
            return None;
        };
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{}", side.addr()).unwrap();
        Some(addr.parse().unwrap())
    }
}

fn message() -> Vec<u8> {
    (0..LARGE).map(|index| (index * 7) as u8).collect()
}

/// Opens the second context of a scalable endpoint. A stock libfabric sees an endpoint at the
/// context's port.
fn open_context() -> CopyingEndpoint {
    let mut info = info(EpType::Rdm, &[]);
    (info.ep_attr.tx_ctx_cnt, info.ep_attr.rx_ctx_cnt) = (2, 2);
    let domain = open_domain(&info).unwrap();
    let sep = domain.domain().scalable_endpoint(&info).unwrap();
    let endpoint = CopyingEndpoint::open_in(&domain, |_, config| {
        config.context = Some((Arc::clone(&sep), 1));
    });
    assert_ne!(endpoint.ep.address(), sep.address());
    endpoint
}

#[test]
fn a_stock_libfabric_that_connects_exchanges_messages_and_accesses_memory() {
    stock_connects(&CopyingEndpoint::new());
}

#[test]
fn a_stock_libfabric_that_accepts_exchanges_messages_and_exposes_memory() {
    stock_accepts(&CopyingEndpoint::new());
}

#[test]
fn a_stock_libfabric_uses_a_context_as_an_endpoint() {
    stock_connects(&open_context());
    stock_accepts(&open_context());
}

#[test]
fn peers_of_libfabric_layered_providers_are_rejected_with_a_reason() {
    let reasons = [
        ("tcp;ofi_rxm", "request tcp and FI_EP_RDM"),
        ("net;ofi_rxm", "request tcp and FI_EP_RDM"),
        ("sockets", "as a program of another protocol does"),
    ];
    // `sockets` closes a connection without a response after half a minute.
    for &(provider, reason) in part(&reasons[..2], &reasons) {
        let side = CopyingEndpoint::with(&[
            ("FI_TCP_CONNECT_TIMEOUT", "200ms"),
            ("FI_TCP_PEER_TIMEOUT", "200ms"),
        ]);
        let Some(mut stock) = Stock::start_over(provider, "second") else {
            return;
        };
        let Some(addr) = stock.exchange_addresses(&side) else {
            return;
        };
        let peer_addr = side.insert(addr);
        side.tsend(peer_addr, 2, b"rejected", 1).unwrap();
        let error = side.wait(&[]).unwrap_err();
        assert_eq!((error.errno, error.src), (Errno::ConnRefused, peer_addr));
        assert!(
            error.detail.contains(reason),
            "{provider}: {}",
            error.detail
        );
    }
}

fn stock_connects(side: &CopyingEndpoint) {
    let Some(mut stock) = Stock::start("first") else {
        return;
    };
    let Some(addr) = stock.exchange_addresses(side) else {
        return;
    };
    let peer_addr = side.insert(addr);
    let memory = side.memory(128);
    let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
    let rights = side.register(&memory, access, 7);
    let buffer = side.trecv(peer_addr, 1, LARGE, 1);
    side.wait_for(1, &[]);
    assert_eq!(buffer.bytes(), message());
    side.tsend(peer_addr, 2, &message(), 2).unwrap();
    side.wait_for(2, &[]);
    assert_eq!(stock.read_line(side), "done");
    drop(rights);
    assert_eq!(memory.get(8, 64), message()[..64]);
}

fn stock_accepts(side: &CopyingEndpoint) {
    let Some(mut stock) = Stock::start("second") else {
        return;
    };
    let Some(addr) = stock.exchange_addresses(side) else {
        return;
    };
    let peer_addr = side.insert(addr);
    let buffer = side.trecv(FiAddr::UNSPEC, 1, LARGE, 1);
    side.tsend(peer_addr, 2, &message(), 2).unwrap();
    side.wait_for(2, &[]);
    side.wait_for(1, &[]);
    assert_eq!(buffer.bytes(), message());
    assert_eq!(stock.read_line(side), "done");
    let remote = Remote { addr: 16, key: 9 };
    let written = side.copy(&message()[..64]);
    let write = Access::new(peer_addr, remote, 3).flags(OpFlags::DELIVERY_COMPLETE);
    side.write(&[written.whole()], &write).unwrap();
    side.wait_for(3, &[]);
    let read = side.copy(&[0; 64]);
    let access = Access::new(peer_addr, remote, 4).flags(OpFlags::empty());
    side.read(&[read.whole()], &access).unwrap();
    side.wait_for(4, &[]);
    assert_eq!(read.memory.bytes(), &message()[..64]);
}

/// Parameters of every endpoint, beside those of its test.
const fn variables() -> Vec<(&'static str, String)> {
    Vec::new()
}
