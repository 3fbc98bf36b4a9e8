//! libbmi.so: BMI's C interface.
//!
//! One library serves both current dialects. The standalone dialect passes three arguments to
//! `BMI_initialize` and two to `BMI_addr_lookup`; OrangeFS passes one more to each, which is
//! ignored. Classes and hints are supported for programs that use them. `bmi.h` maps programs of
//! older dialects to the same functions.
//!
//! Each function checks its arguments, calls [`selvedge_bmi`], and returns a number. A panic does
//! not leave the library: it becomes `BMI_EIO`.

mod address;
mod context;
mod facility;
mod gossip;
mod info;
mod lifecycle;
mod memory;
mod post;
mod seed;
mod status;
mod test;
