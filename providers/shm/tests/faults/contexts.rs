//! A process with a scalable endpoint that is killed.

use selvedge::info::EpType;
use selvedge::{Errno, FiAddr, av};

use crate::connect::unique;
use crate::process::PeerProcess;
use crate::side::{Kind, Side, info};

const BITS: u32 = 4;
const COUNT: usize = 3;

#[test]
fn a_killed_process_is_lost_with_each_of_its_contexts() {
    let (name, own) = (unique("contexts"), unique("listener"));
    let mut peers = av::Attr::default();
    peers.rx_ctx_bits = BITS;
    let info = info(EpType::Rdm, &[]);
    let mut side = Side::open_with(Some(&own), &info, &peers).unwrap();
    let peer_addr = side.insert(&name);
    let mut peer_process = PeerProcess::start();
    peer_process.request(&format!("contexts {name} {COUNT} {own}"));
    let mut sources = Vec::new();
    for number in 1..=COUNT as u64 {
        side.recv(Kind::Msg, FiAddr::UNSPEC, 8, number).unwrap();
        sources.push(side.next().src);
    }
    sources.sort_unstable();
    let contexts: Vec<_> = (0..COUNT).map(|it| peer_addr.rx_addr(it, BITS)).collect();
    assert_eq!(sources, contexts);
    for (from, number) in contexts.iter().zip(10..) {
        side.recv(Kind::Msg, *from, 8, number).unwrap();
    }
    peer_process.kill();
    let mut lost: Vec<_> = contexts.iter().map(|_| side.next()).collect();
    lost.sort_unstable_by_key(|event| event.context);
    for (event, from) in lost.iter().zip(&contexts) {
        assert_eq!((event.errno(), event.src), (Errno::ConnReset, *from));
    }
}
