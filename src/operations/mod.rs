//! Operations of endpoints: the traits that post them, and operations as values.

pub mod atomic;
pub mod collective;
pub mod lending;
pub mod msg;
pub mod op;
pub mod rma;
pub mod tagged;
pub mod trigger;

pub use atomic::{Atomic, AtomicExt};
pub use collective::{Collective, CollectiveExt};
pub use lending::{Lending, LentMemory};
pub use msg::{Msg, MsgExt};
pub use op::Op;
pub use rma::{Rma, RmaExt};
pub use tagged::{TagMatch, Tagged, TaggedExt};
