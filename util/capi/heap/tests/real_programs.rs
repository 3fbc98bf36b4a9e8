//! Programs of the machine give the same output with and without the heap.
//!
//! The test is ignored because it takes minutes. `HEAP_LOOP_SECONDS` sets how long it repeats all
//! programs; without it, each runs once.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use selvedge_testkit::skip::{Need, skip};

/// The library that was built with this test.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let mut folders = program.ancestors().skip(1).take(2);
    let found = folders.find_map(|folder| {
        let file = folder.join("libselvedge_heap_c.so");
        file.exists().then_some(file)
    });
    found.expect("the library is built with its tests")
}

/// Commands of a shell, in a folder that has the inputs of [`write_inputs`].
const COMMANDS: [(&str, &str); 8] = [
    ("sqlite3", "sqlite3 :memory: < tables.sql"),
    ("gcc", "gcc -O2 -S functions.c -o -"),
    (
        "rustc",
        "rustc -O --crate-type rlib --emit asm functions.rs -o -",
    ),
    ("xz", "xz -T2 -2 -c lines.txt | xz -dc | cksum"),
    ("sort", "sort --parallel=2 -S 64M lines.txt | cksum"),
    ("gzip", "gzip -c < lines.txt | gzip -dc | cksum"),
    (
        "perl",
        "perl -e '$s = join q(,), map { $_ * 7 % 1001 } 1 .. 800000; $p = fork; \
         $s .= $p ? q(p) : q(c); waitpid $p, 0 if $p; print length $s, substr($s, -1), qq(\\n)'",
    ),
    (
        "python3",
        "python3 -c 'import hashlib, json, os, zlib; \
         s = json.dumps([dict(n=i, t=str(i) * 50) for i in range(60000)]); \
         b = bytearray(s, \"ascii\"); p = os.fork(); b[:5] = b\"child\" if p == 0 else b\"other\"; \
         p or os._exit(b[:5] != b\"child\"); assert os.waitpid(p, 0)[1] == 0; \
         print(zlib.crc32(zlib.decompress(zlib.compress(b))), hashlib.sha256(b).hexdigest())'",
    ),
];

/// Tests of CPython for code that has much memory, or forks.
const PYTHON_TESTS: &str = "test_bytes test_array test_memoryview test_mmap test_io test_zlib \
    test_bz2 test_lzma test_re test_fork1 test_os test_posix test_resource test_unicode \
    test_struct test_pickle test_hashlib test_threading test_gc test_tracemalloc test_buffer \
    test_list test_dict test_marshal test_json test_zipfile test_bigmem test_subprocess";

#[test]
#[ignore = "takes minutes; HEAP_LOOP_SECONDS sets how long it repeats"]
fn real_programs_give_the_same_output_on_the_heap() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("real-programs");
    std::fs::create_dir_all(&folder).unwrap();
    write_inputs(&folder);
    let seconds = std::env::var("HEAP_LOOP_SECONDS").map_or(0, |text| text.parse().unwrap());
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut runs = 0;
    loop {
        for (program, command) in COMMANDS {
            if !is_installed(program) {
                skip(Need::System, format_args!("there is no {program}"));
                continue;
            }
            let expected = output(&folder, command, None);
            let found = output(&folder, command, Some(&library()));
            assert!(!expected.is_empty(), "{command}");
            assert!(
                found == expected,
                "{command}\n{}",
                String::from_utf8_lossy(&found)
            );
            runs += 1;
        }
        if Instant::now() >= end {
            break;
        }
    }
    println!("{runs} pairs of runs had the same output");
}

/// The names of the tests that fail are the same. One test of `test_subprocess` lists the
/// descriptors of its process, of which the heap has one.
#[test]
#[ignore = "takes minutes"]
fn the_tests_of_python_have_the_same_results_on_the_heap() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if output(folder, "python3 -m test --list-tests", None).is_empty() {
        return skip(Need::System, "there is no python3 with its tests");
    }
    let command = format!("python3 -m test -i test_pass_fds_redirected {PYTHON_TESTS}");
    let failed = |library| {
        let text = output(folder, &command, library);
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines = text.lines().filter(|line| line.contains(" failed"));
        let names = lines.filter_map(|line| line.rsplit_once(" failed"));
        let names = names.filter_map(|(before, _)| before.split_whitespace().last());
        let failed: BTreeSet<String> = names.map(str::to_owned).collect();
        assert!(text.contains("Result: "), "{text}");
        failed
    };
    assert_eq!(failed(Some(library().as_path())), failed(None));
}

fn is_installed(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status();
    found.unwrap().success()
}

/// Runs a command of a shell, whose processes have the heap or not, and returns its output.
fn output(folder: &Path, command: &str, library: Option<&Path>) -> Vec<u8> {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(folder);
    if let Some(library) = library {
        shell.env("LD_PRELOAD", library);
    }
    shell.output().unwrap().stdout
}

/// Writes the inputs of [`COMMANDS`]: some MiB each.
fn write_inputs(folder: &Path) {
    let tables = "create table t(a integer primary key, b text, c int);
        insert into t with recursive n(i) as (select 1 union all select i + 1 from n where i < 200000)
            select i, hex(i * 2654435761 % 4294967296) || hex(i), (i * 7919) % 100003 from n;
        create index by_b on t(b);
        select count(*), sum(c), min(b), max(b) from t;
        update t set b = b || 'x' where c % 3 = 0;
        delete from t where c % 7 = 0;
        select count(*), sum(length(b)), length(group_concat(b)) from t;
        select sum(x.c * y.c) from t x join t y on x.a = y.c;
        vacuum;
        select count(distinct substr(b, 1, 4)) from t;";
    std::fs::write(folder.join("tables.sql"), tables).unwrap();
    let (mut c, mut rust, mut lines) = (String::new(), String::new(), String::new());
    for i in 0..1500 {
        let _ = writeln!(
            c,
            "int f{i}(int *a, int n) {{ int s = {i}; for (int j = 0; j < n; j++) \
             {{ a[j] += s * a[(j + {i}) % n]; s ^= a[j] % {} ? j : s; }} return s; }}",
            i % 13 + 2
        );
    }
    for i in 0..800 {
        let _ = writeln!(
            rust,
            "pub fn f{i}(v: &[u64]) -> u64 {{ v.iter().map(|x| x.wrapping_mul({i})).fold({i}, |a, b| a ^ b) }}"
        );
    }
    let mut state = 1_u64;
    for i in 0..400_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let _ = writeln!(lines, "{:x} {i} text that repeats", state >> 33);
    }
    std::fs::write(folder.join("functions.c"), c).unwrap();
    std::fs::write(folder.join("functions.rs"), rust).unwrap();
    std::fs::write(folder.join("lines.txt"), lines).unwrap();
}
