//! The safe layer: buffers that move into an operation and come back when it is done.
//!
//! An operation of a fabric outlives the call that posts it: the provider, or the peer, uses the
//! bytes until a completion says otherwise. A borrow cannot guard them meanwhile, because a guard
//! can be leaked. So nothing is borrowed here. A [`Buf`] is *moved* into the operation, and
//! whoever reads the completion owns it again:
//!
//! ```text
//!            take()              send(buf, ..)              poll() / .await
//!   Pool ------------> Buf ---------------------> slot ----------------------> Buf
//!     ^                 |   Refused: at once back          Completion, Failed   |
//!     +-----------------+-------------------------------------------------------+
//!                              drop: back to the pool
//! ```
//!
//! - A [`Pool`] is one slab of equal buffers, registered once where the domain wants that. It may lie
//!   in special memory ([`Pool::special`]), which peers copy large messages from by themselves.
//! - An [`Endpoint`] is posted to and polled: [`Endpoint::poll`] adds [`Completion`]s to a list
//!   that is used again and again. Nothing is allocated for an operation.
//! - An [`AsyncEndpoint`] has the same operations as futures, for any executor; and it runs them
//!   itself, asleep while there is nothing to do ([`AsyncEndpoint::run`]).
//! - A [`Window`] is memory that peers may read and write; it is never lent as a slice. [`Remote`]
//!   names a place in a peer's. Atomics
//!   ([`Endpoint::fetch_atomic`]) change that of a peer.
//!
//! What this layer leaves out is what one buffer per operation cannot say: lists of pieces and
//! borrowed slices. The raw layer ([`crate::Msg`] and its kin)
//! has them, with `unsafe`.
//!
//! # Examples
//!
//! A message to oneself, polled:
//!
//! ```no_run
//! use std::error::Error;
//!
//! use selvedge::owned::{Completions, Endpoint, Pool};
//! use selvedge::{Context, Domain, Errno, FiAddr, Info, av};
//!
//! fn hello(domain: &dyn Domain, info: &Info) -> Result<(), Box<dyn Error>> {
//!     let av = domain.av(&av::Attr::default())?;
//!     let ep = Endpoint::open(domain, info, av.clone())?;
//!     let me = av.insert_one(&ep.address()?)?;
//!
//!     let pool = Pool::new(domain, 4096, 2)?;
//!     let room = pool.take().ok_or(Errno::NoBufs)?;
//!     let mut hello = pool.take().ok_or(Errno::NoBufs)?;
//!     hello.write(b"hello")?;
//!     ep.trecv(room, FiAddr::UNSPEC, 7, Context(1))?;
//!     ep.tsend(hello, me, 7, Context(2))?;
//!
//!     let mut done = Completions::with_capacity(2);
//!     while ep.poll(&mut done)? < 2 {}
//!     for completion in done.drain() {
//!         completion.result.map_err(|error| error.errno)?;
//!         assert_eq!(&completion.buf[..], b"hello");
//!     }
//!     Ok(())
//! }
//! ```
//!
//! The same with futures; the send and the receive are under way together. `try_join!` ends with the
//! first error and drops the other future, which cancels its operation: after a send that failed, a
//! receive from anybody would be waited for in vain.
//!
//! ```no_run
//! use selvedge::owned::{AsyncEndpoint, Pool};
//! use selvedge::{Errno, FiAddr};
//!
//! async fn hello(ep: &AsyncEndpoint, me: FiAddr, pool: &Pool) -> Result<(), Errno> {
//!     let room = pool.take().ok_or(Errno::NoBufs)?;
//!     let mut hello = pool.take().ok_or(Errno::NoBufs)?;
//!     hello.write(b"hello")?;
//!     let send = ep.tsend(hello, me, 7);
//!     let receive = ep.trecv(room, FiAddr::UNSPEC, 7);
//!     let (sent, (buf, _)) = futures::try_join!(send, receive)?;
//!     assert_eq!(&buf[..], &sent[..]);
//!     Ok(())
//! }
//! ```
//!
//! A buffer that was sent is gone until its completion:
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
//! # use selvedge::{FiAddr, owned::{AsyncEndpoint, Buf, Failed}};
//! async fn receive_and_write(ep: &AsyncEndpoint, mut buf: Buf) -> Result<(), Failed> {
//!     let receive = ep.recv(buf, FiAddr::UNSPEC);
//!     buf[0] = 1; // borrow of moved value: `buf`
//!     receive.await.map(drop)
//! }
//! ```
//!
//! A future does not outlive its endpoint:
//!
//! ```compile_fail,E0505
//! # use selvedge::{FiAddr, owned::{AsyncEndpoint, Buf, Failed}};
//! async fn close_and_wait(ep: AsyncEndpoint, buf: Buf) -> Result<(), Failed> {
//!     let receive = ep.recv(buf, FiAddr::UNSPEC);
//!     drop(ep); // cannot move out of `ep` because it is borrowed
//!     receive.await.map(drop)
//! }
//! ```
//!
//! # Why it is sound
//!
//! Code that uses this layer needs no `unsafe`, whatever it does with endpoints, buffers and
//! futures. That rests on five points and on the provider's word:
//!
//! 1. An endpoint opens its own provider endpoint and completion queue, refuses a provider
//!    endpoint that somebody else holds a handle of, and lends neither. So every context on that
//!    queue names one of its slots; accesses by peers, which have no context, are told apart by
//!    their flags.
//! 2. A slot keeps the buffer from before the post until the completion with the slot's number
//!    *and generation* has been read. A completion with an old generation is passed over.
//! 3. When a post fails, nothing was kept: the buffer leaves its slot at once, in [`Refused`] or
//!    [`Failed`].
//! 4. Dropping an endpoint drops the provider endpoint first, which ends every access to the
//!    buffers, then the queue, then the slots. Dropping a future leaves the buffer in its slot,
//!    and the operation to points 2 and 4.
//! 5. Leaking an endpoint leaks its slots with it; leaking a future leaks nothing that the
//!    endpoint does not free.
//!
//! Threads that share an endpoint take turns. Where the application has promised that no two use the
//! objects of a domain or of a group at the same time ([`crate::Hints::promise_threading`]), that
//! promise, which is `unsafe` to make, keeps them apart, here as in the provider.
//!
//! The provider's word is the promise of two `unsafe` traits. [`crate::Endpoint`]: after the
//! completion and after the last handle is gone, it never touches the buffer again.
//! [`crate::Domain`]: its queues say that an operation is done when it is, and a region that was
//! dropped has no more rights.

mod buf;
mod completion;
mod endpoint;
mod free_list;
#[cfg(all(test, loom))]
mod model;
mod pool;
mod sync;
mod turn;
mod window;

pub use buf::Buf;
pub use completion::{Completion, Completions, Failed, Handle, Received, Refused};
pub use endpoint::{
    AsyncEndpoint, Claim, Claiming, Endpoint, Messages, Receiving, Remote, Sending,
};
pub use pool::Pool;
pub use window::Window;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks; what the mutexes here guard is whole at every point that could panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
