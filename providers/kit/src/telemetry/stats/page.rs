//! The statistics page of an endpoint, as the endpoint writes it.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use log::Level;
use selvedge::Error;

use super::super::layout::{
    AT_OP_COUNTERS, AT_PROTOCOL_COUNTERS, OpCounter, PageKind, ProtocolCounter, WORDS,
};
use super::super::shared_words::{SharedWords, now};
use super::flight::{self, Event, EventKind};
use super::snapshot::{self, SnapshotWriter};

/// Minimum interval between two snapshots of a busy endpoint, in nanoseconds.
const SNAPSHOT_INTERVAL: u64 = 50_000_000;

/// The statistics page of an endpoint. One thread at a time writes it: the holder of the endpoint's
/// lock.
#[derive(Debug)]
pub struct StatsPage {
    memory: SharedWords<WORDS>,
    /// The time at which the page was opened, on the clock of `Instant` and on that of [`now`].
    opened: (Instant, u64),
    /// When the next snapshot is due, in nanoseconds since the page was opened.
    next_snapshot: AtomicU64,
    /// The provider's name for log messages; empty for a private page, whose endpoint is not logged
    /// as opened or closed.
    provider: String,
    /// The endpoint's name for log messages, once it is set.
    name: OnceLock<String>,
}

impl StatsPage {
    /// Opens a page for an endpoint of a provider. Other processes can read it, unless the
    /// operating system refuses a memory file.
    ///
    /// # Errors
    /// The operating system's error if it has no memory.
    pub fn open(provider: &str) -> Result<Self, Error> {
        let opened = (Instant::now(), now());
        let memory = SharedWords::open(PageKind::Stats, provider, opened.1)?;
        Ok(Self::from_parts(memory, opened, provider.to_owned()))
    }

    /// Opens a page that no other process can read.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn private() -> Result<Self, Error> {
        let opened = (Instant::now(), now());
        Ok(Self::from_parts(
            SharedWords::private()?,
            opened,
            String::new(),
        ))
    }

    const fn from_parts(
        memory: SharedWords<WORDS>,
        opened: (Instant, u64),
        provider: String,
    ) -> Self {
        Self {
            memory,
            opened,
            next_snapshot: AtomicU64::new(0),
            provider,
            name: OnceLock::new(),
        }
    }

    /// Sets the name of the endpoint, and logs that the endpoint is open.
    pub fn set_name(&self, name: &str) {
        self.memory.set_name(name);
        let name = self.name.get_or_init(|| name.to_owned());
        if !self.provider.is_empty() {
            self.log(
                Level::Info,
                "ep_ctrl",
                format_args!("endpoint {name} is open"),
            );
        }
    }

    /// Counts an operation of `len` bytes.
    #[inline(always)]
    pub fn count(&self, counter: OpCounter, len: usize) {
        self.add(AT_OP_COUNTERS + 2 * counter as usize, len);
    }

    /// Counts a message of `len` bytes under the protocol that carried it, in addition to
    /// [`Self::count`].
    #[inline(always)]
    pub fn count_protocol(&self, counter: ProtocolCounter, len: usize) {
        self.add(AT_PROTOCOL_COUNTERS + 2 * counter as usize, len);
    }

    /// Adds 1 to the word at `at`, and `len` to the next one.
    #[inline(always)]
    fn add(&self, at: usize, len: usize) {
        let words = self.words();
        add_to_word(&words[at], 1);
        add_to_word(&words[at + 1], len as u64);
    }

    /// Whether the next snapshot is due. A busy endpoint calls this when it has read the clock for
    /// another reason, so that the check costs no clock read.
    #[inline]
    pub fn is_snapshot_due(&self, now: Instant) -> bool {
        self.since_opened(now) >= self.next_snapshot.load(Ordering::Relaxed)
    }

    /// Writes a snapshot; `fill` sets its values.
    #[cold]
    pub fn write_snapshot(&self, now: Instant, fill: impl FnOnce(&mut SnapshotWriter<'_>)) {
        let since_opened = self.since_opened(now);
        self.next_snapshot
            .store(since_opened + SNAPSHOT_INTERVAL, Ordering::Relaxed);
        snapshot::write(self.words(), self.opened.1 + since_opened, fill);
    }

    /// Records an event in the page and in the log. It concerns `peer`; [`EventKind`] defines the
    /// meaning of `number`.
    #[cold]
    pub fn record_event(&self, kind: EventKind, peer: &str, number: u64) {
        flight::record(self.words(), now(), kind, peer, number);
        let (level, subsystem) = match kind {
            EventKind::AwaitingPeer | EventKind::Connected | EventKind::Disconnected => {
                (Level::Info, "ep_ctrl")
            }
            EventKind::NoCma => (Level::Info, "ep_data"),
            EventKind::Stalled | EventKind::SendFailed | EventKind::ReceiveFailed => {
                (Level::Debug, "ep_data")
            }
        };
        if level > log::max_level() {
            return;
        }
        let event = Event {
            at: 0,
            kind,
            number,
            about: peer.to_owned(),
        };
        let (name, sentence) = (self.name(), event.sentence());
        self.log(level, subsystem, format_args!("{name}: {sentence}"));
    }

    fn name(&self) -> &str {
        self.name.get().map_or("an endpoint", String::as_str)
    }

    fn log(&self, level: Level, subsystem: &str, message: fmt::Arguments<'_>) {
        selvedge::log::log_as(level, &self.provider, subsystem, message);
    }

    fn since_opened(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.opened.0).as_nanos() as u64
    }

    #[inline(always)]
    fn words(&self) -> &[AtomicU64; WORDS] {
        self.memory.words()
    }
}

impl Drop for StatsPage {
    fn drop(&mut self) {
        if let Some(name) = self.name.get().filter(|_| !self.provider.is_empty()) {
            self.log(
                Level::Info,
                "ep_ctrl",
                format_args!("endpoint {name} is closed"),
            );
        }
    }
}

/// Adds to a word that no other thread writes at the same time.
#[inline(always)]
fn add_to_word(word: &AtomicU64, by: u64) {
    word.store(
        word.load(Ordering::Relaxed).wrapping_add(by),
        Ordering::Relaxed,
    );
}
