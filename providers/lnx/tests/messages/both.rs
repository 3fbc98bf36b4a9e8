//! One endpoint that has peers on both links at the same time.

use selvedge::{Errno, FiAddr};
use selvedge_testkit::local::LocalEndpoint;

use crate::common::{MessageEndpoint, Rx, Tx, pattern};
use crate::provider;

/// Three endpoints: `a` and `b` on one host, and `c` on another one.
struct Three {
    a: MessageEndpoint,
    b: MessageEndpoint,
    c: MessageEndpoint,
    /// The address of `b` in the vectors of `a` and `c`.
    to_b: FiAddr,
    /// The address of `a` in the vector of `b`.
    from_a: FiAddr,
    /// The address of `c` in the vector of `b`.
    from_c: FiAddr,
}

fn side(host: &str) -> MessageEndpoint {
    provider::with_params(&[("FI_LNX_HOST", host)], &provider::hints()).endpoint()
}

fn three() -> Three {
    let (a, b, c) = (side("here"), side("here"), side("there"));
    let to_b = a.insert_endpoint(&b);
    assert_eq!(c.insert_endpoint(&b), to_b);
    let (from_a, from_c) = (b.insert_endpoint(&a), b.insert_endpoint(&c));
    Three {
        a,
        b,
        c,
        to_b,
        from_a,
        from_c,
    }
}

/// Message lengths up to and above the eager limit.
const LENGTHS: [usize; 5] = [8, 4096, 4097, 100, 60_000];

#[test]
fn a_receive_from_any_source_takes_from_both_links_and_keeps_the_order_of_each() {
    const COUNT: usize = 100;
    let Three {
        a,
        b,
        c,
        to_b,
        from_a,
        from_c,
    } = three();
    let bytes = |sender: u64, number: usize| {
        let len = LENGTHS[number % LENGTHS.len()];
        pattern(sender * 1000 + number as u64, len)
    };
    // Half of the receives are posted before the messages are sent, and half after that.
    let receive = |number: u64| b.recv(&Rx::tagged(7, 60_000).context(number));
    (0..COUNT as u64).for_each(receive);
    for number in 0..COUNT {
        a.send_retrying(&Tx::tagged(to_b, 7, &bytes(0, number)), &[&b, &c]);
        c.send_retrying(&Tx::tagged(to_b, 7, &bytes(1, number)), &[&a, &b]);
    }
    (COUNT as u64..2 * COUNT as u64).for_each(receive);
    let mut received = vec![None; 2 * COUNT];
    for _ in 0..2 * COUNT {
        let done = b.wait(&[&a, &c]);
        let len = done.outcome.as_ref().unwrap().len;
        received[done.context() as usize] = Some((done.src, done.bytes[..len].to_vec()));
    }
    // In the order in which the receives were posted, the messages of each sender are in the order
    // in which they were sent. The completions may have another order.
    let mut next = [0; 2];
    for (src, message) in received.into_iter().flatten() {
        let sender = usize::from(src == from_c);
        assert!(src == from_a || src == from_c, "{src:?}");
        assert!(
            message == bytes(sender as u64, next[sender]),
            "{sender} {next:?}"
        );
        next[sender] += 1;
    }
    assert_eq!(next, [COUNT; 2]);
}

#[test]
fn a_directed_receive_leaves_the_messages_of_the_other_link() {
    let Three {
        a,
        b,
        c,
        to_b,
        from_a,
        from_c,
    } = three();
    for len in LENGTHS {
        let (near, far) = (pattern(1, len), pattern(2, len));
        b.recv(&Rx::tagged(7, len).from(from_c).context(1));
        b.recv(&Rx::tagged(7, len).context(2));
        a.send(&Tx::tagged(to_b, 7, &near));
        let done = b.wait(&[&a, &c]);
        assert_eq!((done.context(), done.src), (2, from_a));
        done.assert_bytes(&near);
        c.send(&Tx::tagged(to_b, 7, &far));
        let done = b.wait(&[&a, &c]);
        assert_eq!((done.context(), done.src), (1, from_c));
        done.assert_bytes(&far);
        for side in [&a, &c] {
            side.wait(&[&a, &b, &c]).outcome.unwrap();
        }
    }
}

#[test]
fn a_peer_failure_fails_only_the_operations_of_that_peer() {
    for peer_host in ["here", "there"] {
        let (b, other, peer) = (side("here"), side("there"), side(peer_host));
        let (to_b, to_other) = (peer.insert_endpoint(&b), b.insert_endpoint(&other));
        let peer_addr = b.insert_endpoint(&peer);
        let bytes = pattern(3, 60_000);
        b.recv(&Rx::tagged(1, 8).context(1));
        peer.send(&Tx::tagged(to_b, 1, &pattern(1, 8)));
        assert_eq!(b.wait(&[&peer]).context(), 1);
        b.recv(&Rx::tagged(2, 8).from(peer_addr).context(2));
        b.send(&Tx::tagged(peer_addr, 3, &bytes).context(3));
        b.recv(&Rx::tagged(4, 8).context(4));
        drop(peer);
        let mut failed = [0; 2].map(|_| {
            let done = b.wait(&[&other]);
            assert_eq!(
                (done.error().errno, done.src),
                (Errno::ConnReset, peer_addr)
            );
            done.context()
        });
        failed.sort_unstable();
        assert_eq!(failed, [2, 3]);
        other.recv(&Rx::tagged(5, bytes.len()));
        b.send(&Tx::tagged(to_other, 5, &bytes).context(5));
        other.wait(&[&b]).assert_bytes(&bytes);
        assert_eq!(b.wait(&[&other]).context(), 5);
    }
}

#[test]
fn lnx_is_offered_only_to_programs_that_name_it() {
    let infos = provider::registry().infos(&provider::hints());
    assert_eq!(infos.unwrap_err().errno(), Errno::NoData);
}

#[test]
fn an_inject_above_the_eager_limit_fails_whatever_size_the_info_has() {
    let mut info = provider::with_params(&[("FI_LNX_HOST", "here")], &provider::hints()).info();
    info.tx_attr.inject_size = 1 << 20;
    let endpoint = LocalEndpoint::open(&info);
    let (ep, to) = (&endpoint.ep, endpoint.insert_endpoint(&endpoint));
    let large = vec![1; 60_000];
    assert_eq!(ep.inject(&large, to, None), Err(Errno::MsgSize));
    assert_eq!(ep.tinject(&large, to, 7, None), Err(Errno::MsgSize));
}
