//! Compiled programs of tests: each is made once per process, and whole or not there at all, so that
//! no test runs what another one, or another process, is just writing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{fs, process};

/// The file, which `make` has written, under another name at first, unless this process has it
/// already.
pub(crate) fn once(file: PathBuf, make: impl FnOnce(&Path)) -> PathBuf {
    static MADE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if !made.contains(&file) {
        let mut unfinished = file.clone().into_os_string();
        unfinished.push(format!(".{}", process::id()));
        make(Path::new(&unfinished));
        fs::rename(&unfinished, &file).unwrap();
        made.insert(file.clone());
    }
    file
}
