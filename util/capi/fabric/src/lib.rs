//! `libfabric.so.1`: libfabric's C interface, with Selvedge behind it.
//!
//! The library exports libfabric's 17 functions under their symbol versions (`export`), and
//! everything else through the tables of its objects, which the inline functions of libfabric's
//! headers call. An object of C's is its handle with one of the object model's behind it
//! (`object`); what is bound to an endpoint before it is enabled is kept until then (`ep`).

mod av;
mod av_set;
mod cntr;
mod cq;
mod domain;
mod ep;
mod eq;
mod export;
mod fabric;
mod handles;
mod last_error;
mod log_c;
mod mc;
mod mr;
mod object;
mod param;
mod pep;
mod process;
mod sets;
mod status;
mod tostr;
mod wait;

use selvedge_abi::{addr, heap, infos as info, pointer};
