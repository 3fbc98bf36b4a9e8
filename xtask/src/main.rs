//! Tasks of the workspace, for example `cargo xtask install --prefix DIR`.

mod asan;
mod environment;
mod fuzz;
mod install;
mod nightly;
mod package;
mod plant;
mod publish;
mod size;
mod test;
mod unsafe_list;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use lexopt::prelude::{Long, Short, Value, ValueExt};

use install::{BMI, CHEETAH, Destination, Install, Symbols};

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
    let (mut task, mut prefix, mut lib, mut built) = (None, None, None, None);
    let (mut include, mut out, mut symbols) = (None, None, Symbols::Separate);
    let (mut is_short, mut is_check, mut is_dry_run) = (false, false, false);
    let mut plants = plant::Selection::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(USAGE.to_owned()),
            Long("prefix") => prefix = Some(PathBuf::from(parser.value()?)),
            Long("built") => built = Some(PathBuf::from(parser.value()?)),
            Long("libdir") => lib = Some(PathBuf::from(parser.value()?)),
            Long("includedir") => include = Some(PathBuf::from(parser.value()?)),
            Long("out") => out = Some(PathBuf::from(parser.value()?)),
            Long("unstripped") => symbols = Symbols::Kept,
            Long("only") => plants.only = Some(parser.value()?.string()?),
            Long("from") => plants.from = Some(parser.value()?.parse()?),
            Long("sample") => plants.sample = Some(parser.value()?.parse()?),
            Long("times") => plants.times = Some(parser.value()?.parse()?),
            Long("check") => is_check = true,
            Long("short") => is_short = true,
            Long("dry-run") => is_dry_run = true,
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
        bail!("no task given\n\n{USAGE}");
    };
    let destination = || -> anyhow::Result<Destination> {
        let prefix = prefix.with_context(|| format!("{task} requires --prefix DIR"))?;
        let staging = std::env::var_os("DESTDIR");
        Destination::new(&prefix, lib.as_deref(), include.as_deref(), staging)
    };
    match &*task {
        "install" => Install {
            destination: destination()?,
            built,
            symbols,
            providers: lib.unwrap_or_else(|| "lib".into()).join("libfabric"),
            tool_prefix: "",
        }
        .run(),
        "deb" => package::deb(built.as_deref(), out),
        "wheel" => package::wheel(built.as_deref(), out),
        "install-bmi" => BMI.install(&destination()?, built, symbols),
        "install-cheetah" => CHEETAH.install(&destination()?, built, symbols),
        "asan" => asan::asan(),
        "fuzz" => fuzz::fuzz(),
        "miri" => nightly::miri(is_short),
        "tsan" => nightly::tsan(is_short),
        "test" => test::test(&arguments),
        "plant" if is_check => plant::check(),
        "plant" => plant::plant(&plants),
        "publish" if is_dry_run => publish::dry_run(),
        "publish" => bail!("this task uploads nothing: pass --dry-run, or run cargo publish"),
        "size" => size::size(),
        "unsafe" => unsafe_list::write(),
        other => bail!("unknown task {other:?}\n\n{USAGE}"),
    }
}

const USAGE: &str = "\
Usage: cargo xtask install --prefix DIR [OPTIONS]
       cargo xtask install-bmi --prefix DIR [OPTIONS]
       cargo xtask install-cheetah --prefix DIR [OPTIONS]
       cargo xtask deb [--built DIR] [--out DIR]
       cargo xtask wheel [--built DIR] [--out DIR]
       cargo xtask test [--long] [ARGUMENTS]
       cargo xtask plant [--only WORDS] [--from N] [--sample N] [--times N]
       cargo xtask plant --check
       cargo xtask asan
       cargo xtask fuzz
       cargo xtask miri [--short]
       cargo xtask tsan [--short]
       cargo xtask publish --dry-run
       cargo xtask size
       cargo xtask unsafe

Tasks:

install, install-bmi, install-cheetah
    Install libfabric.so.1 with its links and the tools; or libbmi.so; or libcheetah.so with
    cheetahrun; each with its headers, a pkg-config file and a page. Tools have man pages and
    completions for bash, zsh and fish. Libraries and programs are stripped; their debug
    information goes to .debug/NAME.debug beside them. If the environment has DESTDIR, all files
    are written below that folder, as packages are made.

      --prefix DIR       install to DIR/lib, DIR/bin, DIR/include, DIR/share
      --libdir DIR       install libraries to this folder, relative to the prefix [lib]
      --includedir DIR   install headers to this folder, relative to the prefix [include]
      --built DIR        install from this build directory instead of building
      --unstripped       leave the debug information in the files

deb
    Builds Debian packages: the tools, the C library, its headers, the providers for Debian's
    libfabric, BMI, Cheetah, debug information. apt installs them beside Debian's libfabric.

      --built DIR    package from this build directory instead of building
      --out DIR      write the packages to this folder [target/deb]

wheel
    Builds a Python wheel with the tools, the C library, the shared heap and the providers for
    another libfabric, for pip. Needs Python 3 with pip; PYTHON names another one. pip downloads
    the build back end hatchling if this Python lacks it.

      --built DIR    package from this build directory instead of building
      --out DIR      write the wheel to this folder [target/wheel]

test
    Runs cargo test --workspace with these arguments, and lists the tests skipped because
    of missing requirements. SELVEDGE_TEST_REQUIRES=\"cc libfabric\" turns such a skip
    into a failure: cc, c++, libfabric, ucx, iceoryx2, mpi, other-mpi, python,
    rights, system.

      --long         run campaigns, sweeps and conformance tests in full, not a sample

publish
    Makes the package of each crate that is published (target/publish), without uploading it,
    and compiles a program that depends on the packaged selvedge-providers alone. Needs no
    network.

plant
    Inserts known defects one at a time in a copy of the last commit (target/planted), and
    checks that the named tests fail.

      --check        run no test: check that the source compiles with every defect
      --only WORDS   only defects with these words in their description
      --from N       begin at the N-th defect of the list
      --sample N     only N defects of one test target, chosen by the last commit
      --times N      run each test N times; it must fail each time [1]

asan
    Runs C programs, and random calls, on a libfabric.so.1 built with the address sanitizer
    (target/asan).

fuzz
    Runs every parser of data from peers on 10^7 inputs (SELVEDGE_FUZZ_INPUTS).

miri, tsan
    Run tests under Miri (target/miri), or under the thread sanitizer (target/tsan). Both
    install the required components of the nightly toolchain with rustup.

      --short        run a subset of the tests, in a minute or two

size
    Counts lines of code of each part of the workspace, without blank lines and comments,
    and compares them with the budget and the ceiling of the part. Fails if a part exceeds
    its ceiling.

unsafe
    Writes docs/UNSAFE.md: the files with unsafe code and their reasons.
";
