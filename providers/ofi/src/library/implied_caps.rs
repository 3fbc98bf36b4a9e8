//! Directed tagged receives: a capability that libraries before 2.0 do not know, because their
//! [`Caps::DIRECTED_RECV`] includes it.

use selvedge::{Caps, Info};

/// Removes [`Caps::TAGGED_DIRECTED_RECV`] from the capabilities that the library sees, if they
/// contain [`Caps::DIRECTED_RECV`], which includes it. Libraries before 2.0 do not know the former.
pub(crate) fn remove(info: &mut Info) {
    for caps in [&mut info.caps, &mut info.rx_attr.caps] {
        if caps.contains(Caps::DIRECTED_RECV) {
            caps.remove(Caps::TAGGED_DIRECTED_RECV);
        }
    }
}

/// Adds [`Caps::TAGGED_DIRECTED_RECV`] for an application that requests it together with
/// [`Caps::DIRECTED_RECV`].
pub(crate) fn add(info: &mut Info, requested: Caps) {
    let implied = requested & Caps::TAGGED_DIRECTED_RECV;
    if requested.contains(Caps::DIRECTED_RECV) && info.caps.contains(Caps::TAGGED) {
        for caps in [&mut info.caps, &mut info.rx_attr.caps] {
            if caps.contains(Caps::DIRECTED_RECV) {
                *caps |= implied;
            }
        }
    }
}
