//! Compiled programs of tests: each is made once per process, and whole or not there at all, so that
//! no test runs what another one, or another process, is just writing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::{fs, process};

/// The file, which `make` has written, under another name at first, unless this process has it
/// already. To make one file may take another.
pub(crate) fn once(file: PathBuf, make: impl FnOnce(&Path)) -> PathBuf {
    static MADE: Mutex<BTreeMap<PathBuf, Arc<OnceLock<()>>>> = Mutex::new(BTreeMap::new());
    let made = {
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(made.entry(file.clone()).or_default())
    };
    made.get_or_init(|| {
        let mut unfinished = file.clone().into_os_string();
        unfinished.push(format!(".{}", process::id()));
        make(Path::new(&unfinished));
        fs::rename(&unfinished, &file).unwrap();
    });
    file
}
