//! SIGINT while a report is measured: prints the rows so far as a partial report and ends the
//! process.

use nix::sys::signal::{SigSet, Signal};

use super::print::{self, Format};
use crate::comparison::Draft;
use crate::output;

/// Installs the handling of SIGINT: prints `draft` and ends this process with the exit status that
/// shells expect.
///
/// Call this function before any thread or process is started. Threads and children then inherit
/// the blocked SIGINT, so that only the waiting thread receives the signal. Children end with this
/// process.
///
/// # Errors
/// The system's error.
pub(super) fn report_on_interrupt(draft: &Draft, format: Format) -> anyhow::Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.thread_block()?;
    let draft = draft.clone();
    let thread = std::thread::Builder::new().name("interrupt".to_owned());
    thread.spawn(move || {
        if signals.wait().is_err() {
            return;
        }
        let program = output::program();
        draft.interrupt(|report| {
            match report.filter(|report| !report.rows.is_empty()) {
                None => eprintln!("{program}: interrupted before the first row"),
                Some(report) => {
                    if let Err(error) = print::print_report(&report, format) {
                        eprintln!("{program}: {error:#}");
                    }
                    eprintln!(
                        "{program}: interrupted: the report has the rounds before the interrupt"
                    );
                }
            }
            std::process::exit(EXIT_STATUS);
        });
    })?;
    Ok(())
}

/// Exit status: 128 plus the number of the signal.
const EXIT_STATUS: i32 = 128 + Signal::SIGINT as i32;
