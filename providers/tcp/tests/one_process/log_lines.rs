//! The warnings that the endpoints of this process log.

use std::sync::{Mutex, Once, PoisonError};

use log::{Level, LevelFilter, Log, Metadata, Record};

/// Records every warning of this process.
struct Warnings(Mutex<Vec<String>>);

static WARNINGS: Warnings = Warnings(Mutex::new(Vec::new()));

impl Log for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(record.args().to_string());
    }

    fn flush(&self) {}
}

/// Starts to record warnings.
pub(crate) fn record_warnings() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&WARNINGS).unwrap();
        log::set_max_level(LevelFilter::Warn);
    });
}

/// Returns the recorded warnings with this prefix.
pub(crate) fn warnings_with_prefix(prefix: &str) -> Vec<String> {
    let lines = WARNINGS.0.lock().unwrap_or_else(PoisonError::into_inner);
    let matching = lines.iter().filter(|line| line.starts_with(prefix));
    matching.cloned().collect()
}
