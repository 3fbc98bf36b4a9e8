//! Finds the sheets of endpoints: memory files with their name among the descriptors of the processes
//! that this user may look into.

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

/// Every endpoint of the processes that may be looked into, by process and age.
pub(crate) fn all() -> anyhow::Result<Vec<Stats>> {
    let mut seen: Vec<Stats> = pids()?.into_iter().flat_map(of).collect();
    seen.sort_by_key(|seen| (seen.pid, seen.opened));
    Ok(seen)
}

/// The endpoints of a process; none for one that is gone, or another user's.
pub(crate) fn of(pid: u32) -> Vec<Stats> {
    let page = |file: &File| Stats::read(&Page(file), || copy(file, 0));
    let mut seen = sheets(pid, PageKind::Stats, page);
    // A child has copies of its parent's descriptors, but not the parent's endpoints.
    seen.retain(|seen| seen.pid == pid);
    seen.sort_by_key(|seen| seen.opened);
    seen
}

/// How long the operations of a process took, for each endpoint of which that is known.
pub(crate) fn latencies(pid: u32) -> Vec<LatencyStats> {
    let read = |file: &File| LatencyStats::parse(&*copy(file, 0)?);
    let mut seen = sheets(pid, PageKind::Latency, read);
    seen.retain(|seen| seen.header.pid == pid);
    seen.sort_by_key(|seen| seen.header.opened);
    seen
}

/// The last calls of a process, likewise.
pub(crate) fn calls(pid: u32) -> Vec<CallLog> {
    let read = |file: &File| CallLog::parse(&*copy(file, 0)?);
    let mut seen = sheets(pid, PageKind::Calls, read);
    seen.retain(|seen| seen.header.pid == pid);
    seen
}

/// The collectives of a process, likewise.
pub(crate) fn groups(pid: u32) -> Vec<GroupStats> {
    let read = |file: &File| GroupStats::read(&Page(file), || copy(file, 0));
    let mut seen = sheets(pid, PageKind::Groups, read);
    seen.retain(|seen| seen.header.pid == pid);
    seen
}

/// Every process of this user's.
pub(crate) fn pids() -> anyhow::Result<Vec<u32>> {
    let entries = fs::read_dir("/proc").context("cannot list processes")?;
    let names = entries.flatten().map(|entry| entry.file_name());
    Ok(names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect())
}

/// Whether a sheet is about an endpoint.
pub(crate) fn is_of(head: &PageHeader, seen: &Stats) -> bool {
    (head.pid, &head.provider, &head.name) == (seen.pid, &seen.provider, &seen.name)
}

/// Whether what a sheet is about has a page; shared receives and endpoints of other libraries have
/// none.
pub(crate) fn has_page(head: &PageHeader, pages: &[Stats]) -> bool {
    pages.iter().any(|seen| is_of(head, seen))
}

/// What a sheet is about: an endpoint, or receives that endpoints share, which hooks call so.
pub(crate) fn title(head: &PageHeader) -> String {
    let PageHeader { provider, name, .. } = head;
    match name.starts_with("srx ") {
        true => format!("{provider} {name}"),
        false => format!("{provider} endpoint {name}"),
    }
}

fn sheets<T>(pid: u32, kind: PageKind, read: impl Fn(&File) -> Option<T>) -> Vec<T> {
    let folder = format!("/proc/{pid}/fd");
    let Ok(fds) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = fds.flatten().map(|fd| fd.path());
    let files = paths.filter(|path| is_sheet(path)).filter_map(|path| {
        let file = File::open(path).ok()?;
        let len = file.metadata().ok()?.len();
        (len == (kind.words() * 8) as u64).then_some(file)
    });
    files.filter_map(|file| read(&file)).collect()
}

/// What a process is called.
pub(crate) fn command(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(
        text.trim()
            .chars()
            .filter(|char| !char.is_control())
            .collect(),
    )
}

/// How a process is, in one letter of `ps`: `R`, `S`, `T` ..
pub(crate) fn state(pid: u32) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may have any characters.
    text.rsplit_once(')')?.1.trim_start().chars().next()
}

fn is_sheet(fd: &Path) -> bool {
    let name = fs::read_link(fd).ok();
    let name = name.as_deref().and_then(Path::to_str);
    name.and_then(|name| name.strip_prefix("/memfd:"))
        .and_then(|name| name.strip_prefix(MEMFD_NAME))
        .is_some_and(|rest| rest.is_empty() || rest == " (deleted)")
}

/// A page that is read word by word out of its file.
struct Page<'a>(&'a File);

impl Words for Page<'_> {
    fn load(&self, at: usize, _: Ordering) -> u64 {
        let mut word = [0; 8];
        let done = self.0.read_exact_at(&mut word, (at * 8) as u64);
        done.map_or(0, |()| u64::from_le_bytes(word))
    }

    fn store(&self, _: usize, _: u64, _: Ordering) {
        unreachable!("pages are read only");
    }

    fn fence(&self, order: Ordering) {
        fence(order);
    }
}

fn copy<const N: usize>(file: &File, at: u64) -> Option<Box<[u64; N]>> {
    let mut bytes = vec![0; N * 8];
    file.read_exact_at(&mut bytes, at).ok()?;
    let words = bytes.as_chunks::<8>().0.iter();
    let words: Box<[u64]> = words.map(|word| u64::from_le_bytes(*word)).collect();
    words.try_into().ok()
}

/// What a crash has written out.
#[derive(Debug, Default)]
pub(crate) struct Wreck {
    pub(crate) endpoints: Vec<Stats>,
    pub(crate) latencies: Vec<LatencyStats>,
    pub(crate) calls: Vec<CallLog>,
    pub(crate) groups: Vec<GroupStats>,
}

/// Reads what a crash has written out, up to where it makes no sense.
pub(crate) fn flight(path: &PathBuf) -> anyhow::Result<Wreck> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let (mut wreck, mut at) = (Wreck::default(), 0);
    while let Some(kind) = kind_at(&file, at) {
        match kind {
            PageKind::Stats => {
                wreck
                    .endpoints
                    .extend(copy(&file, at).and_then(|words| Stats::parse(&words)));
            }
            PageKind::Latency => {
                let seen = copy(&file, at).and_then(|words| LatencyStats::parse(&words));
                wreck.latencies.extend(seen);
            }
            PageKind::Groups => {
                let seen = copy(&file, at).and_then(|words| GroupStats::parse(&words));
                wreck.groups.extend(seen);
            }
            PageKind::Calls => {
                wreck
                    .calls
                    .extend(copy(&file, at).and_then(|words| CallLog::parse(&words)));
            }
        }
        at += (kind.words() * 8) as u64;
    }
    let is_empty = wreck.endpoints.is_empty() && wreck.calls.is_empty();
    anyhow::ensure!(!is_empty, "{} holds no endpoints", path.display());
    Ok(wreck)
}

fn kind_at(file: &File, at: u64) -> Option<PageKind> {
    let mut magic = [0; 8];
    file.read_exact_at(&mut magic, at).ok()?;
    let magic = u64::from_le_bytes(magic);
    PageKind::ALL.into_iter().find(|kind| kind.magic() == magic)
}
