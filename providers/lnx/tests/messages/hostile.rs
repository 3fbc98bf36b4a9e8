//! Frames of a process without an lnx endpoint, over the far link.

use selvedge::{Address, Caps, Hints, Registry};

use crate::common::{MessageEndpoint, Rx, Sut, Tx};
use crate::provider::with_defaults;

/// The largest number of peers without a name that an endpoint tracks.
const UNNAMED_MAX: u64 = 1024;

/// A frame with an untagged message of eight bytes.
fn frame(sender: u64, payload: u64) -> Vec<u8> {
    const MSG: u64 = 2;
    let words = [MSG, sender, 0, 0, 8, 0, payload];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The address of an endpoint on its far link.
fn far_address(side: &MessageEndpoint) -> Address {
    let name = side.ep.address().unwrap().to_string();
    let (_, far) = name.rsplit_once('|').unwrap();
    far.trim_end_matches('\0').parse().unwrap()
}

#[test]
fn frames_of_unnamed_senders_beyond_the_limit_are_dropped() {
    let receiver = with_defaults().endpoint();
    let hints = Hints::new().caps(Caps::MSG);
    let raw = Sut::new(Registry::new().with(&selvedge_tcp::PROVIDER), "tcp", &hints).endpoint();
    let dest = raw.av.insert_one(&far_address(&receiver)).unwrap();
    let send = |sender: u64, payload: u64| {
        receiver.recv(&Rx::msg(8));
        raw.send(&Tx::msg(dest, &frame(sender, payload)));
        raw.wait(&[&receiver]).outcome.unwrap();
    };
    let received = |payload: u64| receiver.wait(&[&raw]).assert_bytes(&payload.to_le_bytes());
    for sender in 1..=UNNAMED_MAX {
        send(sender, sender);
        received(sender);
    }
    // Frames of further senders are dropped, and a sender that has a peer continues.
    (0..100).for_each(|more| send(UNNAMED_MAX + 1 + more, 0));
    send(1, 7);
    received(7);
}
