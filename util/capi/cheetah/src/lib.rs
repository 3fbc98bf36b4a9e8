//! libcheetah.so: Cheetah's flat C interface, which `Cheetah/Cheetah.h` makes into the classes of old.
//!
//! Programs pull what has arrived, so no code of theirs runs below a frame of this library. Each
//! function checks what C can get wrong, calls [`selvedge_cheetah::core`], and answers with a
//! number. A panic never leaves the library: it is an error with a sentence.

mod data;
mod lifecycle;
mod message;
mod reservation;
mod status;
mod wait;
