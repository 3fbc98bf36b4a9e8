//! The method control layer: which method serves whom, under which address, and one interface for
//! all of them that any thread may use at any time.
//!
//! It moves no bytes but those of lists that a method cannot take ([`pack`]).

pub(crate) mod desk;
pub(crate) mod info;
mod open;
mod pack;
pub(crate) mod post;
mod sleep;
mod station;
mod test;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

pub use info::Limit;
pub use open::{Config, transports};
pub use post::{Post, Posted};
pub use test::WAIT;

use crate::ids::{CONTEXTS, ContextId, METHODS};
use crate::{Code, Module, Result};
use sleep::Sleepers;
use station::Station;

/// An instance of BMI: what `BMI_initialize` opens. Dropping it ends everything that is
/// outstanding.
#[derive(Debug)]
pub struct Bmi {
    config: Config,
    modules: Vec<&'static dyn Module>,
    stations: [OnceLock<Station>; METHODS],
    /// How many of them are active.
    active: AtomicUsize,
    /// Held while one is activated.
    activation: Mutex<()>,
    /// The contexts that are open, one bit each.
    contexts: AtomicU32,
    sleepers: Sleepers,
    /// Whether an unexpected message ends the idling of a test for a context.
    heeds_unexpected: AtomicBool,
    /// The method that is asked first when all are asked.
    turn: AtomicUsize,
}

impl Bmi {
    /// Opens a context (`BMI_open_context`).
    ///
    /// # Errors
    /// [`Code::EBUSY`] when there are [`CONTEXTS`] already.
    pub fn open_context(&self) -> Result<ContextId> {
        let mut found = 0;
        let open = |open: u32| {
            found = (!open).trailing_zeros();
            (found < CONTEXTS as u32).then(|| open | 1 << found)
        };
        let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
        match self.contexts.fetch_update(set, fetch, open) {
            Ok(_) => Ok(ContextId(i64::from(found))),
            Err(_) => Err(Code::EBUSY),
        }
    }

    /// Closes a context (`BMI_close_context`): completions that were not fetched are dropped, and
    /// those of its operations that are still to come. One that is not open is ignored.
    pub fn close_context(&self, context: ContextId) {
        let Ok(number) = self.context(context) else {
            return;
        };
        self.stations()
            .for_each(|station| station.hold(&self.sleepers).desk().close_context(number));
        self.contexts.fetch_and(!(1 << number), Ordering::AcqRel);
        // Threads that are parked in tests of it find that it is closed.
        self.wake_all();
    }

    /// Whether a context is open, by its place.
    #[inline]
    fn context(&self, context: ContextId) -> Result<u8> {
        let number = u8::try_from(context.0).map_err(|_| Code::EINVAL)?;
        let open = self.contexts.load(Ordering::Acquire);
        match usize::from(number) < CONTEXTS && open & 1 << number != 0 {
            true => Ok(number),
            false => Err(Code::EINVAL),
        }
    }

    /// The active methods.
    #[inline]
    fn stations(&self) -> impl Iterator<Item = &Station> {
        let active = self.active.load(Ordering::Acquire);
        self.stations[..active].iter().filter_map(OnceLock::get)
    }

    /// The active methods, another one first each time.
    #[inline]
    fn stations_in_turn(&self) -> impl Iterator<Item = &Station> {
        let active = self.active.load(Ordering::Acquire);
        let first = match active {
            0 | 1 => 0,
            _ => self.turn.fetch_add(1, Ordering::Relaxed) % active,
        };
        let (behind, front) = self.stations[..active].split_at(first);
        front.iter().chain(behind).filter_map(OnceLock::get)
    }

    /// The method with a number.
    #[inline]
    fn station(&self, method: usize) -> Option<&Station> {
        self.stations.get(method)?.get()
    }
}
