//! Models of everything that two processes race on, run by the model checker on the production
//! source. Each model is also run with a fault planted, which has to be noticed.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
//!     cargo test -p selvedge-shm --release --test loom_models
//! ```
//!
//! A process that dies is a thread that ends without letting go of anything; one that is stopped
//! goes on only after the others have done all their work.

#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a model that cannot go on may panic")]

mod attention;
mod bounce;
mod close;
mod doorbell;
mod keys;
mod parking;
mod pool;
mod resp;
mod ring;

use std::panic::{AssertUnwindSafe, catch_unwind};

use selvedge_shm::smr::model::{Fault, plant};
use selvedge_shm::smr::{Attr, PeerRegion, Region, Sizes};

/// The smallest region in which everything wraps around.
const SIZES: Sizes = Sizes {
    cmd_count: 2,
    resp_count: 2,
    inject_size: 128,
};

/// Memory of one process for another.
fn region() -> Region {
    let (sizes, peer) = (SIZES, "peer");
    Region::create(&Attr { sizes, peer }).unwrap()
}

/// The other process's view of it.
fn seen(region: &Region) -> PeerRegion {
    let (fd, sizes) = region.share().unwrap();
    PeerRegion::attach(fd, sizes).unwrap()
}

/// Runs a model through all its interleavings with up to three preemptions.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Whether the model notices the fault.
fn catches(fault: Fault, model: impl Fn() + Send + Sync + 'static) -> bool {
    plant(Some(fault));
    let caught = fails(model);
    plant(None);
    caught
}

/// Whether the model finds an interleaving that goes wrong.
fn fails(model: impl Fn() + Send + Sync + 'static) -> bool {
    catch_unwind(AssertUnwindSafe(|| explore(model))).is_err()
}

/// Tries until there is something.
fn wait<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    loop {
        match attempt() {
            Some(found) => return found,
            None => loom::thread::yield_now(),
        }
    }
}
