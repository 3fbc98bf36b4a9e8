//! The programs of the machine that run on the heap, and their inputs.

use std::fmt::Write as _;
use std::path::Path;

/// Commands of a shell, in a folder that has the inputs of [`write`].
pub(crate) const COMMANDS: [(&str, &str); 10] = [
    ("sqlite3", "sqlite3 :memory: < tables.sql"),
    ("gcc", "gcc -O2 -S functions.c -o -"),
    (
        "rustc",
        "rustc -O --crate-type rlib --emit asm functions.rs -o -",
    ),
    ("g++", "g++ -O2 -S containers.cc -o -"),
    (
        "git",
        "rm -rf repository && git init -q repository && cp functions.* lines.txt repository && \
         cd repository && git add . && git -c user.name=n -c user.email=e commit -qm 1 && \
         sort lines.txt > sorted.txt && git add . && \
         git -c user.name=n -c user.email=e commit -qm 2 && git gc -q --aggressive && \
         git fsck --full && git log -p --format=%s | cksum",
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

/// A program with the containers of the standard library.
const CONTAINERS: &str = "#include <algorithm>\n#include <map>\n#include <regex>\n\
    #include <string>\n#include <unordered_map>\n#include <vector>\n\
    bool matches(const std::string &s) { return std::regex_search(s, std::regex(\"a+b*c?\")); }\n";

/// Writes the inputs of [`COMMANDS`]: some MiB each.
pub(crate) fn write(folder: &Path) {
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
    for i in 0..400 {
        let _ = writeln!(
            c,
            "int f{i}(int *a, int n) {{ int s = {i}; for (int j = 0; j < n; j++) \
             {{ a[j] += s * a[(j + {i}) % n]; s ^= a[j] % {} ? j : s; }} return s; }}",
            i % 13 + 2
        );
    }
    let mut containers = CONTAINERS.to_owned();
    for i in 1..8 {
        let _ = writeln!(
            containers,
            "std::map<std::string, std::vector<int>> f{i}(std::vector<std::string> v) {{ \
             std::map<std::string, std::vector<int>> m; for (auto &s : v) m[s].push_back({i}); \
             std::sort(v.begin(), v.end(), [](auto &a, auto &b) {{ return a.size() * {i} < b.size(); }}); \
             std::unordered_map<int, std::string> u; \
             for (int j = 0; j < {i}; j++) u[j] = v[j % v.size()]; m[u[{i} / 2]]; return m; }}"
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
    std::fs::write(folder.join("containers.cc"), containers).unwrap();
    std::fs::write(folder.join("functions.rs"), rust).unwrap();
    std::fs::write(folder.join("lines.txt"), lines).unwrap();
}
