//! libfabric's C interface, with Selvedge behind it, as functions of Rust. Two libraries export
//! them: `selvedge-libfabric` is `libfabric.so.1`, and `selvedge-provider` has external providers
//! of another libfabric.
//!
//! The functions are libfabric's 17 (`export`), and those of an external provider (`export::provider`). The
//! inline functions of libfabric's headers call all other functions through the tables of an
//! object. An object of C is a handle with an object of the object model behind it (`object`).
//! Until it is enabled, an endpoint only collects its bindings (`ep`).

mod av;
mod context;
mod domain;
mod ep;
pub mod export;
mod fabric;
mod object;
mod pep;
mod process;
mod queue;
mod status;

use selvedge_abi::{addr, heap, infos as info, pointer};
