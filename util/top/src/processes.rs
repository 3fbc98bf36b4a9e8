//! Finds the sheets of endpoints: memory files with their name among the descriptors of the processes
//! that this user may look into.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};

use anyhow::Context;
use selvedge_kit::sight::calls::SeenCalls;
use selvedge_kit::sight::groups::SeenGroups;
use selvedge_kit::sight::latency::Latencies;
use selvedge_kit::sight::layout::{FILE, Kind};
use selvedge_kit::sight::seq::Words;
use selvedge_kit::sight::{Head, Seen};

/// Every endpoint of the processes that may be looked into, by process and age.
pub(crate) fn all() -> anyhow::Result<Vec<Seen>> {
    let mut seen: Vec<Seen> = pids()?.into_iter().flat_map(of).collect();
    seen.sort_by_key(|seen| (seen.pid, seen.opened));
    Ok(seen)
}

/// The endpoints of a process; none for one that is gone, or another user's.
pub(crate) fn of(pid: u32) -> Vec<Seen> {
    let page = |file: &File| Seen::read(&Page(file), || copy(file, 0));
    let mut seen = sheets(pid, Kind::Standing, page);
    // A child has copies of its parent's descriptors, but not the parent's endpoints.
    seen.retain(|seen| seen.pid == pid);
    seen.sort_by_key(|seen| seen.opened);
    seen
}

/// How long the operations of a process took, for each endpoint of which that is known.
pub(crate) fn latencies(pid: u32) -> Vec<Latencies> {
    let read = |file: &File| Latencies::of(&*copy(file, 0)?);
    let mut seen = sheets(pid, Kind::Latency, read);
    seen.retain(|seen| seen.head.pid == pid);
    seen.sort_by_key(|seen| seen.head.opened);
    seen
}

/// The last calls of a process, likewise.
pub(crate) fn calls(pid: u32) -> Vec<SeenCalls> {
    let read = |file: &File| SeenCalls::of(&*copy(file, 0)?);
    let mut seen = sheets(pid, Kind::Calls, read);
    seen.retain(|seen| seen.head.pid == pid);
    seen
}

/// The collectives of a process, likewise.
pub(crate) fn groups(pid: u32) -> Vec<SeenGroups> {
    let read = |file: &File| SeenGroups::read(&Page(file), || copy(file, 0));
    let mut seen = sheets(pid, Kind::Groups, read);
    seen.retain(|seen| seen.head.pid == pid);
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
pub(crate) fn is_of(head: &Head, seen: &Seen) -> bool {
    (head.pid, &head.provider, &head.name) == (seen.pid, &seen.provider, &seen.name)
}

/// Whether what a sheet is about has a page; shared receives and endpoints of other libraries have
/// none.
pub(crate) fn has_page(head: &Head, pages: &[Seen]) -> bool {
    pages.iter().any(|seen| is_of(head, seen))
}

/// What a sheet is about: an endpoint, or receives that endpoints share, which hooks call so.
pub(crate) fn title(head: &Head) -> String {
    let Head { provider, name, .. } = head;
    match name.starts_with("srx ") {
        true => format!("{provider} {name}"),
        false => format!("{provider} endpoint {name}"),
    }
}

fn sheets<T>(pid: u32, kind: Kind, read: impl Fn(&File) -> Option<T>) -> Vec<T> {
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
        .and_then(|name| name.strip_prefix(FILE))
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
    pub(crate) endpoints: Vec<Seen>,
    pub(crate) latencies: Vec<Latencies>,
    pub(crate) calls: Vec<SeenCalls>,
    pub(crate) groups: Vec<SeenGroups>,
}

/// Reads what a crash has written out, up to where it makes no sense.
pub(crate) fn flight(path: &PathBuf) -> anyhow::Result<Wreck> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let (mut wreck, mut at) = (Wreck::default(), 0);
    while let Some(kind) = kind_at(&file, at) {
        match kind {
            Kind::Standing => {
                wreck
                    .endpoints
                    .extend(copy(&file, at).and_then(|words| Seen::of(&words)));
            }
            Kind::Latency => {
                let seen = copy(&file, at).and_then(|words| Latencies::of(&words));
                wreck.latencies.extend(seen);
            }
            Kind::Groups => {
                let seen = copy(&file, at).and_then(|words| SeenGroups::of(&words));
                wreck.groups.extend(seen);
            }
            Kind::Calls => {
                wreck
                    .calls
                    .extend(copy(&file, at).and_then(|words| SeenCalls::of(&words)));
            }
        }
        at += (kind.words() * 8) as u64;
    }
    let is_empty = wreck.endpoints.is_empty() && wreck.calls.is_empty();
    anyhow::ensure!(!is_empty, "{} holds no endpoints", path.display());
    Ok(wreck)
}

fn kind_at(file: &File, at: u64) -> Option<Kind> {
    let mut magic = [0; 8];
    file.read_exact_at(&mut magic, at).ok()?;
    let magic = u64::from_le_bytes(magic);
    Kind::ALL.into_iter().find(|kind| kind.magic() == magic)
}
