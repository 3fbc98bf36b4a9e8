//! A peer process that is killed.

use selvedge::Errno;

use crate::child_process;
use crate::endpoint::{CopyingEndpoint, exchange};

const NAME: &str = "killed::operations_to_a_killed_process_fail_with_its_name";

#[test]
fn operations_to_a_killed_process_fail_with_its_name() {
    if let Some(target) = child_process::child_side() {
        loop {
            target.progress();
        }
    }
    let (mut target, addr, _output) = child_process::start(NAME);
    let (a, b) = (CopyingEndpoint::new(), CopyingEndpoint::new());
    let dest = a.insert(addr.parse().unwrap());
    a.tsend(dest, 1, b"first", 1).unwrap();
    a.wait_for(1, &[]);
    a.trecv(dest, 2, 8, 2);
    // The message is larger than the socket buffers of both sides.
    a.tsend(dest, 3, &vec![7; 64 << 20], 3).unwrap();
    target.kill().unwrap();
    target.wait().unwrap();
    let mut contexts = [0; 2].map(|_| {
        let error = a.wait(&[]).unwrap_err();
        assert_eq!((error.errno, error.src), (Errno::ConnReset, dest));
        assert!(error.detail.contains(&addr), "{}", error.detail);
        error.entry.context.0
    });
    contexts.sort_unstable();
    assert_eq!(contexts, [2, 3]);
    exchange(&a, &b);
    exchange(&b, &a);
}
