//! Datagram endpoints: messages arrive whole or not at all.

use std::collections::BTreeSet;

use selvedge::Caps;
use selvedge::info::EpType;

use crate::suite::context::check::{holds, same};
use crate::suite::context::timeout::until;
use crate::suite::context::{RAW, Result, Rx, Test, TestContext, Tx};
use crate::suite::defect::Defect;

const DGRAM: &[EpType] = &[EpType::Dgram];

tests! {
    whole_or_not_at_all(Caps::MSG) catches [FlipsBit, CutsOff] .ep_types(DGRAM);
    sources(Caps::MSG.union(Caps::SOURCE)) catches [NoSource] .apis(RAW).ep_types(DGRAM);
}

/// Messages of several sizes are sent until each was received; each received message is intact.
fn whole_or_not_at_all(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let most = endpoint.info.ep_attr.max_msg_size.min(1400);
    let lens: Vec<_> = [16, 17, 100, 512, most].into_iter().enumerate().collect();
    if ctx.me() == 1 {
        let mut received = BTreeSet::new();
        while received.len() < lens.len() {
            let done = endpoint.post_and_wait(Rx::msg(most))?.expect_success()?;
            let (from, number) = ctx.read(&done.bytes)?;
            same("sender and length", (from, done.len), (0, lens[number].1))?;
            received.insert(number);
            ctx.exchange(&received)?;
        }
        return Ok(());
    }
    loop {
        let mut missing = lens.clone();
        for &(number, len) in &lens {
            endpoint.run(Tx::msg(endpoint.peer(), ctx.payload(1, number, len)))?;
        }
        for _ in &lens {
            let received: Vec<BTreeSet<usize>> = ctx.exchange(&BTreeSet::new())?;
            missing.retain(|(number, _)| !received[1].contains(number));
            if missing.is_empty() {
                return Ok(());
            }
        }
    }
}

/// The source of a datagram is reported.
fn sources(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let receive = endpoint.post(Rx::msg(64))?;
    let other = 1 - ctx.me();
    // A lost datagram is sent again.
    until("a datagram", || {
        endpoint.run(Tx::msg(endpoint.peer(), ctx.payload(other, 0, 64)))?;
        endpoint.settle()?;
        Ok(endpoint.is_done(receive)?.then_some(()))
    })?;
    let done = endpoint.wait_for(receive)?.expect_success()?;
    holds("its source is the peer", done.src == endpoint.peer())?;
    ctx.verify(other, 0, &done.bytes)
}
