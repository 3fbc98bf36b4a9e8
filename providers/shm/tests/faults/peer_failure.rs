//! Peers that are killed or stopped: before, during and after transfers of every kind.

use nix::sys::signal::Signal;
use selvedge::cq::Entry;
use selvedge::{Errno, FiAddr};
use selvedge_testkit::long::part;
use selvedge_testkit::usage::{Usage, private_after_trim};

use crate::connect::unique;
use crate::endpoint::{ANY, Kind, NumberedEndpoint, content};
use crate::process::{PeerProcess, Watchdog, alone};

/// A kind of message, its size and its protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) kind: Kind,
    pub(crate) len: usize,
    protocol: &'static str,
    /// Whether the sender's completion waits for the receiver.
    is_confirmed: bool,
}

/// One transfer for each protocol.
const TRANSFERS: [Transfer; 10] = [
    transfer(Kind::Msg, 8, "auto", false),
    transfer(Kind::Tagged, 40, "auto", false),
    transfer(Kind::Inject, 8, "auto", false),
    transfer(Kind::TaggedInject, 2000, "auto", false),
    transfer(Kind::Tagged, 4000, "auto", false),
    transfer(Kind::Delivered, 8, "auto", true),
    transfer(Kind::Delivered, 4000, "auto", true),
    transfer(Kind::Tagged, 3_000_000, "cma", true),
    transfer(Kind::Msg, 1_000_000, "bounce", true),
    transfer(Kind::Tagged, 1_000_000, "bounce", true),
];

const fn transfer(kind: Kind, len: usize, protocol: &'static str, is_confirmed: bool) -> Transfer {
    Transfer {
        kind,
        len,
        protocol,
        is_confirmed,
    }
}

impl Transfer {
    /// One inline transfer, one through the pool, and one large transfer by each protocol.
    pub(crate) fn selection() -> [Self; 4] {
        [TRANSFERS[1], TRANSFERS[4], TRANSFERS[7], TRANSFERS[8]]
    }

    /// Opens a side and a peer process. Returns them with the peer's address and the side's address
    /// in the peer process.
    pub(crate) fn connect(self, label: &str) -> (NumberedEndpoint, PeerProcess, FiAddr, String) {
        let params = [
            ("FI_SHM_PROTOCOL", self.protocol),
            ("FI_SHM_PEER_TIMEOUT", "50ms"),
        ];
        let side = NumberedEndpoint::with_params(None, &params);
        let (mut peer_process, name) = (PeerProcess::start(), unique(label));
        peer_process.request(&format!("open {name} FI_SHM_PROTOCOL={}", self.protocol));
        let peer_addr = side.insert(&name);
        let side_addr = peer_process.request(&format!("insert {}", side.name()));
        (side, peer_process, peer_addr, side_addr)
    }

    fn is_injected(self) -> bool {
        matches!(self.kind, Kind::Inject | Kind::TaggedInject)
    }
}

/// Exchanges a message in each direction.
pub(crate) fn exchange_messages(
    side: &mut NumberedEndpoint,
    peer_process: &mut PeerProcess,
    peer_addr: FiAddr,
    side_addr: &str,
) {
    peer_process.request("recv Tagged 8 900");
    peer_process.request(&format!("send Tagged {side_addr} 8 901"));
    side.recv(Kind::Tagged, peer_addr, 8, 901).unwrap();
    side.send(Kind::Delivered, peer_addr, 8, 900).unwrap();
    peer_process.request("drive on");
    side.next().ok();
    side.next().ok();
    peer_process.request("drive off");
    assert!(peer_process.request("next").starts_with("done"));
    assert!(peer_process.request("next").starts_with("done"));
}

/// Makes progress until the side has detected the failure of the peer.
#[track_caller]
pub(crate) fn wait_for_disconnect(side: &mut NumberedEndpoint, peer_addr: FiAddr) {
    side.until(|side| side.send(Kind::Inject, peer_addr, 1, 0) == Err(Errno::NotConn));
    side.forget(0);
}

#[test]
fn sends_to_a_killed_peer_fail_unless_they_were_complete() {
    let _watchdog = Watchdog::new();
    for transfer in TRANSFERS {
        for is_connected in [false, true] {
            let (mut side, mut peer_process, peer_addr, side_addr) =
                transfer.connect("killed-receiver");
            if is_connected {
                exchange_messages(&mut side, &mut peer_process, peer_addr, &side_addr);
            }
            side.recv(Kind::Tagged, peer_addr, 8, 100).unwrap();
            for number in 1..=3 {
                side.send(transfer.kind, peer_addr, transfer.len, number)
                    .unwrap();
            }
            side.drive();
            peer_process.kill();
            let done = if transfer.is_confirmed || transfer.is_injected() {
                0
            } else {
                3
            };
            for number in 1..=done {
                assert_eq!(side.next().ok().context, number, "{transfer:?}");
            }
            let failing = if transfer.is_confirmed { 3 } else { 0 };
            let mut failed: Vec<_> = (0..=failing).map(|_| side.next()).collect();
            failed.sort_by_key(|event| event.context);
            for (event, expected) in failed.iter().zip((1..=failing).chain([100])) {
                assert_eq!(
                    (event.context, event.src),
                    (expected, peer_addr),
                    "{transfer:?}"
                );
                assert_eq!(event.errno(), Errno::ConnReset, "{transfer:?}");
                let detail = &event.error.as_ref().unwrap().detail;
                assert!(detail.contains("killed-receiver"), "{detail}");
            }
            assert_eq!(
                side.send(transfer.kind, peer_addr, transfer.len, 5),
                Err(Errno::NotConn)
            );
            assert_eq!(
                side.recv(transfer.kind, peer_addr, transfer.len, 6),
                Err(Errno::NotConn)
            );
            assert!(side.is_idle(), "{transfer:?}");
        }
    }
}

#[test]
fn messages_committed_before_the_sender_was_killed_are_received() {
    let _watchdog = Watchdog::new();
    for transfer in TRANSFERS {
        for is_expected in [false, true] {
            let (mut side, mut peer_process, peer_addr, side_addr) =
                transfer.connect("killed-sender");
            if is_expected {
                (1..=4).for_each(|n| {
                    side.recv(transfer.kind, peer_addr, transfer.len, n)
                        .unwrap()
                });
            }
            for number in 1..=3 {
                let Transfer { kind, len, .. } = transfer;
                peer_process.request(&format!("send {kind:?} {side_addr} {len} {number}"));
            }
            peer_process.kill();
            let is_small = transfer.len <= 4096;
            if !is_expected {
                wait_for_disconnect(&mut side, peer_addr);
                for number in 1..=3 {
                    let expected = if is_small {
                        Ok(())
                    } else {
                        Err(Errno::NotConn)
                    };
                    let posted = side.recv(transfer.kind, peer_addr, transfer.len, number);
                    assert_eq!(posted, expected, "{transfer:?}");
                }
                assert_eq!(
                    side.recv(transfer.kind, peer_addr, 1, 4),
                    Err(Errno::NotConn)
                );
            }
            for number in 1..=if is_small { 3 } else { 0 } {
                let event = side.next().ok();
                assert_eq!((event.context, event.src), (number, peer_addr));
                assert!(event.bytes == content(number, transfer.len), "{transfer:?}");
            }
            while !side.is_idle() {
                let event = side.next();
                assert_eq!(
                    (event.errno(), event.src),
                    (Errno::ConnReset, peer_addr),
                    "{transfer:?}"
                );
            }
        }
    }
}

#[test]
fn a_restarted_process_is_a_new_peer_under_the_same_name() {
    let _watchdog = Watchdog::new();
    let name = unique("restarted");
    let mut side = NumberedEndpoint::new();
    let peer_addr = side.insert(&name);
    for incarnation in 1..=20 {
        let mut peer_process = PeerProcess::named(&name);
        let side_addr = peer_process.request(&format!("insert {}", side.name()));
        let first = incarnation * 100;
        // This side makes no progress in between: the end of the previous incarnation may not be
        // detected yet.
        peer_process.request(&format!("send Tagged {side_addr} 8 {first}"));
        side.recv(Kind::Tagged, FiAddr::UNSPEC, 8, first).unwrap();
        let event = loop {
            let event = side.next();
            if event.context == first {
                break event.ok();
            }
            assert_eq!(event.errno(), Errno::ConnReset);
        };
        assert_eq!(event.bytes, content(first, 8));
        peer_process.request(&format!("recv Tagged 8 {}", first + 1));
        peer_process.request("drive on");
        side.send(Kind::Delivered, peer_addr, 8, first + 1).unwrap();
        side.next().ok();
        peer_process.request("drive off");
        assert_eq!(peer_process.request("next"), format!("done {first}"));
        assert_eq!(
            peer_process.request("next"),
            format!("done {} 8 good", first + 1)
        );
        // No receive matches this message: the next incarnation must not get it.
        side.send(Kind::Tagged, peer_addr, 8, first + 101).unwrap();
        side.next().ok();
        side.send(Kind::Delivered, peer_addr, 8, first + 3).unwrap();
        peer_process.kill();
        if incarnation % 2 == 0 {
            assert_eq!(side.next().errno(), Errno::ConnReset);
        }
    }
}

#[test]
fn the_connection_of_a_killed_peer_is_not_used_for_its_next_incarnation() {
    let _watchdog = Watchdog::new();
    for is_next_started in [false, true] {
        let name = unique("replaced");
        let mut side = NumberedEndpoint::with_params(None, &[("FI_SHM_PEER_TIMEOUT", "30s")]);
        let peer_addr = side.insert(&name);
        let mut first = PeerProcess::named(&name);
        let side_addr = first.request(&format!("insert {}", side.name()));
        first.request(&format!("send Tagged {side_addr} 8 1"));
        first.kill();
        let mut next = is_next_started.then(|| PeerProcess::named(&name));
        side.send(Kind::Tagged, peer_addr, 8, 2).unwrap();
        side.send(Kind::Delivered, peer_addr, 8, 3).unwrap();
        (0..1000).for_each(|_| side.drive());
        let next = next.get_or_insert_with(|| PeerProcess::named(&name));
        next.request("recv Tagged 8 2");
        next.request("recv Tagged 8 3");
        next.request("drive on");
        assert_eq!(side.next().ok().context, 2);
        assert_eq!(side.next().ok().context, 3);
        next.request("drive off");
        assert_eq!(next.request("next"), "done 2 8 good");
        assert_eq!(next.request("next"), "done 3 8 good");
    }
}

#[test]
fn pending_messages_of_an_incarnation_are_received_although_the_next_one_is_sent_to_first() {
    let _watchdog = Watchdog::new();
    for was_connected in [false, true] {
        let name = unique("unread");
        let mut side = NumberedEndpoint::new();
        let peer_addr = side.insert(&name);
        let mut first = PeerProcess::named(&name);
        if was_connected {
            let side_addr = first.request(&format!("insert {}", side.name()));
            exchange_messages(&mut side, &mut first, peer_addr, &side_addr);
            first.kill();
            wait_for_disconnect(&mut side, peer_addr);
        }
        drop(first);
        let mut second = PeerProcess::named(&name);
        let side_addr = second.request(&format!("insert {}", side.name()));
        second.request(&format!("send Tagged {side_addr} 8 1"));
        second.request(&format!("send Tagged {side_addr} 2000 2"));
        second.kill();
        let mut third = PeerProcess::named(&name);
        third.request("recv Tagged 8 3");
        side.send(Kind::Delivered, peer_addr, 8, 3).unwrap();
        third.request("drive on");
        side.next().ok();
        third.request("drive off");
        for (number, len) in [(1, 8), (2, 2000)] {
            side.recv(Kind::Tagged, FiAddr::UNSPEC, len, number)
                .unwrap();
            assert!(side.next().ok().bytes == content(number, len));
        }
        assert_eq!(third.request("next"), "done 3 8 good");
    }
}

#[test]
fn pending_messages_of_an_incarnation_are_received_before_a_post_fails_with_not_connected() {
    let _watchdog = Watchdog::new();
    let name = unique("gone-again");
    let mut side = NumberedEndpoint::new();
    let peer_addr = side.insert(&name);
    let mut first = PeerProcess::named(&name);
    let side_addr = first.request(&format!("insert {}", side.name()));
    exchange_messages(&mut side, &mut first, peer_addr, &side_addr);
    first.kill();
    wait_for_disconnect(&mut side, peer_addr);
    let mut second = PeerProcess::named(&name);
    let side_addr = second.request(&format!("insert {}", side.name()));
    second.request(&format!("send Tagged {side_addr} 8 1"));
    second.request(&format!("send Tagged {side_addr} 2000 2"));
    second.kill();
    for (number, len) in [(1, 8), (2, 2000)] {
        side.recv(Kind::Tagged, FiAddr::UNSPEC, len, number)
            .unwrap();
    }
    assert_eq!(
        side.send(Kind::Tagged, peer_addr, 8, 3),
        Err(Errno::NotConn)
    );
    let (mut done, mut sources) = ([Entry::default(); 3], [FiAddr::UNSPEC; 3]);
    assert_eq!(side.cq().read_ready(&mut done, &mut sources), Ok(2));
    assert_eq!(done.map(|entry| entry.context.0), [1, 2, 0]);
}

#[test]
fn pending_messages_of_an_incarnation_are_received_although_sends_wait_for_the_next_one() {
    let _watchdog = Watchdog::new();
    for is_next_started in [false, true] {
        let name = unique("awaited");
        let mut side = NumberedEndpoint::with_params(None, &[("FI_SHM_PEER_TIMEOUT", "60s")]);
        let peer_addr = side.insert(&name);
        side.recv(Kind::Tagged, peer_addr, 8, 5).unwrap();
        for number in [3, 4] {
            side.send(Kind::Delivered, peer_addr, 2000, number).unwrap();
        }
        let mut first = PeerProcess::named(&name);
        let side_addr = first.request(&format!("insert {}", side.name()));
        first.request(&format!("send Tagged {side_addr} 8 1"));
        first.request(&format!("send Tagged {side_addr} 2000 2"));
        first.kill();
        let mut next = is_next_started.then(|| PeerProcess::named(&name));
        (0..1000).for_each(|_| side.drive());
        for (number, len) in [(1, 8), (2, 2000)] {
            side.recv(Kind::Tagged, peer_addr, len, number).unwrap();
            assert!(side.next().ok().bytes == content(number, len));
        }
        let next = next.get_or_insert_with(|| PeerProcess::named(&name));
        let side_addr = next.request(&format!("insert {}", side.name()));
        next.request("recv Tagged 2000 3");
        next.request("recv Tagged 2000 4");
        next.request(&format!("send Tagged {side_addr} 8 5"));
        next.request("drive on");
        let mut done: Vec<_> = (0..3).map(|_| side.next().ok().context).collect();
        done.sort_unstable();
        assert_eq!(done, [3, 4, 5]);
        next.request("drive off");
    }
}

#[test]
fn pending_messages_of_an_incarnation_precede_the_next_one_when_the_quota_is_full() {
    const LEN: usize = 2000;
    let params = [
        ("FI_SHM_PEER_TIMEOUT", "60s"),
        ("FI_SHM_UNEXPECTED_SIZE", "8k"),
    ];
    let _watchdog = Watchdog::new();
    for is_waited_for in [false, true] {
        let name = unique("crammed");
        let mut side = NumberedEndpoint::with_params(None, &params);
        let peer_addr = side.insert(&name);
        if is_waited_for {
            side.send(Kind::Delivered, peer_addr, 8, 100).unwrap();
        }
        let mut first = PeerProcess::named(&name);
        let side_addr = first.request(&format!("insert {}", side.name()));
        for number in 0..20 {
            first.request(&format!("send Tagged {side_addr} {LEN} {number}"));
        }
        first.kill();
        let mut next = PeerProcess::named(&name);
        let side_addr = next.request(&format!("insert {}", side.name()));
        next.request("recv Tagged 8 100");
        next.request(&format!("send Tagged {side_addr} {LEN} 20"));
        next.request("drive on");
        if !is_waited_for {
            let sent = side.send(Kind::Delivered, peer_addr, 8, 100);
            assert_eq!(
                sent,
                Err(Errno::NotConn),
                "an earlier incarnation has not ended"
            );
        }
        (0..1000).for_each(|_| side.drive());
        for number in 0..=20 {
            side.recv(Kind::Tagged, FiAddr::UNSPEC, LEN, ANY).unwrap();
            let event = side.next().ok();
            assert_eq!(event.tag, number);
            assert!(event.bytes == content(number, LEN));
        }
        if !is_waited_for {
            side.send(Kind::Delivered, peer_addr, 8, 100).unwrap();
        }
        assert_eq!(side.next().ok().context, 100);
        next.request("drive off");
    }
}

#[test]
fn messages_beyond_the_quota_are_received_after_their_sender_was_killed() {
    let _watchdog = Watchdog::new();
    let name = unique("over-quota");
    let mut side = NumberedEndpoint::with_params(None, &[("FI_SHM_UNEXPECTED_SIZE", "16k")]);
    let peer_addr = side.insert(&name);
    let mut first = PeerProcess::named(&name);
    let side_addr = first.request(&format!("insert {}", side.name()));
    let mut count = 0;
    while first.request(&format!("send TaggedInject {side_addr} 3000 {}", count + 1)) == "ok" {
        count += 1;
    }
    side.recv(Kind::Tagged, peer_addr, 3000, 1000).unwrap();
    side.send(Kind::Delivered, peer_addr, 8, 2000).unwrap();
    (0..1000).for_each(|_| side.drive());
    first.kill();
    // Sends fail although there are more messages to receive than the quota allows.
    let event = side.next();
    assert_eq!((event.context, event.errno()), (2000, Errno::ConnReset));
    assert_eq!(
        side.send(Kind::Tagged, peer_addr, 8, 2001),
        Err(Errno::NotConn)
    );
    // The next incarnation waits until the messages of the first one are received.
    let mut second = PeerProcess::named(&name);
    let side_addr = second.request(&format!("insert {}", side.name()));
    second.request(&format!("send TaggedInject {side_addr} 3000 5000"));
    second.request("drive on");
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
    side.send(Kind::Tagged, peer_addr, 8, 2002).unwrap();
    side.next().ok();
}

#[test]
fn a_stopped_peer_delays_messages_and_loses_none() {
    let _watchdog = Watchdog::new();
    for len in [8, 2000, 100_000] {
        let name = unique("stopped");
        let mut peer_process = PeerProcess::named(&name);
        peer_process.request(&format!("sink {len} 0"));
        let mut side = NumberedEndpoint::new();
        let peer_addr = side.insert(&name);
        let (mut next, mut done) = (0, 0);
        for round in 0..20 {
            if round % 2 == 0 {
                peer_process.signal(Signal::SIGSTOP);
            }
            for _ in 0..if len > 4096 { 40 } else { 1000 } {
                match side.send(Kind::Tagged, peer_addr, len, next) {
                    Ok(()) => next += 1,
                    Err(errno) => assert_eq!(errno, Errno::Again),
                }
                while side.poll().is_some_and(|event| event.error.is_none()) {
                    done += 1;
                }
            }
            peer_process.signal(Signal::SIGCONT);
        }
        while side.send(Kind::Delivered, peer_addr, len, next) == Err(Errno::Again) {
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

/// Kills in the random test.
fn kills() -> u64 {
    part(40, 100)
}

#[test]
fn peers_killed_at_random_points_disturb_no_other_peer_and_leak_nothing() {
    alone(|| {
        let mut random = Random::seeded();
        let mut side = NumberedEndpoint::new();
        let (mut other, mut bystander) = (NumberedEndpoint::new(), NumberedEndpoint::new());
        let to_bystander = other.insert(bystander.name());
        let name = unique("killed");
        let peer_addr = side.insert(&name);
        let mut baseline = None;
        for round in 0..kills() {
            run_until_killed(&mut side, peer_addr, &name, &mut random);
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
        let (usage_before, memory) = baseline.unwrap();
        assert_eq!(Usage::now().unwrap(), usage_before);
        assert!(
            private_after_trim().unwrap() < memory + (2 << 20),
            "{memory} grew to {}",
            private_after_trim().unwrap()
        );
    });
}

/// Runs one peer under this name. Messages go in one direction until the test kills the peer.
fn run_until_killed(
    side: &mut NumberedEndpoint,
    peer_addr: FiAddr,
    name: &str,
    random: &mut Random,
) {
    let transfer = TRANSFERS[random.below(TRANSFERS.len() as u64) as usize];
    let len = transfer.len.min(300_000);
    let mut peer_process = PeerProcess::start();
    peer_process.request(&format!(
        "open {name} FI_SHM_PROTOCOL={}",
        transfer.protocol
    ));
    let side_addr = peer_process.request(&format!("insert {}", side.name()));
    let steps = random.below(if len > 4096 { 300 } else { 3000 });
    if random.below(2) == 0 {
        let kind = match transfer.kind {
            Kind::Msg => Kind::Tagged,
            Kind::Inject => Kind::TaggedInject,
            kind => kind,
        };
        peer_process.request(&format!("stream {kind:?} {side_addr} {len}"));
        receive_for(side, len, steps);
    } else {
        peer_process.request(&format!("sink {len} 0"));
        send_for(side, peer_addr, len, steps);
    }
    peer_process.kill();
    wait_for_disconnect(side, peer_addr);
    drain(side, peer_addr, len);
}

/// Reads completions `steps` times while the peer streams, and checks that every message arrives
/// once and in order.
///
/// The function waits for the first message. Messages of a peer that was killed before it was
/// connected are received later, when the next peer of its name may be connected already.
fn receive_for(side: &mut NumberedEndpoint, len: usize, steps: u64) {
    side.recv(Kind::Tagged, FiAddr::UNSPEC, len, ANY).unwrap();
    let mut event = Some(side.next());
    let mut next = 0;
    for _ in 0..steps {
        if let Some(event) = event {
            let event = event.ok();
            assert_eq!(event.tag, next);
            assert!(
                event.bytes == content(next, len),
                "message {next} is corrupt"
            );
            next += 1;
            side.recv(Kind::Tagged, FiAddr::UNSPEC, len, ANY).unwrap();
        }
        event = side.poll();
    }
}

/// Posts a message and reads the completions, `steps` times.
fn send_for(side: &mut NumberedEndpoint, peer_addr: FiAddr, len: usize, steps: u64) {
    let mut next = 0;
    for _ in 0..steps {
        match side.send(Kind::Tagged, peer_addr, len, next) {
            Ok(()) => next += 1,
            Err(errno) => assert_eq!(errno, Errno::Again),
        }
        while let Some(event) = side.poll() {
            event.ok();
        }
    }
}

/// Receives the rest of the peer's messages, until no operation is outstanding.
fn drain(side: &mut NumberedEndpoint, peer_addr: FiAddr, len: usize) {
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
        // A receive from any source outlives the peer, unless it was matched with one of its
        // messages.
        let _ = side.ep.cancel(selvedge::Context(ANY));
        is_open = side.is_idle() && side.recv(Kind::Tagged, peer_addr, len, ANY).is_ok();
    }
}
