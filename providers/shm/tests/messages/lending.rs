//! The raw form of lent messages: flags, numbers, and what an endpoint refuses.

use selvedge::{Errno, OpFlags};

use crate::common::{MessagePair, Rx, Tx};
use crate::provider;

const LEND: OpFlags = OpFlags::LEND;

#[test]
fn flags_that_do_not_go_with_lending_are_refused() {
    let MessagePair { a, b, to_b, .. } = provider::with_defaults().pair();
    for flags in [OpFlags::INJECT, OpFlags::DEFERRED, OpFlags::MULTI_RECV] {
        let tx = Tx::msg(to_b, b"x").flags(LEND | flags);
        assert_eq!(a.try_send(&tx), Err(Errno::BadFlags), "{flags:?}");
    }
    for flags in [OpFlags::MULTI_RECV, OpFlags::DEFERRED, OpFlags::CLAIM] {
        let rx = Rx::msg(8).flags(LEND | flags);
        assert_eq!(b.try_recv(&rx), Err(Errno::BadFlags), "{flags:?}");
    }
    for flags in [OpFlags::PEEK, OpFlags::PEEK | OpFlags::DISCARD] {
        let rx = Rx::tagged(7, 8).flags(LEND | flags);
        assert_eq!(b.try_recv(&rx), Err(Errno::BadFlags), "{flags:?}");
    }
    let rx = Rx::tagged(7, 8).flags(LEND | OpFlags::CLAIM);
    assert_eq!(b.try_recv(&rx), Err(Errno::NoMsg));
}

#[test]
fn a_number_names_one_lent_message_once() {
    let MessagePair { a, b, .. } = provider::with_defaults().pair();
    for ep in [&a, &b] {
        let lending = ep.ep.lending().expect("shm lends");
        for number in [0, 1, 1 << 32, 1 << 32 | 1, usize::MAX] {
            assert_eq!(lending.take_lent(number).unwrap_err(), Errno::NoEnt);
        }
    }
}
