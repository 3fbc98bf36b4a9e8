//! Instructions of a message of several senders to one receiver. valgrind counts them, so the
//! load of the machine does not matter:
//!
//! `cargo test --release -p selvedge-shm --test messages counts -- --ignored --nocapture`

use std::process::Command;
use std::sync::Arc;

use selvedge::owned::{Completions, Endpoint, Pool};
use selvedge::{AddressVector, Context, Domain, FiAddr, av};
use selvedge_testkit::skip::{Need, skip};
use selvedge_testkit::timeout::until;

use crate::provider;

/// Rounds of a short and of a long run. The difference contains no start and no end.
const ROUNDS: [u64; 2] = [1000, 3000];
/// The variables of a counted run: the number of senders, and of rounds.
const VARIABLES: [&str; 2] = ["COUNTED_SENDERS", "COUNTED_ROUNDS"];
/// Functions of this file whose instructions are the sender's, and the receiver's.
const SENDER: [&str; 1] = ["send_each"];
const RECEIVER: [&str; 2] = ["post_each", "poll_each"];
const TAG: u64 = 7;

#[test]
#[ignore = "needs valgrind, and optimization for figures of use"]
fn a_message_takes_as_many_instructions_whatever_the_number_of_senders() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skip(Need::System, "there is no valgrind");
    }
    let counts = [1, 2, 4].map(|senders| {
        let [sent, received] =
            [&SENDER[..], &RECEIVER].map(|functions| instructions(senders, functions));
        println!("{senders} senders: {sent:.1} at the sender, {received:.1} at the receiver");
        [sent, received]
    });
    for several in &counts[1..] {
        for (one, several) in counts[0].iter().zip(several) {
            assert!(several / one < 1.01, "{counts:?}");
        }
    }
}

/// Counts the instructions of these functions, per message.
fn instructions(senders: u64, functions: &[&str]) -> f64 {
    let [short, long] = ROUNDS.map(|rounds| count(senders, rounds, functions));
    (long - short) as f64 / ((ROUNDS[1] - ROUNDS[0]) * senders) as f64
}

/// Counts the instructions of these functions in a run of [`one_counted_run`].
fn count(senders: u64, rounds: u64, functions: &[&str]) -> u64 {
    let toggles = functions
        .iter()
        .map(|name| format!("--toggle-collect=*{name}*"));
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(toggles)
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "counts::one_counted_run"]);
    for (name, value) in VARIABLES.into_iter().zip([senders, rounds]) {
        command.env(name, value.to_string());
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    let count = text.split_once("Collected : ").unwrap().1;
    count.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "a part of the test above"]
fn one_counted_run() {
    let [Ok(senders), Ok(rounds)] = VARIABLES.map(std::env::var) else {
        return;
    };
    let receiver = Side::open();
    let senders: Vec<_> = (0..senders.parse().unwrap())
        .map(|_| Side::open())
        .collect();
    let to_receiver: Vec<_> = senders.iter().map(|side| side.insert(&receiver)).collect();
    let pool = Pool::new(&*receiver.domain, 8, senders.len()).unwrap();
    let mut done = Completions::with_capacity(senders.len());
    for (sender, &to) in senders.iter().zip(&to_receiver) {
        receiver.insert(sender);
        connect(sender, to, &receiver);
    }
    post_each(&receiver.ep, &pool);
    poll_each(&receiver.ep, senders.len(), &mut done);
    for number in 0..rounds.parse().unwrap() {
        post_each(&receiver.ep, &pool);
        send_each(&senders, &to_receiver, number);
        poll_each(&receiver.ep, senders.len(), &mut done);
        for sender in &senders {
            sender.ep.poll(&mut Completions::with_capacity(0)).unwrap();
        }
    }
}

/// Connects a sender by its first message.
fn connect(sender: &Side, to: FiAddr, receiver: &Side) {
    until("a connection", || {
        for side in [sender, receiver] {
            side.ep.poll(&mut Completions::with_capacity(0)).unwrap();
        }
        Ok(sender.ep.tinject(&[0; 8], to, TAG, None).ok())
    })
    .unwrap();
}

/// Posts as many receives as there are buffers.
#[inline(never)]
fn post_each(ep: &Endpoint, pool: &Pool) {
    while let Some(buf) = pool.take() {
        ep.trecv(buf, FiAddr::UNSPEC, TAG, Context(1)).unwrap();
    }
}

/// Sends one message from each sender.
#[inline(never)]
fn send_each(senders: &[Side], to: &[FiAddr], number: u64) {
    for (sender, &to) in senders.iter().zip(to) {
        let sent = sender.ep.tinject(&number.to_ne_bytes(), to, TAG, None);
        sent.expect("the queue has room");
    }
}

/// Takes one message from each sender.
#[inline(never)]
fn poll_each(ep: &Endpoint, senders: usize, done: &mut Completions) {
    while ep.poll(done).unwrap() < senders {}
    assert!(done.drain().all(|received| received.result.is_ok()));
}

/// An endpoint with a domain of its own.
struct Side {
    ep: Endpoint,
    av: Arc<dyn AddressVector>,
    domain: Arc<dyn Domain>,
}

impl Side {
    fn open() -> Self {
        let info = provider::with_defaults().info();
        let domain = info.open().unwrap();
        let av = domain.av(&av::Attr::default()).unwrap();
        Self {
            ep: Endpoint::open(&*domain, &info, Arc::clone(&av)).unwrap(),
            av,
            domain,
        }
    }

    fn insert(&self, other: &Self) -> FiAddr {
        self.av.insert_one(&other.ep.address().unwrap()).unwrap()
    }
}
