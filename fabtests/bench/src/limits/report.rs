//! The limits as figures, for JSON and tables.

use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use crate::measure::size;
use crate::output::table;

/// The limits of the machine. Absent figures were not measured or were refused.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// Round trip of a cache line, in nanoseconds: mean of groups.
    pub cacheline_rtt_ns: Option<f64>,
    /// Round trip of plain stores in two lines, one per direction: mean of groups, in nanoseconds.
    pub put_rtt_ns: Option<f64>,
    /// Round trip of 56 bytes through the one-line ring: median of single round trips, with one
    /// reading of the clock in each, in nanoseconds.
    pub ring_rtt_ns: Option<f64>,
    /// As `ring_rtt_ns`, but the mean of groups without the clock, in nanoseconds.
    pub ring_rtt_mean_ns: Option<f64>,
    /// As `ring_rtt_ns`, with 8 bytes.
    pub ring_rtt_8b_ns: Option<f64>,
    /// Messages of 56 bytes per second through the ring.
    pub ring_msgs_per_s: Option<f64>,
    /// Messages of 8 bytes per second through the ring.
    pub ring_8b_msgs_per_s: Option<f64>,
    /// Copies into shared memory and out of it, in one direction.
    pub two_copy: Vec<SizeLimit>,
    /// Copies on one core, in cache if the buffers fit into the cache.
    pub memcpy: Vec<SizeLimit>,
    /// Copies on one core, out of cache.
    pub memcpy_cold: Vec<SizeLimit>,
    /// Reads of another process's memory by system call.
    pub cma: Vec<SizeLimit>,
    /// Reason why CMA has no figures.
    pub cma_refused: Option<String>,
    /// Round trip of 8 bytes over TCP: median, in nanoseconds.
    pub tcp_rtt_ns: Option<f64>,
    /// Round trip of 8 bytes over a Unix stream socket: median, in nanoseconds.
    pub unix_rtt_ns: Option<f64>,
    /// Time from a futex wake-up until the other process runs: median, in nanoseconds.
    pub futex_wake_ns: Option<f64>,
    /// Time from writing an eventfd until the other process has read it: median, in nanoseconds.
    pub eventfd_wake_ns: Option<f64>,
}

/// A limit at one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SizeLimit {
    /// Message size, in bytes.
    pub size: usize,
    /// Time of one copy or one direction, in nanoseconds.
    pub ns: f64,
    /// Bandwidth, in millions of bytes per second.
    pub mbps: f64,
}

impl SizeLimit {
    /// Makes a limit from its size in bytes and its time in nanoseconds.
    pub fn new(size: usize, ns: f64) -> Self {
        Self {
            size,
            ns,
            mbps: size as f64 * 1e3 / ns,
        }
    }

    /// Finds the limit at a size.
    pub fn find(limits: &[Self], size: usize) -> Option<&Self> {
        limits.iter().find(|limit| limit.size == size)
    }
}

impl Limits {
    /// A table of the limits that do not depend on a size.
    pub fn fixed_table(&self) -> Table {
        let mut table = table::new(&["between the two processes", "figure", "unit"]);
        for (name, figure, unit) in [
            ("cache line, round trip", self.cacheline_rtt_ns, "ns"),
            ("stores in two lines, round trip", self.put_rtt_ns, "ns"),
            ("one-line ring, 56 B, round trip", self.ring_rtt_ns, "ns"),
            ("one-line ring, 8 B, round trip", self.ring_rtt_8b_ns, "ns"),
            (
                "one-line ring, 56 B, rate",
                millions(self.ring_msgs_per_s),
                "M msgs/s",
            ),
            (
                "one-line ring, 8 B, rate",
                millions(self.ring_8b_msgs_per_s),
                "M msgs/s",
            ),
            (
                "Unix stream socket, 8 B, round trip",
                self.unix_rtt_ns,
                "ns",
            ),
            ("TCP loopback, 8 B, round trip", self.tcp_rtt_ns, "ns"),
            ("futex, wake-up", self.futex_wake_ns, "ns"),
            ("eventfd, wake-up", self.eventfd_wake_ns, "ns"),
        ] {
            if let Some(figure) = figure {
                table.add_row([name.to_owned(), table::figure(figure), unit.to_owned()]);
            }
        }
        table::align(&mut table, 2, CellAlignment::Left);
        table
    }

    /// A table of the limits by size.
    pub fn size_table(&self) -> Table {
        let mut table = table::new(&[
            "size",
            "two copies us",
            "MB/s",
            "memcpy hot us",
            "MB/s",
            "memcpy cold us",
            "MB/s",
            "CMA us",
            "MB/s",
        ]);
        for limit in &self.memcpy {
            let columns = [&self.two_copy, &self.memcpy, &self.memcpy_cold, &self.cma];
            let cells = columns.into_iter().flat_map(|column| {
                let limit = SizeLimit::find(column, limit.size);
                [
                    limit.map(|limit| limit.ns / 1e3),
                    limit.map(|limit| limit.mbps),
                ]
            });
            let cells = cells.map(table::optional);
            table.add_row(std::iter::once(size::text(limit.size)).chain(cells));
        }
        table
    }
}

fn millions(rate: Option<f64>) -> Option<f64> {
    rate.map(|rate| rate / 1e6)
}
