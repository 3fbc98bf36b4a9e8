//! The endpoint with collectives that the application uses: a layer around the provider's endpoint.
//! The layer reserves one bit of the tags for its own messages.

#![expect(unsafe_code, reason = "posts are passed on to the endpoint below")]

use std::sync::{Arc, Weak};

use selvedge::collective::{self, CollectiveMsg};
use selvedge::{
    Bindings, Caps, Context, Endpoint, Errno, Error, FiAddr, Info, LateBindings, Membership, Op,
    OpFlags, Result, av, msg, tagged,
};

use super::channel::{Channels, CollectiveChannels};
use super::completions::LayerCompletions;
use super::engine::{CollTelemetry, Engine, Post, State};
use super::group::{Group, Join};
use super::members::{Members, rank_in};
use super::memory::{Memory, UserBuffers};
use super::plan::Shape;
use super::reduction;
use super::tag::{self, Number};
use super::wire::{Events, Wire};
use crate::cq::{Progress, Sink};
use crate::domain::Base;
use crate::eq::Queue;
use crate::fork_guard::ForkGuarded;
use crate::layer::{EndpointLayer, Layered, ObjectLayer};
use crate::lock::Lock;
use crate::{Drivers, Ep, bound_eq};

/// The provider's endpoint below the layer.
#[derive(Debug)]
pub struct InnerEndpoint {
    /// The endpoint.
    pub endpoint: Arc<dyn Endpoint>,
    /// The object by which queues and counters drive the endpoint.
    pub progress: Arc<dyn Progress>,
    /// The endpoint's channels for collectives, if it has any.
    pub channels: Option<Arc<dyn CollectiveChannels>>,
    /// The endpoint's address vector.
    pub members: Arc<dyn Members>,
}

/// The layer around an endpoint that adds collectives to it.
struct Collectives {
    engine: Arc<Engine>,
    progress: Arc<dyn Progress>,
    /// The [`Progress`] of the endpoint below.
    below_progress: Arc<dyn Progress>,
    drivers: Drivers,
    eq: Weak<Queue>,
    members: Arc<dyn Members>,
    /// Whether the application requested directed receives. Otherwise the source of its tagged
    /// receives is ignored.
    has_directed_recv: bool,
    /// The completion flag if the application's transmit queue reports all operations, and no flag
    /// if it reports selectively. The layer adds it to the application's operations.
    tx_completion: OpFlags,
    /// As `tx_completion`, for receives.
    rx_completion: OpFlags,
}

/// Opens an endpoint with [`Caps::COLLECTIVE`] around the endpoint that `open` returns. `open` must
/// pass the [`LayerCompletions`] that it gets to [`Ep::with_layer`].
///
/// # Errors
/// Those of `open` and of [`Ep::resolve`]; [`Errno::NoSys`] with shared receives.
pub fn open(
    info: &Info,
    bind: &Bindings,
    base: &Base,
    open: impl FnOnce(&Info, &Bindings, Arc<LayerCompletions>) -> Result<InnerEndpoint, Error>,
) -> Result<Arc<dyn Endpoint>, Error> {
    let ep = Ep::resolve_without_telemetry(bind, info, base.id())?;
    if bind.srx.is_some() {
        let message = "an endpoint with FI_COLLECTIVE cannot use shared receives; open it without a shared receive context";
        return Err(Error::new(Errno::NoSys, message));
    }
    let bound_eq = |eq| bound_eq(eq, base.id().fabric(), base.id());
    let eq = bind.eq.as_ref().map(bound_eq).transpose()?;
    let eq = eq.map_or_else(Weak::new, |eq| Arc::downgrade(&eq));
    let completions = Arc::new(LayerCompletions::new(base.mode_of(bind), Weak::clone(&eq)));
    let drivers = base.drivers(&ep).with_eq(&eq);
    let (mut below_info, mut below_bind) = (info.clone(), bind.clone());
    for caps in [&mut below_info.caps, &mut below_info.rx_attr.caps] {
        *caps |= Caps::TAGGED | Caps::TAGGED_DIRECTED_RECV | Caps::SEND | Caps::RECV;
        *caps -= Caps::COLLECTIVE;
    }
    // The queues report only operations with the completion flag. The layer adds the flag to the
    // application's operations, and not to its own.
    (below_bind.tx_selective, below_bind.rx_selective) = (true, true);
    let InnerEndpoint {
        endpoint,
        progress,
        channels,
        members,
    } = open(&below_info, &below_bind, Arc::clone(&completions))?;
    let wire = Wire {
        inner: Arc::clone(&endpoint),
    };
    let telemetry = CollTelemetry::open(info, &members, &*endpoint)?;
    let state = State::new(
        wire,
        Channels::new(channels),
        Events(Weak::clone(&eq)),
        telemetry,
    );
    // SAFETY: `Base` derives the mode from the application's promise about threads, which covers
    // the endpoint; each call takes the lock at its start, and nothing that it calls takes it
    // again.
    let state = ForkGuarded::new(unsafe { Lock::with_mode(base.mode_of(bind), state) });
    let engine = Arc::new(Engine::new(state, completions, ep));
    let completion_flag = |is_selective| {
        if is_selective {
            OpFlags::empty()
        } else {
            OpFlags::COMPLETION
        }
    };
    let caps = info.caps | info.rx_attr.caps;
    let layer = Collectives {
        progress: Arc::clone(&engine) as Arc<dyn Progress>,
        engine,
        below_progress: progress,
        drivers,
        eq,
        members,
        has_directed_recv: caps.intersects(Caps::DIRECTED_RECV | Caps::TAGGED_DIRECTED_RECV),
        tx_completion: completion_flag(bind.tx_selective),
        rx_completion: completion_flag(bind.rx_selective),
    };
    let layered = Layered::new(endpoint, layer);
    let layer = layered.layer();
    // `close` detaches both when the endpoint is dropped. The layer is attached after the endpoint
    // below, so it handles that endpoint's completions in the same call.
    if let Some(eq) = layer.eq.upgrade() {
        eq.attach(&layer.below_progress)?;
    }
    layer.drivers.attach(&layer.progress)?;
    Ok(layered)
}

impl ObjectLayer for Collectives {
    type Layers = ();

    fn close(&self) {
        // A forked child has nothing to close.
        if self.engine.state.lock().is_err() {
            return;
        }
        self.drivers.detach(&self.progress);
        if let Some(eq) = self.eq.upgrade() {
            eq.detach(&self.below_progress);
        }
    }
}

impl Collectives {
    /// Adds `completion` to the flags of an operation of the application.
    ///
    /// # Errors
    /// [`Errno::BadFlags`] for the flag that marks the layer's own operations.
    #[inline]
    fn user_flags(flags: OpFlags, completion: OpFlags) -> Result<OpFlags> {
        if flags.contains(OpFlags::PEER_TRANSFER) {
            Err(Errno::BadFlags)
        } else {
            Ok(flags | completion)
        }
    }

    #[inline]
    fn tx_flags(&self, flags: OpFlags) -> Result<OpFlags> {
        Self::user_flags(flags, self.tx_completion)
    }

    #[inline]
    fn rx_flags(&self, flags: OpFlags) -> Result<OpFlags> {
        Self::user_flags(flags, self.rx_completion)
    }
}

// SAFETY: the endpoint below keeps the promise for the application's posts. Only receives and sends
// of that endpoint name the memory of a collective. The collective is reported when all of them
// have completed in `LayerCompletions`, where the endpoint below reports each one as it would in a
// completion queue. Dropping the endpoint drops the engine, which has no other owner, and with it
// the endpoint below before the scratch memory that the engine gave to it.
unsafe impl EndpointLayer for Collectives {
    #[inline]
    unsafe fn post(&self, below: &dyn Endpoint, op: &Op<'_>, flags: OpFlags) -> Result {
        match op {
            // SAFETY: passed on from the caller, here and below.
            Op::Collective(msg) => unsafe { self.collective(msg, flags) },
            // SAFETY: as above.
            Op::InjectWrite { .. } | Op::InjectAtomic { .. } => unsafe { op.post(below, flags) },
            // SAFETY: as above.
            _ => unsafe { op.post(below, self.tx_flags(flags)?) },
        }
    }

    #[inline]
    unsafe fn sendmsg(
        &self,
        below: &dyn Endpoint,
        msg: &msg::SendMsg<'_>,
        flags: OpFlags,
    ) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { below.sendmsg(msg, self.tx_flags(flags)?) }
    }

    #[inline]
    unsafe fn recvmsg(
        &self,
        below: &dyn Endpoint,
        msg: &msg::RecvMsg<'_>,
        flags: OpFlags,
    ) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { below.recvmsg(msg, self.rx_flags(flags)?) }
    }

    fn inject(&self, below: &dyn Endpoint, buf: &[u8], dest: FiAddr, data: Option<u64>) -> Result {
        below.inject(buf, dest, data)
    }

    #[inline]
    unsafe fn tsendmsg(
        &self,
        below: &dyn Endpoint,
        msg: &tagged::SendMsg<'_>,
        flags: OpFlags,
    ) -> Result {
        let tag = tag::user_tag(msg.tag)?;
        let msg = tagged::SendMsg { tag, ..*msg };
        // SAFETY: passed on from the caller.
        unsafe { below.tsendmsg(&msg, self.tx_flags(flags)?) }
    }

    #[inline]
    unsafe fn trecvmsg(
        &self,
        below: &dyn Endpoint,
        msg: &tagged::RecvMsg<'_>,
        flags: OpFlags,
    ) -> Result {
        let tag = tag::user_match(msg.tag)?;
        let src = if self.has_directed_recv {
            msg.src
        } else {
            FiAddr::UNSPEC
        };
        let msg = tagged::RecvMsg { tag, src, ..*msg };
        // SAFETY: passed on from the caller.
        unsafe { below.trecvmsg(&msg, self.rx_flags(flags)?) }
    }

    #[inline]
    fn tinject(
        &self,
        below: &dyn Endpoint,
        buf: &[u8],
        dest: FiAddr,
        tag: u64,
        data: Option<u64>,
    ) -> Result {
        below.tinject(buf, dest, tag::user_tag(tag)?, data)
    }

    fn bind_late(&self, _below: &dyn Endpoint, _late: &LateBindings) -> Result<(), Error> {
        Err(LateBindings::unsupported())
    }

    fn has_collectives(&self, _below: &dyn Endpoint) -> bool {
        true
    }

    fn join_collective(
        &self,
        below: &dyn Endpoint,
        set: &av::Set,
        context: Context,
    ) -> Result<Arc<dyn Membership>> {
        if self.eq.strong_count() == 0 {
            return Err(Errno::NoEq);
        }
        let rank = rank_in(set, &*self.members, below)?;
        let members = set.members();
        let key = tag::key(set.comm_key());
        let number = self.engine.with_state(&mut Sink::none(), |state| {
            let number = state.free_number().ok_or(Errno::NoSpc)?;
            let mut group = Group::new(number, members.to_vec(), rank);
            group.stats_slot = state
                .telemetry
                .groups
                .add_group(number, rank, members.len());
            group.join = Some(Join::new(&group, key, context));
            state.groups.insert(number, group);
            state.continue_join(number);
            Ok(number)
        })?;
        Ok(Arc::new(Member {
            engine: Arc::downgrade(&self.engine),
            number,
        }))
    }
}

/// The application's handle of a group. Dropping it leaves the group.
#[derive(Debug)]
struct Member {
    engine: Weak<Engine>,
    number: Number,
}

/// The bits that mark the address of a group, above the indices of peers and the addresses of sets.
/// An address that names a receive context may have these bits, too, but is never passed where a
/// group is expected.
const GROUP_BITS: u64 = 0b11 << 61;

impl Membership for Member {
    fn addr(&self) -> FiAddr {
        FiAddr(GROUP_BITS | u64::from(self.number))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let Some(engine) = self.engine.upgrade() else {
            return;
        };
        // A forked child has no group to leave.
        let _ = engine.with_state(&mut Sink::none(), |state| {
            if let Some(group) = state.groups.get_mut(&self.number) {
                group.is_left = true;
                group.move_to_slow_path();
            }
            state.remove_if_left(self.number);
            Ok(())
        });
    }
}

impl Collectives {
    /// # Safety
    /// As [`selvedge::Collective::collective`].
    unsafe fn collective(&self, msg: &CollectiveMsg, flags: OpFlags) -> Result {
        let flags = self.engine.ep.tx_flags(flags);
        if !FLAGS.contains(flags) {
            return Err(Errno::BadFlags);
        }
        let number = number_of(msg.group)?;
        self.engine.with_state(&mut Sink::none(), |state| {
            let has_room = self.engine.ep.tx_cq.room() > 0;
            if has_room
                && state.start_on_fast_path(number, msg, flags, |len| {
                    // SAFETY: the caller keeps its promise until the collective is reported. This
                    // value is dropped then.
                    unsafe { UserBuffers::new((msg.buf, len), (msg.result, len)) }
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
            let kernel = if msg.coll.reduces() {
                Some(reduction(msg.datatype, msg.op)?)
            } else {
                None
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
                let (buf, result) = (
                    (msg.buf, shape.source_len()),
                    (msg.result, shape.result_len()),
                );
                // SAFETY: the caller keeps its promise until the collective is reported. This value
                // is dropped then.
                let buffers = unsafe { UserBuffers::new(buf, result) };
                Memory::new(buffers, scratch)
            });
            if let Some(group) = state.groups.get_mut(&number) {
                group.remember(msg, &shape, kernel);
            }
            Ok(())
        })
    }
}

/// The flags that a collective accepts, whether they are its own or the endpoint's defaults.
const FLAGS: OpFlags = OpFlags::COMPLETION
    .union(OpFlags::MORE)
    .union(OpFlags::INJECT_COMPLETE)
    .union(OpFlags::TRANSMIT_COMPLETE)
    .union(OpFlags::DELIVERY_COMPLETE)
    .union(OpFlags::MATCH_COMPLETE);

fn number_of(group: FiAddr) -> Result<Number> {
    match group.0 & GROUP_BITS {
        GROUP_BITS => Number::try_from(group.0 & !GROUP_BITS).map_err(|_| Errno::Inval),
        _ => Err(Errno::Inval),
    }
}

fn shape(group: &Group, msg: &CollectiveMsg) -> Result<Shape> {
    let root = if msg.coll.has_root() {
        group.members.iter().position(|&member| member == msg.root)
    } else {
        Some(0)
    };
    let is_barrier = msg.coll == collective::Op::Barrier;
    let count = if is_barrier { 0 } else { msg.count };
    let (ranks, size) = (group.members.len(), msg.datatype.size());
    let bytes = count
        .checked_mul(size)
        .and_then(|all| all.checked_mul(ranks));
    // The bound leaves room for scratch memory, which is a few times as large.
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
    let lacks_buf = shape.source_len() > 0 && msg.buf.is_null();
    if lacks_buf || shape.result_len() > 0 && msg.result.is_null() {
        Err(Errno::Inval)
    } else {
        Ok(())
    }
}

impl State {
    /// A number that no group has, and that was not used recently.
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
