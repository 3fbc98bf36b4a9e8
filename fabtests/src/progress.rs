//! How far a run has come, on a terminal; nothing elsewhere.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Whether and where progress is shown.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    shown: bool,
}

/// One stretch of work of known length. The line vanishes when it is dropped.
#[derive(Debug)]
pub struct Steps(ProgressBar);

impl Progress {
    /// Shows progress where standard error is a terminal.
    pub fn on_terminal() -> Self {
        Self {
            shown: std::io::stderr().is_terminal(),
        }
    }

    /// Shows none.
    pub fn hidden() -> Self {
        Self { shown: false }
    }

    /// Begins a stretch of work.
    ///
    /// It is only drawn between two measurements: a thread that draws would take a core from
    /// them.
    pub fn steps(self, what: &str, count: usize) -> Steps {
        let target = if self.shown {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(count as u64), target);
        let style = ProgressStyle::with_template("{msg:28} {wide_bar} {pos}/{len} {eta:>4}");
        bar.set_style(style.expect("the template is well-formed"));
        bar.set_message(what.to_owned());
        Steps(bar)
    }
}

impl Steps {
    /// One step is done.
    pub fn step(&self) {
        self.0.inc(1);
    }

    /// What the next step does.
    pub fn says(&self, what: String) {
        self.0.set_message(what);
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
