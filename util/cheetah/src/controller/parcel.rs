//! Parcels: messages that are packed in place.

use std::fmt;
use std::rc::Rc;

use crate::core::{Core, Reservation};
use crate::{Error, Result};

/// A `Parcel` is memory for one message to one context. Its initial bytes are zero, or those of an
/// earlier message.
///
/// A parcel lies in special memory if the fabric has some: the target then copies the message
/// directly from there. [`crate::Controller::commit`] sends the message; dropping the parcel
/// releases the memory.
pub struct Parcel {
    core: Rc<Core>,
    to: usize,
    reservation: Option<Reservation>,
}

impl Parcel {
    pub(crate) fn new(core: Rc<Core>, reservation: Reservation) -> Self {
        Self {
            core,
            to: reservation.to(),
            reservation: Some(reservation),
        }
    }

    /// The destination context.
    pub fn to(&self) -> usize {
        self.to
    }

    /// The memory, to be packed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.reservation {
            Some(reservation) => reservation.bytes_mut(),
            None => &mut [],
        }
    }

    /// Whether the parcel lies in special memory. It does not when special memory is used up, or
    /// when the destination cannot access special memory.
    pub fn is_special(&self) -> bool {
        self.reservation
            .as_ref()
            .is_some_and(Reservation::is_special)
    }

    pub(crate) fn into_reservation(mut self, core: &Rc<Core>) -> Result<Reservation> {
        match self.reservation.take_if(|_| Rc::ptr_eq(&self.core, core)) {
            Some(reservation) => Ok(reservation),
            None => Err(Error::Garbled(
                "a parcel of another controller cannot be sent here".to_owned(),
            )),
        }
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            self.core.release(reservation);
        }
    }
}

impl fmt::Debug for Parcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "parcel to context {}", self.to)
    }
}
