//! The unit programs: one process, no peer, one object at a time.

mod getinfo;
mod objects;
mod queues;
mod signals;

use selvedge::Errno;
use selvedge_testkit::failure::{errno, unsupported, wrong};

use super::options::{ADDRESS, FABRIC, INFO, Letters};

pub(super) use getinfo::getinfo_test;
pub(super) use objects::{av_test, dom_test, mr_test, setopt_test};
pub(super) use queues::{cntr_test, cq_test, eq_test};
pub(super) use signals::{LETTERS as SIGNALS, sighandler_test};

/// The letters of a program with some of its own.
pub(super) const fn letters(own: &'static str) -> Letters {
    Letters {
        common: &[ADDRESS, FABRIC, INFO],
        own,
        long: &[],
    }
}

/// Runs cases, and counts what became of them.
#[derive(Debug, Default)]
struct Cases {
    passed: usize,
    skipped: usize,
    failed: usize,
}

impl Cases {
    /// Runs one. What the provider lacks is no failure.
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

    /// What the program says in the end.
    fn end(self) -> anyhow::Result<()> {
        let Self {
            passed,
            skipped,
            failed,
        } = self;
        println!("Summary: {passed} passed, {failed} failed, {skipped} skipped");
        match (passed, failed) {
            (_, 1..) => Err(wrong(format!("{failed} cases failed"))),
            (0, _) => Err(unsupported("nothing of it is there")),
            _ => Ok(()),
        }
    }
}
