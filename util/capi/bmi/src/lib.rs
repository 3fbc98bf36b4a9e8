//! libbmi.so: BMI's C interface.
//!
//! One library for both living dialects. The standalone one passes three arguments to
//! `BMI_initialize` and two to `BMI_addr_lookup`, OrangeFS one more to each, which is ignored;
//! classes and hints are there for who knows them. `bmi.h` leads programs of older dialects to the
//! same functions.
//!
//! Each function checks what C can get wrong, calls [`selvedge_bmi`], and answers with a number. A
//! panic never leaves the library: it is `BMI_EIO`.

mod address;
mod facility;
mod gossip;
mod info;
mod lifecycle;
mod memory;
mod post;
mod seed;
mod status;
mod test;
