//! Contestants that are programs of their own, over libraries of others. This program builds them
//! from its sources when a command names them.

mod built;
mod compiled;
mod mpi;

pub use built::BuiltProgram;
pub use compiled::CompiledProgram;
pub use mpi::Mpi;
