//! The tables of benchmarks with upstream's columns, as text or as YAML (`-m`).

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::upstream::options::{Options, iterations};

/// A table, whose rows are printed one by one.
#[derive(Debug)]
pub(in crate::upstream) struct Table {
    command_line: String,
    machine: bool,
    has_heading: bool,
}

/// A measurement.
#[derive(Clone, Copy, Debug)]
pub(in crate::upstream) struct Row<'a> {
    /// The name of the row, in tables with a column of names.
    pub(in crate::upstream) name: Option<&'a str>,
    /// The length of a transfer in bytes.
    pub(in crate::upstream) size: usize,
    /// The number of iterations.
    pub(in crate::upstream) iterations: usize,
    /// The number of transfers in an iteration.
    pub(in crate::upstream) transfers: usize,
    /// The elapsed time.
    pub(in crate::upstream) time: Duration,
}

impl Table {
    /// Creates a table without rows.
    pub(in crate::upstream) fn new(options: &Options) -> Self {
        Self {
            command_line: options.command_line.join(" "),
            machine: options.machine,
            has_heading: false,
        }
    }

    /// Prints a row, and the heading before the first one.
    pub(in crate::upstream) fn print(&mut self, row: &Row<'_>) {
        self.print_heading(row.name.is_some());
        println!("{}", if self.machine { row.yaml() } else { row.text() });
    }

    /// Prints the heading, with or without a column of names, unless it has been printed.
    pub(in crate::upstream) fn print_heading(&mut self, has_names: bool) {
        if !std::mem::replace(&mut self.has_heading, true) {
            print!("{}", self.heading(has_names));
        }
    }

    fn heading(&self, has_names: bool) -> String {
        if self.machine {
            return format!("---\n{} :\n", self.command_line);
        }
        let name = has_names.then(|| format!("{:<50}", "name"));
        format!(
            "{}{:<8}{:<8}{:<8}{:>8} {:>10}{:>13}{:>13}\n",
            name.unwrap_or_default(),
            "bytes",
            "iters",
            "total",
            "time",
            "MB/sec",
            "usec/xfer",
            "Mxfers/sec"
        )
    }
}

impl Row<'_> {
    fn total(&self) -> usize {
        self.size * self.iterations * self.transfers
    }

    fn seconds(&self) -> f64 {
        self.time.as_secs_f64().max(1e-9)
    }

    fn mb_per_second(&self) -> f64 {
        self.total() as f64 / self.seconds() / 1e6
    }

    /// Returns the time of one transfer in microseconds.
    fn microseconds(&self) -> f64 {
        self.seconds() * 1e6 / (self.iterations * self.transfers).max(1) as f64
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if let Some(name) = self.name {
            let _ = write!(text, "{name:<50}");
        }
        let _ = write!(
            text,
            "{:<8}{:<8}{:<8}{:>8.2}s{:>10.2}{:>11.2}{:>11.2}",
            format_short(self.size, &BINARY),
            format_short(self.iterations, &DECIMAL),
            format_short(self.total(), &BINARY),
            self.seconds(),
            self.mb_per_second(),
            self.microseconds(),
            1.0 / self.microseconds()
        );
        text
    }

    fn yaml(&self) -> String {
        let name = self.name.map(|name| format!("name: {name}, "));
        format!(
            "- {{ {}xfer_size: {}, iterations: {}, total: {}, time: {:.6}, MB/sec: {:.6}, \
             usec/xfer: {:.6}, Mxfers/sec: {:.6} }}",
            name.unwrap_or_default(),
            self.size,
            self.iterations,
            self.total(),
            self.seconds(),
            self.mb_per_second(),
            self.microseconds(),
            1.0 / self.microseconds()
        )
    }
}

pub(in crate::upstream) type Units = [(usize, &'static str); 3];
pub(in crate::upstream) const BINARY: Units = [(1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k")];
pub(in crate::upstream) const DECIMAL: Units =
    [(1_000_000_000, "b"), (1_000_000, "m"), (1000, "k")];

/// Formats a number in its largest unit, with one decimal below ten unless it is zero.
pub(in crate::upstream) fn format_short(number: usize, units: &Units) -> String {
    let unit = units.iter().find(|(unit, _)| number >= *unit);
    let (unit, name) = unit.copied().unwrap_or((1, ""));
    let whole = number / unit;
    match (number % unit) * 10 / unit {
        tenth if whole < 10 && tenth > 0 => format!("{whole}.{tenth}{name}"),
        _ => format!("{whole}{name}"),
    }
}

/// Measures the time of `count` iterations after a warm-up.
pub(in crate::upstream) fn measure_iterations<S>(
    state: &mut S,
    warmup: usize,
    count: usize,
    mut iteration: impl FnMut(&mut S) -> anyhow::Result<()>,
) -> anyhow::Result<Duration> {
    for _ in 0..warmup {
        iteration(state)?;
    }
    let start = Instant::now();
    for _ in 0..count {
        iteration(state)?;
    }
    Ok(start.elapsed())
}

/// Returns the number of messages of a size: from the options, or `times` the default of the size.
pub(in crate::upstream) fn count(options: &Options, size: usize, times: usize) -> usize {
    options
        .iterations
        .unwrap_or_else(|| times * iterations(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: Option<&str>) -> Row<'_> {
        Row {
            name,
            size: 64,
            iterations: 5,
            transfers: 2,
            time: Duration::from_nanos(39_993_994),
        }
    }

    #[test]
    fn rows_and_headings_have_the_format_of_upstream() {
        let mut table = Table {
            command_line: String::new(),
            machine: false,
            has_heading: false,
        };
        let heading = "bytes   iters   total       time     MB/sec    usec/xfer   Mxfers/sec\n";
        assert_eq!(table.heading(false), heading);
        let text = "64      5       640         0.04s      0.02    3999.40       0.00";
        assert_eq!(row(None).text(), text);
        assert_eq!(row(Some("x")).text(), format!("{:<50}{text}", "x"));
        table.machine = true;
        table.command_line = "fi_rdm_pingpong -m".into();
        assert_eq!(table.heading(false), "---\nfi_rdm_pingpong -m :\n");
        assert_eq!(
            row(None).yaml(),
            "- { xfer_size: 64, iterations: 5, total: 640, time: 0.039994, MB/sec: 0.016002, \
             usec/xfer: 3999.399400, Mxfers/sec: 0.000250 }"
        );
    }

    #[test]
    fn numbers_have_the_format_of_upstream() {
        let table = [
            (0, "0"),
            (1023, "1023"),
            (1024, "1k"),
            (1536, "1.5k"),
            (10_240, "10k"),
            (1 << 20, "1m"),
            (1_342_177_280, "1.2g"),
        ];
        for (number, text) in table {
            assert_eq!(format_short(number, &BINARY), text);
        }
        assert_eq!(format_short(10_000, &DECIMAL), "10k");
        assert_eq!(format_short(1500, &DECIMAL), "1.5k");
    }
}
