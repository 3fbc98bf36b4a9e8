//! Selvedge's headers: every header compiles alone in every standard of C and C++, and their
//! numbers and structures are those of libfabric's headers.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use crate::harness::{SYSTEM_HEADERS, create_once, has, header_folder, output_of, source_folder};
use crate::numbers::{lines, number};

const C_STANDARDS: [&str; 4] = ["c99", "c11", "gnu99", "gnu17"];
const CXX_STANDARDS: [&str; 5] = ["c++98", "c++11", "c++14", "c++17", "c++20"];
const STRICT: [&str; 5] = ["-fsyntax-only", "-Wall", "-Wextra", "-pedantic", "-Werror"];

/// Selvedge's headers, as programs include them.
fn headers() -> Vec<String> {
    let mut names = Vec::new();
    for folder in ["rdma", "rdma/providers"] {
        let entries = fs::read_dir(header_folder().join(folder)).unwrap();
        let entries = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let files = entries.filter(|name| name.ends_with(".h"));
        names.extend(files.map(|name| format!("{folder}/{name}")));
    }
    names.sort();
    names
}

/// A source file in the folder of this test.
fn source(name: &str, text: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("headers");
    fs::create_dir_all(&folder).unwrap();
    create_once(folder.join(name), |file| fs::write(file, text).unwrap())
}

/// Compiles a file with these options, and returns the compiler's messages after a failure.
fn failure(compiler: &str, options: &[&str], file: &Path) -> Option<String> {
    let output: Output = Command::new(compiler)
        .args(options)
        .arg(file)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then(|| format!("{compiler} {options:?} {file:?}\n{errors}"))
}

fn include_option() -> String {
    format!("-I{}", header_folder().display())
}

#[test]
fn every_header_compiles_alone_in_every_standard() {
    let languages = [
        ("cc", "c", &C_STANDARDS[..]),
        ("c++", "cc", &CXX_STANDARDS[..]),
    ];
    thread::scope(|scope| {
        for (compiler, suffix, standards) in languages {
            if has(&[compiler]) {
                scope.spawn(move || compile_alone(compiler, suffix, standards));
            }
        }
    });
}

fn compile_alone(compiler: &str, suffix: &str, standards: &[&str]) {
    let include = include_option();
    for header in headers() {
        let name = format!("{}.{suffix}", header.replace('/', "-"));
        let file = source(&name, &format!("#include <{header}>\n"));
        for standard in standards {
            let standard = format!("-std={standard}");
            let mut options = STRICT.to_vec();
            options.extend([&*standard, &*include]);
            assert_eq!(failure(compiler, &options, &file), None);
        }
    }
}

/// Numbers of libfabric 2.7's interface for accelerators, which 2.6 does not have.
const OF_ACCELERATORS: [&str; 4] = [
    "FI_CLASS_XPU_CTX",
    "FI_GET_MR_XPU_DESC",
    "FI_XPU",
    "FI_MR_XPU_DESC",
];

/// Members that 2.7 adds at the ends of structures.
const ADDED: [&str; 4] = ["xpu_ctx", "max_xpu_ctx_cnt", "export_xpu", "lookup2"];

/// Assertions on the numbers and structures of the list of libfabric 2.7.
fn assertions() -> String {
    let mut text = String::from("#include \"common.h\"\n");
    let enumerators = lines("enum").map(|words| (words[1], number(words[2])));
    let macros = lines("macro").map(|words| (words[0], number(words[1])));
    for (name, value) in enumerators.chain(macros) {
        if !OF_ACCELERATORS.contains(&name) {
            let line = format!("(unsigned long long)({name}) == {value:#x}ull, \"{name}\"");
            writeln!(text, "_Static_assert({line});").unwrap();
        }
    }
    for structure in lines("struct").filter(|words| words[0] != "fi_mr_xpu_desc") {
        let members = lines("member").filter(|words| words[0] == structure[0]);
        let (added, members): (Vec<_>, Vec<_>) =
            members.partition(|words| ADDED.contains(&words[1]));
        let name = structure[0];
        let size = added.first().map_or(structure[1], |words| words[2]);
        writeln!(
            text,
            "_Static_assert(sizeof(struct {name}) == {size}, \"{name}\");"
        )
        .unwrap();
        for words in members {
            let (member, offset) = (words[1], words[2]);
            let line =
                format!("offsetof(struct {name}, {member}) == {offset}, \"{name} {member}\"");
            writeln!(text, "_Static_assert({line});").unwrap();
        }
    }
    text
}

#[test]
fn headers_have_libfabric_s_numbers_and_layouts() {
    if !has(&["cc"]) {
        return;
    }
    let text = assertions();
    assert!(text.lines().count() > 1000, "assertions");
    let file = source("assertions.c", &text);
    let (include, common) = (include_option(), format!("-I{}", source_folder().display()));
    let options = ["-fsyntax-only", "-std=gnu11", &*include, &*common];
    assert_eq!(failure("cc", &options, &file), None);
}

/// Names of libfabric 1.17 that are not compared: numbers that version 2.0 removed, and structures
/// of stacked providers, whose interface differs between versions.
const NOT_COMPARED: [&str; 32] = [
    "FI_BUFFERED_RECV",
    "FI_EP_SOCK_DGRAM",
    "FI_PRIORITY",
    "FI_PSM2_DISCONNECT",
    "FI_XPU_TRIGGER",
    "fi_ops_av_owner",
    "fid_peer_av",
    "fi_peer_av_context",
    "fi_ops_av_set_owner",
    "fid_peer_av_set",
    "fi_peer_av_set_context",
    "fi_ops_cq_owner",
    "fid_peer_cq",
    "fi_peer_cq_context",
    "fi_peer_domain_context",
    "fi_peer_eq_context",
    "fi_peer_rx_entry",
    "fi_ops_srx_owner",
    "fi_ops_srx_peer",
    "fid_peer_srx",
    "fi_peer_srx_context",
    "fi_ops_transfer_peer",
    "fi_peer_transfer_context",
    // Numbers with another value since 2.0: these names have no effect any more.
    "FI_EP_SOCK_STREAM",
    "FI_NOTIFY_FLAGS_ONLY",
    "FI_RESTRICTED_COMP",
    "FI_VARIABLE_MSG",
    // The version, an end that moved, a text, and a structure that grew.
    "FI_ERRNO_MAX",
    "FI_LIB_SUFFIX",
    "fi_mr_modify",
    "FI_MAJOR_VERSION",
    "FI_MINOR_VERSION",
];

/// The text of libfabric's headers in a folder.
fn text_of(folder: &Path) -> String {
    let mut text = String::new();
    for header in headers() {
        text += &fs::read_to_string(folder.join(&header)).unwrap_or_default();
    }
    text
}

/// The names of numbers that headers define: macros with a value, and enumerators.
fn names_of_numbers(text: &str) -> BTreeSet<&str> {
    let is_name = |name: &str| {
        let rest = name.strip_prefix("FI_");
        rest.is_some_and(|rest| {
            rest.chars()
                .all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit())
        })
    };
    let mut names = BTreeSet::new();
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let name = match words[..] {
            ["#define", name, value, ..] if !value.starts_with(['"', '\\', '_']) => name,
            [name, "=", ..] => name,
            [name, ..] if line.starts_with(['\t', ' ']) => name.trim_end_matches(','),
            _ => continue,
        };
        if is_name(name) {
            names.insert(name);
        }
    }
    names
}

/// The members of each structure, as `structure member`. A member of a union in a structure counts
/// as the union.
fn members(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let (mut structure, mut depth) = ("", 0);
    for line in text.lines().map(str::trim_end) {
        if depth == 0 {
            let begins = line.strip_prefix("struct ");
            if let Some(name) = begins.and_then(|rest| rest.strip_suffix(" {")) {
                (structure, depth) = (name, 1);
            }
            continue;
        }
        depth += line.matches('{').count();
        depth -= line.matches('}').count();
        if let Some(member) = member(line).filter(|_| depth == 1) {
            found.insert(format!("{structure} {member}"));
        }
    }
    found
}

/// The member that a line of a structure declares. A declaration of a function begins with the
/// line of its name.
fn member(line: &str) -> Option<&str> {
    if let Some((_, rest)) = line.split_once("(*") {
        return rest.split(')').next();
    }
    let declaration = line
        .split(';')
        .next()
        .filter(|_| line.contains(';') && !line.contains(')'))?;
    let declaration = declaration.split('[').next()?;
    let name = declaration.rsplit([' ', '\t', '*']).next()?;
    (!name.is_empty() && !line.contains("[]")).then_some(name)
}

/// A program that prints the numbers, and the sizes and offsets of the members.
fn printing(numbers: &BTreeSet<&str>, members: &BTreeSet<String>) -> String {
    let mut text =
        String::from("#include \"common.h\"\n#include <rdma/fi_ext.h>\nint main(void)\n{\n");
    for name in numbers {
        writeln!(
            text,
            "printf(\"{name} %#llx\\n\", (unsigned long long)({name}));"
        )
        .unwrap();
    }
    for line in members {
        let (structure, member) = line.split_once(' ').unwrap();
        let offset = format!("offsetof(struct {structure}, {member})");
        let size = format!("sizeof ((struct {structure} *)0)->{member}");
        writeln!(text, "printf(\"{line} %zu %zu\\n\", {offset}, {size});").unwrap();
    }
    text + "}\n"
}

#[test]
fn headers_agree_with_those_of_the_system_s_libfabric() {
    if !has(&["cc", SYSTEM_HEADERS]) {
        return;
    }
    let text = text_of(Path::new("/usr/include"));
    let is_kept = |name: &str| !NOT_COMPARED.contains(&name);
    let numbers: BTreeSet<_> = names_of_numbers(&text)
        .into_iter()
        .filter(|name| is_kept(name))
        .collect();
    let mut members = members(&text);
    members.retain(|line| is_kept(line.split(' ').next().unwrap()));
    assert!(
        numbers.len() > 400 && members.len() > 450,
        "{} {}",
        numbers.len(),
        members.len()
    );
    let file = source("printing.c", &printing(&numbers, &members));
    let include = include_option();
    let selvedge = printed("numbers-selvedge", &["-I", &include[2..]], &file);
    let system = printed("numbers-system", &[], &file);
    let different: Vec<_> = selvedge
        .lines()
        .zip(system.lines())
        .filter(|(a, b)| a != b)
        .collect();
    assert!(different.is_empty(), "{different:#?}");
    assert_eq!(selvedge.lines().count(), numbers.len() + members.len());
}

/// Compiles a program, and returns its output.
fn printed(name: &str, options: &[&str], file: &Path) -> String {
    let program = file.with_file_name(name);
    let common = format!("-I{}", source_folder().display());
    let out = program.to_str().unwrap();
    let mut options = options.to_vec();
    options.extend(["-std=gnu11", "-w", &*common, "-o", out]);
    assert_eq!(failure("cc", &options, file), None);
    output_of(&mut Command::new(&program))
}

#[test]
fn programs_compile_with_the_system_s_headers_too() {
    if !has(&["cc", SYSTEM_HEADERS]) {
        return;
    }
    for entry in fs::read_dir(source_folder()).unwrap() {
        let file = entry.unwrap().path();
        // These include a file that another test generates, or the headers of an MPI library.
        let is_other = ["layout.c", "names.c", "mpi.c"]
            .iter()
            .any(|name| file.ends_with(name));
        if file.extension().is_some_and(|suffix| suffix == "c") && !is_other {
            let options = ["-fsyntax-only", "-std=gnu11", "-Wall", "-Wextra", "-Werror"];
            assert_eq!(failure("cc", &options, &file), None);
        }
    }
}
