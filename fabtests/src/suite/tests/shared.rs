//! Shared receives, fi_srx_context in fi_endpoint(3): several endpoints take from the same ones.

use std::cell::RefCell;
use std::sync::Arc;

use selvedge::info::RxAttr;
use selvedge::{
    Address, Bindings, Caps, Domain, Endpoint, Errno, FiAddr, OpFlags, SharedReceives, av,
};

use crate::suite::cx::check::{holds, same};
use crate::suite::cx::{Cx, RAW, Result, Rx, RxKind, Setup, Test, TestEndpoint, Tx, missing};
use crate::suite::flaw::Flaw;

tests! {
    messages_of_all_endpoints(MSG) catches [ForgetsShared, FlipsBit] .faces(RAW);
    tags(MSG) catches [IgnoresTags] .faces(RAW);
    own_ones_first(MSG) catches [SharesOwn] .faces(RAW);
    cancels(MSG) catches [CancelsNothing, DeniesCancel] .faces(RAW);
    refusals(MSG) catches [TakesAnyFlag] .faces(RAW).processes(1);
}

const MSG: Caps = Caps::MSG.union(Caps::TAGGED);

/// The endpoints of a process that share their receives: that of the port, and another one.
struct Hall {
    port: TestEndpoint,
    srx: Arc<dyn SharedReceives>,
    _second: Arc<dyn Endpoint>,
    /// The second endpoint of each process.
    seconds: Vec<FiAddr>,
}

impl Hall {
    fn open(cx: &mut Cx) -> Result<Self> {
        let found = RefCell::new(None);
        let bind = |domain: &dyn Domain, bind: &mut Bindings| {
            let srx = domain.srx(&RxAttr::default()).map_err(missing)?;
            bind.srx = Some(Arc::clone(&srx));
            *found.borrow_mut() = Some(srx);
            Ok(())
        };
        let port = cx.port_with(&Setup {
            bind: Some(&bind),
            ..Setup::default()
        })?;
        let srx = found.take().expect("the endpoint was bound");
        let av = port.domain.av(&av::Attr::default())?;
        let mut bind = Bindings::new(port.cq(), av);
        bind.srx = Some(Arc::clone(&srx));
        let second = port.domain.endpoint(&port.info, bind)?;
        let names: Vec<String> = cx.tell(&second.address()?.to_string())?;
        let seconds = names.iter().map(|name| {
            let address: Address = name.parse()?;
            port.insert(&address)
        });
        let seconds = seconds.collect::<Result<_>>()?;
        port.post_receives_to(Some(Arc::clone(&srx)));
        Ok(Self {
            port,
            srx,
            _second: second,
            seconds,
        })
    }

    /// The peer's endpoints in turn.
    fn to(&self, cx: &Cx, number: usize) -> FiAddr {
        match number % 2 {
            0 => self.port.peer(),
            _ => self.seconds[1 - cx.me()],
        }
    }
}

const SIZES: [usize; 4] = [8, 300, 5000, 200_000];

/// Whichever endpoint a message is for, it takes the receive that was posted first; in every second
/// round the messages come first.
fn messages_of_all_endpoints(cx: &mut Cx) -> Result {
    let hall = Hall::open(cx)?;
    let port = &hall.port;
    for round in 0..cx.scale(8, 100) {
        let len = SIZES[round / 2 % SIZES.len()];
        let is_late = round % 2 == 1;
        if cx.me() == 0 {
            cx.barrier()?;
            let mut posted = Vec::new();
            for number in 0..4 {
                let bytes = cx.payload(1, 4 * round + number, len);
                posted.push(port.post(Tx::msg(hall.to(cx, number), bytes))?);
            }
            if is_late {
                port.settle()?;
                cx.barrier()?;
            }
            for context in posted {
                port.wait_for(context)?.expect_success()?;
            }
        } else {
            if is_late {
                cx.barrier()?;
                cx.barrier()?;
            }
            let posted: Vec<_> = (0..4)
                .map(|_| port.post(Rx::msg(len)))
                .collect::<Result<_>>()?;
            if !is_late {
                cx.barrier()?;
            }
            let mut numbers = Vec::new();
            for context in posted {
                let done = port.wait_for(context)?.expect_success()?;
                same("length", done.len, len)?;
                let (from, number) = match len {
                    8 => (0, numbers.len()),
                    _ => cx.read(&done.bytes)?,
                };
                same("sender", from, 0)?;
                if len > 8 {
                    cx.verify(0, number, &done.bytes)?;
                    numbers.push(number);
                }
            }
            numbers.sort_unstable();
            let all = if len > 8 {
                4 * round..4 * round + 4
            } else {
                0..0
            };
            same("each once", numbers, all.collect())?;
        }
        cx.barrier()?;
    }
    Ok(())
}

/// Tagged messages for either endpoint find the receive with their tag.
fn tags(cx: &mut Cx) -> Result {
    const COUNT: usize = 6;
    let hall = Hall::open(cx)?;
    let port = &hall.port;
    for round in 0..cx.scale(6, 100) {
        let is_late = round % 2 == 1;
        if cx.me() == 0 {
            cx.barrier()?;
            for number in 0..COUNT {
                let bytes = cx.payload(1, number, 300);
                port.run(Tx::tagged(hall.to(cx, number), number as u64, bytes))?;
            }
            port.settle()?;
            cx.barrier()?;
        } else {
            let post = || -> Result<Vec<_>> {
                let tags = (0..COUNT).rev();
                tags.map(|tag| Ok((tag, port.post(Rx::tagged(tag as u64, 300))?)))
                    .collect()
            };
            let early = if is_late { None } else { Some(post()?) };
            cx.barrier()?;
            cx.barrier()?;
            for (tag, context) in early.map_or_else(post, Ok)? {
                let done = port.wait_for(context)?.expect_success()?;
                same("tag", done.tag, tag as u64)?;
                cx.verify(0, tag, &done.bytes)?;
            }
        }
    }
    Ok(())
}

/// Receives of an endpoint's own come before shared ones, whichever was posted first.
fn own_ones_first(cx: &mut Cx) -> Result {
    let hall = Hall::open(cx)?;
    let port = &hall.port;
    if cx.me() == 0 {
        cx.barrier()?;
        for number in 0..3 {
            // The third is for the other endpoint, which has none of its own.
            let to = hall.to(cx, number / 2);
            port.run(Tx::msg(to, cx.payload(1, number, 64)))?;
        }
        return holds("all are sent", true);
    }
    let shared = [port.post(Rx::msg(64))?, port.post(Rx::msg(64))?];
    port.post_receives_to(None);
    let own = port.post(Rx::msg(64))?;
    cx.barrier()?;
    cx.verify(0, 0, &port.wait_for(own)?.expect_success()?.bytes)?;
    let mut found = Vec::new();
    for context in shared {
        found.push(cx.read(&port.wait_for(context)?.expect_success()?.bytes)?.1);
    }
    found.sort_unstable();
    same("what the shared ones have", found, vec![1, 2])
}

/// A shared receive that is taken back is reported once, and the others take what comes.
fn cancels(cx: &mut Cx) -> Result {
    let hall = Hall::open(cx)?;
    let port = &hall.port;
    if cx.me() == 0 {
        cx.barrier()?;
        for number in 0..2 {
            port.run(Tx::msg(hall.to(cx, number), cx.payload(1, number, 64)))?;
            cx.barrier()?;
        }
        return holds("all are sent", true);
    }
    let posted: Vec<_> = (0..3)
        .map(|_| port.post(Rx::msg(64)))
        .collect::<Result<_>>()?;
    same("taking one back", port.cancel(posted[1]), Ok(()))?;
    let again = port.cancel(posted[1]);
    same("taking it back again", again, Err(Errno::NoEnt))?;
    port.wait_for(posted[1])?
        .expect_failure("what was taken back", Errno::Canceled)?;
    cx.barrier()?;
    for (number, context) in [posted[0], posted[2]].into_iter().enumerate() {
        cx.verify(0, number, &port.wait_for(context)?.expect_success()?.bytes)?;
        cx.barrier()?;
    }
    Ok(())
}

/// What shared receives cannot be is refused.
fn refusals(cx: &mut Cx) -> Result {
    let hall = Hall::open(cx)?;
    let refused = |rx: Rx| hall.port.try_post(rx).map(drop);
    let many = Rx::msg(64).flags(OpFlags::MULTI_RECV);
    same("many in a buffer", refused(many), Err(Errno::BadFlags))?;
    let look = Rx::tagged(1_u64, 8).kind(RxKind::Peek);
    same("a look", refused(look), Err(Errno::BadFlags))?;
    let nobody = hall.srx.cancel(selvedge::Context(77));
    same("taking back what is not there", nobody, Err(Errno::NoEnt))?;
    let other = hall.port.info.open()?.srx(&RxAttr::default())?;
    let nobody = other.cancel(selvedge::Context(77));
    same("of no endpoint", nobody, Err(Errno::NoCq))
}
