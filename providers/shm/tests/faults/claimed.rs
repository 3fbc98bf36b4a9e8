//! Peers that are killed while their messages are claimed, or are being received into a
//! multi-receive buffer.

#![expect(unsafe_code, reason = "tests of the raw API")]

use selvedge::cq::{Entry, ErrEntry};
use selvedge::{
    CompletionFlags, Context, EpOption, Errno, FiAddr, IovMut, OpFlags, TagMatch, msg, tagged,
};

use crate::connect::unique;
use crate::endpoint::{Kind, NumberedEndpoint, content};
use crate::process::{PeerProcess, Watchdog};

/// A receive with flags, and the side's completions in order.
struct RawReceive<'a> {
    side: &'a mut NumberedEndpoint,
    /// The tests drop the buffer after the last operation on it has completed.
    buf: Vec<u8>,
}

type Outcome = Result<Entry, ErrEntry>;

impl<'a> RawReceive<'a> {
    fn new(side: &'a mut NumberedEndpoint, len: usize) -> Self {
        let buf = vec![0; len];
        Self { side, buf }
    }

    fn post_tagged(&mut self, tag: u64, flags: OpFlags) {
        let msg = tagged::RecvMsg {
            iov: &[IovMut::new(&mut self.buf)],
            desc: &[],
            src: FiAddr::UNSPEC,
            tag: TagMatch::exact(tag),
            context: Context(tag),
        };
        // SAFETY: the tests wait for the completion before they read the buffer or drop it.
        unsafe { self.side.ep.trecvmsg(&msg, flags) }.unwrap();
    }

    fn post_multi(&mut self, src: FiAddr) {
        let msg = msg::RecvMsg {
            iov: &[IovMut::new(&mut self.buf)],
            desc: &[],
            src,
            context: Context(7),
        };
        // SAFETY: as above, for the last completion of the buffer.
        unsafe { self.side.ep.recvmsg(&msg, OpFlags::MULTI_RECV) }.unwrap();
    }

    /// The next completion.
    fn next(&self) -> Outcome {
        let mut out = [Entry::default()];
        loop {
            match self.side.cq().read(&mut out) {
                Ok(0) => std::thread::yield_now(),
                Ok(_) => return Ok(out[0]),
                Err(Errno::Avail) => return Err(self.side.cq().read_err().unwrap()),
                Err(errno) => panic!("{errno}"),
            }
        }
    }

    /// Claims the message with this tag, once it was received.
    fn claim(&mut self, tag: u64) {
        loop {
            self.post_tagged(tag, OpFlags::PEEK | OpFlags::CLAIM);
            match self.next() {
                Ok(_) => return,
                Err(error) => assert_eq!(error.errno, Errno::NoMsg),
            }
        }
    }
}

#[test]
fn a_claimed_message_of_a_killed_peer_fails_unless_its_bytes_have_arrived() {
    let _watchdog = Watchdog::new();
    for protocol in ["cma", "bounce"] {
        for len in [8, 4000, 300_000] {
            let name = unique("claimed");
            let mut side = NumberedEndpoint::with_params(None, &[("FI_SHM_PROTOCOL", protocol)]);
            let peer_addr = side.insert(&name);
            let mut peer_process = PeerProcess::named(&name);
            let side_addr = peer_process.request(&format!("insert {}", side.name()));
            peer_process.request(&format!("send Tagged {side_addr} {len} 5"));
            let mut raw = RawReceive::new(&mut side, len);
            raw.claim(5);
            peer_process.kill();
            raw.side
                .until(|side| side.send(Kind::Inject, peer_addr, 1, 0) == Err(Errno::NotConn));
            // The next incarnation under this name has rendezvous with the same numbers.
            let mut next_incarnation = PeerProcess::named(&name);
            let side_addr = next_incarnation.request(&format!("insert {}", raw.side.name()));
            next_incarnation.request(&format!("send Tagged {side_addr} {len} 6"));
            raw.claim(6);
            raw.post_tagged(5, OpFlags::CLAIM);
            match raw.next() {
                Ok(entry) => {
                    assert!(len < 5000, "the bytes of the message were at its sender");
                    assert_eq!(entry.len, len);
                    assert!(raw.buf == content(5, len));
                }
                Err(error) => {
                    assert!(len > 5000, "{error:?}");
                    assert_eq!((error.errno, error.src), (Errno::ConnReset, peer_addr));
                    assert!(error.detail.contains("claimed"), "{}", error.detail);
                }
            }
            next_incarnation.request("drive on");
            raw.post_tagged(6, OpFlags::CLAIM);
            assert_eq!(raw.next().unwrap().len, len);
            assert!(raw.buf == content(6, len));
        }
    }
}

#[test]
fn a_claimed_rendezvous_of_a_killed_peer_can_be_discarded() {
    let _watchdog = Watchdog::new();
    let name = unique("unclaimed");
    let mut side = NumberedEndpoint::new();
    let peer_addr = side.insert(&name);
    let mut peer_process = PeerProcess::named(&name);
    let side_addr = peer_process.request(&format!("insert {}", side.name()));
    peer_process.request(&format!("send Tagged {side_addr} 300000 5"));
    let mut raw = RawReceive::new(&mut side, 0);
    raw.claim(5);
    peer_process.kill();
    raw.side
        .until(|side| side.send(Kind::Inject, peer_addr, 1, 0) == Err(Errno::NotConn));
    raw.post_tagged(5, OpFlags::CLAIM | OpFlags::DISCARD);
    assert_eq!(raw.next().unwrap().len, 300_000);
}

#[test]
fn a_multi_receive_buffer_outlives_a_killed_sender_unless_it_is_directed_at_that_sender() {
    let _watchdog = Watchdog::new();
    for is_directed in [false, true] {
        let name = unique("multi");
        let mut side = NumberedEndpoint::with_params(None, &[("FI_SHM_PROTOCOL", "bounce")]);
        side.ep.set(EpOption::MinMultiRecv(8)).unwrap();
        let peer_addr = side.insert(&name);
        let mut peer_process = PeerProcess::named(&name);
        let side_addr = peer_process.request(&format!("insert {}", side.name()));
        let mut raw = RawReceive::new(&mut side, 300_016);
        raw.post_multi(if is_directed {
            peer_addr
        } else {
            FiAddr::UNSPEC
        });
        peer_process.request(&format!("send Msg {side_addr} 8 1"));
        assert_eq!(raw.next().unwrap().len, 8);
        // The peer makes no progress: the message stays incomplete.
        peer_process.request(&format!("send Msg {side_addr} 300000 2"));
        for _ in 0..2000 {
            raw.side.cq().read(&mut []).unwrap();
        }
        peer_process.kill();
        let released = |entry: &Entry| entry.flags.contains(CompletionFlags::MULTI_RECV);
        let error = raw.next().unwrap_err();
        assert_eq!((error.errno, error.src), (Errno::ConnReset, peer_addr));
        assert!(!released(&error.entry));
        if is_directed {
            let error = raw.next().unwrap_err();
            assert_eq!(error.errno, Errno::ConnReset);
            assert!(released(&error.entry));
        } else {
            // The part that the killed peer's message has taken is used up, the rest is not.
            let mut next_incarnation = PeerProcess::named(&name);
            let side_addr = next_incarnation.request(&format!("insert {}", raw.side.name()));
            next_incarnation.request(&format!("send Msg {side_addr} 8 3"));
            let entry = raw.next().unwrap();
            assert!(released(&entry));
            assert_eq!(entry.buf, raw.buf.as_ptr().addr() + 300_008);
            assert_eq!(raw.buf[300_008..], content(3, 8));
        }
        assert_eq!(raw.buf[..8], content(1, 8));
    }
}
