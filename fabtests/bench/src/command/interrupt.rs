//! SIGINT while a report is measured: prints the rows so far as a partial report, and ends.

use nix::sys::signal::{SigSet, Signal};

use super::print::{self, Format};
use crate::comparison::Draft;
use crate::output;

/// Has SIGINT print `draft`, and end this process with the code that shells expect.
///
/// Has to be called before any thread or process is started: those inherit that SIGINT is blocked,
/// so that the one thread that waits for the signal gets it. Children end with this process.
///
/// # Errors
/// The system's.
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
                    if let Err(error) = print::report(&report, format) {
                        eprintln!("{program}: {error:#}");
                    }
                    eprintln!("{program}: interrupted: the report holds the rounds until then");
                }
            }
            std::process::exit(CODE);
        });
    })?;
    Ok(())
}

/// 128 and the number of the signal.
const CODE: i32 = 128 + Signal::SIGINT as i32;
