//! Finds the pages of endpoints: memory files with their name among the descriptors of the processes
//! that this user may look into.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};

use anyhow::Context;
use selvedge_kit::sight::Seen;
use selvedge_kit::sight::layout::{FILE, WORDS};
use selvedge_kit::sight::seq::Words;

/// Every endpoint of the processes that may be looked into, by process and age.
pub(crate) fn all() -> anyhow::Result<Vec<Seen>> {
    let entries = fs::read_dir("/proc").context("cannot list processes")?;
    let names = entries.flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_str()?.parse().ok());
    let mut seen: Vec<Seen> = pids.flat_map(of).collect();
    seen.sort_by_key(|seen| (seen.pid, seen.opened));
    Ok(seen)
}

/// The endpoints of a process; none for one that is gone, or another user's.
pub(crate) fn of(pid: u32) -> Vec<Seen> {
    let folder = format!("/proc/{pid}/fd");
    let Ok(fds) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = fds.flatten().map(|fd| fd.path());
    let seen = paths
        .filter(|path| is_page(path))
        .filter_map(|path| page(&path));
    // A child has copies of its parent's descriptors, but not the parent's endpoints.
    let mut seen: Vec<Seen> = seen.filter(|seen| seen.pid == pid).collect();
    seen.sort_by_key(|seen| seen.opened);
    seen
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

fn is_page(fd: &Path) -> bool {
    let name = fs::read_link(fd).ok();
    let name = name.as_deref().and_then(Path::to_str);
    name.and_then(|name| name.strip_prefix("/memfd:"))
        .and_then(|name| name.strip_prefix(FILE))
        .is_some_and(|rest| rest.is_empty() || rest == " (deleted)")
}

fn page(fd: &Path) -> Option<Seen> {
    let file = File::open(fd).ok()?;
    let len = file.metadata().ok()?.len();
    if len != (WORDS * 8) as u64 {
        return None;
    }
    Seen::read(&Page(&file), || copy(&file, 0))
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

fn copy(file: &File, number: u64) -> Option<Box<[u64; WORDS]>> {
    let mut bytes = vec![0; WORDS * 8];
    file.read_exact_at(&mut bytes, number * (WORDS * 8) as u64)
        .ok()?;
    let words = bytes.as_chunks::<8>().0.iter();
    let words: Box<[u64]> = words.map(|word| u64::from_le_bytes(*word)).collect();
    words.try_into().ok()
}

/// The endpoints that a crash has written out.
pub(crate) fn flight(path: &PathBuf) -> anyhow::Result<Vec<Seen>> {
    let open = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(open)?;
    let pages = file.metadata().with_context(open)?.len() / (WORDS * 8) as u64;
    let seen: Vec<Seen> = (0..pages)
        .filter_map(|number| Seen::of(&*copy(&file, number)?))
        .collect();
    anyhow::ensure!(!seen.is_empty(), "{} holds no endpoints", path.display());
    Ok(seen)
}
