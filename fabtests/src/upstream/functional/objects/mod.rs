//! Programs that check objects beside one endpoint: several, shared or full ones.

pub(super) mod av;
pub(super) mod poll;
pub(super) mod resources;
pub(super) mod scalable;
pub(super) mod several;
pub(super) mod shared;
pub(super) mod shared_av;
