//! Atomics of several processes on one word: by the initiator, by the target, and by the owner's
//! own instructions, also while one process is killed.

#![expect(unsafe_code, reason = "tests of the raw API")]

use std::sync::atomic::{AtomicU64, Ordering};

use selvedge::atomic::{AtomicMsg, Datatype, Ioc, IocMut, Op, RmaIoc};
use selvedge::cq::{Entry, ErrEntry};
use selvedge::{CompletionFlags, Context, Errno, FiAddr, MrAccess, OpFlags};

use crate::connect::unique;
use crate::endpoint::NumberedEndpoint;
use crate::process::{PeerProcess, alone};
use crate::special::connected_peer;

const BOTH: MrAccess = MrAccess::REMOTE_READ.union(MrAccess::REMOTE_WRITE);
/// The key of the block that all processes change.
pub(crate) const KEY: u64 = 1;

/// The protocol of an atomic, by the side that changes the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// The initiator, in special memory.
    Direct,
    /// The target, because the operation carries remote data.
    Command,
}

impl Protocol {
    /// Sums of one process. A command takes a turn of both sides.
    const fn rounds(self) -> u64 {
        match self {
            Self::Direct => 100_000,
            Self::Command => 500,
        }
    }
}

/// A word of a peer's memory, and the protocol that changes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteWord {
    pub(crate) dest: FiAddr,
    pub(crate) addr: u64,
    pub(crate) protocol: Protocol,
}

impl RemoteWord {
    fn with_addr(self, addr: u64) -> Self {
        Self { addr, ..self }
    }

    /// The word of the arguments `dest protocol` of a request.
    fn parse(args: &[&str]) -> Self {
        let protocol = if args[1] == "Direct" {
            Protocol::Direct
        } else {
            Protocol::Command
        };
        let dest = FiAddr(args[0].parse().unwrap());
        Self {
            dest,
            addr: 0,
            protocol,
        }
    }

    /// Posts an atomic on the word. The completion stores the previous value at the returned
    /// address. With `compare`, the atomic is a compare-and-swap.
    pub(crate) fn post(
        self,
        side: &mut NumberedEndpoint,
        op: Op,
        operand: u64,
        compare: Option<u64>,
    ) -> Result<&'static u64, Errno> {
        let earlier = Box::leak(Box::new(u64::MAX));
        let ioc = |word: &u64| [Ioc::from_raw(std::ptr::from_ref(word).cast(), 1)];
        let result = [IocMut::from_raw(std::ptr::from_mut(earlier).cast(), 1)];
        let (data, flags) = match self.protocol {
            Protocol::Direct => (0, OpFlags::INJECT),
            Protocol::Command => (1, OpFlags::INJECT | OpFlags::REMOTE_CQ_DATA),
        };
        let iov = ioc(&operand);
        let msg = AtomicMsg {
            iov: if op == Op::AtomicRead { &[] } else { &iov },
            desc: &[],
            dest: self.dest,
            rma_iov: &[RmaIoc {
                addr: self.addr,
                count: 1,
                key: KEY,
            }],
            datatype: Datatype::Uint64,
            op,
            context: Context(7),
            data,
        };
        match compare {
            // SAFETY: operands are injected, the result is never freed.
            None => unsafe { side.ep.fetch_atomicmsg(&msg, &result, &[], flags) }?,
            Some(compare) => {
                let compare = ioc(&compare);
                // SAFETY: as above.
                unsafe {
                    side.ep
                        .compare_atomicmsg(&msg, &compare, &[], &result, &[], flags)
                }?;
            }
        }
        Ok(earlier)
    }

    /// Posts an atomic, waits for its completion, and returns the previous value.
    fn run(self, side: &mut NumberedEndpoint, op: Op, operand: u64, compare: Option<u64>) -> u64 {
        let earlier = loop {
            match self.post(side, op, operand, compare) {
                Err(Errno::Again) => drop(side.cq().read(&mut [])),
                posted => break posted.unwrap(),
            }
        };
        assert_eq!(next_completion(side).unwrap().context, Context(7));
        // SAFETY: the operation is complete, and no other code writes to the word.
        unsafe { std::ptr::from_ref(earlier).read_volatile() }
    }
}

/// A request of a peer process: adds one to the word at 8. Arguments: `dest protocol count`.
pub(crate) fn add(side: &mut NumberedEndpoint, args: &[&str]) {
    let remote_word = RemoteWord::parse(args).with_addr(8);
    for _ in 0..args[2].parse::<u64>().unwrap() {
        remote_word.run(side, Op::Sum, 1, None);
    }
}

/// A request of a peer process: adds one to the word at 8 in two steps, under a lock in the word at
/// 0; then one to the word at 16, in one step. Arguments: `dest protocol count`.
pub(crate) fn lock(side: &mut NumberedEndpoint, args: &[&str]) {
    let remote_word = RemoteWord::parse(args);
    for _ in 0..args[2].parse::<u64>().unwrap() {
        while remote_word.run(side, Op::Cswap, 1, Some(0)) != 0 {
            std::thread::yield_now();
        }
        let value = remote_word.with_addr(8).run(side, Op::AtomicRead, 0, None);
        remote_word
            .with_addr(8)
            .run(side, Op::AtomicWrite, value + 1, None);
        assert_eq!(
            remote_word.run(side, Op::AtomicWrite, 0, None),
            1,
            "the lock was lost"
        );
    }
    remote_word.with_addr(16).run(side, Op::Sum, 1, None);
}

/// A word of the local block.
fn word(side: &NumberedEndpoint, addr: usize) -> &AtomicU64 {
    let base = side.blocks[&KEY].base();
    // SAFETY: the block has pages, lives as long as the side, and is changed by atomics alone.
    unsafe { AtomicU64::from_ptr(base.wrapping_add(addr).cast()) }
}

/// A side with a block, and two peer processes with its address, one for each protocol.
fn workers() -> (NumberedEndpoint, [(PeerProcess, String, Protocol); 2]) {
    let mut side = NumberedEndpoint::new();
    side.alloc(KEY, 4096, BOTH).unwrap();
    let workers = [Protocol::Direct, Protocol::Command].map(|protocol| {
        let mut peer_process = PeerProcess::named(&unique(&format!("{protocol:?}")));
        let index = peer_process.request(&format!("insert {}", side.name()));
        (peer_process, index, protocol)
    });
    (side, workers)
}

/// The next completion, if there is one. It bypasses [`NumberedEndpoint::poll`], which keeps the
/// buffers of messages.
pub(crate) fn poll(side: &NumberedEndpoint) -> Option<Result<Entry, ErrEntry>> {
    let mut entry = [Entry::default()];
    match side.cq().read(&mut entry) {
        Ok(0) => None,
        Ok(_) => Some(Ok(entry[0])),
        Err(_) => Some(Err(side.cq().read_err().unwrap())),
    }
}

fn next_completion(side: &NumberedEndpoint) -> Result<Entry, ErrEntry> {
    loop {
        if let Some(done) = poll(side) {
            return done;
        }
        std::thread::yield_now();
    }
}

/// Makes progress until `done` holds. Returns the number of completions of remote data.
fn drive_until(side: &NumberedEndpoint, mut done: impl FnMut() -> bool) -> u64 {
    let mut received = 0;
    while !done() {
        while let Some(entry) = poll(side) {
            assert!(
                entry
                    .unwrap()
                    .flags
                    .contains(CompletionFlags::REMOTE_CQ_DATA)
            );
            received += 1;
        }
    }
    received
}

#[test]
fn sums_by_initiators_targets_and_owners_on_one_word_are_exact() {
    alone(|| {
        let (side, mut workers) = workers();
        for (peer_process, index, protocol) in &mut workers {
            peer_process.send_request(&format!("add {index} {protocol:?} {}", protocol.rounds()));
        }
        let (mut local_sums, remote_sums) =
            (0, Protocol::Direct.rounds() + Protocol::Command.rounds());
        drive_until(&side, || {
            local_sums += 1;
            word(&side, 8).fetch_add(1, Ordering::Relaxed) + 1 >= local_sums + remote_sums
        });
        for (peer_process, ..) in &mut workers {
            assert_eq!(peer_process.response(), "ok");
        }
        assert_eq!(
            word(&side, 8).load(Ordering::Relaxed),
            local_sums + remote_sums
        );
    });
}

#[test]
fn a_lock_of_compare_and_swap_keeps_processes_apart() {
    const TURNS: u64 = 300;
    alone(|| {
        let (side, mut workers) = workers();
        for (peer_process, index, protocol) in &mut workers {
            peer_process.send_request(&format!("lock {index} {protocol:?} {TURNS}"));
        }
        drive_until(&side, || word(&side, 16).load(Ordering::Acquire) == 2);
        for (peer_process, ..) in &mut workers {
            assert_eq!(peer_process.response(), "ok");
        }
        assert_eq!(word(&side, 8).load(Ordering::Relaxed), 2 * TURNS);
    });
}

#[test]
fn initiators_that_are_killed_leave_exact_sums() {
    alone(|| {
        for round in 0..6 {
            let (side, mut workers) = workers();
            let [(killed, killed_index, protocol), (survivor, index, _)] = &mut workers;
            let protocol = if round % 2 == 0 {
                *protocol
            } else {
                Protocol::Command
            };
            killed.send_request(&format!("add {killed_index} {protocol:?} {}", u64::MAX));
            let start = 100 * round;
            drive_until(&side, || word(&side, 8).load(Ordering::Relaxed) > start);
            killed.kill();
            // The target executes the killed peer's committed commands before the survivor begins.
            survivor.send_request(&format!("lock {index} Command 20"));
            drive_until(&side, || word(&side, 16).load(Ordering::Acquire) == 1);
            assert_eq!(survivor.response(), "ok");
            assert!(word(&side, 8).load(Ordering::Relaxed) >= start + 20);
        }
    });
}

#[test]
fn atomics_on_a_target_that_makes_no_call_complete() {
    alone(|| {
        let mut side = NumberedEndpoint::new();
        let (mut peer_process, _, dest) = connected_peer(&mut side);
        assert_eq!(
            peer_process.request(&format!("alloc {KEY} 4096 {}", BOTH.bits())),
            "ok"
        );
        peer_process.send_request(&format!("wait {KEY} 8 3"));
        let remote_word = RemoteWord {
            dest,
            addr: 8,
            protocol: Protocol::Direct,
        };
        let earlier: Vec<_> = (0..3)
            .map(|_| remote_word.run(&mut side, Op::Sum, 1, None))
            .collect();
        assert_eq!(earlier, [0, 1, 2]);
        assert_eq!(peer_process.response(), "ok");
        peer_process.send_request(&format!("wait {KEY} 8 9"));
        assert_eq!(remote_word.run(&mut side, Op::Cswap, 9, Some(3)), 3);
        assert_eq!(peer_process.response(), "ok");
    });
}

#[test]
fn atomics_that_a_killed_target_owes_fail_with_its_name() {
    alone(|| {
        let mut side = NumberedEndpoint::new();
        let (mut peer_process, _, dest) = connected_peer(&mut side);
        assert_eq!(
            peer_process.request(&format!("alloc {KEY} 4096 {}", BOTH.bits())),
            "ok"
        );
        let remote_word = RemoteWord {
            dest,
            addr: 8,
            protocol: Protocol::Command,
        };
        // The target makes no progress, so none of these completes.
        for _ in 0..20 {
            remote_word.post(&mut side, Op::Sum, 1, None).unwrap();
        }
        peer_process.kill();
        for _ in 0..20 {
            let error = next_completion(&side).unwrap_err();
            assert_eq!((error.errno, error.src), (Errno::ConnReset, dest));
        }
        let direct = RemoteWord {
            protocol: Protocol::Direct,
            ..remote_word
        };
        assert_eq!(
            direct.post(&mut side, Op::Sum, 1, None),
            Err(Errno::NotConn)
        );
        assert!(poll(&side).is_none());
    });
}
