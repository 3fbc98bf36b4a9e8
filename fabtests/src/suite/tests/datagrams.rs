//! Datagram endpoints: messages arrive whole or not at all.

use std::collections::BTreeSet;

use selvedge::Caps;
use selvedge::info::EpType;

use crate::suite::cx::check::{holds, same};
use crate::suite::cx::timeout::until;
use crate::suite::cx::{Cx, RAW, Result, Rx, Test, Tx};
use crate::suite::flaw::Flaw;

const DGRAM: &[EpType] = &[EpType::Dgram];

tests! {
    whole_or_not_at_all(Caps::MSG) catches [FlipsBit, CutsOff] .ep_types(DGRAM);
    sources(Caps::MSG.union(Caps::SOURCE)) catches [NoSource] .faces(RAW).ep_types(DGRAM);
}

/// Messages of several sizes are sent until each was received; those that come are whole.
fn whole_or_not_at_all(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let most = port.info.ep_attr.max_msg_size.min(1400);
    let lens: Vec<_> = [16, 17, 100, 512, most].into_iter().enumerate().collect();
    if cx.me() == 1 {
        let mut seen = BTreeSet::new();
        while seen.len() < lens.len() {
            let done = port.post_and_wait(Rx::msg(most))?.expect_success()?;
            let (from, number) = cx.read(&done.bytes)?;
            same("sender and length", (from, done.len), (0, lens[number].1))?;
            seen.insert(number);
            cx.tell(&seen)?;
        }
        return Ok(());
    }
    loop {
        let mut missing = lens.clone();
        for &(number, len) in &lens {
            port.run(Tx::msg(port.peer(), cx.payload(1, number, len)))?;
        }
        for _ in &lens {
            let seen: Vec<BTreeSet<usize>> = cx.tell(&BTreeSet::new())?;
            missing.retain(|(number, _)| !seen[1].contains(number));
            if missing.is_empty() {
                return Ok(());
            }
        }
    }
}

/// The source of a datagram is told.
fn sources(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let receive = port.post(Rx::msg(64))?;
    let other = 1 - cx.me();
    // What is lost is sent again.
    until("a datagram", || {
        port.run(Tx::msg(port.peer(), cx.payload(other, 0, 64)))?;
        port.settle()?;
        Ok(port.is_done(receive)?.then_some(()))
    })?;
    let done = port.wait_for(receive)?.expect_success()?;
    holds("its source is the peer", done.src == port.peer())?;
    cx.verify(other, 0, &done.bytes)
}
