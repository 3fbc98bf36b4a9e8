//! Creates compiled programs of tests once per process. The file appears atomically, so that no
//! test runs a program that another test or process is still writing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::{fs, process};

/// Creates `file` unless this process has created it already, and returns its path. `create` writes
/// the file under a temporary name, and may call `create_once` for other files.
pub(crate) fn create_once(file: PathBuf, create: impl FnOnce(&Path)) -> PathBuf {
    static CREATED: Mutex<BTreeMap<PathBuf, Arc<OnceLock<()>>>> = Mutex::new(BTreeMap::new());
    let created = {
        let mut created = CREATED.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(created.entry(file.clone()).or_default())
    };
    created.get_or_init(|| {
        let mut unfinished = file.clone().into_os_string();
        unfinished.push(format!(".{}", process::id()));
        create(Path::new(&unfinished));
        fs::rename(&unfinished, &file).unwrap();
    });
    file
}
