//! Programs of the machine on the heap: their outputs, their time and their memory.
//!
//! The tests are ignored because they take minutes:
//! `cargo test -p selvedge-heap-c --test real_programs -- --ignored --nocapture --test-threads 1`.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod cost;
mod inputs;
mod output;
mod python;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use selvedge_testkit::skip::{Need, skip};

use crate::inputs::COMMANDS;

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

/// Creates the folder with the inputs of all programs, for one test.
fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    std::fs::create_dir_all(&folder).unwrap();
    inputs::write(&folder);
    folder
}

/// Returns the programs that are installed, with their commands.
fn installed() -> Vec<(&'static str, &'static str)> {
    let is_there = |&(program, _): &(&str, &str)| {
        let is_there = is_installed(program);
        if !is_there {
            skip(Need::System, format_args!("there is no {program}"));
        }
        is_there
    };
    COMMANDS.into_iter().filter(is_there).collect()
}

fn is_installed(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status();
    found.unwrap().success()
}

/// A command of a shell, whose processes have the heap or not.
fn shell(folder: &Path, command: &str, library: Option<&Path>) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(folder);
    if let Some(library) = library {
        shell.env("LD_PRELOAD", library);
    }
    shell
}
