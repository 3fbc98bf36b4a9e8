//! Scalable endpoints, fi_endpoint(3).

use std::sync::Arc;

use selvedge::{Bindings, Caps, Errno, av, cq};

use crate::suite::cx::check::{holds, same};
use crate::suite::cx::contexts::{BITS, with_contexts};
use crate::suite::cx::{Cx, RAW, Result, Rx, Test, Tx};
use crate::suite::flaw::Flaw;

pub(super) const TESTS: &[Test] = &[
    Test::new(
        "each_to_each",
        CONTEXTS,
        &[Flaw::WrongContext, Flaw::WrongSource],
        each_to_each,
    )
    .faces(RAW),
    Test::new("limits", CONTEXTS, &[Flaw::OpensAnyContext], limits)
        .faces(RAW)
        .processes(1),
];

const CONTEXTS: Caps = Caps::MSG
    .union(Caps::NAMED_RX_CTX)
    .union(Caps::SOURCE)
    .union(Caps::DIRECTED_RECV);
const COUNT: usize = 3;

/// Every context reaches every one of the peer, and is its source there; a directed receive takes
/// what comes from it.
fn each_to_each(cx: &mut Cx) -> Result {
    let (ports, peers) = cx.contexts(COUNT)?;
    let peer = peers[1 - cx.me()];
    for from in 0..COUNT {
        for to in 0..COUNT {
            let number = from * COUNT + to;
            if cx.me() == 0 {
                let dest = peer.rx_addr(to, BITS);
                ports[from].run(Tx::msg(dest, cx.payload(1, number, 64)))?;
            } else {
                let source = peer.rx_addr(from, BITS);
                let post = match number % 2 {
                    0 => Rx::msg(64),
                    _ => Rx::msg(64).from(source),
                };
                let done = ports[to].call(post)?.well()?;
                same("the source of a context's message", done.src, source)?;
                cx.verify(0, number, &done.bytes)?;
            }
            cx.barrier()?;
        }
    }
    Ok(())
}

/// As many contexts as there are, each once at a time.
fn limits(cx: &mut Cx) -> Result {
    let most = cx.info_for(&cx.hints())?.domain_attr.max_ep_rx_ctx;
    holds("there may be several contexts", most > 1)?;
    let more = cx.registry().infos(&with_contexts(cx.hints(), most + 1));
    holds("more than there may be are refused", more.is_err())?;
    let info = cx.info_for(&with_contexts(cx.hints(), 2))?;
    let domain = info.open()?;
    let sep = domain.scalable_endpoint(&info)?;
    let av = domain.av(&av::Attr::default())?;
    let cq = domain.cq(&cq::Attr::default())?;
    let bind = || Bindings::new(Arc::clone(&cq), Arc::clone(&av));
    let first = sep.context(0, &info, bind())?;
    same("the first one's address", first.address(), sep.address())?;
    let errno = |index| sep.context(index, &info, bind()).map_err(|it| it.errno());
    same("one that is open", errno(0).err(), Some(Errno::Busy))?;
    same("one that is not there", errno(2).err(), Some(Errno::Inval))?;
    drop(first);
    holds("one that was closed", errno(0).is_ok())
}
