//! CPython's own tests have the same results with and without the heap.

use std::collections::BTreeSet;
use std::path::Path;

use selvedge_testkit::skip::{Need, skip};

use crate::{library, shell};

/// Tests of CPython for code that has much memory, or forks.
const PYTHON_TESTS: &str = "test_bytes test_array test_memoryview test_mmap test_io test_zlib \
    test_bz2 test_lzma test_re test_fork1 test_os test_posix test_resource test_unicode \
    test_struct test_pickle test_hashlib test_threading test_gc test_tracemalloc test_buffer \
    test_list test_dict test_marshal test_json test_zipfile test_bigmem test_subprocess \
    test_memoryio test_set test_deque test_sort test_long test_ctypes test_capi test_sqlite3 \
    test_faulthandler";

/// The names of the tests that fail are the same. One test of `test_subprocess` lists the
/// descriptors of its process, of which the heap has one.
#[test]
#[ignore = "takes minutes"]
fn the_tests_of_python_have_the_same_results_on_the_heap() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let library = library();
    let output = |command: &str, with_heap: bool| {
        let mut shell = shell(folder, command, with_heap.then_some(&*library));
        shell.output().unwrap().stdout
    };
    if output("python3 -m test --list-tests", false).is_empty() {
        return skip(Need::System, "there is no python3 with its tests");
    }
    let command = format!("python3 -m test -i test_pass_fds_redirected {PYTHON_TESTS}");
    let failed = |with_heap| {
        let text = output(&command, with_heap);
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines = text.lines().filter(|line| line.contains(" failed"));
        let names = lines.filter_map(|line| line.rsplit_once(" failed"));
        let names = names.filter_map(|(before, _)| before.split_whitespace().last());
        let failed: BTreeSet<String> = names.map(str::to_owned).collect();
        assert!(text.contains("Result: "), "{text}");
        failed
    };
    assert_eq!(failed(true), failed(false));
}
