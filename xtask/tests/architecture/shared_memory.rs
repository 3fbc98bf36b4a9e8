//! Two files access shared memory, which contains atomics and bytes only.

use std::collections::BTreeSet;

use crate::sources;

/// The files that compute addresses in memory that a peer maps too.
const ACCESSING_SHARED_MEMORY: [&str; 2] = [
    "providers/shm/src/smr/memory/bytes.rs",
    "providers/shm/src/smr/sync.rs",
];
/// The file that defines the atomics of shared memory: those of `std` or of the model checker.
const ATOMICS: &str = "providers/shm/src/smr/sync.rs";
/// The file that replaces shared memory under the model checker, and is compiled only for it.
const MODEL: &str = "providers/shm/src/smr/model.rs";

/// Two processes share only atomic words and copied bytes: modules that define the layout of shared
/// memory contain no locks, pointers or functions.
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
    for (path, text) in sources::files_below("providers/shm/src/smr") {
        let found = forbidden.iter().find(|word| text.contains(**word));
        assert!(
            path == MODEL || found.is_none(),
            "{path} contains {found:?}, which must not be in shared memory"
        );
    }
}

#[test]
fn two_files_access_shared_memory() {
    let accessing: BTreeSet<_> = sources::files_below("providers/shm/src")
        .into_iter()
        .filter(|(_, text)| text.contains("mapping.address_of("))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(accessing, ACCESSING_SHARED_MEMORY.map(str::to_owned).into());
}

#[test]
fn the_model_checker_sees_every_atomic_of_shared_memory() {
    for (path, text) in sources::files_below("providers/shm/src/smr") {
        assert!(
            path == ATOMICS || path == MODEL || !text.contains("sync::atomic"),
            "{path} uses atomics other than those of {ATOMICS}"
        );
    }
}
