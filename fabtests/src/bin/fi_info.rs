//! `fi_info`: shows the communication interfaces of this machine.

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
    let output = fi_info::run(&args, &selvedge_providers::builtin());
    output::print(&output.text);
    eprint!("{}", output.errors);
    ExitCode::from(output.code)
}
