//! The progress of a run: a bar on a terminal, a line for each result elsewhere.

use std::io::{IsTerminal, Write as _};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The form of the progress on standard error.
#[derive(Clone, Copy, Debug)]
pub enum Progress {
    /// A bar, which is cleared at the end.
    Bar,
    /// One line for each result.
    Lines,
}

/// A task with a known number of steps. Dropping the task clears its bar.
#[derive(Debug)]
pub struct Steps {
    bar: ProgressBar,
    progress: Progress,
}

impl Progress {
    /// Selects a bar if standard error is a terminal, and lines otherwise.
    pub fn on_stderr() -> Self {
        if std::io::stderr().is_terminal() {
            Self::Bar
        } else {
            Self::Lines
        }
    }

    /// Begins a task of `count` steps.
    ///
    /// The bar is drawn only between two measurements: a thread that draws would take a core from
    /// the measured processes.
    pub fn steps(self, message: &str, count: usize) -> Steps {
        let target = match self {
            Self::Bar => ProgressDrawTarget::stderr(),
            Self::Lines => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(count as u64), target);
        let style = ProgressStyle::with_template("{msg:28} {wide_bar} {pos}/{len} {eta:>4}");
        bar.set_style(style.expect("the template is well-formed"));
        bar.set_message(message.to_owned());
        Steps {
            bar,
            progress: self,
        }
    }
}

impl Steps {
    /// Completes one step.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// Completes one step and prints its results.
    pub fn step_with(&self, results: Vec<String>) {
        self.step();
        if matches!(self.progress, Progress::Bar) {
            return;
        }
        let (position, count) = (self.bar.position(), self.bar.length().unwrap_or_default());
        for result in results {
            // A closed standard error does not end a measurement.
            let _ = writeln!(std::io::stderr(), "{position}/{count} {result}");
        }
    }

    /// Sets the description of the next step.
    pub fn describe(&self, message: String) {
        self.bar.set_message(message);
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
