//! The page of an endpoint, as its owner writes it.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use log::Level;
use selvedge::Error;

use super::flight::{self, Event, What};
use super::layout::{AT_TALLIES, AT_WAYS, Kind, Tally, WORDS, Way};
use super::sheet::{Sheet, now};
use super::standing::{self, Standing};

/// How often an endpoint that is busy writes down how things stand, in nanoseconds.
const INTERVAL: u64 = 50_000_000;

/// The page of an endpoint. One thread at a time writes it: whoever holds the endpoint's lock.
#[derive(Debug)]
pub struct Page {
    sheet: Sheet<WORDS>,
    /// Both say the same, each to those who know only it.
    opened: (Instant, u64),
    /// When the standing is to be written down again, in nanoseconds since it was opened.
    due: AtomicU64,
    /// For log messages; empty for a page that nobody else sees.
    provider: String,
    name: OnceLock<String>,
}

impl Page {
    /// A page for an endpoint of a provider. Where the system refuses a memory file, the endpoint
    /// counts for itself.
    ///
    /// # Errors
    /// The system's, when there is no memory at all.
    pub fn open(provider: &str) -> Result<Self, Error> {
        let opened = (Instant::now(), now());
        let sheet = Sheet::open(Kind::Standing, provider, opened.1)?;
        Ok(Self::of(sheet, opened, provider.to_owned()))
    }

    /// A page that nobody else sees.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn unseen() -> Result<Self, Error> {
        let opened = (Instant::now(), now());
        Ok(Self::of(Sheet::unseen()?, opened, String::new()))
    }

    const fn of(sheet: Sheet<WORDS>, opened: (Instant, u64), provider: String) -> Self {
        Self {
            sheet,
            opened,
            due: AtomicU64::new(0),
            provider,
            name: OnceLock::new(),
        }
    }

    /// Says what the endpoint is called.
    pub fn set_name(&self, name: &str) {
        self.sheet.set_name(name);
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
    pub fn count(&self, what: Tally, len: usize) {
        self.add(AT_TALLIES + 2 * what as usize, len);
    }

    /// Counts a message of `len` bytes under the way that it took, besides.
    #[inline(always)]
    pub fn count_way(&self, way: Way, len: usize) {
        self.add(AT_WAYS + 2 * way as usize, len);
    }

    #[inline(always)]
    fn add(&self, at: usize, len: usize) {
        let words = self.words();
        bump(&words[at], 1);
        bump(&words[at + 1], len as u64);
    }

    /// Whether the standing is to be written down now: a busy endpoint asks when it has read the
    /// clock anyway.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        self.since_opened(now) >= self.due.load(Ordering::Relaxed)
    }

    /// Writes down how things stand.
    #[cold]
    pub fn write_standing(&self, now: Instant, tell: impl FnOnce(&mut Standing<'_>)) {
        let since = self.since_opened(now);
        self.due.store(since + INTERVAL, Ordering::Relaxed);
        standing::write(self.words(), self.opened.1 + since, tell);
    }

    /// Notes an event with a peer, here and in the log.
    #[cold]
    pub fn note(&self, what: What, peer: &str, number: u64) {
        flight::note(self.words(), now(), what, peer, number);
        let (level, subsystem) = match what {
            What::Awaited | What::Met | What::Lost => (Level::Info, "ep_ctrl"),
            What::NoCma => (Level::Info, "ep_data"),
            What::Stalled | What::SendFailed | What::ReceiveFailed => (Level::Debug, "ep_data"),
        };
        if level > log::max_level() {
            return;
        }
        let event = Event {
            at: 0,
            what,
            number,
            about: peer.to_owned(),
        };
        let (own, sentence) = (self.name(), event.sentence());
        self.log(level, subsystem, format_args!("{own}: {sentence}"));
    }

    fn name(&self) -> &str {
        self.name.get().map_or("an endpoint", String::as_str)
    }

    fn log(&self, level: Level, subsystem: &str, what: fmt::Arguments<'_>) {
        selvedge::log::log_as(level, &self.provider, subsystem, what);
    }

    fn since_opened(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.opened.0).as_nanos() as u64
    }

    #[inline(always)]
    fn words(&self) -> &[AtomicU64; WORDS] {
        self.sheet.words()
    }
}

impl Drop for Page {
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

/// Adds to a word that nobody else writes.
#[inline(always)]
fn bump(word: &AtomicU64, by: u64) {
    word.store(
        word.load(Ordering::Relaxed).wrapping_add(by),
        Ordering::Relaxed,
    );
}
