//! Shared-memory primitives: regions, queues, pools and flags for traffic between the processes of
//! one machine. The shm provider is built from them, and any provider may use them. They know
//! neither endpoints nor a protocol.
//!
//! - [`Region`] and [`PeerRegion`]: the owner's and the peer's view of sealed memory with one
//!   writer (`smr_region`; [`Region::create`] is `smr_create`);
//! - [`Map`]: peers, their regions, and the exchange of addresses (`smr_map`, `smr_addr`);
//! - [`cmd_queue`]: commands, one cache line each (`smr_cmd`);
//! - [`inject_pool`]: payloads that do not fit a command (`smr_inject_buf`);
//! - [`resp_queue`]: responses to commands (`smr_resp`);
//! - [`doorbell`]: a bitmap that hints at queues with new commands;
//! - [`poll_state`]: whether the owner of a queue polls it, needs the doorbell, or is parked;
//! - [`parking`]: whether the threads of one owner may park, and when they must be woken;
//! - [`bounce`]: segments through which payloads of any size are copied;
//! - [`special`]: memory of the application that peers map;
//! - [`arena`]: memory of the shared heap of a peer;
//! - [`keys`]: the table of registered memory and the rights that it grants to peers;
//! - [`bytes`]: copies into and out of shared memory.
//!
//! Rules: shared memory holds no locks, pointers or functions. Every process writes only to memory
//! that it owns, except for the doorbell. No value that a peer has written is used unchecked. Each
//! side of a queue exists once: a second object for the same side garbles its own traffic.
//!
//! # Examples
//!
//! A message from one endpoint to another, and its response. Both endpoints are in one process; two
//! processes would pass the descriptors of [`Region::share`] over a socket.
//!
//! ```
//! use std::mem::MaybeUninit;
//!
//! use selvedge_shm::smr::inject_pool::PoolPosition;
//! use selvedge_shm::smr::resp_queue::Resp;
//! use selvedge_shm::smr::{Attr, PeerRegion, Region, Sizes};
//!
//! let sizes = Sizes { cmd_count: 16, resp_count: 16, inject_size: 4096 };
//! let a_for_b = Region::create(&Attr { sizes, peer: "b" })?;
//! let b_for_a = Region::create(&Attr { sizes, peer: "a" })?;
//! let (fd, sizes) = a_for_b.share()?;
//! let a_attached_by_b = PeerRegion::attach(fd, sizes)?;
//! let (fd, sizes) = b_for_a.share()?;
//! let b_attached_by_a = PeerRegion::attach(fd, sizes)?;
//!
//! // A copies the payload into the pool, then commits the command with its offset.
//! let (mut tx, mut pool) = (a_for_b.cmd_sender(), a_for_b.inject_pool());
//! let offset = pool.claim(5).expect("the pool is empty");
//! pool.bytes().copy_in(offset, b"hello");
//! let mut slot = tx.claim().expect("the queue is empty");
//! slot.put(1, offset as u64);
//! slot.commit(5);
//!
//! // B checks the command, copies the payload out, returns slot and payload, and responds.
//! let mut rx = a_attached_by_b.cmd_receiver();
//! let mut cursor = PoolPosition::new(sizes.inject_size);
//! let slot = rx.peek().expect("it was committed");
//! let (len, offset) = (slot.head() as usize, slot.word(1) as usize);
//! assert_eq!(cursor.advance(len), Some(offset));
//! let mut message = [MaybeUninit::uninit(); 4096];
//! let message = a_attached_by_b.inject_bytes().copy_out(offset, &mut message[..len]);
//! assert_eq!(message, b"hello");
//! rx.release();
//! b_for_a.credit().publish(rx.position());
//! b_for_a.resp_sender().push(Resp { msg_id: 1, status: 0 });
//!
//! // A reads the credit and the response.
//! tx.refresh(b_attached_by_a.credit().read()).expect("B published a valid credit");
//! pool.free_to(pool.position());
//! let response = b_attached_by_a.resp_receiver().pop().expect("it was pushed");
//! assert_eq!((response.msg_id, response.status), (1, 0));
//! # Ok::<(), selvedge::Error>(())
//! ```

pub mod layout;
mod map;
mod memory;
#[cfg(loom)]
pub mod model;
mod queues;
pub(crate) mod region;
pub(crate) mod sync;
mod wakeup;

pub use layout::{Sizes, UNSPEC};
pub use map::Map;
pub use memory::mapping::{Mapping, Memory, Writers};
pub(crate) use memory::prefetch;
pub use memory::{arena, bytes, keys, special};
pub use queues::{bounce, cmd_queue, inject_pool, resp_queue};
pub use region::{Addr, Attr, PeerRegion, Region};
pub use wakeup::{doorbell, parking, poll_state};
