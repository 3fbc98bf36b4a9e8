//! The flight recorder: the last events of an endpoint, in its statistics page.

use std::sync::atomic::{AtomicU64, Ordering};

use super::super::layout::{AT_EVENT_COUNT, AT_EVENTS, EVENT_TEXT, EVENT_WORDS, EVENTS, WORDS};
use super::super::page_copy::read_text;
use super::super::shared_words::write_text;
use selvedge::Errno;

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The endpoint waits for a peer: no endpoint has its name yet.
    AwaitingPeer,
    /// A connection to a peer is established.
    Connected,
    /// A peer has ended or failed; the number is the error that its operations fail with.
    Disconnected,
    /// A message stays with its sender, because the limit of unexpected messages is reached; the
    /// number is its length.
    Stalled,
    /// Messages of a peer can no longer be copied out of its memory; the number is the error.
    NoCma,
    /// An operation of this endpoint failed; the number is the error.
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

    /// The name in reports.
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

/// An event as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time, on the system's monotonic clock, in nanoseconds.
    pub at: u64,
    /// The kind.
    pub kind: EventKind,
    /// The number that [`EventKind`] defines.
    pub number: u64,
    /// The first 40 bytes of the peer's name or of the description.
    pub about: String,
}

impl Event {
    /// The error, if the number is one.
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

    /// The event as a sentence.
    pub fn sentence(&self) -> String {
        let Self { about, number, .. } = self;
        let error = self.error().map_or_else(
            || format!("error {number}"),
            |errno| format!("{errno}, error {number}"),
        );
        match self.kind {
            EventKind::AwaitingPeer => format!("no endpoint has the name {about} yet"),
            EventKind::Connected => format!("connected to {about}"),
            EventKind::Disconnected => format!("lost the connection to {about} ({error})"),
            EventKind::Stalled => {
                format!("no memory left for an unexpected message of {number} bytes from {about}")
            }
            EventKind::NoCma => format!("cannot copy out of the memory of {about} ({error})"),
            EventKind::SendFailed => format!("an operation failed ({error}): {about}"),
            EventKind::ReceiveFailed => format!("a receive failed ({error}): {about}"),
        }
    }
}

/// Records an event in place of the oldest one.
pub(super) fn record(
    words: &[AtomicU64; WORDS],
    time: u64,
    kind: EventKind,
    about: &str,
    number: u64,
) {
    let count = words[AT_EVENT_COUNT].load(Ordering::Relaxed);
    let offset = AT_EVENTS + (count % EVENTS as u64) as usize * EVENT_WORDS;
    let event = &words[offset..offset + EVENT_WORDS];
    event[0].store(time, Ordering::Relaxed);
    event[1].store(kind as u64, Ordering::Relaxed);
    event[2].store(number, Ordering::Relaxed);
    write_text(&event[EVENT_TEXT..], about);
    words[AT_EVENT_COUNT].store(count + 1, Ordering::Release);
}

/// The events in the copy of a page, oldest first. The oldest event is left out: it may be half
/// overwritten, because the writer may have recorded an event during the copy.
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
            about: read_text(&event[EVENT_TEXT..]),
        })
    });
    events.take(EVENTS).collect()
}
