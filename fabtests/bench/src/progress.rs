//! How far a run has come: a bar on a terminal, a line for each result elsewhere.

use std::io::{IsTerminal, Write as _};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How progress is shown, on standard error.
#[derive(Clone, Copy, Debug)]
pub enum Progress {
    /// A bar that vanishes in the end.
    Bar,
    /// Results, a line each, as they come.
    Lines,
}

/// One stretch of work of known length. The bar vanishes when it is dropped.
#[derive(Debug)]
pub struct Steps {
    bar: ProgressBar,
    progress: Progress,
}

impl Progress {
    /// A bar where standard error is a terminal, lines elsewhere.
    pub fn on_stderr() -> Self {
        match std::io::stderr().is_terminal() {
            true => Self::Bar,
            false => Self::Lines,
        }
    }

    /// Begins a stretch of work.
    ///
    /// It is only drawn between two measurements: a thread that draws would take a core from
    /// them.
    pub fn steps(self, what: &str, count: usize) -> Steps {
        let target = match self {
            Self::Bar => ProgressDrawTarget::stderr(),
            Self::Lines => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(count as u64), target);
        let style = ProgressStyle::with_template("{msg:28} {wide_bar} {pos}/{len} {eta:>4}");
        bar.set_style(style.expect("the template is well-formed"));
        bar.set_message(what.to_owned());
        Steps {
            bar,
            progress: self,
        }
    }
}

impl Steps {
    /// One step is done.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// One step is done, with these results.
    pub fn step_with(&self, results: Vec<String>) {
        self.step();
        if matches!(self.progress, Progress::Bar) {
            return;
        }
        let (done, all) = (self.bar.position(), self.bar.length().unwrap_or_default());
        for result in results {
            // A reader that has gone away does not end a measurement.
            let _ = writeln!(std::io::stderr(), "{done}/{all} {result}");
        }
    }

    /// What the next step does.
    pub fn says(&self, what: String) {
        self.bar.set_message(what);
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
