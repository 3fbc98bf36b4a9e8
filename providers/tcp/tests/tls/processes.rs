//! Processes with certificates of their own.

use selvedge::FiAddr;

use crate::other;
use crate::side::{Side, pattern};

const ECHO: &str = "processes::processes_talk_in_tls_each_with_its_own_certificate";
const SIZES: [usize; 6] = [0, 1, 4096, 16384, 16385, 3 << 20];

#[test]
fn processes_talk_in_tls_each_with_its_own_certificate() {
    if let Some(own) = other::itself() {
        let landings = SIZES.map(|len| own.trecv(FiAddr::UNSPEC, len as u64, len, len as u64));
        let port = own.trecv(FiAddr::UNSPEC, 1 << 40, 2, 1 << 40);
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
    let (mut child, addr, said) = other::start(ECHO);
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
