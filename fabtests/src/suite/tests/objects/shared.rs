//! Shared receive contexts, fi_srx_context in fi_endpoint(3): the messages of several endpoints
//! match the same posted receives.

use std::cell::RefCell;
use std::sync::Arc;

use selvedge::info::RxAttr;
use selvedge::{
    Address, Bindings, Caps, Domain, Endpoint, Errno, FiAddr, OpFlags, SharedReceives, av,
};

use crate::suite::context::check::{holds, same};
use crate::suite::context::{
    RAW, Result, Rx, RxKind, Setup, Test, TestContext, TestEndpoint, Tx, skip_missing,
};
use crate::suite::defect::Defect;

tests! {
    messages_of_all_endpoints(MSG) catches [DropsSharedReceives, FlipsBit] .apis(RAW);
    tags(MSG) catches [IgnoresTags] .apis(RAW);
    own_receives_first(MSG) catches [SharesOwnReceives] .apis(RAW);
    cancels(MSG) catches [CancelsNothing, DeniesCancel] .apis(RAW);
    refusals(MSG) catches [AcceptsAnyFlag] .apis(RAW).processes(1);
}

const MSG: Caps = Caps::MSG.union(Caps::TAGGED);

/// Two endpoints of a process that share their receives: `endpoint` and a second one.
struct SharedEndpoints {
    endpoint: TestEndpoint,
    srx: Arc<dyn SharedReceives>,
    _second: Arc<dyn Endpoint>,
    /// The address of each process's second endpoint.
    seconds: Vec<FiAddr>,
}

impl SharedEndpoints {
    fn open(ctx: &mut TestContext) -> Result<Self> {
        let found = RefCell::new(None);
        let bind = |domain: &dyn Domain, bind: &mut Bindings| {
            let srx = domain.srx(&RxAttr::default()).map_err(skip_missing)?;
            bind.srx = Some(Arc::clone(&srx));
            *found.borrow_mut() = Some(srx);
            Ok(())
        };
        let endpoint = ctx.open_endpoint_with(&Setup {
            bind: Some(&bind),
            ..Setup::default()
        })?;
        let srx = found.take().expect("the endpoint was bound");
        let av = endpoint.domain.av(&av::Attr::default())?;
        let mut bind = Bindings::new(endpoint.cq(), av);
        bind.srx = Some(Arc::clone(&srx));
        let second = endpoint.domain.endpoint(&endpoint.info, bind)?;
        let names: Vec<String> = ctx.exchange(&second.address()?.to_string())?;
        let seconds = names.iter().map(|name| {
            let address: Address = name.parse()?;
            endpoint.insert(&address)
        });
        let seconds = seconds.collect::<Result<_>>()?;
        endpoint.post_receives_to(Some(Arc::clone(&srx)));
        Ok(Self {
            endpoint,
            srx,
            _second: second,
            seconds,
        })
    }

    /// The address of the peer's endpoint for message `number`: the two endpoints take turns.
    fn to(&self, ctx: &TestContext, number: usize) -> FiAddr {
        match number % 2 {
            0 => self.endpoint.peer(),
            _ => self.seconds[1 - ctx.me()],
        }
    }
}

const SIZES: [usize; 4] = [8, 300, 5000, 200_000];

/// Each message for either endpoint matches one receive. In every second round, the messages arrive
/// before the receives are posted.
fn messages_of_all_endpoints(ctx: &mut TestContext) -> Result {
    let endpoints = SharedEndpoints::open(ctx)?;
    let endpoint = &endpoints.endpoint;
    for round in 0..ctx.scale(8, 100) {
        let len = SIZES[round / 2 % SIZES.len()];
        let is_late = round % 2 == 1;
        let sent = 4 * round..4 * round + 4;
        if ctx.me() == 0 {
            ctx.barrier()?;
            let mut posted = Vec::new();
            for number in sent {
                let bytes = ctx.payload(1, number, len);
                posted.push(endpoint.post(Tx::msg(endpoints.to(ctx, number), bytes))?);
            }
            if is_late {
                endpoint.settle()?;
                ctx.barrier()?;
            }
            for context in posted {
                endpoint.wait_for(context)?.expect_success()?;
            }
        } else {
            if is_late {
                ctx.barrier()?;
                ctx.barrier()?;
            }
            let posted: Vec<_> = (0..4)
                .map(|_| endpoint.post(Rx::msg(len)))
                .collect::<Result<_>>()?;
            if !is_late {
                ctx.barrier()?;
            }
            let mut numbers = Vec::new();
            for context in posted {
                let done = endpoint.wait_for(context)?.expect_success()?;
                same("length", done.len, len)?;
                // A short message has no room for its number.
                let number = sent
                    .clone()
                    .find(|number| ctx.verify(0, *number, &done.bytes).is_ok());
                numbers.extend(number);
            }
            numbers.sort_unstable();
            same("the numbers of the messages", numbers, sent.collect())?;
        }
        ctx.barrier()?;
    }
    Ok(())
}

/// Tagged messages for either endpoint match the receive with their tag.
fn tags(ctx: &mut TestContext) -> Result {
    const COUNT: usize = 6;
    let endpoints = SharedEndpoints::open(ctx)?;
    let endpoint = &endpoints.endpoint;
    for round in 0..ctx.scale(6, 100) {
        let is_late = round % 2 == 1;
        if ctx.me() == 0 {
            ctx.barrier()?;
            for number in 0..COUNT {
                let bytes = ctx.payload(1, number, 300);
                endpoint.run(Tx::tagged(endpoints.to(ctx, number), number as u64, bytes))?;
            }
            endpoint.settle()?;
            ctx.barrier()?;
        } else {
            let post = || -> Result<Vec<_>> {
                let tags = (0..COUNT).rev();
                tags.map(|tag| Ok((tag, endpoint.post(Rx::tagged(tag as u64, 300))?)))
                    .collect()
            };
            let early = if is_late { None } else { Some(post()?) };
            ctx.barrier()?;
            ctx.barrier()?;
            for (tag, context) in early.map_or_else(post, Ok)? {
                let done = endpoint.wait_for(context)?.expect_success()?;
                same("tag", done.tag, tag as u64)?;
                ctx.verify(0, tag, &done.bytes)?;
            }
        }
    }
    Ok(())
}

/// An endpoint's own receives match before shared ones, whichever were posted first.
fn own_receives_first(ctx: &mut TestContext) -> Result {
    let endpoints = SharedEndpoints::open(ctx)?;
    let endpoint = &endpoints.endpoint;
    if ctx.me() == 0 {
        ctx.barrier()?;
        for number in 0..3 {
            // The third message is for the other endpoint, which has no receives of its own.
            let to = endpoints.to(ctx, number / 2);
            endpoint.run(Tx::msg(to, ctx.payload(1, number, 64)))?;
        }
        return holds("all are sent", true);
    }
    let shared = [endpoint.post(Rx::msg(64))?, endpoint.post(Rx::msg(64))?];
    endpoint.post_receives_to(None);
    let own = endpoint.post(Rx::msg(64))?;
    ctx.barrier()?;
    ctx.verify(0, 0, &endpoint.wait_for(own)?.expect_success()?.bytes)?;
    let mut found = Vec::new();
    for context in shared {
        found.push(
            ctx.read(&endpoint.wait_for(context)?.expect_success()?.bytes)?
                .1,
        );
    }
    found.sort_unstable();
    same("the messages of the shared receives", found, vec![1, 2])
}

/// A cancelled shared receive is reported once, and the other receives match the messages.
fn cancels(ctx: &mut TestContext) -> Result {
    let endpoints = SharedEndpoints::open(ctx)?;
    let endpoint = &endpoints.endpoint;
    if ctx.me() == 0 {
        ctx.barrier()?;
        for number in 0..2 {
            endpoint.run(Tx::msg(
                endpoints.to(ctx, number),
                ctx.payload(1, number, 64),
            ))?;
            ctx.barrier()?;
        }
        return holds("all are sent", true);
    }
    let posted: Vec<_> = (0..3)
        .map(|_| endpoint.post(Rx::msg(64)))
        .collect::<Result<_>>()?;
    same("cancelling a receive", endpoint.cancel(posted[1]), Ok(()))?;
    let again = endpoint.cancel(posted[1]);
    same("cancelling it again", again, Err(Errno::NoEnt))?;
    endpoint
        .wait_for(posted[1])?
        .expect_failure("a cancelled receive", Errno::Canceled)?;
    ctx.barrier()?;
    for (number, context) in [posted[0], posted[2]].into_iter().enumerate() {
        ctx.verify(
            0,
            number,
            &endpoint.wait_for(context)?.expect_success()?.bytes,
        )?;
        ctx.barrier()?;
    }
    Ok(())
}

/// Unsupported shared receives, and cancels of unknown ones, are refused.
fn refusals(ctx: &mut TestContext) -> Result {
    let endpoints = SharedEndpoints::open(ctx)?;
    let refused = |rx: Rx| endpoints.endpoint.try_post(rx).map(drop);
    let many = Rx::msg(64).flags(OpFlags::MULTI_RECV);
    same(
        "a multi-receive buffer",
        refused(many),
        Err(Errno::BadFlags),
    )?;
    let peek = Rx::tagged(1_u64, 8).kind(RxKind::Peek);
    same("a peek", refused(peek), Err(Errno::BadFlags))?;
    let unknown = endpoints.srx.cancel(selvedge::Context(77));
    same("cancelling an unknown receive", unknown, Err(Errno::NoEnt))?;
    let other = endpoints.endpoint.info.open()?.srx(&RxAttr::default())?;
    let unknown = other.cancel(selvedge::Context(77));
    same("a cancel without an endpoint", unknown, Err(Errno::NoCq))
}
