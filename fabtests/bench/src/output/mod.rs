//! Printing to the standard output, and the program's name for messages.

pub mod markup;
pub mod progress;
pub mod table;

use std::io::Write;
use std::path::Path;

/// The running program's name, for error messages.
pub fn program() -> String {
    let first = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&first).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Prints a text on standard output. A closed pipe (`fi_info | head`) is not an error.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if let Err(error) = written
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        eprintln!("cannot write to the standard output: {error}");
    }
}
