//! Writing to the standard output.

use std::io::Write;

/// Prints a text; a reader that has gone away (`fi_info | head`) is no error.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if let Err(error) = written
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        eprintln!("cannot write to the standard output: {error}");
    }
}
