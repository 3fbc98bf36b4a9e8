//! Processes with different certificates.

use selvedge::FiAddr;

use crate::child_process;
use crate::endpoint::{CopyingEndpoint, pattern};

const NAME: &str = "processes::processes_exchange_messages_over_tls_with_their_own_certificates";
const SIZES: [usize; 6] = [0, 1, 4096, 16384, 16385, 3 << 20];

#[test]
fn processes_exchange_messages_over_tls_with_their_own_certificates() {
    if let Some(child) = child_process::child_side() {
        let buffers = SIZES.map(|len| child.trecv(FiAddr::UNSPEC, len as u64, len, len as u64));
        let port = child.trecv(FiAddr::UNSPEC, 1 << 40, 2, 1 << 40);
        child.wait_for(1 << 40, &[]);
        let port = u16::from_le_bytes(port.bytes().try_into().unwrap());
        let to_parent = child.insert(([127, 0, 0, 1], port).into());
        for (len, buffer) in SIZES.into_iter().zip(buffers) {
            child.wait_for(len as u64, &[]);
            child
                .tsend(to_parent, len as u64, &buffer.bytes(), 0)
                .unwrap();
            child.wait_for(0, &[]);
        }
        return;
    }
    let (mut child, addr, output) = child_process::start(NAME);
    let a = CopyingEndpoint::new();
    let dest = a.insert(addr.parse().unwrap());
    a.tsend(dest, 1 << 40, &a.addr().port().to_le_bytes(), 1)
        .unwrap();
    a.wait_for(1, &[]);
    for len in SIZES {
        let bytes = pattern(len, len);
        let buffer = a.trecv(dest, len as u64, len, 2);
        a.tsend(dest, len as u64, &bytes, 1).unwrap();
        let mut contexts = [0; 2].map(|_| a.wait(&[]).unwrap().context.0);
        contexts.sort_unstable();
        assert_eq!(contexts, [1, 2]);
        assert_eq!(buffer.bytes(), bytes);
    }
    assert_ne!(output.count(), 0, "the child prints its test result");
    assert!(child.wait().unwrap().success());
}
