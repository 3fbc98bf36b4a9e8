//! The safe layer: endpoints whose operations own their buffers.
//!
//! An operation outlives the call that posts it: the provider, or a peer, accesses the buffer until
//! the operation completes. A borrow cannot protect the buffer during that time, because a guard
//! can be leaked. This layer therefore *moves* a [`Buf`] into the operation. The completion returns
//! it:
//!
//! ```text
//!            take()              send(buf, ..)               poll() / .await
//!   Pool ------------> Buf ---------------------> slot ------------------------> Buf
//!     ^                 |       TryPostError            Completion, OpError       |
//!     +-----------------+---------------------------------------------------------+
//!                              drop: back to the pool
//! ```
//!
//! - A [`Pool`] is one slab of equal buffers. It is registered once, where the domain requires
//!   registration. It may be in special memory ([`Pool::special`]), from which peers on the same
//!   machine copy large messages directly. A [`PoolSet`] has buffers of several sizes.
//! - An [`Endpoint`] has operations that are posted, and completions that are polled:
//!   [`Endpoint::poll`] appends [`Completion`]s to a reusable list, and [`Endpoint::wait`] parks the
//!   thread until there is one. No operation allocates memory.
//! - An [`AsyncEndpoint`] has the same operations as futures, for any executor. It also runs futures
//!   itself and parks the thread while they are pending ([`AsyncEndpoint::run`]).
//! - Both have a descriptor for programs that wait in their own loop ([`Endpoint::wait_fd`],
//!   [`AsyncEndpoint::wait_fd`]).
//! - A [`SharedRegion`] is local memory that peers may read and write. A [`RemoteAddr`] is an address
//!   in such memory of a peer, for reads, writes and atomics ([`Endpoint::fetch_atomic`]). The
//!   region travels to the peer as the bytes of a [`RemoteRegion`].
//!
//! Each operation uses one owned buffer; a send may gather several ([`Endpoint::sendv`]). The raw
//! layer ([`crate::Msg`], [`crate::Tagged`], [`crate::Rma`], [`crate::Atomic`]) also takes lists of
//! segments and borrowed memory, with `unsafe`.
//!
//! # Examples
//!
//! An endpoint sends a message to itself and waits for both completions:
//!
//! ```no_run
//! use std::error::Error;
//!
//! use selvedge::owned::{Completions, Endpoint, Pool};
//! use selvedge::{Context, Domain, Errno, FiAddr, Info, av, wait};
//!
//! fn hello(domain: &dyn Domain, info: &Info) -> Result<(), Box<dyn Error>> {
//!     let av = domain.av(&av::Attr::default())?;
//!     let ep = Endpoint::open_waiting(domain, info, av.clone(), wait::Object::Unspec)?;
//!     let me = av.insert_one(&ep.address()?)?;
//!
//!     let pool = Pool::new(domain, 4096, 2)?;
//!     let recv_buf = pool.take().ok_or(Errno::NoBufs)?;
//!     let mut hello = pool.take().ok_or(Errno::NoBufs)?;
//!     hello.write(b"hello")?;
//!     ep.trecv(recv_buf, FiAddr::UNSPEC, 7, Context(1))?;
//!     ep.tsend(hello, me, 7, Context(2))?;
//!
//!     let mut done = Completions::with_capacity(2);
//!     while ep.wait(&mut done, None)? < 2 {}
//!     for completion in done.drain() {
//!         completion.result.map_err(|error| error.errno)?;
//!         assert_eq!(&completion.buf[..], b"hello");
//!     }
//!     Ok(())
//! }
//! ```
//!
//! The same with futures. The send and the receive are outstanding at the same time. `try_join!`
//! ends with the first error and drops the other future, which cancels its operation: after a
//! failed send, the receive would never complete.
//!
//! ```no_run
//! use selvedge::owned::{AsyncEndpoint, Pool};
//! use selvedge::{Errno, FiAddr};
//!
//! async fn hello(ep: &AsyncEndpoint, me: FiAddr, pool: &Pool) -> Result<(), Errno> {
//!     let recv_buf = pool.take().ok_or(Errno::NoBufs)?;
//!     let mut hello = pool.take().ok_or(Errno::NoBufs)?;
//!     hello.write(b"hello")?;
//!     let send = ep.tsend(hello, me, 7);
//!     let receive = ep.trecv(recv_buf, FiAddr::UNSPEC, 7);
//!     let (sent, (buf, _)) = futures::try_join!(send, receive)?;
//!     assert_eq!(&buf[..], &sent[..]);
//!     Ok(())
//! }
//! ```
//!
//! A posted buffer cannot be accessed before its completion:
//!
//! ```compile_fail,E0382
//! # use selvedge::{Context, FiAddr, owned::{Buf, Endpoint}};
//! fn send_and_read(ep: &Endpoint, buf: Buf, peer: FiAddr) {
//!     ep.send(buf, peer, Context(1));
//!     println!("{:?}", &buf[..]); // borrow of moved value: `buf`
//! }
//! ```
//!
//! ```compile_fail,E0382
//! # use selvedge::{FiAddr, owned::{AsyncEndpoint, Buf, OpError}};
//! async fn receive_and_write(ep: &AsyncEndpoint, mut buf: Buf) -> Result<(), OpError> {
//!     let receive = ep.recv(buf, FiAddr::UNSPEC);
//!     buf[0] = 1; // borrow of moved value: `buf`
//!     receive.await.map(drop)
//! }
//! ```
//!
//! A future cannot outlive its endpoint:
//!
//! ```compile_fail,E0505
//! # use selvedge::{FiAddr, owned::{AsyncEndpoint, Buf, OpError}};
//! async fn close_and_wait(ep: AsyncEndpoint, buf: Buf) -> Result<(), OpError> {
//!     let receive = ep.recv(buf, FiAddr::UNSPEC);
//!     drop(ep); // cannot move out of `ep` because it is borrowed
//!     receive.await.map(drop)
//! }
//! ```
//!
//! # Soundness
//!
//! Code that uses this layer needs no `unsafe`, and cannot cause undefined behavior by any use of
//! endpoints, buffers and futures. This rests on five invariants, and on the promises of the
//! provider:
//!
//! 1. An endpoint opens its own provider endpoint and completion queue, rejects a provider endpoint
//!    with another handle, and hands out neither. So every context on that queue is the key of one of
//!    its slots. Completions of accesses by peers, which have no context, are recognized by their
//!    flags.
//! 2. A slot keeps the buffer from before the post until the completion with the slot's index *and
//!    generation* has been read. A completion with an old generation is ignored.
//! 3. A provider keeps nothing of a failed post: the buffer leaves its slot at once, in
//!    [`TryPostError`] or [`OpError`].
//! 4. Dropping an endpoint drops the provider endpoint first, which ends every access to the
//!    buffers, then the queue, then the slots. Dropping a future leaves the buffer in its slot, and
//!    invariants 2 and 4 apply to its operation.
//! 5. Leaking an endpoint leaks its slots too. Leaking a future leaks nothing that the endpoint does
//!    not free.
//!
//! Threads that share an endpoint synchronize by a lock. Where the application has promised that no
//! two threads use the objects of a domain or of a group at the same time
//! ([`crate::Hints::promise_threading`], which is `unsafe`), the promise replaces the lock, as in
//! the provider.
//!
//! The provider makes its promises by implementing two `unsafe` traits. [`crate::Endpoint`]: the
//! provider does not access a buffer after its completion, or after the last handle was dropped.
//! [`crate::Domain`]: a queue reports an operation only when it is done, and dropping a region revokes
//! all rights of peers.

mod buf;
mod completion;
mod endpoint;
mod free_list;
mod lent;
#[cfg(all(test, loom))]
mod model;
mod pool;
mod pool_set;
mod shared_region;
mod spin_lock;
mod sync;

pub use buf::Buf;
pub use completion::{Completion, Completions, Handle, OpError, Received, TryPostError};
pub use endpoint::{
    AsyncEndpoint, Claim, Claiming, Endpoint, Messages, Receiving, RemoteAddr, RemoteRegion,
    Sending, Viewing,
};
pub use lent::{Plain, SharedBuf, View};
pub use pool::Pool;
pub use pool_set::PoolSet;
pub use shared_region::SharedRegion;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex and ignores poisoning: the protected values are consistent at every point that
/// could panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
