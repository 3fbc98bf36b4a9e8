//! What is done with the workspace beside building it: `cargo xtask install --prefix DIR`.

mod asan;
mod environment;
mod face;
mod fuzz;
mod install;
mod nightly;
mod plant;
mod size;
mod test;
mod unsafe_list;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use lexopt::prelude::{Long, Short, Value, ValueExt};

use install::Install;

fn main() -> ExitCode {
    match run() {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<String> {
    let mut parser = lexopt::Parser::from_env();
    let mut arguments = Vec::new();
    let (mut task, mut prefix, mut built, mut headers, mut only) = (None, None, None, None, None);
    let (mut is_short, mut sample) = (false, None);
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(USAGE.to_owned()),
            Long("prefix") => prefix = Some(PathBuf::from(parser.value()?)),
            Long("built") => built = Some(PathBuf::from(parser.value()?)),
            Long("headers") => headers = Some(PathBuf::from(parser.value()?)),
            Long("only") => only = Some(parser.value()?.string()?),
            Long("sample") => sample = Some(parser.value()?.parse()?),
            Long("short") => is_short = true,
            Value(name) if task.is_none() => {
                task = Some(name.string()?);
                if task.as_deref() == Some("test") {
                    arguments = parser.raw_args()?.collect();
                }
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let Some(task) = task else {
        bail!("what is to be done?\n\n{USAGE}");
    };
    let prefix = || prefix.with_context(|| format!("{task} needs --prefix DIR"));
    match &*task {
        "install" => Install {
            prefix: prefix()?,
            built,
            headers: headers.unwrap_or_else(|| PathBuf::from("/usr/include")),
        }
        .run(),
        "install-bmi" => face::BMI.install(&prefix()?, built),
        "install-cheetah" => face::CHEETAH.install(&prefix()?, built),
        "asan" => asan::asan(),
        "fuzz" => fuzz::fuzz(),
        "miri" => nightly::miri(is_short),
        "tsan" => nightly::tsan(is_short),
        "test" => test::test(&arguments),
        "plant" => plant::plant(only.as_deref(), sample),
        "size" => size::size(),
        "unsafe" => unsafe_list::write(),
        other => bail!("{other:?} is no task\n\n{USAGE}"),
    }
}

const USAGE: &str = "\
Usage: cargo xtask install --prefix DIR [--headers DIR] [--built DIR]
       cargo xtask install-bmi --prefix DIR [--built DIR]
       cargo xtask install-cheetah --prefix DIR [--built DIR]
       cargo xtask test [--long] [ARGUMENTS]
       cargo xtask plant [--only WORDS] [--sample N]
       cargo xtask asan
       cargo xtask fuzz
       cargo xtask miri [--short]
       cargo xtask tsan [--short]
       cargo xtask size
       cargo xtask unsafe

Installs libfabric.so.1 with its names, libfabric.pc, the tools and their page; or
libbmi.so, or libcheetah.so with cheetahrun, with headers, pkg-config file and page.

      --prefix DIR   where to: DIR/lib, DIR/bin, DIR/include, DIR/share
      --headers DIR  where libfabric's headers are, for libfabric.pc [/usr/include]
      --built DIR    takes what is built there, rather than building it

test runs cargo test --workspace with these arguments, and lists the tests that were
skipped because this machine lacks what they need. SELVEDGE_TEST_REQUIRES=\"cc libfabric\"
makes such a skip a failure: cc, c++, libfabric, mpi, other-mpi, rights, system.

      --long         campaigns, sweeps and conformance tests in full, not a sample

plant has the tests of parts that are no provider's fail, each by a defect in a copy of
the last commit (target/planted).

      --only WORDS   those that are described with these words
      --sample N     N of them, which the last commit chooses, of one target of tests

asan runs programs in C, and calls at random, on a libfabric.so.1 that is built with the
address sanitizer (target/asan).

fuzz feeds every parser of what peers send with 10^7 inputs (SELVEDGE_FUZZ_INPUTS).

miri runs tests of the parts that talk to no system in an interpreter of the language's memory
model (target/miri), tsan under the thread sanitizer (target/tsan). Both have rustup install what
they need of the nightly toolchain.

      --short        a part of the tests, in a minute or two

size counts lines of code, without blank lines and comments, of the parts of the workspace, tests
apart, beside the budget and the ceiling of each part. It fails when a part has outgrown its ceiling.

unsafe writes docs/UNSAFE.md: the files with unsafe code, and the reasons that they give.
";
