//! Processes with certificates of their own, which come to an end or are killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use selvedge::info::EpType;
use selvedge::{Caps, Errno, FiAddr, Hints, Registry};

use crate::papers::authority;
use crate::side::{Side, exchange, pattern};

/// Set in the other process.
const OTHER: &str = "SELVEDGE_TCP_TEST_TLS_OTHER";

/// A side as the environment has it.
fn of_the_environment() -> Side {
    let registry = Registry::new().with(&selvedge_tcp::PROVIDER);
    let hints = Hints::new()
        .caps(Caps::MSG | Caps::TAGGED | Caps::SOURCE | Caps::DIRECTED_RECV)
        .ep_type(EpType::Rdm)
        .src_addr("127.0.0.1:0".parse().unwrap());
    Side::open(&registry.infos(&hints).unwrap()[0])
}

/// Starts the test again as another process, with papers of its own; where it listens, and what it
/// says.
fn other(test: &str) -> (Child, String, impl Iterator<Item = String>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(OTHER, "1")
        .envs(authority().papers().variables())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let addr = lines.find_map(|line| {
        line.split_once("at 127")
            .map(|(_, rest)| format!("127{rest}"))
    });
    (child, addr.unwrap(), lines)
}

const ECHO: &str = "processes::processes_talk_in_tls_each_with_its_own_certificate";
const SIZES: [usize; 6] = [0, 1, 4096, 16384, 16385, 3 << 20];

#[test]
fn processes_talk_in_tls_each_with_its_own_certificate() {
    if std::env::var_os(OTHER).is_some() {
        let own = of_the_environment();
        let landings = SIZES.map(|len| own.trecv(FiAddr::UNSPEC, len as u64, len, len as u64));
        let port = own.trecv(FiAddr::UNSPEC, 1 << 40, 2, 1 << 40);
        println!("at {}", own.addr());
        own.wait_for(1 << 40, &[]);
        let port = u16::from_le_bytes(port.bytes().try_into().unwrap());
        let back = own.insert(([127, 0, 0, 1], port).into());
        for (len, landing) in SIZES.into_iter().zip(landings) {
            own.wait_for(len as u64, &[]);
            own.tsend(back, len as u64, &landing.bytes(), 0).unwrap();
            own.wait_for(0, &[]);
        }
        return;
    }
    let (mut child, addr, said) = other(ECHO);
    let a = Side::new();
    let to = a.insert(addr.parse().unwrap());
    a.tsend(to, 1 << 40, &a.addr().port().to_le_bytes(), 1)
        .unwrap();
    a.wait_for(1, &[]);
    for len in SIZES {
        let bytes = pattern(len, len);
        let landing = a.trecv(to, len as u64, len, 2);
        a.tsend(to, len as u64, &bytes, 1).unwrap();
        let mut contexts = [0; 2].map(|_| a.wait(&[]).unwrap().context.0);
        contexts.sort_unstable();
        assert_eq!(contexts, [1, 2]);
        assert_eq!(landing.bytes(), bytes);
    }
    assert_ne!(said.count(), 0, "the other says how it went");
    assert!(child.wait().unwrap().success());
}

const KILLED: &str = "processes::everything_posted_to_a_process_that_is_killed_in_tls_ends";

#[test]
fn everything_posted_to_a_process_that_is_killed_in_tls_ends() {
    if std::env::var_os(OTHER).is_some() {
        let victim = of_the_environment();
        println!("at {}", victim.addr());
        loop {
            victim.drive();
        }
    }
    let (mut victim, addr, _said) = other(KILLED);
    let (a, b) = (Side::new(), Side::new());
    let to = a.insert(addr.parse().unwrap());
    a.tsend(to, 1, b"first", 1).unwrap();
    a.wait_for(1, &[]);
    a.trecv(to, 2, 8, 2);
    // More than all sockets of the two hold.
    a.tsend(to, 3, &vec![7; 64 << 20], 3).unwrap();
    victim.kill().unwrap();
    victim.wait().unwrap();
    let mut contexts = [0; 2].map(|_| {
        let error = a.wait(&[]).unwrap_err();
        assert_eq!((error.errno, error.src), (Errno::ConnReset, to));
        assert!(error.detail.contains(&addr), "{}", error.detail);
        error.entry.context.0
    });
    contexts.sort_unstable();
    assert_eq!(contexts, [2, 3]);
    exchange(&a, &b);
    exchange(&b, &a);
}
