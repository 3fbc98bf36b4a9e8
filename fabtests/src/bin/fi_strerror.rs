//! `fi_strerror`: prints the text of an error number.

use std::process::ExitCode;

use fabtests::fi_strerror;
use selvedge_bench::output;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let output = fi_strerror::run(&args);
    output::print(&output.text);
    ExitCode::from(output.code)
}
