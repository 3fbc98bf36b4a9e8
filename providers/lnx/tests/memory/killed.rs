//! Operations to a process that is killed, over either link.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use selvedge::{Address, Errno, FiAddr};
use selvedge_testkit::local::until;

use crate::endpoint::CopyingEndpoint;
use crate::provider::open_side_on;

/// Environment variable of the process that the test kills. Its value is the name of the host that
/// the process runs on.
const TARGET: &str = "SELVEDGE_LNX_TEST_TARGET";

/// Starts a process that opens an endpoint on the host `host`. Returns the process and the
/// endpoint's address.
fn target(host: &str) -> (Child, Address) {
    let name = "killed::operations_to_a_killed_process_fail_with_its_name";
    let mut target = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(TARGET, host)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(target.stdout.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let addr = lines.find_map(|line| {
        let at = line.find("lnx://")?;
        Some(Address::Str(line[at..].to_owned()))
    });
    (target, addr.unwrap())
}

#[test]
fn operations_to_a_killed_process_fail_with_its_name() {
    if let Ok(host) = std::env::var(TARGET) {
        let target = open_side_on(&host);
        println!("{}", target.ep.address().unwrap());
        loop {
            target.progress();
        }
    }
    for host in ["here", "there"] {
        let (mut target, addr) = target(host);
        let (a, near, far) = (
            open_side_on("here"),
            open_side_on("here"),
            open_side_on("there"),
        );
        let to = a.av.insert_one(&addr).unwrap();
        a.tsend(to, 1, b"first", 1).unwrap();
        a.wait_for(1, &[]);
        a.trecv(to, 2, 8, 2);
        a.trecv(to, 2, 100_000, 3);
        // A large message that the target never receives.
        a.tsend(to, 3, &vec![7; 8 << 20], 4).unwrap();
        target.kill().unwrap();
        target.wait().unwrap();
        let mut contexts = [0; 3].map(|_| {
            let error = a.wait(&[]).unwrap_err();
            assert_eq!((error.errno, error.src), (Errno::ConnReset, to), "{host}");
            assert!(error.detail.contains(&addr.to_string()), "{}", error.detail);
            error.entry.context.0
        });
        contexts.sort_unstable();
        assert_eq!(contexts, [2, 3, 4]);
        // Peers on both links still work.
        for other in [&near, &far] {
            crate::endpoint::exchange(&a, other);
        }
        expect_failure_after_death(&a, to);
    }
}

/// Checks that operations to a dead process fail in bounded time.
fn expect_failure_after_death(a: &CopyingEndpoint, to: FiAddr) {
    let is_accepted = until(|| match a.tsend(to, 9, b"late", 9) {
        Ok(()) => Some(true),
        Err(Errno::NotConn) => Some(false),
        Err(Errno::Again) => {
            a.progress();
            None
        }
        Err(errno) => panic!("{errno}"),
    });
    if !is_accepted {
        return;
    }
    let error = a.wait(&[]).unwrap_err();
    assert_eq!((error.entry.context.0, error.src), (9, to));
}
