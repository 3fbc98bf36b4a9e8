//! The flight recorder: the last events of an endpoint, kept in its page.

use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::{AT_EVENT_COUNT, AT_EVENTS, EVENT_TEXT, EVENT_WORDS, EVENTS, WORDS};
use super::sheet::put_text;
use selvedge::Errno;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A peer is looked for, and nobody has its name yet.
    Awaited,
    /// A peer can be talked to.
    Met,
    /// A peer is gone; the number is the error that its operations fail with.
    Lost,
    /// A message waits with its sender, because too much waits here; the number is its length.
    Stalled,
    /// Messages of a peer cannot be copied out of its memory any more; the number is the error.
    NoCma,
    /// An own operation failed; the number is the error.
    SendFailed,
    /// A receive failed; the number is the error.
    ReceiveFailed,
}

impl What {
    const ALL: [Self; 7] = [
        Self::Awaited,
        Self::Met,
        Self::Lost,
        Self::Stalled,
        Self::NoCma,
        Self::SendFailed,
        Self::ReceiveFailed,
    ];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Awaited => "awaited",
            Self::Met => "met",
            Self::Lost => "lost",
            Self::Stalled => "stalled",
            Self::NoCma => "no_cma",
            Self::SendFailed => "send_failed",
            Self::ReceiveFailed => "receive_failed",
        }
    }
}

/// An event, as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, on the system's monotonic clock, in nanoseconds.
    pub at: u64,
    /// What happened.
    pub what: What,
    /// Which, in whatever way such events are numbered.
    pub number: u64,
    /// With whom; the first 40 bytes of it.
    pub about: String,
}

impl Event {
    /// The error that the number is, where it is one.
    fn error(&self) -> Option<Errno> {
        let is_error = matches!(
            self.what,
            What::Lost | What::NoCma | What::SendFailed | What::ReceiveFailed
        );
        let known = i32::try_from(self.number)
            .ok()
            .and_then(Errno::try_from_raw);
        known.filter(|_| is_error)
    }

    /// The event in words.
    pub fn sentence(&self) -> String {
        let Self { about, number, .. } = self;
        let error = self.error().map_or_else(
            || format!("error {number}"),
            |errno| format!("{errno}, error {number}"),
        );
        match self.what {
            What::Awaited => format!("nobody has the name {about} yet"),
            What::Met => format!("met {about}"),
            What::Lost => format!("lost {about} ({error})"),
            What::Stalled => format!("no room for a message of {number} bytes from {about}"),
            What::NoCma => format!("cannot copy out of the memory of {about} ({error})"),
            What::SendFailed => format!("an operation failed ({error}): {about}"),
            What::ReceiveFailed => format!("a receive failed ({error}): {about}"),
        }
    }
}

/// Notes an event over the oldest one.
pub(super) fn note(words: &[AtomicU64; WORDS], at: u64, what: What, about: &str, number: u64) {
    let count = words[AT_EVENT_COUNT].load(Ordering::Relaxed);
    let place = AT_EVENTS + (count % EVENTS as u64) as usize * EVENT_WORDS;
    let event = &words[place..place + EVENT_WORDS];
    event[0].store(at, Ordering::Relaxed);
    event[1].store(what as u64, Ordering::Relaxed);
    event[2].store(number, Ordering::Relaxed);
    put_text(&event[EVENT_TEXT..], about);
    words[AT_EVENT_COUNT].store(count + 1, Ordering::Release);
}

/// The events of a page that was copied, oldest first. The one that may be half overwritten, because
/// an event was being noted when the page was copied, is left out.
pub(super) fn read(words: &[u64; WORDS]) -> Vec<Event> {
    let count = words[AT_EVENT_COUNT];
    let first = count.saturating_sub(EVENTS as u64 - 1);
    let events = (first..count).filter_map(|number| {
        let place = AT_EVENTS + (number % EVENTS as u64) as usize * EVENT_WORDS;
        let event = &words[place..place + EVENT_WORDS];
        Some(Event {
            at: event[0],
            what: *What::ALL.get(usize::try_from(event[1]).ok()?)?,
            number: event[2],
            about: super::seen::text(&event[EVENT_TEXT..]),
        })
    });
    events.take(EVENTS).collect()
}
