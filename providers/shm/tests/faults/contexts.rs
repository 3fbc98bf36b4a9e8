//! The kill of a process that has a scalable endpoint.

use selvedge::info::EpType;
use selvedge::{Errno, FiAddr, av};

use crate::connect::unique;
use crate::endpoint::{Kind, NumberedEndpoint, info};
use crate::process::PeerProcess;

const BITS: u32 = 4;
const COUNT: usize = 3;

#[test]
fn a_killed_process_disconnects_each_of_its_contexts() {
    let (name, listener_name) = (unique("contexts"), unique("listener"));
    let mut av_attr = av::Attr::default();
    av_attr.rx_ctx_bits = BITS;
    let info = info(EpType::Rdm, &[]);
    let mut side =
        NumberedEndpoint::open_with_av_attr(Some(&listener_name), &info, &av_attr).unwrap();
    let peer_addr = side.insert(&name);
    let mut peer_process = PeerProcess::start();
    peer_process.request(&format!("contexts {name} {COUNT} {listener_name}"));
    let mut sources = Vec::new();
    for number in 1..=COUNT as u64 {
        side.recv(Kind::Msg, FiAddr::UNSPEC, 8, number).unwrap();
        sources.push(side.next().src);
    }
    sources.sort_unstable();
    let contexts: Vec<_> = (0..COUNT)
        .map(|index| peer_addr.rx_addr(index, BITS))
        .collect();
    assert_eq!(sources, contexts);
    for (source, number) in contexts.iter().zip(10..) {
        side.recv(Kind::Msg, *source, 8, number).unwrap();
    }
    peer_process.kill();
    let mut lost: Vec<_> = contexts.iter().map(|_| side.next()).collect();
    lost.sort_unstable_by_key(|event| event.context);
    for (event, source) in lost.iter().zip(&contexts) {
        assert_eq!((event.errno(), event.src), (Errno::ConnReset, *source));
    }
}
