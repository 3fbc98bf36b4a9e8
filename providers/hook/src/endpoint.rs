//! Endpoints with hooks.

#![expect(unsafe_code, reason = "an endpoint around an endpoint")]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use selvedge::atomic::{AtomicMsg, Attr, Datatype, Family, Ioc, IocMut, Op, Target};
use selvedge::collective::{self, CollectiveMsg};
use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::{
    Address, Atomic, Bindings, Collective, ConnectionManagement, Context, Desc, Endpoint, EpOption,
    EpOptionName, Errno, Error, FiAddr, Info, LateBindings, Membership, Msg, OpFlags, Result, Rma,
    Tagged, av, msg, tagged,
};
use selvedge_kit::sight::{Timed, name_of};

use crate::call::Args;
use crate::events::KNOWN;
use crate::provider::{At, unhooked, unhooked_late, unwrapped};
use crate::shared::HookedShared;
use crate::watch::{Bound, Kept, Post, Watch};

pub(crate) struct HookedEndpoint {
    inner: Arc<dyn Endpoint>,
    /// Those of the shared receives that it takes from, before the hooks go.
    _shared: Option<Arc<Kept>>,
    at: At,
    watch: Option<Arc<Watch>>,
}

impl HookedEndpoint {
    /// One around the endpoint that `open` opens, which is bound to objects without hooks.
    pub(crate) fn open(
        at: &At,
        info: &Info,
        bind: Bindings,
        open: impl FnOnce(Bindings) -> Result<Arc<dyn Endpoint>, Error>,
    ) -> Result<Arc<Self>, Error> {
        let (bound, has_events) = (Bound::of(info, &bind), bind.eq.is_some());
        let shared = bind.srx.as_ref().and_then(HookedShared::kept);
        if let Some(shared) = &shared {
            shared.complete_at(&bound);
        }
        let inner = open(unhooked(bind))?;
        let name = inner.address().map(|it| name_of(&it)).unwrap_or_default();
        let watch = Watch::open(at.wanted(), info, bound, &name)?;
        let at = at.clone();
        let endpoint = Arc::new(Self {
            inner,
            _shared: shared,
            at,
            watch,
        });
        // Nobody else keeps it, not even weakly: the safe layer wants it for itself.
        if has_events {
            KNOWN.add_endpoint(&endpoint);
        }
        Ok(endpoint)
    }

    /// A post on its way through the hooks.
    fn post(
        &self,
        post: &Post<'_>,
        args: &dyn Fn(&mut Args),
        run: impl FnOnce() -> Result,
    ) -> Result {
        let call = || self.at.done(post.name, args, run);
        match &self.watch {
            None => call(),
            Some(watch) => watch.around(post, call),
        }
    }

    /// The endpoint inside of one with hooks; itself if it has none.
    pub(crate) fn inner(ep: &Arc<dyn Endpoint>) -> Arc<dyn Endpoint> {
        unwrapped(
            Arc::clone(ep),
            |ep| ep as &dyn Any,
            |own: &Self| Arc::clone(&own.inner),
        )
    }

    pub(crate) fn below(&self) -> &Arc<dyn Endpoint> {
        &self.inner
    }
}

/// What every post says.
fn said(args: &mut Args, len: usize, peer: FiAddr, context: Context, flags: OpFlags) -> &mut Args {
    args.num("len", len as u64)
        .num("peer", peer.0)
        .num("context", context.0)
        .text("flags", &flags)
}

fn total<T>(pieces: &[T], len: impl Fn(&T) -> usize) -> usize {
    pieces.iter().map(len).fold(0, usize::saturating_add)
}

/// A post of a message, or an access.
fn of_msg(
    name: &'static str,
    what: Timed,
    len: usize,
    (peer, context, flags): (FiAddr, Context, OpFlags),
) -> Post<'static> {
    Post {
        what: Some(what),
        len,
        peer,
        context,
        flags,
        ..Post::new(name)
    }
}

/// A receive, and what it says.
pub(crate) fn of_recvmsg<'a>(
    msg: &'a msg::RecvMsg<'_>,
    flags: OpFlags,
) -> (Post<'static>, impl Fn(&mut Args) + 'a) {
    let len = total(msg.iov, |it| it.len);
    let post = of_msg(
        "recvmsg",
        Timed::Receive,
        len,
        (msg.src, msg.context, flags),
    );
    let args = move |args: &mut Args| {
        said(args, len, msg.src, msg.context, flags);
    };
    (post, args)
}

/// A receive that is taken back.
pub(crate) fn of_cancel(context: Context) -> (Post<'static>, impl Fn(&mut Args)) {
    let post = Post {
        context,
        ..Post::new("cancel")
    };
    let args = move |args: &mut Args| {
        args.num("context", context.0);
    };
    (post, args)
}

/// Likewise with a tag.
pub(crate) fn of_trecvmsg<'a>(
    msg: &'a tagged::RecvMsg<'_>,
    flags: OpFlags,
) -> (Post<'static>, impl Fn(&mut Args) + 'a) {
    let len = total(msg.iov, |it| it.len);
    let post = Post {
        tag: msg.tag.tag,
        key: msg.tag.ignore,
        ..of_msg(
            "trecvmsg",
            Timed::TaggedReceive,
            len,
            (msg.src, msg.context, flags),
        )
    };
    let args = move |args: &mut Args| {
        said(args, len, msg.src, msg.context, flags)
            .num("tag", msg.tag.tag)
            .num("ignore", msg.tag.ignore);
    };
    (post, args)
}

/// One whose bytes are copied before it returns.
fn injected(name: &'static str, buf: &[u8], peer: FiAddr) -> Post<'static> {
    Post {
        what: Some(Timed::Inject),
        len: buf.len(),
        peer,
        ..Post::new(name)
    }
}

fn of_atomic(name: &'static str, msg: &AtomicMsg<'_>, flags: OpFlags) -> Post<'static> {
    let len = total(msg.rma_iov, |it| it.count).saturating_mul(msg.datatype.size());
    of_msg(name, Timed::Atomic, len, (msg.dest, msg.context, flags))
}

/// Address and key of the first place.
fn first(places: &[RmaIov]) -> (u64, u64) {
    places
        .first()
        .map_or((0, 0), |place| (place.addr, place.key))
}

fn places(args: &mut Args, places: &[RmaIov]) {
    if let [place, ..] = places {
        args.num("addr", place.addr).num("key", place.key);
    }
}

impl Msg for HookedEndpoint {
    unsafe fn sendmsg(&self, msg: &msg::SendMsg<'_>, flags: OpFlags) -> Result {
        let args = |args: &mut Args| {
            said(
                args,
                total(msg.iov, |it| it.len),
                msg.dest,
                msg.context,
                flags,
            );
        };
        let len = total(msg.iov, |it| it.len);
        let post = of_msg("sendmsg", Timed::Send, len, (msg.dest, msg.context, flags));
        // SAFETY: passed on from the caller.
        self.post(&post, &args, || unsafe { self.inner.sendmsg(msg, flags) })
    }

    unsafe fn recvmsg(&self, msg: &msg::RecvMsg<'_>, flags: OpFlags) -> Result {
        let (post, args) = of_recvmsg(msg, flags);
        // SAFETY: passed on from the caller.
        self.post(&post, &args, || unsafe { self.inner.recvmsg(msg, flags) })
    }

    fn inject(&self, buf: &[u8], dest: FiAddr, data: Option<u64>) -> Result {
        let args = |args: &mut Args| {
            args.num("len", buf.len() as u64).num("peer", dest.0);
        };
        let post = injected("inject", buf, dest);
        self.post(&post, &args, || self.inner.inject(buf, dest, data))
    }
}

impl Tagged for HookedEndpoint {
    unsafe fn tsendmsg(&self, msg: &tagged::SendMsg<'_>, flags: OpFlags) -> Result {
        let args = |args: &mut Args| {
            said(
                args,
                total(msg.iov, |it| it.len),
                msg.dest,
                msg.context,
                flags,
            )
            .num("tag", msg.tag);
        };
        let post = Post {
            tag: msg.tag,
            ..of_msg(
                "tsendmsg",
                Timed::TaggedSend,
                total(msg.iov, |it| it.len),
                (msg.dest, msg.context, flags),
            )
        };
        // SAFETY: passed on from the caller.
        self.post(&post, &args, || unsafe { self.inner.tsendmsg(msg, flags) })
    }

    unsafe fn trecvmsg(&self, msg: &tagged::RecvMsg<'_>, flags: OpFlags) -> Result {
        let (post, args) = of_trecvmsg(msg, flags);
        // SAFETY: passed on from the caller.
        self.post(&post, &args, || unsafe { self.inner.trecvmsg(msg, flags) })
    }

    fn tinject(&self, buf: &[u8], dest: FiAddr, tag: u64, data: Option<u64>) -> Result {
        let args = |args: &mut Args| {
            args.num("len", buf.len() as u64)
                .num("peer", dest.0)
                .num("tag", tag);
        };
        let post = Post {
            tag,
            ..injected("tinject", buf, dest)
        };
        self.post(&post, &args, || self.inner.tinject(buf, dest, tag, data))
    }
}

impl Rma for HookedEndpoint {
    unsafe fn readmsg(&self, msg: &ReadMsg<'_>, flags: OpFlags) -> Result {
        let args = |args: &mut Args| {
            let len = total(msg.iov, |it| it.len);
            places(said(args, len, msg.src, msg.context, flags), msg.rma_iov);
        };
        let post = Post {
            tag: first(msg.rma_iov).0,
            key: first(msg.rma_iov).1,
            ..of_msg(
                "readmsg",
                Timed::Read,
                total(msg.iov, |it| it.len),
                (msg.src, msg.context, flags),
            )
        };
        // SAFETY: passed on from the caller.
        self.post(&post, &args, || unsafe { self.inner.readmsg(msg, flags) })
    }

    unsafe fn writemsg(&self, msg: &WriteMsg<'_>, flags: OpFlags) -> Result {
        let args = |args: &mut Args| {
            let len = total(msg.iov, |it| it.len);
            places(said(args, len, msg.dest, msg.context, flags), msg.rma_iov);
        };
        let post = Post {
            tag: first(msg.rma_iov).0,
            key: first(msg.rma_iov).1,
            ..of_msg(
                "writemsg",
                Timed::Write,
                total(msg.iov, |it| it.len),
                (msg.dest, msg.context, flags),
            )
        };
        // SAFETY: passed on from the caller.
        self.post(&post, &args, || unsafe { self.inner.writemsg(msg, flags) })
    }

    fn inject_write(
        &self,
        buf: &[u8],
        dest: FiAddr,
        addr: u64,
        key: u64,
        data: Option<u64>,
    ) -> Result {
        let args = |args: &mut Args| {
            args.num("len", buf.len() as u64).num("peer", dest.0);
            args.num("addr", addr).num("key", key);
        };
        let run = || self.inner.inject_write(buf, dest, addr, key, data);
        let post = Post {
            tag: addr,
            key,
            ..injected("inject_write", buf, dest)
        };
        self.post(&post, &args, run)
    }
}

/// What every atomic says.
fn atomic(args: &mut Args, msg: &AtomicMsg<'_>, flags: OpFlags) {
    args.num("count", total(msg.rma_iov, |it| it.count) as u64)
        .num("peer", msg.dest.0)
        .num("context", msg.context.0)
        .text("flags", &flags)
        .text("op", &format_args!("{:?}", msg.op))
        .text("datatype", &format_args!("{:?}", msg.datatype));
}

impl Atomic for HookedEndpoint {
    unsafe fn atomicmsg(&self, msg: &AtomicMsg<'_>, flags: OpFlags) -> Result {
        let args = |args: &mut Args| atomic(args, msg, flags);
        let post = of_atomic("atomicmsg", msg, flags);
        // SAFETY: passed on from the caller.
        self.post(&post, &args, || unsafe { self.inner.atomicmsg(msg, flags) })
    }

    unsafe fn fetch_atomicmsg(
        &self,
        msg: &AtomicMsg<'_>,
        result: &[IocMut],
        result_desc: &[Desc],
        flags: OpFlags,
    ) -> Result {
        let args = |args: &mut Args| atomic(args, msg, flags);
        // SAFETY: passed on from the caller.
        let run = || unsafe { self.inner.fetch_atomicmsg(msg, result, result_desc, flags) };
        self.post(&of_atomic("fetch_atomicmsg", msg, flags), &args, run)
    }

    unsafe fn compare_atomicmsg(
        &self,
        msg: &AtomicMsg<'_>,
        compare: &[Ioc],
        compare_desc: &[Desc],
        result: &[IocMut],
        result_desc: &[Desc],
        flags: OpFlags,
    ) -> Result {
        let args = |args: &mut Args| atomic(args, msg, flags);
        // SAFETY: passed on from the caller.
        let run = || unsafe {
            self.inner
                .compare_atomicmsg(msg, compare, compare_desc, result, result_desc, flags)
        };
        self.post(&of_atomic("compare_atomicmsg", msg, flags), &args, run)
    }

    fn inject_atomic(&self, buf: &[u8], target: &Target) -> Result {
        let args = |args: &mut Args| {
            args.num("len", buf.len() as u64).num("peer", target.dest.0);
        };
        let post = injected("inject_atomic", buf, target.dest);
        self.post(&post, &args, || self.inner.inject_atomic(buf, target))
    }

    fn valid(&self, family: Family, datatype: Datatype, op: Op) -> Result<Attr> {
        self.inner.valid(family, datatype, op)
    }
}

// SAFETY: operations are the inner endpoint's, or not posted at all if a fault says so.
unsafe impl Endpoint for HookedEndpoint {
    fn address(&self) -> Result<Address> {
        let gave = |addr: &Address| {
            let addr = crate::out::escape(&addr.to_string());
            Some(format!("\"addr\":\"{addr}\""))
        };
        let run = || self.inner.address();
        self.at
            .gives("getname", &|_| {}, gave, Err(Errno::AddrNotAvail), run)
    }

    fn bind_late(&self, late: &LateBindings) -> Result<(), Error> {
        self.inner.bind_late(&unhooked_late(late.clone()))?;
        if let Some(watch) = &self.watch {
            watch.bind_late(late);
        }
        Ok(())
    }

    fn cancel(&self, context: Context) -> Result {
        let (post, args) = of_cancel(context);
        self.post(&post, &args, || self.inner.cancel(context))
    }

    fn set(&self, option: EpOption) -> Result {
        let args = |args: &mut Args| {
            args.text("option", &format_args!("{option:?}"));
        };
        self.at.done("setopt", &args, || self.inner.set(option))
    }

    fn option(&self, name: EpOptionName) -> Result<EpOption> {
        self.inner.option(name)
    }

    fn join(&self, group: &Address, context: Context) -> Result<Arc<dyn Membership>> {
        let args = |args: &mut Args| {
            args.text("group", group).num("context", context.0);
        };
        let run = || self.inner.join(group, context);
        self.at.gives("join", &args, |_| None, Err(Errno::Io), run)
    }

    fn collective(&self) -> Option<&dyn Collective> {
        self.inner.collective().map(|_| self as &dyn Collective)
    }

    fn cm(&self) -> Option<&dyn ConnectionManagement> {
        self.inner.cm().map(|_| self as &dyn ConnectionManagement)
    }
}

impl HookedEndpoint {
    fn inner_cm(&self) -> Result<&dyn ConnectionManagement> {
        self.inner.cm().ok_or(Errno::NoSys)
    }
}

impl ConnectionManagement for HookedEndpoint {
    fn connect(&self, addr: &Address, data: &[u8]) -> Result {
        let args = |args: &mut Args| {
            args.text("addr", addr).num("len", data.len() as u64);
        };
        let about = addr.to_string();
        let post = Post {
            about: &about,
            ..Post::new("connect")
        };
        self.post(&post, &args, || self.inner_cm()?.connect(addr, data))
    }

    fn accept(&self, data: &[u8]) -> Result {
        let run = || self.inner_cm()?.accept(data);
        self.post(&Post::new("accept"), &|_| {}, run)
    }

    fn shutdown(&self) -> Result {
        let run = || self.inner_cm()?.shutdown();
        self.post(&Post::new("shutdown"), &|_| {}, run)
    }

    fn peer(&self) -> Result<Address> {
        self.inner_cm()?.peer()
    }
}

impl Collective for HookedEndpoint {
    fn join(&self, set: &av::Set, context: Context) -> Result<Arc<dyn Membership>> {
        let args = |args: &mut Args| {
            args.num("members", set.members().len() as u64)
                .num("context", context.0);
        };
        let run = || {
            self.inner
                .collective()
                .ok_or(Errno::NoSys)?
                .join(set, context)
        };
        self.at
            .gives("join_collective", &args, |_| None, Err(Errno::Io), run)
    }

    unsafe fn collective(&self, msg: &CollectiveMsg, flags: OpFlags) -> Result {
        let args = |args: &mut Args| {
            args.text("coll", &format_args!("{:?}", msg.coll))
                .num("count", msg.count as u64)
                .num("group", msg.group.0)
                .num("context", msg.context.0);
        };
        let run = || {
            let coll = self.inner.collective().ok_or(Errno::NoSys)?;
            // SAFETY: passed on from the caller.
            unsafe { coll.collective(msg, flags) }
        };
        let len = match msg.coll {
            collective::Op::Barrier => 0,
            _ => msg.count.saturating_mul(msg.datatype.size()),
        };
        let about = format!("{:?}", msg.coll);
        let post = Post {
            about: &about,
            ..of_msg(
                "collective",
                Timed::Collective,
                len,
                (msg.group, msg.context, flags),
            )
        };
        self.post(&post, &args, run)
    }
}

impl Drop for HookedEndpoint {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.close();
        }
        self.at.close("ep_close");
    }
}

impl fmt::Debug for HookedEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
