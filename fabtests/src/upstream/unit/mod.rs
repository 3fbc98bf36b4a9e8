//! The unit programs: a single process without a peer tests one object at a time.

mod getinfo;
mod objects;
mod queues;
mod signals;

use selvedge::Errno;
use selvedge_testkit::failure::{errno, unsupported, wrong};

use super::options::{ADDRESS, FABRIC, INFO, OptionSet};

pub(super) use getinfo::getinfo_test;
pub(super) use objects::{av_test, dom_test, mr_test, setopt_test};
pub(super) use queues::{cntr_test, cq_test, eq_test};
pub(super) use signals::{OPTIONS as SIGNALS, sighandler_test};

/// Returns the options of a program: the common options and `specific`.
pub(super) const fn option_set(specific: &'static str) -> OptionSet {
    OptionSet {
        common: &[ADDRESS, FABRIC, INFO],
        specific,
        long: &[],
    }
}

/// The counts of the results of cases.
#[derive(Debug, Default)]
struct Cases {
    passed: usize,
    skipped: usize,
    failed: usize,
}

impl Cases {
    /// Runs a case. A case that the provider does not support is skipped.
    fn run(&mut self, name: &str, case: impl FnOnce() -> anyhow::Result<()>) {
        match case() {
            Ok(()) => {
                self.passed += 1;
                println!("{name}: PASS!");
            }
            Err(error) if [Errno::NoData, Errno::NoSys].contains(&errno(&error)) => {
                self.skipped += 1;
                println!("{name}: SKIPPED: {error:#}");
            }
            Err(error) => {
                self.failed += 1;
                println!("{name}: FAIL: {error:#}");
            }
        }
    }

    /// Prints the summary and returns the result of the program.
    fn finish(self) -> anyhow::Result<()> {
        let Self {
            passed,
            skipped,
            failed,
        } = self;
        println!("Summary: {passed} passed, {failed} failed, {skipped} skipped");
        match (passed, failed) {
            (_, 1..) => Err(wrong(format!("{failed} cases failed"))),
            (0, _) => Err(unsupported("the provider supports none of the cases")),
            _ => Ok(()),
        }
    }
}
