//! The order of atomics.

use selvedge::MsgOrder;

use crate::provider::{hints, registry};

/// Intel MPI requests this order.
#[test]
fn atomics_have_the_order_that_both_links_have() {
    let asked = MsgOrder::SAS
        | MsgOrder::ATOMIC_RAR
        | MsgOrder::ATOMIC_RAW
        | MsgOrder::ATOMIC_WAR
        | MsgOrder::ATOMIC_WAW;
    let infos = registry(&[]).infos(&hints().msg_order(asked)).unwrap();
    assert!(infos[0].tx_attr.msg_order.contains(asked));
    // The order of reads and writes differs between the links.
    let infos = registry(&[]).infos(&hints().msg_order(MsgOrder::RAW));
    assert!(infos.is_err());
}
