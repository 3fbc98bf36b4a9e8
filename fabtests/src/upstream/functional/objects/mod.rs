//! Programs that check objects beside one endpoint: several, shared or full ones.

mod av;
mod poll;
mod resources;
mod scalable;
mod several;
mod shared;
mod shared_av;

