//! The endpoint that the application sees: the provider's, whose tags lack a bit, with collectives.

#![expect(unsafe_code, reason = "an endpoint around an endpoint")]

use std::fmt;
use std::sync::{Arc, Weak};

use selvedge::atomic::{AtomicMsg, Attr, Datatype, Family, Ioc, IocMut, Op, Target};
use selvedge::collective::{self, CollectiveMsg};
use selvedge::rma::{ReadMsg, WriteMsg};
use selvedge::{
    Address, Atomic, Bindings, Caps, Collective, Context, Desc, Endpoint, EpOption, EpOptionName,
    Errno, Error, FiAddr, Info, Membership, Msg, OpFlags, Result, Rma, Tagged, av, msg, tagged,
};

use super::engine::{Engine, Post, State};
use super::group::Group;
use super::join::Join;
use super::lane::{Lanes, Roads};
use super::mail::Mailbox;
use super::members::{Members, rank_in};
use super::memory::{Ends, Memory};
use super::plan::Shape;
use super::reduction;
use super::sight::Sight;
use super::tag::{self, Number};
use super::wire::{Events, Wire};
use crate::birth::Native;
use crate::cq::{Progress, Sink};
use crate::domain::Base;
use crate::eq::Queue;
use crate::lock::Lock;
use crate::{Drivers, Ep, own_eq};

/// What a provider opens below the layer.
#[derive(Debug)]
pub struct Inner {
    /// The endpoint.
    pub endpoint: Arc<dyn Endpoint>,
    /// What queues and counters know it by.
    pub progress: Arc<dyn Progress>,
    /// Its lanes, if it has any.
    pub lanes: Option<Arc<dyn Lanes>>,
    /// Its address vector.
    pub members: Arc<dyn Members>,
}

struct Layered {
    inner: Arc<dyn Endpoint>,
    engine: Arc<Engine>,
    progress: Arc<dyn Progress>,
    below: Arc<dyn Progress>,
    drivers: Drivers,
    eq: Weak<Queue>,
    members: Arc<dyn Members>,
    /// Whether tagged receives of the application may name their source.
    directs: bool,
    /// What operations say that are to be reported, if all are.
    tx: OpFlags,
    rx: OpFlags,
}

/// Opens an endpoint with [`Caps::COLLECTIVE`] around one that `open` opens, which passes the
/// mailbox to [`Ep::with_layer`].
///
/// # Errors
/// Those of `open` and of [`Ep::resolve`]; [`Errno::NoSys`] with shared receives.
pub fn open(
    info: &Info,
    bind: &Bindings,
    base: &Base,
    open: impl FnOnce(&Info, &Bindings, Arc<Mailbox>) -> Result<Inner, Error>,
) -> Result<Arc<dyn Endpoint>, Error> {
    let ep = Ep::resolve_unseen(bind, info, base.id())?;
    if bind.srx.is_some() {
        let what = "an endpoint with FI_COLLECTIVE has receives of its own";
        return Err(Error::new(Errno::NoSys, what));
    }
    let own_eq = |eq| own_eq(eq, base.id().fabric(), base.id());
    let eq = bind.eq.as_ref().map(own_eq).transpose()?;
    let eq = eq.map_or_else(Weak::new, |eq| Arc::downgrade(&eq));
    let mail = Arc::new(Mailbox::new(base.mode_of(bind), Weak::clone(&eq)));
    let drivers = base.drivers(&ep).with_eq(&eq);
    let (mut below, mut bound) = (info.clone(), bind.clone());
    for caps in [&mut below.caps, &mut below.rx_attr.caps] {
        *caps |= Caps::TAGGED | Caps::TAGGED_DIRECTED_RECV | Caps::SEND | Caps::RECV;
        *caps -= Caps::COLLECTIVE;
    }
    // What is the layer's own is not reported by these queues, so the application's has to say
    // that it is.
    (bound.tx_selective, bound.rx_selective) = (true, true);
    let Inner {
        endpoint,
        progress,
        lanes,
        members,
    } = open(&below, &bound, Arc::clone(&mail))?;
    let wire = Wire {
        inner: Arc::clone(&endpoint),
    };
    let sight = Sight::open(info, &members, &*endpoint)?;
    let state = State::new(wire, Roads::new(lanes), Events(Weak::clone(&eq)), sight);
    // SAFETY: `Base` derives the mode from the application's promise about threads, which covers
    // the endpoint; the lock is taken at the top of each call, and never below.
    let state = Native::new(unsafe { Lock::with_mode(base.mode_of(bind), state) });
    let engine = Arc::new(Engine::new(state, mail, ep));
    let reported = |is_selective| match is_selective {
        true => OpFlags::empty(),
        false => OpFlags::COMPLETION,
    };
    let caps = info.caps | info.rx_attr.caps;
    let layered = Arc::new(Layered {
        inner: endpoint,
        progress: Arc::clone(&engine) as Arc<dyn Progress>,
        engine,
        below: progress,
        drivers,
        eq,
        members,
        directs: caps.intersects(Caps::DIRECTED_RECV | Caps::TAGGED_DIRECTED_RECV),
        tx: reported(bind.tx_selective),
        rx: reported(bind.rx_selective),
    });
    // What was attached is detached when the endpoint is dropped. Behind the endpoint below, so that
    // what that moves is seen in the same turn.
    if let Some(eq) = layered.eq.upgrade() {
        eq.attach(&layered.below)?;
    }
    layered.drivers.attach(&layered.progress)?;
    Ok(layered)
}

impl Drop for Layered {
    fn drop(&mut self) {
        // In a forked child nothing is to be ended.
        if self.engine.state.lock().is_err() {
            return;
        }
        self.drivers.detach(&self.progress);
        if let Some(eq) = self.eq.upgrade() {
            eq.detach(&self.below);
        }
    }
}

impl Layered {
    /// Flags of an operation that is the application's.
    fn of_user(flags: OpFlags, reported: OpFlags) -> Result<OpFlags> {
        match flags.contains(OpFlags::PEER_TRANSFER) {
            true => Err(Errno::BadFlags),
            false => Ok(flags | reported),
        }
    }

    fn tx(&self, flags: OpFlags) -> Result<OpFlags> {
        Self::of_user(flags, self.tx)
    }

    fn rx(&self, flags: OpFlags) -> Result<OpFlags> {
        Self::of_user(flags, self.rx)
    }
}

impl Msg for Layered {
    unsafe fn sendmsg(&self, msg: &msg::SendMsg<'_>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { self.inner.sendmsg(msg, self.tx(flags)?) }
    }

    unsafe fn recvmsg(&self, msg: &msg::RecvMsg<'_>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { self.inner.recvmsg(msg, self.rx(flags)?) }
    }

    fn inject(&self, buf: &[u8], dest: FiAddr, data: Option<u64>) -> Result {
        self.inner.inject(buf, dest, data)
    }
}

impl Tagged for Layered {
    unsafe fn tsendmsg(&self, msg: &tagged::SendMsg<'_>, flags: OpFlags) -> Result {
        let tag = tag::of_user(msg.tag)?;
        let msg = tagged::SendMsg { tag, ..*msg };
        // SAFETY: passed on from the caller.
        unsafe { self.inner.tsendmsg(&msg, self.tx(flags)?) }
    }

    unsafe fn trecvmsg(&self, msg: &tagged::RecvMsg<'_>, flags: OpFlags) -> Result {
        let tag = tag::match_of_user(msg.tag)?;
        let src = match self.directs {
            true => msg.src,
            false => FiAddr::UNSPEC,
        };
        let msg = tagged::RecvMsg { tag, src, ..*msg };
        // SAFETY: passed on from the caller.
        unsafe { self.inner.trecvmsg(&msg, self.rx(flags)?) }
    }

    fn tinject(&self, buf: &[u8], dest: FiAddr, tag: u64, data: Option<u64>) -> Result {
        self.inner.tinject(buf, dest, tag::of_user(tag)?, data)
    }
}

impl Rma for Layered {
    unsafe fn readmsg(&self, msg: &ReadMsg<'_>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { self.inner.readmsg(msg, self.tx(flags)?) }
    }

    unsafe fn writemsg(&self, msg: &WriteMsg<'_>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { self.inner.writemsg(msg, self.tx(flags)?) }
    }

    fn inject_write(
        &self,
        buf: &[u8],
        dest: FiAddr,
        addr: u64,
        key: u64,
        data: Option<u64>,
    ) -> Result {
        self.inner.inject_write(buf, dest, addr, key, data)
    }
}

impl Atomic for Layered {
    unsafe fn atomicmsg(&self, msg: &AtomicMsg<'_>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { self.inner.atomicmsg(msg, self.tx(flags)?) }
    }

    unsafe fn fetch_atomicmsg(
        &self,
        msg: &AtomicMsg<'_>,
        result: &[IocMut],
        result_desc: &[Desc],
        flags: OpFlags,
    ) -> Result {
        let flags = self.tx(flags)?;
        // SAFETY: passed on from the caller.
        unsafe { self.inner.fetch_atomicmsg(msg, result, result_desc, flags) }
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
        let flags = self.tx(flags)?;
        // SAFETY: passed on from the caller.
        unsafe {
            self.inner
                .compare_atomicmsg(msg, compare, compare_desc, result, result_desc, flags)
        }
    }

    fn inject_atomic(&self, buf: &[u8], target: &Target) -> Result {
        self.inner.inject_atomic(buf, target)
    }

    fn valid(&self, family: Family, datatype: Datatype, op: Op) -> Result<Attr> {
        self.inner.valid(family, datatype, op)
    }
}

// SAFETY: what the application posts is the inner endpoint's to keep the promise for. The memory of
// a collective is named by receives and sends of that endpoint alone; the collective is reported
// when the mailbox has said that all of them are over, which the inner endpoint says of each as it
// would say it by a completion. Dropping the layer drops the engine, which nobody else keeps, and
// with it the inner endpoint before the memory of ours that it was given.
unsafe impl Endpoint for Layered {
    fn address(&self) -> Result<Address> {
        self.inner.address()
    }

    fn cancel(&self, context: Context) -> Result {
        self.inner.cancel(context)
    }

    fn set(&self, option: EpOption) -> Result {
        self.inner.set(option)
    }

    fn option(&self, name: EpOptionName) -> Result<EpOption> {
        self.inner.option(name)
    }

    fn join(&self, group: &Address, context: Context) -> Result<Arc<dyn Membership>> {
        self.inner.join(group, context)
    }

    fn collective(&self) -> Option<&dyn Collective> {
        Some(self)
    }
}

/// What an application holds of a group. Dropping it leaves the group.
#[derive(Debug)]
struct Member {
    engine: Weak<Engine>,
    number: Number,
}

/// Above the indices of peers and the addresses of sets. Indices that name contexts may have these
/// bits, too; they never stand where a group does.
const GROUPS: u64 = 0b11 << 61;

impl Membership for Member {
    fn addr(&self) -> FiAddr {
        FiAddr(GROUPS | u64::from(self.number))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let Some(engine) = self.engine.upgrade() else {
            return;
        };
        // In a forked child there is nothing to leave.
        let _ = engine.with(&mut Sink::none(), |state| {
            if let Some(group) = state.groups.get_mut(&self.number) {
                group.is_left = true;
                group.hand_over();
            }
            state.forget_if_left(self.number);
            Ok(())
        });
    }
}

impl Collective for Layered {
    fn join(&self, set: &av::Set, context: Context) -> Result<Arc<dyn Membership>> {
        if self.eq.strong_count() == 0 {
            return Err(Errno::NoEq);
        }
        let members = set.members();
        let rank = rank_in(members, &*self.members, &*self.inner)?;
        let key = tag::key(set.comm_key());
        let number = self.engine.with(&mut Sink::none(), |state| {
            let number = state.free_number().ok_or(Errno::NoSpc)?;
            let mut group = Group::new(number, members.to_vec(), rank);
            group.sight = state.sight.groups.join(number, rank, members.len());
            group.join = Some(Join::new(&group, key, context));
            state.groups.insert(number, group);
            state.go_on_joining(number);
            Ok(number)
        })?;
        Ok(Arc::new(Member {
            engine: Arc::downgrade(&self.engine),
            number,
        }))
    }

    unsafe fn collective(&self, msg: &CollectiveMsg, flags: OpFlags) -> Result {
        let flags = self.engine.ep.tx_flags(flags);
        if !FLAGS.contains(flags) {
            return Err(Errno::BadFlags);
        }
        let number = number_of(msg.group)?;
        self.engine.with(&mut Sink::none(), |state| {
            let has_room = self.engine.ep.tx_cq.room() > 0;
            if has_room
                && state.start_quickly(number, msg, flags, |len| {
                    // SAFETY: passed on from the caller, until the collective is reported, which it
                    // is when this value is dropped.
                    unsafe { Ends::new((msg.buf, len), (msg.result, len)) }
                })
            {
                return Ok(());
            }
            let group = state.groups.get(&number).filter(|group| !group.is_left);
            let group = group.ok_or(Errno::Inval)?;
            if let Some((errno, _)) = &group.broken {
                return Err(*errno);
            }
            if group.join.is_some() {
                return Err(Errno::OpBadState);
            }
            let kernel = match msg.coll.reduces() {
                true => Some(reduction(msg.datatype, msg.op)?),
                false => None,
            };
            if !has_room || !State::has_room(group) {
                return Err(Errno::Again);
            }
            let shape = shape(group, msg)?;
            check_addresses(&shape, msg)?;
            let post = Post {
                shape,
                kernel,
                context: msg.context,
                flags,
            };
            state.start(number, post, |shape, group, plan| {
                let scratch = group.scratch(plan.scratch);
                let (buf, result) = ((msg.buf, shape.reads()), (msg.result, shape.writes()));
                // SAFETY: passed on from the caller, until the collective is reported, which it is
                // when this value is dropped.
                let ends = unsafe { Ends::new(buf, result) };
                Memory::new(ends, scratch)
            });
            if let Some(group) = state.groups.get_mut(&number) {
                group.learn(msg, &shape, kernel);
            }
            Ok(())
        })
    }
}

/// Flags that a collective may have, defaults of the endpoint's included.
const FLAGS: OpFlags = OpFlags::COMPLETION
    .union(OpFlags::MORE)
    .union(OpFlags::INJECT_COMPLETE)
    .union(OpFlags::TRANSMIT_COMPLETE)
    .union(OpFlags::DELIVERY_COMPLETE)
    .union(OpFlags::MATCH_COMPLETE);

fn number_of(group: FiAddr) -> Result<Number> {
    match group.0 & GROUPS {
        GROUPS => Number::try_from(group.0 & !GROUPS).map_err(|_| Errno::Inval),
        _ => Err(Errno::Inval),
    }
}

fn shape(group: &Group, msg: &CollectiveMsg) -> Result<Shape> {
    let root = match msg.coll.has_root() {
        true => group.members.iter().position(|&member| member == msg.root),
        false => Some(0),
    };
    let is_barrier = msg.coll == collective::Op::Barrier;
    let count = if is_barrier { 0 } else { msg.count };
    let (ranks, size) = (group.members.len(), msg.datatype.size());
    let bytes = count
        .checked_mul(size)
        .and_then(|all| all.checked_mul(ranks));
    // Scratch memory is a few times as much.
    bytes
        .filter(|&bytes| bytes < isize::MAX as usize / 64)
        .ok_or(Errno::MsgSize)?;
    Ok(Shape {
        coll: msg.coll,
        rank: group.rank,
        ranks,
        root: root.ok_or(Errno::Inval)?,
        count,
        size,
    })
}

fn check_addresses(shape: &Shape, msg: &CollectiveMsg) -> Result {
    let lacks_buf = shape.reads() > 0 && msg.buf.is_null();
    match lacks_buf || shape.writes() > 0 && msg.result.is_null() {
        true => Err(Errno::Inval),
        false => Ok(()),
    }
}

impl State {
    /// A number that no group has, and none has had for long.
    fn free_number(&mut self) -> Option<Number> {
        for _ in 0..=Number::MAX {
            let number = self.next_number;
            self.next_number = number.wrapping_add(1);
            if !self.groups.contains_key(&number) {
                return Some(number);
            }
        }
        None
    }
}

impl fmt::Debug for Layered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
