//! libcheetah.so: a flat C interface of Cheetah, on which `Cheetah/Cheetah.h` builds Cheetah's
//! classes.
//!
//! Programs pull the messages that have arrived, so the library never calls a program's code. Each
//! function checks its arguments, calls [`selvedge_cheetah::core`], and returns a number. A panic
//! does not leave the library: it becomes an error with a text.

mod data;
mod lifecycle;
mod message;
mod reservation;
mod status;
mod wait;
