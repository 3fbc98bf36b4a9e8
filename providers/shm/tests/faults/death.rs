//! Peers that are killed or stopped: before, during and after transfers of every kind.

use nix::sys::signal::Signal;
use selvedge::cq::Entry;
use selvedge::{Errno, FiAddr};
use selvedge_testkit::usage::{Usage, private_after_trim};

use crate::contact::unique;
use crate::process::{Puppet, Watchdog, alone};
use crate::side::{ANY, Kind, Side, content};

/// A way for a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) kind: Kind,
    pub(crate) len: usize,
    protocol: &'static str,
    /// Whether the sender's completion waits for the receiver.
    is_confirmed: bool,
}

/// Every way that there is.
const WAYS: [Way; 10] = [
    way(Kind::Msg, 8, "auto", false),
    way(Kind::Tagged, 40, "auto", false),
    way(Kind::Inject, 8, "auto", false),
    way(Kind::TaggedInject, 2000, "auto", false),
    way(Kind::Tagged, 4000, "auto", false),
    way(Kind::Delivered, 8, "auto", true),
    way(Kind::Delivered, 4000, "auto", true),
    way(Kind::Tagged, 3_000_000, "cma", true),
    way(Kind::Msg, 1_000_000, "bounce", true),
    way(Kind::Tagged, 1_000_000, "bounce", true),
];

const fn way(kind: Kind, len: usize, protocol: &'static str, is_confirmed: bool) -> Way {
    Way {
        kind,
        len,
        protocol,
        is_confirmed,
    }
}

impl Way {
    /// One small, one through the pool, one of each kind of large.
    pub(crate) fn some() -> [Self; 4] {
        [WAYS[1], WAYS[4], WAYS[7], WAYS[8]]
    }

    /// A side and a puppet that know each other: their addresses are the last two.
    pub(crate) fn meet(self, what: &str) -> (Side, Puppet, FiAddr, String) {
        let params = [
            ("FI_SHM_PROTOCOL", self.protocol),
            ("FI_SHM_PEER_TIMEOUT", "50ms"),
        ];
        let side = Side::with(None, &params);
        let (mut puppet, name) = (Puppet::start(), unique(what));
        puppet.ask(&format!("open {name} FI_SHM_PROTOCOL={}", self.protocol));
        let them = side.insert(&name);
        let us = puppet.ask(&format!("insert {}", side.name()));
        (side, puppet, them, us)
    }

    fn is_injected(self) -> bool {
        matches!(self.kind, Kind::Inject | Kind::TaggedInject)
    }
}

/// Exchanges a message in each direction.
pub(crate) fn get_acquainted(side: &mut Side, puppet: &mut Puppet, them: FiAddr, us: &str) {
    puppet.ask("recv Tagged 8 900");
    puppet.ask(&format!("send Tagged {us} 8 901"));
    side.recv(Kind::Tagged, them, 8, 901).unwrap();
    side.send(Kind::Delivered, them, 8, 900).unwrap();
    puppet.ask("drive on");
    side.next().ok();
    side.next().ok();
    puppet.ask("drive off");
    assert!(puppet.ask("next").starts_with("done"));
    assert!(puppet.ask("next").starts_with("done"));
}

/// Drives until the side knows that the peer is gone.
#[track_caller]
pub(crate) fn notice(side: &mut Side, them: FiAddr) {
    side.until(|side| side.send(Kind::Inject, them, 1, 0) == Err(Errno::NotConn));
    side.forget(0);
}

#[test]
fn sends_to_a_peer_that_is_killed_fail_unless_they_were_done() {
    let _watchdog = Watchdog::new();
    for way in WAYS {
        for is_acquainted in [false, true] {
            let (mut side, mut puppet, them, us) = way.meet("killed-receiver");
            if is_acquainted {
                get_acquainted(&mut side, &mut puppet, them, &us);
            }
            side.recv(Kind::Tagged, them, 8, 100).unwrap();
            for number in 1..=3 {
                side.send(way.kind, them, way.len, number).unwrap();
            }
            side.drive();
            puppet.kill();
            let done = match way.is_confirmed || way.is_injected() {
                true => 0,
                false => 3,
            };
            for number in 1..=done {
                assert_eq!(side.next().ok().context, number, "{way:?}");
            }
            let failing = if way.is_confirmed { 3 } else { 0 };
            let mut failed: Vec<_> = (0..=failing).map(|_| side.next()).collect();
            failed.sort_by_key(|event| event.context);
            for (event, expected) in failed.iter().zip((1..=failing).chain([100])) {
                assert_eq!((event.context, event.src), (expected, them), "{way:?}");
                assert_eq!(event.errno(), Errno::ConnReset, "{way:?}");
                let detail = &event.error.as_ref().unwrap().detail;
                assert!(detail.contains("killed-receiver"), "{detail}");
            }
            assert_eq!(side.send(way.kind, them, way.len, 5), Err(Errno::NotConn));
            assert_eq!(side.recv(way.kind, them, way.len, 6), Err(Errno::NotConn));
            assert!(side.is_idle(), "{way:?}");
        }
    }
}

#[test]
fn what_a_peer_had_committed_when_it_was_killed_is_received() {
    let _watchdog = Watchdog::new();
    for way in WAYS {
        for is_expected in [false, true] {
            let (mut side, mut puppet, them, us) = way.meet("killed-sender");
            if is_expected {
                (1..=4).for_each(|n| side.recv(way.kind, them, way.len, n).unwrap());
            }
            for number in 1..=3 {
                let Way { kind, len, .. } = way;
                puppet.ask(&format!("send {kind:?} {us} {len} {number}"));
            }
            puppet.kill();
            let is_small = way.len <= 4096;
            if !is_expected {
                notice(&mut side, them);
                for number in 1..=3 {
                    let expected = if is_small {
                        Ok(())
                    } else {
                        Err(Errno::NotConn)
                    };
                    let posted = side.recv(way.kind, them, way.len, number);
                    assert_eq!(posted, expected, "{way:?}");
                }
                assert_eq!(side.recv(way.kind, them, 1, 4), Err(Errno::NotConn));
            }
            for number in 1..=if is_small { 3 } else { 0 } {
                let event = side.next().ok();
                assert_eq!((event.context, event.src), (number, them));
                assert!(event.bytes == content(number, way.len), "{way:?}");
            }
            while !side.is_idle() {
                let event = side.next();
                assert_eq!(
                    (event.errno(), event.src),
                    (Errno::ConnReset, them),
                    "{way:?}"
                );
            }
        }
    }
}

#[test]
fn a_name_is_a_new_peer_after_its_process_was_killed() {
    let _watchdog = Watchdog::new();
    let name = unique("phoenix");
    let mut side = Side::new();
    let them = side.insert(&name);
    for life in 1..=20 {
        let mut puppet = Puppet::named(&name);
        let us = puppet.ask(&format!("insert {}", side.name()));
        let first = life * 100;
        // Without a look in between: the life before may not have been seen to end.
        puppet.ask(&format!("send Tagged {us} 8 {first}"));
        side.recv(Kind::Tagged, FiAddr::UNSPEC, 8, first).unwrap();
        let event = loop {
            let event = side.next();
            if event.context == first {
                break event.ok();
            }
            assert_eq!(event.errno(), Errno::ConnReset);
        };
        assert_eq!(event.bytes, content(first, 8));
        puppet.ask(&format!("recv Tagged 8 {}", first + 1));
        puppet.ask("drive on");
        side.send(Kind::Delivered, them, 8, first + 1).unwrap();
        side.next().ok();
        puppet.ask("drive off");
        assert_eq!(puppet.ask("next"), format!("done {first}"));
        assert_eq!(puppet.ask("next"), format!("done {} 8 good", first + 1));
        // For nobody: the next life must not see it.
        side.send(Kind::Tagged, them, 8, first + 101).unwrap();
        side.next().ok();
        side.send(Kind::Delivered, them, 8, first + 3).unwrap();
        puppet.kill();
        if life % 2 == 0 {
            assert_eq!(side.next().errno(), Errno::ConnReset);
        }
    }
}

#[test]
fn a_connection_that_is_left_by_a_dead_peer_is_not_taken_for_the_next_one() {
    let _watchdog = Watchdog::new();
    for is_next_there in [false, true] {
        let name = unique("corpse");
        let mut side = Side::with(None, &[("FI_SHM_PEER_TIMEOUT", "30s")]);
        let them = side.insert(&name);
        let mut first = Puppet::named(&name);
        let us = first.ask(&format!("insert {}", side.name()));
        first.ask(&format!("send Tagged {us} 8 1"));
        first.kill();
        let mut next = is_next_there.then(|| Puppet::named(&name));
        side.send(Kind::Tagged, them, 8, 2).unwrap();
        side.send(Kind::Delivered, them, 8, 3).unwrap();
        (0..1000).for_each(|_| side.drive());
        let next = next.get_or_insert_with(|| Puppet::named(&name));
        next.ask("recv Tagged 8 2");
        next.ask("recv Tagged 8 3");
        next.ask("drive on");
        assert_eq!(side.next().ok().context, 2);
        assert_eq!(side.next().ok().context, 3);
        next.ask("drive off");
        assert_eq!(next.ask("next"), "done 2 8 good");
        assert_eq!(next.ask("next"), "done 3 8 good");
    }
}

#[test]
fn what_a_life_had_sent_unheard_is_received_although_the_next_one_is_sent_to_first() {
    let _watchdog = Watchdog::new();
    for is_known in [false, true] {
        let name = unique("unheard");
        let mut side = Side::new();
        let them = side.insert(&name);
        let mut first = Puppet::named(&name);
        if is_known {
            let us = first.ask(&format!("insert {}", side.name()));
            get_acquainted(&mut side, &mut first, them, &us);
            first.kill();
            notice(&mut side, them);
        }
        drop(first);
        let mut second = Puppet::named(&name);
        let us = second.ask(&format!("insert {}", side.name()));
        second.ask(&format!("send Tagged {us} 8 1"));
        second.ask(&format!("send Tagged {us} 2000 2"));
        second.kill();
        let mut third = Puppet::named(&name);
        third.ask("recv Tagged 8 3");
        side.send(Kind::Delivered, them, 8, 3).unwrap();
        third.ask("drive on");
        side.next().ok();
        third.ask("drive off");
        for (number, len) in [(1, 8), (2, 2000)] {
            side.recv(Kind::Tagged, FiAddr::UNSPEC, len, number)
                .unwrap();
            assert!(side.next().ok().bytes == content(number, len));
        }
        assert_eq!(third.ask("next"), "done 3 8 good");
    }
}

#[test]
fn what_a_life_had_sent_unheard_is_received_before_a_post_says_that_nobody_is_there() {
    let _watchdog = Watchdog::new();
    let name = unique("gone-again");
    let mut side = Side::new();
    let them = side.insert(&name);
    let mut first = Puppet::named(&name);
    let us = first.ask(&format!("insert {}", side.name()));
    get_acquainted(&mut side, &mut first, them, &us);
    first.kill();
    notice(&mut side, them);
    let mut second = Puppet::named(&name);
    let us = second.ask(&format!("insert {}", side.name()));
    second.ask(&format!("send Tagged {us} 8 1"));
    second.ask(&format!("send Tagged {us} 2000 2"));
    second.kill();
    for (number, len) in [(1, 8), (2, 2000)] {
        side.recv(Kind::Tagged, FiAddr::UNSPEC, len, number)
            .unwrap();
    }
    assert_eq!(side.send(Kind::Tagged, them, 8, 3), Err(Errno::NotConn));
    let (mut done, mut sources) = ([Entry::default(); 3], [FiAddr::UNSPEC; 3]);
    assert_eq!(side.cq.read_ready(&mut done, &mut sources), Ok(2));
    assert_eq!(done.map(|entry| entry.context.0), [1, 2, 0]);
}

#[test]
fn what_a_life_had_sent_unheard_is_received_although_messages_wait_for_the_next_one() {
    let _watchdog = Watchdog::new();
    for is_next_there in [false, true] {
        let name = unique("awaited");
        let mut side = Side::with(None, &[("FI_SHM_PEER_TIMEOUT", "60s")]);
        let them = side.insert(&name);
        side.recv(Kind::Tagged, them, 8, 5).unwrap();
        for number in [3, 4] {
            side.send(Kind::Delivered, them, 2000, number).unwrap();
        }
        let mut first = Puppet::named(&name);
        let us = first.ask(&format!("insert {}", side.name()));
        first.ask(&format!("send Tagged {us} 8 1"));
        first.ask(&format!("send Tagged {us} 2000 2"));
        first.kill();
        let mut next = is_next_there.then(|| Puppet::named(&name));
        (0..1000).for_each(|_| side.drive());
        for (number, len) in [(1, 8), (2, 2000)] {
            side.recv(Kind::Tagged, them, len, number).unwrap();
            assert!(side.next().ok().bytes == content(number, len));
        }
        let next = next.get_or_insert_with(|| Puppet::named(&name));
        let us = next.ask(&format!("insert {}", side.name()));
        next.ask("recv Tagged 2000 3");
        next.ask("recv Tagged 2000 4");
        next.ask(&format!("send Tagged {us} 8 5"));
        next.ask("drive on");
        let mut done: Vec<_> = (0..3).map(|_| side.next().ok().context).collect();
        done.sort_unstable();
        assert_eq!(done, [3, 4, 5]);
        next.ask("drive off");
    }
}

#[test]
fn what_a_life_had_sent_unheard_comes_before_the_next_one_though_there_is_no_room_for_it_yet() {
    const LEN: usize = 2000;
    let params = [
        ("FI_SHM_PEER_TIMEOUT", "60s"),
        ("FI_SHM_UNEXPECTED_SIZE", "8k"),
    ];
    let _watchdog = Watchdog::new();
    for is_waited_for in [false, true] {
        let name = unique("crammed");
        let mut side = Side::with(None, &params);
        let them = side.insert(&name);
        if is_waited_for {
            side.send(Kind::Delivered, them, 8, 100).unwrap();
        }
        let mut first = Puppet::named(&name);
        let us = first.ask(&format!("insert {}", side.name()));
        for number in 0..20 {
            first.ask(&format!("send Tagged {us} {LEN} {number}"));
        }
        first.kill();
        let mut next = Puppet::named(&name);
        let us = next.ask(&format!("insert {}", side.name()));
        next.ask("recv Tagged 8 100");
        next.ask(&format!("send Tagged {us} {LEN} 20"));
        next.ask("drive on");
        if !is_waited_for {
            let sent = side.send(Kind::Delivered, them, 8, 100);
            assert_eq!(sent, Err(Errno::NotConn), "there is an earlier life to end");
        }
        (0..1000).for_each(|_| side.drive());
        for number in 0..=20 {
            side.recv(Kind::Tagged, FiAddr::UNSPEC, LEN, ANY).unwrap();
            let event = side.next().ok();
            assert_eq!(event.tag, number);
            assert!(event.bytes == content(number, LEN));
        }
        if !is_waited_for {
            side.send(Kind::Delivered, them, 8, 100).unwrap();
        }
        assert_eq!(side.next().ok().context, 100);
        next.ask("drive off");
    }
}

#[test]
fn what_there_is_no_room_for_yet_outlives_its_sender() {
    let _watchdog = Watchdog::new();
    let name = unique("hoarder");
    let mut side = Side::with(None, &[("FI_SHM_UNEXPECTED_SIZE", "16k")]);
    let them = side.insert(&name);
    let mut first = Puppet::named(&name);
    let us = first.ask(&format!("insert {}", side.name()));
    let mut count = 0;
    while first.ask(&format!("send TaggedInject {us} 3000 {}", count + 1)) == "ok" {
        count += 1;
    }
    side.recv(Kind::Tagged, them, 3000, 1000).unwrap();
    side.send(Kind::Delivered, them, 8, 2000).unwrap();
    (0..1000).for_each(|_| side.drive());
    first.kill();
    // What we sent fails although there is more to receive than there is room for.
    let event = side.next();
    assert_eq!((event.context, event.errno()), (2000, Errno::ConnReset));
    assert_eq!(side.send(Kind::Tagged, them, 8, 2001), Err(Errno::NotConn));
    // The next life has to wait for the end of this one.
    let mut second = Puppet::named(&name);
    let us = second.ask(&format!("insert {}", side.name()));
    second.ask(&format!("send TaggedInject {us} 3000 5000"));
    second.ask("drive on");
    side.recv(Kind::Tagged, FiAddr::UNSPEC, 3000, 5000).unwrap();
    (0..1000).for_each(|_| side.drive());
    for number in 1..=count {
        side.recv(Kind::Tagged, FiAddr::UNSPEC, 3000, number)
            .unwrap();
    }
    for _ in 0..count + 2 {
        let event = side.next();
        match event.context {
            1000 => assert_eq!(event.errno(), Errno::ConnReset),
            number => assert!(event.ok().bytes == content(number, 3000), "{number}"),
        }
    }
    side.send(Kind::Tagged, them, 8, 2002).unwrap();
    side.next().ok();
}

#[test]
fn a_stopped_peer_holds_things_up_and_loses_nothing() {
    let _watchdog = Watchdog::new();
    for len in [8, 2000, 100_000] {
        let name = unique("stopped");
        let mut puppet = Puppet::named(&name);
        puppet.ask(&format!("sink {len} 0"));
        let mut side = Side::new();
        let them = side.insert(&name);
        let (mut next, mut done) = (0, 0);
        for round in 0..20 {
            if round % 2 == 0 {
                puppet.signal(Signal::SIGSTOP);
            }
            for _ in 0..if len > 4096 { 40 } else { 1000 } {
                match side.send(Kind::Tagged, them, len, next) {
                    Ok(()) => next += 1,
                    Err(errno) => assert_eq!(errno, Errno::Again),
                }
                while side.poll().is_some_and(|event| event.error.is_none()) {
                    done += 1;
                }
            }
            puppet.signal(Signal::SIGCONT);
        }
        while side.send(Kind::Delivered, them, len, next) == Err(Errno::Again) {
            done += u64::from(side.poll().is_some());
        }
        while done <= next {
            side.next().ok();
            done += 1;
        }
        assert!(side.is_idle());
    }
}

/// Random numbers, by a seed that is printed.
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn seeded() -> Self {
        let seed = std::env::var("FAULTS_SEED")
            .ok()
            .and_then(|s| s.parse().ok());
        let seed = seed.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.unwrap().as_micros() as u64
        });
        println!("FAULTS_SEED={seed}");
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0.u64(..)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0.u64(..end)
    }
}

/// How often the short form of the random tests kills.
const KILLS: u64 = 100;

#[test]
fn peers_killed_at_random_points_harm_nobody_and_leave_nothing() {
    alone(|| {
        let mut random = Random::seeded();
        let mut side = Side::new();
        let (mut other, mut bystander) = (Side::new(), Side::new());
        let to_bystander = other.insert(bystander.name());
        let name = unique("mayfly");
        let them = side.insert(&name);
        let mut baseline = None;
        for round in 0..KILLS {
            live_and_die(&mut side, them, &name, &mut random);
            for number in 0..20 {
                bystander
                    .recv(Kind::Tagged, FiAddr::UNSPEC, 3000, number)
                    .unwrap();
                other
                    .send(Kind::Delivered, to_bystander, 3000, number)
                    .unwrap();
                other.next_with(&mut [&mut bystander]).ok();
                assert!(bystander.next().ok().bytes == content(number, 3000));
            }
            if round == 20 {
                baseline = Some((Usage::now().unwrap(), private_after_trim().unwrap()));
            }
        }
        let (tally, memory) = baseline.unwrap();
        assert_eq!(Usage::now().unwrap(), tally);
        assert!(
            private_after_trim().unwrap() < memory + (2 << 20),
            "{memory} grew to {}",
            private_after_trim().unwrap()
        );
    });
}

/// One peer under this name: it streams to us, or we to it, until it is killed.
fn live_and_die(side: &mut Side, them: FiAddr, name: &str, random: &mut Random) {
    let way = WAYS[random.below(WAYS.len() as u64) as usize];
    let len = way.len.min(300_000);
    let mut puppet = Puppet::start();
    puppet.ask(&format!("open {name} FI_SHM_PROTOCOL={}", way.protocol));
    let us = puppet.ask(&format!("insert {}", side.name()));
    let steps = random.below(if len > 4096 { 300 } else { 3000 });
    if random.below(2) == 0 {
        let kind = match way.kind {
            Kind::Msg => Kind::Tagged,
            Kind::Inject => Kind::TaggedInject,
            kind => kind,
        };
        puppet.ask(&format!("stream {kind:?} {us} {len}"));
        receive_for(side, len, steps);
    } else {
        puppet.ask(&format!("sink {len} 0"));
        send_for(side, them, len, steps);
    }
    puppet.kill();
    notice(side, them);
    finish(side, them, len);
}

/// Receives the peer's stream for a while: every message, once, in order.
///
/// It waits for the first one: what a peer has left that died before it was met is received later,
/// when the next peer under its name may be there already.
fn receive_for(side: &mut Side, len: usize, steps: u64) {
    side.recv(Kind::Tagged, FiAddr::UNSPEC, len, ANY).unwrap();
    let mut event = Some(side.next());
    let mut next = 0;
    for _ in 0..steps {
        if let Some(event) = event {
            let event = event.ok();
            assert_eq!(event.tag, next);
            assert!(
                event.bytes == content(next, len),
                "message {next} is garbled"
            );
            next += 1;
            side.recv(Kind::Tagged, FiAddr::UNSPEC, len, ANY).unwrap();
        }
        event = side.poll();
    }
}

fn send_for(side: &mut Side, them: FiAddr, len: usize, steps: u64) {
    let mut next = 0;
    for _ in 0..steps {
        match side.send(Kind::Tagged, them, len, next) {
            Ok(()) => next += 1,
            Err(errno) => assert_eq!(errno, Errno::Again),
        }
        while let Some(event) = side.poll() {
            event.ok();
        }
    }
}

/// Takes what the peer has left, until nothing of it is outstanding.
fn finish(side: &mut Side, them: FiAddr, len: usize) {
    let mut is_open = true;
    while is_open || !side.is_idle() {
        while let Some(event) = side.poll() {
            let is_good = match &event.error {
                Some(error) => matches!(
                    error.errno,
                    Errno::ConnReset | Errno::ConnRefused | Errno::Canceled
                ),
                None => event.bytes.is_empty() || event.bytes == content(event.tag, len),
            };
            assert!(is_good, "{:?} of message {}", event.error, event.tag);
        }
        // The receive from anybody outlives the peer, unless one of its messages had met it.
        let _ = side.ep.cancel(selvedge::Context(ANY));
        is_open = side.is_idle() && side.recv(Kind::Tagged, them, len, ANY).is_ok();
    }
}
