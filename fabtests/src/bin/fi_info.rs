//! `fi_info`: shows the ways to communicate that this machine has.

use std::process::ExitCode;

use fabtests::fi_info;
use selvedge_bench::output;

fn main() -> ExitCode {
    let args = match fi_info::parse(std::env::args_os()) {
        Ok(args) => args,
        Err(usage) => {
            output::print(&usage.text);
            return ExitCode::from(usage.code);
        }
    };
    if let Err(error) = selvedge::log::init() {
        eprintln!("fi_info: {error}");
    }
    let answer = fi_info::answer(&args, &selvedge_providers::builtin());
    output::print(&answer.text);
    eprint!("{}", answer.errors);
    ExitCode::from(answer.code)
}
