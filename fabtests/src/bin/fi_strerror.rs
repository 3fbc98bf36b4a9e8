//! `fi_strerror`: prints the text of an error number (fi_strerror(1)).

use std::process::ExitCode;

use selvedge::Errno;
use selvedge::param::integer;
use selvedge_bench::output;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let output = run(&args);
    output::print(&output.text);
    ExitCode::from(output.code)
}

/// The tool's output and exit code.
#[derive(Debug, PartialEq, Eq)]
struct Output {
    /// Text for the standard output.
    text: String,
    /// The exit code.
    code: u8,
}

/// Executes the command line without the program's name.
fn run(args: &[String]) -> Output {
    match args {
        [help] if help == "-h" || help == "--help" => Output {
            text: USAGE.to_owned(),
            code: 0,
        },
        [number] => match parse(number) {
            Ok(errno) => Output {
                text: text(errno) + "\n",
                code: 0,
            },
            Err(reason) => Output {
                text: format!("ERROR: {reason}\n\n{USAGE}"),
                code: 1,
            },
        },
        _ => Output {
            text: USAGE.to_owned(),
            code: 1,
        },
    }
}

fn parse(text: &str) -> Result<i32, String> {
    let number = integer(text).ok_or_else(|| format!("unable to parse '{text}'"))?;
    i32::try_from(number.abs()).map_err(|_| format!("'{text}' is out of range"))
}

/// Returns the fabric's text for its own numbers, and the operating system's text for others.
fn text(errno: i32) -> String {
    if errno == 0 {
        return "Success".to_owned();
    }
    if errno >= Errno::Other.as_raw() {
        return Errno::from_raw(errno).text().to_owned();
    }
    let system = std::io::Error::from_raw_os_error(errno).to_string();
    match system.rfind(" (os error") {
        Some(end) => system[..end].to_owned(),
        None => system,
    }
}

const USAGE: &str = "\
Usage: fi_strerror FI_ERROR_CODE

Displays the error string for the given numeric FI_ERROR_CODE.

FI_ERROR_CODE may be a hexadecimal, octal, or decimal constant.
For convenience, the absolute value of FI_ERROR_CODE will be used.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn run_with(args: &[&str]) -> Output {
        let args: Vec<_> = args.iter().map(|&arg| arg.to_owned()).collect();
        run(&args)
    }

    #[test]
    fn error_numbers_have_the_texts_of_libfabric() {
        let table = [
            ("0", "Success"),
            ("11", "Resource temporarily unavailable"),
            ("-11", "Resource temporarily unavailable"),
            ("33", "Numerical argument out of domain"),
            ("150", "Unknown error 150"),
            ("256", "Unspecified error"),
            ("265", "Truncation error"),
            ("0x10b", "Missing or unavailable address vector"),
            ("0413", "Missing or unavailable address vector"),
            ("271", "Host address unreachable due to firewall"),
            ("9999", "Unspecified error"),
        ];
        for (number, text) in table {
            let output = run_with(&[number]);
            assert_eq!(
                (output.text, output.code),
                (format!("{text}\n"), 0),
                "{number}"
            );
        }
    }

    #[test]
    fn an_argument_that_is_not_a_number_is_an_error() {
        let table = [
            ("abc", "ERROR: unable to parse 'abc'\n\n"),
            ("11x", "ERROR: unable to parse '11x'\n\n"),
            ("", "ERROR: unable to parse ''\n\n"),
            ("99999999999", "ERROR: '99999999999' is out of range\n\n"),
        ];
        for (number, text) in table {
            let output = run_with(&[number]);
            assert_eq!(
                (output.text, output.code),
                (format!("{text}{USAGE}"), 1),
                "{number}"
            );
        }
    }

    #[test]
    fn usage_is_shown_on_request_and_for_wrong_arguments() {
        assert_eq!(run_with(&["-h"]).code, 0);
        assert_eq!(run_with(&[]).code, 1);
        assert_eq!(run_with(&["1", "2"]).text, USAGE);
    }
}
