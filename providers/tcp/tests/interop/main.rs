//! Interoperability with a stock libfabric, in both roles. Without a C compiler and an installed
//! libfabric (on Debian: gcc, libfabric-dev) the tests print the reason and are skipped.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]
#![expect(unsafe_code, reason = "tests of the raw API")]

#[expect(dead_code, reason = "not every helper is for every test")]
#[path = "../one_process/side.rs"]
mod side;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

use selvedge::info::EpType;
use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::{Bindings, Context, Errno, FiAddr, Iov, IovMut, MrAccess, OpFlags, av, cq, mr};

use selvedge_testkit::long::part;
use selvedge_testkit::skip::{Need, skip};
use side::{Side, info, until};

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
    fn read_line(&mut self, side: &Side) -> String {
        until(|| {
            side.drive();
            self.lines.try_recv().ok()
        })
    }

    /// Sends the address of `side` and returns the program's address, or `None` if the installed
    /// libfabric lacks the provider.
    fn exchange_addresses(&mut self, side: &Side) -> Option<SocketAddr> {
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
fn open_context() -> Side {
    let mut info = info(EpType::Rdm, &[]);
    (info.ep_attr.tx_ctx_cnt, info.ep_attr.rx_ctx_cnt) = (2, 2);
    let domain = info.open().unwrap();
    let sep = domain.scalable_endpoint(&info).unwrap();
    let cq = domain.cq(&cq::Attr::default()).unwrap();
    let av = domain.av(&av::Attr::default()).unwrap();
    let bind = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
    let ep = sep.context(1, &info, bind).unwrap();
    assert_ne!(ep.address(), sep.address());
    Side::from_parts(ep, cq, av, domain)
}

#[test]
fn a_stock_libfabric_that_connects_exchanges_messages_and_accesses_memory() {
    stock_connects(&Side::new());
}

#[test]
fn a_stock_libfabric_that_accepts_exchanges_messages_and_exposes_memory() {
    stock_accepts(&Side::new());
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
        let side = Side::with(&[
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

fn stock_connects(side: &Side) {
    let Some(mut stock) = Stock::start("first") else {
        return;
    };
    let Some(addr) = stock.exchange_addresses(side) else {
        return;
    };
    let peer_addr = side.insert(addr);
    let memory = side.keep(&[0; 128]);
    let mut attr = mr::Attr::default();
    attr.access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
    attr.requested_key = 7;
    // SAFETY: the side keeps the bytes.
    let region = unsafe {
        side.domain
            .reg(&[IovMut::from_raw(memory.cast(), 128)], &attr)
    };
    let buffer = side.trecv(peer_addr, 1, LARGE, 1);
    side.wait_for(1, &[]);
    assert_eq!(buffer.bytes(), message());
    side.tsend(peer_addr, 2, &message(), 2).unwrap();
    side.wait_for(2, &[]);
    assert_eq!(stock.read_line(side), "done");
    drop(region);
    // SAFETY: the region is closed, and no peer writes any more.
    let written = unsafe { std::slice::from_raw_parts(memory, 128) };
    assert_eq!(written[8..72], message()[..64]);
}

fn stock_accepts(side: &Side) {
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
    let segment = [RmaIov {
        addr: 16,
        len: 64,
        key: 9,
    }];
    let bytes = side.keep(&message()[..64]);
    let write = WriteMsg {
        iov: &[Iov::from_raw(bytes.cast(), 64)],
        desc: &[],
        dest: peer_addr,
        rma_iov: &segment,
        context: Context(3),
        data: 0,
    };
    // SAFETY: the side keeps the bytes.
    unsafe { side.ep.writemsg(&write, OpFlags::DELIVERY_COMPLETE) }.unwrap();
    side.wait_for(3, &[]);
    let read_buf = side.keep(&[0; 64]);
    let read = ReadMsg {
        iov: &[IovMut::from_raw(read_buf.cast(), 64)],
        desc: &[],
        src: peer_addr,
        rma_iov: &segment,
        context: Context(4),
    };
    // SAFETY: as above.
    unsafe { side.ep.readmsg(&read, OpFlags::empty()) }.unwrap();
    side.wait_for(4, &[]);
    // SAFETY: the read is complete.
    let bytes_read = unsafe { std::slice::from_raw_parts(read_buf, 64) };
    assert_eq!(bytes_read, &message()[..64]);
}

/// Parameters of every endpoint, beside those of its test.
const fn variables() -> Vec<(&'static str, String)> {
    Vec::new()
}
