//! Memory use of an idle endpoint.

use anyhow::Context as _;
use serde::Serialize;

use crate::fabric::OpenOrder;
use crate::pair::{Order, Pair};

/// Growth of a process's memory when the process opens an endpoint, in KiB.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryUse {
    /// Name and version of the implementation.
    pub implementation: String,
    /// Proportional set size: shared memory divided by its users.
    pub pss_kib: i64,
    /// The part of `pss_kib` that consists of pages of files: mostly code that ran for the first
    /// time.
    pub file_kib: i64,
    /// Resident set size.
    pub rss_kib: i64,
    /// The part of `rss_kib` that is shared memory.
    pub shm_kib: i64,
    /// Address space.
    pub mapped_kib: i64,
}

impl MemoryUse {
    /// Has both processes open an endpoint, and measures the active one.
    ///
    /// The figures contain everything that the first endpoint causes: discovery, libraries'
    /// initialisation, and 12 KiB of message buffers.
    ///
    /// # Errors
    /// As [`Pair::order`], or when the system does not report the figures.
    pub fn measure(
        implementation: String,
        mut pair: Pair,
        provider: Option<String>,
        datagrams: bool,
    ) -> anyhow::Result<Self> {
        let active = pair.active_pid();
        pair.order(&Order::Ready)?;
        let before = Footprint::read(active)?;
        pair.order(&Order::Open(OpenOrder {
            datagrams,
            ..OpenOrder::plain(provider, 64, 1)
        }))?;
        let after = Footprint::read(active)?;
        Ok(Self {
            implementation,
            pss_kib: after.pss - before.pss,
            file_kib: after.file - before.file,
            rss_kib: after.rss - before.rss,
            shm_kib: after.shm - before.shm,
            mapped_kib: after.mapped - before.mapped,
        })
    }
}

#[derive(Debug)]
struct Footprint {
    pss: i64,
    file: i64,
    rss: i64,
    shm: i64,
    mapped: i64,
}

impl Footprint {
    fn read(pid: u32) -> anyhow::Result<Self> {
        let read_file = |file: &str| {
            let path = format!("/proc/{pid}/{file}");
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
        };
        let (rollup, status) = (read_file("smaps_rollup")?, read_file("status")?);
        Ok(Self {
            pss: parse_kib(&rollup, "Pss:")?,
            file: parse_kib(&rollup, "Pss_File:")?,
            rss: parse_kib(&rollup, "Rss:")?,
            shm: parse_kib(&status, "RssShmem:")?,
            mapped: parse_kib(&status, "VmSize:")?,
        })
    }
}

/// Parses the figure of a line `name   123 kB`.
fn parse_kib(text: &str, name: &str) -> anyhow::Result<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let figure = line.and_then(|line| line.split_whitespace().next());
    figure
        .and_then(|figure| figure.parse().ok())
        .with_context(|| format!("the system's memory figures have no {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_their_names() {
        let text = "Rss:   12 kB\nPss:     7 kB\n";
        assert_eq!(parse_kib(text, "Pss:").unwrap(), 7);
        assert!(parse_kib(text, "Swap:").is_err());
    }

    #[test]
    fn a_process_has_a_footprint() {
        let footprint = Footprint::read(std::process::id()).unwrap();
        let Footprint {
            pss,
            file,
            rss,
            mapped,
            ..
        } = footprint;
        assert!(pss > file && file > 0 && rss >= pss && mapped > rss);
    }
}
