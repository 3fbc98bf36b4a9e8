//! Models of all shared-memory protocols on which two processes race. The model checker runs them
//! on the production source. Each model also runs with a planted fault, which it must detect.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
//!     cargo test -p selvedge-shm --release --test loom_models
//! ```
//!
//! A killed process is a thread that ends without dropping anything. A stopped process is a thread
//! that resumes only after the others have finished.

#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a model that cannot go on may panic")]

mod bounce;
mod close;
mod doorbell;
mod keys;
mod parking;
mod poll_state;
mod pool;
mod resp;
mod ring;

use std::panic::{AssertUnwindSafe, catch_unwind};

use selvedge_shm::smr::model::{Fault, plant};
use selvedge_shm::smr::{Attr, PeerRegion, Region, Sizes};

/// The smallest region in which all queues wrap around.
const SIZES: Sizes = Sizes {
    cmd_count: 2,
    resp_count: 2,
    inject_size: 128,
};

/// Creates the region in which one process sends to another.
fn region() -> Region {
    let (sizes, peer) = (SIZES, "peer");
    Region::create(&Attr { sizes, peer }).unwrap()
}

/// Attaches the receiving process to a region.
fn attach_peer(region: &Region) -> PeerRegion {
    let (fd, sizes) = region.share().unwrap();
    PeerRegion::attach(fd, sizes).unwrap()
}

/// Runs a model through all its interleavings with up to three preemptions.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Whether the model detects the fault.
fn catches(fault: Fault, model: impl Fn() + Send + Sync + 'static) -> bool {
    plant(Some(fault));
    let caught = fails(model);
    plant(None);
    caught
}

/// Whether the model finds an interleaving that fails.
fn fails(model: impl Fn() + Send + Sync + 'static) -> bool {
    catch_unwind(AssertUnwindSafe(|| explore(model))).is_err()
}

/// Repeats an attempt until it returns a value.
fn wait<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    loop {
        match attempt() {
            Some(found) => return found,
            None => loom::thread::yield_now(),
        }
    }
}
