//! Atomics of several processes on one word: by the initiator, by the target, and by the owner's own
//! instructions, also while one of them dies.

#![expect(unsafe_code, reason = "tests of the raw face")]

use std::sync::atomic::{AtomicU64, Ordering};

use selvedge::atomic::{AtomicMsg, Datatype, Ioc, IocMut, Op, RmaIoc};
use selvedge::cq::{Entry, ErrEntry};
use selvedge::{CompletionFlags, Context, Errno, FiAddr, MrAccess, OpFlags};

use crate::contact::unique;
use crate::process::{Puppet, alone};
use crate::side::Side;
use crate::special::met;

const BOTH: MrAccess = MrAccess::REMOTE_READ.union(MrAccess::REMOTE_WRITE);
/// The block of memory that everybody works on.
pub(crate) const KEY: u64 = 1;
/// Who changes the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// We do, in special memory.
    Direct,
    /// The target does, which is told so by remote data.
    Command,
}

impl Way {
    /// Sums of one process: a command takes a turn of everybody.
    const fn rounds(self) -> u64 {
        match self {
            Self::Direct => 100_000,
            Self::Command => 500,
        }
    }
}

/// A place in somebody's memory, and how it is reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) dest: FiAddr,
    pub(crate) addr: u64,
    pub(crate) way: Way,
}

impl Place {
    fn at(self, addr: u64) -> Self {
        Self { addr, ..self }
    }

    /// The place `dest way` of an order.
    fn parse(args: &[&str]) -> Self {
        let way = if args[1] == "Direct" {
            Way::Direct
        } else {
            Way::Command
        };
        let dest = FiAddr(args[0].parse().unwrap());
        Self { dest, addr: 0, way }
    }

    /// Posts an atomic on one word; the earlier value will be in what it returns. With something to
    /// compare with, it is a compare-and-swap.
    pub(crate) fn post(
        self,
        side: &mut Side,
        op: Op,
        operand: u64,
        compare: Option<u64>,
    ) -> Result<&'static u64, Errno> {
        let earlier = Box::leak(Box::new(u64::MAX));
        let ioc = |word: &u64| [Ioc::from_raw(std::ptr::from_ref(word).cast(), 1)];
        let result = [IocMut::from_raw(std::ptr::from_mut(earlier).cast(), 1)];
        let (data, flags) = match self.way {
            Way::Direct => (0, OpFlags::INJECT),
            Way::Command => (1, OpFlags::INJECT | OpFlags::REMOTE_CQ_DATA),
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

    /// The same from the post to the completion.
    fn run(self, side: &mut Side, op: Op, operand: u64, compare: Option<u64>) -> u64 {
        let earlier = loop {
            match self.post(side, op, operand, compare) {
                Err(Errno::Again) => drop(side.cq.read(&mut [])),
                posted => break posted.unwrap(),
            }
        };
        assert_eq!(next(side).unwrap().context, Context(7));
        // SAFETY: the operation is over; nobody else writes there.
        unsafe { std::ptr::from_ref(earlier).read_volatile() }
    }
}

/// A puppet's part: adds one to the word at 8, `dest way count`.
pub(crate) fn add(side: &mut Side, args: &[&str]) {
    let place = Place::parse(args).at(8);
    for _ in 0..args[2].parse::<u64>().unwrap() {
        place.run(side, Op::Sum, 1, None);
    }
}

/// A puppet's part: adds one to the word at 8 in two steps, under a lock in the word at 0; then one
/// to the word at 16, at once. `dest way count`
pub(crate) fn lock(side: &mut Side, args: &[&str]) {
    let place = Place::parse(args);
    for _ in 0..args[2].parse::<u64>().unwrap() {
        while place.run(side, Op::Cswap, 1, Some(0)) != 0 {
            std::thread::yield_now();
        }
        let value = place.at(8).run(side, Op::AtomicRead, 0, None);
        place.at(8).run(side, Op::AtomicWrite, value + 1, None);
        assert_eq!(
            place.run(side, Op::AtomicWrite, 0, None),
            1,
            "the lock was lost"
        );
    }
    place.at(16).run(side, Op::Sum, 1, None);
}

/// A word of our own block.
fn word(us: &Side, addr: usize) -> &AtomicU64 {
    let base = us.blocks[&KEY].base();
    // SAFETY: the block has pages, lives as long as the side, and is changed by atomics alone.
    unsafe { AtomicU64::from_ptr(base.wrapping_add(addr).cast()) }
}

/// We with a block, and two puppets that know us, one for each way.
fn workers() -> (Side, [(Puppet, String, Way); 2]) {
    let mut us = Side::new();
    us.alloc(KEY, 4096, BOTH).unwrap();
    let workers = [Way::Direct, Way::Command].map(|way| {
        let mut puppet = Puppet::named(&unique(&format!("{way:?}")));
        let index = puppet.ask(&format!("insert {}", us.name()));
        (puppet, index, way)
    });
    (us, workers)
}

/// A completion of ours if there is one, past the side's own books, which are of messages.
pub(crate) fn poll(side: &Side) -> Option<Result<Entry, ErrEntry>> {
    let mut entry = [Entry::default()];
    match side.cq.read(&mut entry) {
        Ok(0) => None,
        Ok(_) => Some(Ok(entry[0])),
        Err(_) => Some(Err(side.cq.read_err().unwrap())),
    }
}

fn next(side: &Side) -> Result<Entry, ErrEntry> {
    loop {
        if let Some(done) = poll(side) {
            return done;
        }
        std::thread::yield_now();
    }
}

/// Lets our progress run until something is so. Says how much remote data was met.
fn drive_until(us: &Side, mut done: impl FnMut() -> bool) -> u64 {
    let mut told = 0;
    while !done() {
        while let Some(entry) = poll(us) {
            assert!(
                entry
                    .unwrap()
                    .flags
                    .contains(CompletionFlags::REMOTE_CQ_DATA)
            );
            told += 1;
        }
    }
    told
}

#[test]
fn sums_by_initiators_targets_and_owners_on_one_word_are_exact() {
    alone(|| {
        let (us, mut workers) = workers();
        for (puppet, index, way) in &mut workers {
            puppet.tell(&format!("add {index} {way:?} {}", way.rounds()));
        }
        let (mut own, theirs) = (0, Way::Direct.rounds() + Way::Command.rounds());
        drive_until(&us, || {
            own += 1;
            word(&us, 8).fetch_add(1, Ordering::Relaxed) + 1 >= own + theirs
        });
        for (puppet, ..) in &mut workers {
            assert_eq!(puppet.answer(), "ok");
        }
        assert_eq!(word(&us, 8).load(Ordering::Relaxed), own + theirs);
    });
}

#[test]
fn a_lock_of_compare_and_swap_keeps_processes_apart() {
    const TURNS: u64 = 300;
    alone(|| {
        let (us, mut workers) = workers();
        for (puppet, index, way) in &mut workers {
            puppet.tell(&format!("lock {index} {way:?} {TURNS}"));
        }
        drive_until(&us, || word(&us, 16).load(Ordering::Acquire) == 2);
        for (puppet, ..) in &mut workers {
            assert_eq!(puppet.answer(), "ok");
        }
        assert_eq!(word(&us, 8).load(Ordering::Relaxed), 2 * TURNS);
    });
}

#[test]
fn initiators_that_are_killed_in_the_middle_leave_whole_sums() {
    alone(|| {
        for round in 0..6 {
            let (us, mut workers) = workers();
            let [(victim, its, way), (survivor, index, _)] = &mut workers;
            let way = if round % 2 == 0 { *way } else { Way::Command };
            victim.tell(&format!("add {its} {way:?} {}", u64::MAX));
            let start = 100 * round;
            drive_until(&us, || word(&us, 8).load(Ordering::Relaxed) > start);
            victim.kill();
            // What it had committed is carried out by the time that the survivor has begun.
            survivor.tell(&format!("lock {index} Command 20"));
            drive_until(&us, || word(&us, 16).load(Ordering::Acquire) == 1);
            assert_eq!(survivor.answer(), "ok");
            assert!(word(&us, 8).load(Ordering::Relaxed) >= start + 20);
        }
    });
}

#[test]
fn atomics_on_a_target_that_never_calls_in_are_done_and_seen() {
    alone(|| {
        let mut us = Side::new();
        let (mut puppet, _, dest) = met(&mut us);
        assert_eq!(
            puppet.ask(&format!("alloc {KEY} 4096 {}", BOTH.bits())),
            "ok"
        );
        puppet.tell(&format!("wait {KEY} 8 3"));
        let place = Place {
            dest,
            addr: 8,
            way: Way::Direct,
        };
        let earlier: Vec<_> = (0..3)
            .map(|_| place.run(&mut us, Op::Sum, 1, None))
            .collect();
        assert_eq!(earlier, [0, 1, 2]);
        assert_eq!(puppet.answer(), "ok");
        puppet.tell(&format!("wait {KEY} 8 9"));
        assert_eq!(place.run(&mut us, Op::Cswap, 9, Some(3)), 3);
        assert_eq!(puppet.answer(), "ok");
    });
}

#[test]
fn atomics_that_a_killed_target_owes_fail_with_its_name() {
    alone(|| {
        let mut us = Side::new();
        let (mut puppet, _, dest) = met(&mut us);
        assert_eq!(
            puppet.ask(&format!("alloc {KEY} 4096 {}", BOTH.bits())),
            "ok"
        );
        let place = Place {
            dest,
            addr: 8,
            way: Way::Command,
        };
        // It makes no progress, and therefore none of these.
        for _ in 0..20 {
            place.post(&mut us, Op::Sum, 1, None).unwrap();
        }
        puppet.kill();
        for _ in 0..20 {
            let error = next(&us).unwrap_err();
            assert_eq!((error.errno, error.src), (Errno::ConnReset, dest));
        }
        let direct = Place {
            way: Way::Direct,
            ..place
        };
        assert_eq!(direct.post(&mut us, Op::Sum, 1, None), Err(Errno::NotConn));
        assert!(poll(&us).is_none());
    });
}
