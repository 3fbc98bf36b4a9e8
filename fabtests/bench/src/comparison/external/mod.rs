//! Contestants that are programs of their own, over libraries of others. This program builds them
//! from its sources when a command names them.

mod compiled;
mod iceoryx2;
mod mpi;

pub use compiled::CompiledProgram;
pub use iceoryx2::Iceoryx2;
pub use mpi::Mpi;
