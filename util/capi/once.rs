//! Creates compiled programs of tests once per process. The file appears atomically, so that no
//! test runs a program that another test or process is still writing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::{fs, process};

/// Returns the file, which `make` writes under a temporary name, unless this process has created it
/// already. `make` may call `once` for other files.
pub(crate) fn once(file: PathBuf, make: impl FnOnce(&Path)) -> PathBuf {
    static CREATED: Mutex<BTreeMap<PathBuf, Arc<OnceLock<()>>>> = Mutex::new(BTreeMap::new());
    let created = {
        let mut created = CREATED.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(created.entry(file.clone()).or_default())
    };
    created.get_or_init(|| {
        let mut unfinished = file.clone().into_os_string();
        unfinished.push(format!(".{}", process::id()));
        make(Path::new(&unfinished));
        fs::rename(&unfinished, &file).unwrap();
    });
    file
}
