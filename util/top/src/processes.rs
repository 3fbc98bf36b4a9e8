//! Search for statistics pages. A page is a memory file, identified by its name, among the file
//! descriptors of the user's processes.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};

use anyhow::Context;
use selvedge_kit::telemetry::calls::CallLog;
use selvedge_kit::telemetry::groups::GroupStats;
use selvedge_kit::telemetry::latency::LatencyStats;
use selvedge_kit::telemetry::layout::{MEMFD_NAME, PageKind};
use selvedge_kit::telemetry::seqlock::Words;
use selvedge_kit::telemetry::{PageHeader, Stats};

/// Returns every endpoint of the accessible processes, ordered by process and age.
pub(crate) fn all() -> anyhow::Result<Vec<Stats>> {
    let mut stats: Vec<Stats> = pids()?.into_iter().flat_map(endpoints_of).collect();
    stats.sort_by_key(|stats| (stats.pid, stats.opened));
    Ok(stats)
}

/// Returns the endpoints of a process, or none if the process has ended or belongs to another user.
pub(crate) fn endpoints_of(pid: u32) -> Vec<Stats> {
    let read = |file: &File| Stats::read(&Page(file), || read_words(file, 0));
    let mut stats = pages_of(pid, PageKind::Stats, read);
    // A child has copies of its parent's descriptors, but not the parent's endpoints.
    stats.retain(|stats| stats.pid == pid);
    stats.sort_by_key(|stats| stats.opened);
    stats
}

/// Returns the recorded latencies of the endpoints of a process.
pub(crate) fn latencies(pid: u32) -> Vec<LatencyStats> {
    let read = |file: &File| LatencyStats::parse(&*read_words(file, 0)?);
    let mut stats = pages_of(pid, PageKind::Latency, read);
    stats.retain(|stats| stats.header.pid == pid);
    stats.sort_by_key(|stats| stats.header.opened);
    stats
}

/// Returns the call logs of a process.
pub(crate) fn calls(pid: u32) -> Vec<CallLog> {
    let read = |file: &File| CallLog::parse(&*read_words(file, 0)?);
    let mut stats = pages_of(pid, PageKind::Calls, read);
    stats.retain(|stats| stats.header.pid == pid);
    stats
}

/// Returns the groups of a process, with their pending collectives.
pub(crate) fn groups(pid: u32) -> Vec<GroupStats> {
    let read = |file: &File| GroupStats::read(&Page(file), || read_words(file, 0));
    let mut stats = pages_of(pid, PageKind::Groups, read);
    stats.retain(|stats| stats.header.pid == pid);
    stats
}

/// Returns every process id.
pub(crate) fn pids() -> anyhow::Result<Vec<u32>> {
    let entries = fs::read_dir("/proc").context("cannot list processes")?;
    let names = entries.flatten().map(|entry| entry.file_name());
    Ok(names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect())
}

/// Returns whether a page belongs to an endpoint.
pub(crate) fn is_of(header: &PageHeader, stats: &Stats) -> bool {
    (header.pid, &header.provider, &header.name) == (stats.pid, &stats.provider, &stats.name)
}

/// Returns whether the object of a page has a statistics page. Shared receive contexts and
/// endpoints of other libraries have no such page.
pub(crate) fn has_page(header: &PageHeader, pages: &[Stats]) -> bool {
    pages.iter().any(|stats| is_of(header, stats))
}

/// Returns the title of a page's object: an endpoint, or a shared receive context, which a hook
/// has named `srx` and a number.
pub(crate) fn title(header: &PageHeader) -> String {
    let PageHeader { provider, name, .. } = header;
    if name.starts_with("srx ") {
        format!("{provider} {name}")
    } else {
        format!("{provider} endpoint {name}")
    }
}

/// Reads the pages of a kind that a process has open.
fn pages_of<T>(pid: u32, kind: PageKind, read: impl Fn(&File) -> Option<T>) -> Vec<T> {
    let folder = format!("/proc/{pid}/fd");
    let Ok(fds) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = fds.flatten().map(|fd| fd.path());
    let files = paths.filter(|path| is_page_file(path)).filter_map(|path| {
        let file = File::open(path).ok()?;
        let len = file.metadata().ok()?.len();
        (len == (kind.words() * 8) as u64).then_some(file)
    });
    files.filter_map(|file| read(&file)).collect()
}

/// Returns the command name of a process.
pub(crate) fn command(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(
        text.trim()
            .chars()
            .filter(|char| !char.is_control())
            .collect(),
    )
}

/// Returns the state of a process as ps(1) shows it: `R`, `S`, `T` ..
pub(crate) fn state(pid: u32) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The state follows the command name in parentheses, which may contain any characters.
    text.rsplit_once(')')?.1.trim_start().chars().next()
}

fn is_page_file(fd: &Path) -> bool {
    let name = fs::read_link(fd).ok();
    let name = name.as_deref().and_then(Path::to_str);
    name.and_then(|name| name.strip_prefix("/memfd:"))
        .and_then(|name| name.strip_prefix(MEMFD_NAME))
        .is_some_and(|rest| rest.is_empty() || rest == " (deleted)")
}

/// Access to a page through its file, word by word.
struct Page<'a>(&'a File);

impl Words for Page<'_> {
    fn load(&self, index: usize, _: Ordering) -> u64 {
        let mut word = [0; 8];
        let result = self.0.read_exact_at(&mut word, (index * 8) as u64);
        result.map_or(0, |()| u64::from_le_bytes(word))
    }

    fn store(&self, _: usize, _: u64, _: Ordering) {
        unreachable!("pages are read only");
    }

    fn fence(&self, order: Ordering) {
        fence(order);
    }
}

/// Reads `N` words from `file`, from the byte at `offset`.
fn read_words<const N: usize>(file: &File, offset: u64) -> Option<Box<[u64; N]>> {
    let mut bytes = vec![0; N * 8];
    file.read_exact_at(&mut bytes, offset).ok()?;
    let words = bytes.as_chunks::<8>().0.iter();
    let words: Box<[u64]> = words.map(|word| u64::from_le_bytes(*word)).collect();
    words.try_into().ok()
}

/// The contents of a flight record, written at a crash or a signal.
#[derive(Debug, Default)]
pub(crate) struct FlightRecord {
    pub(crate) endpoints: Vec<Stats>,
    pub(crate) latencies: Vec<LatencyStats>,
    pub(crate) calls: Vec<CallLog>,
    pub(crate) groups: Vec<GroupStats>,
}

/// Reads a flight record, up to the first invalid page.
pub(crate) fn read_flight_record(path: &PathBuf) -> anyhow::Result<FlightRecord> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let (mut record, mut offset) = (FlightRecord::default(), 0);
    while let Some(kind) = read_kind(&file, offset) {
        match kind {
            PageKind::Stats => {
                record
                    .endpoints
                    .extend(read_words(&file, offset).and_then(|words| Stats::parse(&words)));
            }
            PageKind::Latency => {
                let stats = read_words(&file, offset).and_then(|words| LatencyStats::parse(&words));
                record.latencies.extend(stats);
            }
            PageKind::Groups => {
                let stats = read_words(&file, offset).and_then(|words| GroupStats::parse(&words));
                record.groups.extend(stats);
            }
            PageKind::Calls => {
                record
                    .calls
                    .extend(read_words(&file, offset).and_then(|words| CallLog::parse(&words)));
            }
        }
        offset += (kind.words() * 8) as u64;
    }
    let is_empty = record.endpoints.is_empty() && record.calls.is_empty();
    anyhow::ensure!(!is_empty, "{} contains no endpoints", path.display());
    Ok(record)
}

/// Returns the kind of the page at `offset`, or `None` if the page's magic number is unknown.
fn read_kind(file: &File, offset: u64) -> Option<PageKind> {
    let mut magic = [0; 8];
    file.read_exact_at(&mut magic, offset).ok()?;
    let magic = u64::from_le_bytes(magic);
    PageKind::ALL.into_iter().find(|kind| kind.magic() == magic)
}
