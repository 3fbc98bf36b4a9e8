//! The flight recorder: the last events of an endpoint, kept in its page.

use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::{AT_EVENT_COUNT, AT_EVENTS, EVENT_TEXT, EVENT_WORDS, EVENTS, WORDS};
use super::shared_words::write_text;
use selvedge::Errno;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A peer is looked for, and nobody has its name yet.
    AwaitingPeer,
    /// A peer can be talked to.
    Connected,
    /// A peer is gone; the number is the error that its operations fail with.
    Disconnected,
    /// A message waits with its sender, because too much waits here; the number is its length.
    Stalled,
    /// Messages of a peer cannot be copied out of its memory any more; the number is the error.
    NoCma,
    /// An own operation failed; the number is the error.
    SendFailed,
    /// A receive failed; the number is the error.
    ReceiveFailed,
}

impl EventKind {
    const ALL: [Self; 7] = [
        Self::AwaitingPeer,
        Self::Connected,
        Self::Disconnected,
        Self::Stalled,
        Self::NoCma,
        Self::SendFailed,
        Self::ReceiveFailed,
    ];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AwaitingPeer => "awaited",
            Self::Connected => "met",
            Self::Disconnected => "lost",
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
    pub kind: EventKind,
    /// Which, in whatever way such events are numbered.
    pub number: u64,
    /// With whom; the first 40 bytes of it.
    pub about: String,
}

impl Event {
    /// The error that the number is, where it is one.
    fn error(&self) -> Option<Errno> {
        let is_error = matches!(
            self.kind,
            EventKind::Disconnected
                | EventKind::NoCma
                | EventKind::SendFailed
                | EventKind::ReceiveFailed
        );
        let errno = i32::try_from(self.number)
            .ok()
            .and_then(Errno::try_from_raw);
        errno.filter(|_| is_error)
    }

    /// The event in words.
    pub fn sentence(&self) -> String {
        let Self { about, number, .. } = self;
        let error = self.error().map_or_else(
            || format!("error {number}"),
            |errno| format!("{errno}, error {number}"),
        );
        match self.kind {
            EventKind::AwaitingPeer => format!("nobody has the name {about} yet"),
            EventKind::Connected => format!("met {about}"),
            EventKind::Disconnected => format!("lost {about} ({error})"),
            EventKind::Stalled => format!("no room for a message of {number} bytes from {about}"),
            EventKind::NoCma => format!("cannot copy out of the memory of {about} ({error})"),
            EventKind::SendFailed => format!("an operation failed ({error}): {about}"),
            EventKind::ReceiveFailed => format!("a receive failed ({error}): {about}"),
        }
    }
}

/// Notes an event over the oldest one.
pub(super) fn record(
    words: &[AtomicU64; WORDS],
    at: u64,
    kind: EventKind,
    about: &str,
    number: u64,
) {
    let count = words[AT_EVENT_COUNT].load(Ordering::Relaxed);
    let offset = AT_EVENTS + (count % EVENTS as u64) as usize * EVENT_WORDS;
    let event = &words[offset..offset + EVENT_WORDS];
    event[0].store(at, Ordering::Relaxed);
    event[1].store(kind as u64, Ordering::Relaxed);
    event[2].store(number, Ordering::Relaxed);
    write_text(&event[EVENT_TEXT..], about);
    words[AT_EVENT_COUNT].store(count + 1, Ordering::Release);
}

/// The events of a page that was copied, oldest first. The one that may be half overwritten, because
/// an event was being noted when the page was copied, is left out.
pub(super) fn read(words: &[u64; WORDS]) -> Vec<Event> {
    let count = words[AT_EVENT_COUNT];
    let first = count.saturating_sub(EVENTS as u64 - 1);
    let events = (first..count).filter_map(|number| {
        let offset = AT_EVENTS + (number % EVENTS as u64) as usize * EVENT_WORDS;
        let event = &words[offset..offset + EVENT_WORDS];
        Some(Event {
            at: event[0],
            kind: *EventKind::ALL.get(usize::try_from(event[1]).ok()?)?,
            number: event[2],
            about: super::stats::read_text(&event[EVENT_TEXT..]),
        })
    });
    events.take(EVENTS).collect()
}
