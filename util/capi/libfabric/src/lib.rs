//! `libfabric.so.1`: libfabric's C interface, with Selvedge behind it.
//!
//! The library exports libfabric's 17 functions under their symbol versions (`symbols`). The inline
//! functions of libfabric's headers call all other functions through the tables of an object. The
//! functions and the objects are `selvedge-fabric-c`'s.

mod symbols;
