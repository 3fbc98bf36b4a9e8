//! What reaches into shared memory. The files with unsafe code are listed by `cargo xtask unsafe`.

use std::collections::BTreeSet;

use crate::sources;

/// The files that make addresses of memory that a peer maps too.
const INTO_SHARED_MEMORY: [&str; 2] = [
    "providers/shm/src/smr/memory/bytes.rs",
    "providers/shm/src/smr/sync.rs",
];
/// Where the atomics of shared memory come from: the system's, or the model checker's.
const SHIM: &str = "providers/shm/src/smr/sync.rs";
/// Stands in for shared memory under the model checker, and is compiled for nothing else.
const MODEL: &str = "providers/shm/src/smr/model.rs";

/// Words that are atomics and bytes that are copied is all that two processes share: the types that
/// would be locks, pointers or functions have no business in the modules that lay it out.
#[test]
fn shared_memory_holds_no_locks_and_no_pointers() {
    let forbidden = [
        "Mutex",
        "RwLock",
        "Condvar",
        "pthread",
        "futex",
        "AtomicPtr",
    ];
    for (path, text) in sources::under("providers/shm/src/smr") {
        let found = forbidden.iter().find(|word| text.contains(**word));
        assert!(
            path == MODEL || found.is_none(),
            "{path}: {found:?} next to shared memory"
        );
    }
}

#[test]
fn two_files_reach_into_shared_memory() {
    let reaching: BTreeSet<_> = sources::under("providers/shm/src")
        .into_iter()
        .filter(|(_, text)| text.contains("mapping.at("))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(reaching, INTO_SHARED_MEMORY.map(str::to_owned).into());
}

#[test]
fn the_model_checker_sees_every_atomic_of_shared_memory() {
    for (path, text) in sources::under("providers/shm/src/smr") {
        assert!(
            path == SHIM || path == MODEL || !text.contains("sync::atomic"),
            "{path} takes atomics past {SHIM}"
        );
    }
}
