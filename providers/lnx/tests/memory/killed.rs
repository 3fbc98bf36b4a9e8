//! Processes that are killed, on either link.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use selvedge::{Address, Errno, FiAddr};

use crate::provider::on;
use crate::side::{Side, until};

/// Set in the process that is to die: the name of its host.
const VICTIM: &str = "SELVEDGE_LNX_TEST_VICTIM";

/// A process with an endpoint on a host of this name, and its address.
fn victim(host: &str) -> (Child, Address) {
    let name = "killed::operations_posted_to_a_killed_process_fail_with_its_name";
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(VICTIM, host)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let addr = lines.find_map(|line| {
        let at = line.find("lnx://")?;
        Some(Address::Str(line[at..].to_owned()))
    });
    (victim, addr.unwrap())
}

#[test]
fn operations_posted_to_a_killed_process_fail_with_its_name() {
    if let Ok(host) = std::env::var(VICTIM) {
        let victim = on(&host);
        println!("{}", victim.ep.address().unwrap());
        loop {
            victim.drive();
        }
    }
    for host in ["here", "there"] {
        let (mut victim, addr) = victim(host);
        let (a, near, far) = (on("here"), on("here"), on("there"));
        let to = a.av.insert_one(&addr).unwrap();
        a.tsend(to, 1, b"first", 1).unwrap();
        a.wait_for(1, &[]);
        a.trecv(to, 2, 8, 2);
        a.trecv(to, 2, 100_000, 3);
        // A large message nobody receives, and more small ones than all queues hold.
        a.tsend(to, 3, &vec![7; 8 << 20], 4).unwrap();
        victim.kill().unwrap();
        victim.wait().unwrap();
        let mut contexts = [0; 3].map(|_| {
            let error = a.wait(&[]).unwrap_err();
            assert_eq!((error.errno, error.src), (Errno::ConnReset, to), "{host}");
            assert!(error.detail.contains(&addr.to_string()), "{}", error.detail);
            error.entry.context.0
        });
        contexts.sort_unstable();
        assert_eq!(contexts, [2, 3, 4]);
        // Peers on both links go on.
        for other in [&near, &far] {
            crate::side::exchange(&a, other);
        }
        nobody_is_there(&a, to);
    }
}

/// What is posted to the dead is refused or ends, in bounded time.
fn nobody_is_there(a: &Side, to: FiAddr) {
    let is_taken = until(|| match a.tsend(to, 9, b"late", 9) {
        Ok(()) => Some(true),
        Err(Errno::NotConn) => Some(false),
        Err(Errno::Again) => {
            a.drive();
            None
        }
        Err(errno) => panic!("{errno}"),
    });
    if !is_taken {
        return;
    }
    let error = a.wait(&[]).unwrap_err();
    assert_eq!((error.entry.context.0, error.src), (9, to));
}
