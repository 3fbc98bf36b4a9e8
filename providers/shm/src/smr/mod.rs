//! Shared-memory primitives: what the shm provider is made of, and any provider may use for its
//! traffic inside the machine. They know nothing of endpoints and speak no protocol.
//!
//! - [`Region`] and [`PeerRegion`]: the two ends of sealed memory with one writer (`smr_region`;
//!   [`Region::create`] is `smr_create`);
//! - [`Map`]: peers, their regions, and the exchange of addresses (`smr_map`, `smr_addr`);
//! - [`cmd_queue`]: commands, one cache line each (`smr_cmd`);
//! - [`inject_pool`]: payloads that do not fit a command (`smr_inject_buf`);
//! - [`resp_queue`]: answers (`smr_resp`);
//! - [`doorbell`]: a hint which queues have news;
//! - [`attention`]: who has to ring, and who sleeps and has to be woken;
//! - [`parking`]: what threads owe each other that sleep for one owner;
//! - [`bounce`]: segments for payloads of any size;
//! - [`special`]: memory that its owner uses as its own and that peers map;
//! - [`keys`]: what peers may do with memory that was registered;
//! - [`bytes`]: copies in and out.
//!
//! The rules they keep: no lock, no pointer and no function in shared memory; every process writes
//! only what it owns, the doorbell excepted; nothing that a peer wrote is believed. Each end of a
//! queue exists once: whoever makes a second one of the same end garbles its own traffic.
//!
//! # Examples
//!
//! A message from one endpoint to another, and its answer. Both ends are in one process here; two
//! processes would pass the descriptors of [`Region::share`] over a socket.
//!
//! ```
//! use std::mem::MaybeUninit;
//!
//! use selvedge_shm::smr::inject_pool::Walk;
//! use selvedge_shm::smr::resp_queue::Resp;
//! use selvedge_shm::smr::{Attr, PeerRegion, Region, Sizes};
//!
//! let sizes = Sizes { cmd_count: 16, resp_count: 16, inject_size: 4096 };
//! let a_for_b = Region::create(&Attr { sizes, peer: "b" })?;
//! let b_for_a = Region::create(&Attr { sizes, peer: "a" })?;
//! let (fd, sizes) = a_for_b.share()?;
//! let a_seen_by_b = PeerRegion::attach(fd, sizes)?;
//! let (fd, sizes) = b_for_a.share()?;
//! let b_seen_by_a = PeerRegion::attach(fd, sizes)?;
//!
//! // A copies the payload in, then commits the command that says where it is.
//! let (mut tx, mut pool) = (a_for_b.cmd_sender(), a_for_b.inject_pool());
//! let place = pool.claim(5).expect("the pool is empty");
//! pool.bytes().copy_in(place, b"hello");
//! let mut slot = tx.claim().expect("the queue is empty");
//! slot.put(1, place as u64);
//! slot.commit(5);
//!
//! // B checks what the command says, copies the payload out, gives both back, and answers.
//! let mut rx = a_seen_by_b.cmd_receiver();
//! let mut walk = Walk::new(sizes.inject_size);
//! let slot = rx.peek().expect("it was committed");
//! let (len, place) = (slot.head() as usize, slot.word(1) as usize);
//! assert_eq!(walk.pass(len), Some(place));
//! let mut message = [MaybeUninit::uninit(); 4096];
//! let message = a_seen_by_b.inject_bytes().copy_out(place, &mut message[..len]);
//! assert_eq!(message, b"hello");
//! rx.release();
//! b_for_a.credit().publish(rx.position());
//! b_for_a.resp_sender().push(Resp { msg_id: 1, status: 0 });
//!
//! // A learns of both.
//! tx.refresh(b_seen_by_a.credit().read()).expect("B does not lie");
//! pool.free_to(pool.position());
//! let answer = b_seen_by_a.resp_receiver().pop().expect("it was pushed");
//! assert_eq!((answer.msg_id, answer.status), (1, 0));
//! # Ok::<(), selvedge::Error>(())
//! ```

pub mod layout;
mod map;
mod memory;
#[cfg(loom)]
pub mod model;
mod queues;
mod region;
pub(crate) mod sync;
mod wakeup;

pub use layout::{Sizes, UNSPEC};
pub use map::Map;
pub use memory::mapping::{Mapping, Memory, Writers};
pub(crate) use memory::prefetch;
pub use memory::{bytes, keys, special};
pub use queues::{bounce, cmd_queue, inject_pool, resp_queue};
pub use region::{Addr, Attr, PeerRegion, Region};
pub use wakeup::{attention, doorbell, parking};
