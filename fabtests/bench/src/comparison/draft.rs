//! A report while it is measured, shared with the thread that prints it when the run is
//! interrupted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Report, Row};
use crate::limits::Limits;
use crate::machine::Machine;

/// A report to which rows are added during the measurement. Clones share the report.
#[derive(Clone, Debug, Default)]
pub struct Draft(Arc<Mutex<State>>);

#[derive(Debug, Default)]
enum State {
    /// The limits are not measured yet.
    #[default]
    Empty,
    /// The report, and the rows of each point so far in the order of the plan.
    Growing(Box<Report>, Vec<Vec<Row>>),
    /// The complete report was taken.
    Finished,
}

impl Draft {
    /// Begins the report, without rows.
    pub fn begin(&self, machine: Machine, limits: Limits) {
        let report = Report {
            partial: true,
            machine,
            limits,
            rows: Vec::new(),
            memory: Vec::new(),
            opening: Vec::new(),
        };
        *self.state() = State::Growing(Box::new(report), Vec::new());
    }

    /// Sets the rows of a point, replacing those of earlier rounds.
    pub(super) fn set_rows(&self, point: usize, new_rows: Vec<Row>) {
        if let State::Growing(_, rows) = &mut *self.state() {
            if rows.len() <= point {
                rows.resize_with(point + 1, Vec::new);
            }
            rows[point] = new_rows;
        }
    }

    /// Takes the complete report.
    ///
    /// # Panics
    /// If the report was not begun, or was taken before.
    pub fn finish(&self) -> Report {
        let mut state = self.state();
        let previous = std::mem::replace(&mut *state, State::Finished);
        let mut report = previous
            .into_report()
            .expect("a report is begun once, and finished once");
        report.partial = false;
        report
    }

    /// Passes the report so far to `print`; passes `None` before [`Self::begin`]. The draft stays
    /// locked during the call, so that [`Self::finish`] waits. Returns without a call after
    /// [`Self::finish`], whose caller prints the complete report.
    pub fn interrupt(&self, print: impl FnOnce(Option<Report>)) {
        let mut state = self.state();
        if !matches!(*state, State::Finished) {
            print(std::mem::take(&mut *state).into_report());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn into_report(self) -> Option<Report> {
        let Self::Growing(mut report, rows) = self else {
            return None;
        };
        report.rows = rows.into_iter().flatten().collect();
        Some(*report)
    }
}
