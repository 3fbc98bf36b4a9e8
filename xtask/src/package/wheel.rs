//! `cargo xtask wheel`: a Python wheel of the tools and libraries that MPI programs use.
//!
//! The Python package, `util/python`, has the files of an installation in its own folder, so that
//! the tools find the libraries beside them. The build back end hatchling makes the archive and its
//! descriptions. The wheel's tag names the version of glibc that the files need.

use std::env::consts::ARCH;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::environment::workspace;
use crate::install::{Destination, Install, Symbols, copy_folder};

use super::libraries::Libraries;
use super::staging::{empty, files, move_file};

/// The Python package, in the workspace.
const PROJECT: &str = "util/python";
/// The folder of the Python package that has the files of the installation.
const PACKAGE: &str = "selvedge";

/// Builds the wheel in the folder `out` from the build directory `built`, or builds that first.
/// Returns the path of the wheel.
///
/// # Errors
/// The installation or pip fails.
pub(crate) fn wheel(built: Option<&Path>, out: Option<PathBuf>) -> anyhow::Result<String> {
    let out = std::path::absolute(out.unwrap_or_else(|| workspace().join("target/wheel")))?;
    let roots = out.join("roots");
    empty(&roots)?;
    let (staging, project) = (roots.join("all"), roots.join("project"));
    Install {
        destination: Destination::new(&staging, None, None, None)?,
        built: built.map(Path::to_owned),
        symbols: Symbols::Separate,
        providers: Path::new("lib/libfabric").to_owned(),
        tool_prefix: "selvedge-",
    }
    .run()?;
    copy_folder(&workspace().join(PROJECT), &project)?;
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        fs::copy(workspace().join(licence), project.join(licence)).context(licence)?;
    }
    let mut libraries = Libraries::default();
    for file in files(&staging)? {
        let Some(path) = package_path(file.strip_prefix(&staging)?) else {
            continue;
        };
        libraries.add(&fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?);
        move_file(&file, &project.join(PACKAGE).join(path))?;
    }
    let glibc = libraries.glibc;
    let (major, minor) = glibc.context("the tools name no version of glibc that they need")?;
    let tag = format!("py3-none-manylinux_{major}_{minor}_{ARCH}");
    build(&project, &tag, &out)?;
    let version = env!("CARGO_PKG_VERSION");
    let file = out.join(format!("{PACKAGE}-{version}-{tag}.whl"));
    ensure!(file.exists(), "pip has not built {}", file.display());
    Ok(format!("{}\n", file.display()))
}

/// The path of an installed file in the package; `None` for files that programs do not need when
/// they run. A wheel has no links, so the library has the name that programs load.
fn package_path(file: &Path) -> Option<PathBuf> {
    let folder = file.parent()?;
    let name = file.file_name()?.to_str()?;
    match folder.to_str()? {
        "lib" if name.starts_with("libfabric.so.1.") => Some(folder.join("libfabric.so.1")),
        "lib" if name.starts_with("libselvedge_") => Some(file.to_owned()),
        "lib/libfabric" | "bin" => Some(file.to_owned()),
        _ => None,
    }
}

/// Runs pip, with hatchling of this Python if it has that.
fn build(project: &Path, tag: &str, out: &Path) -> anyhow::Result<()> {
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let mut command = Command::new(&python);
    command.args(["-m", "pip", "wheel", "--quiet", "--no-deps"]);
    command.args(["--disable-pip-version-check", "--no-cache-dir"]);
    if has_back_end(&python) {
        command.arg("--no-build-isolation");
    }
    let output = command
        .arg("--wheel-dir")
        .args([out, project])
        .env("SELVEDGE_VERSION", env!("CARGO_PKG_VERSION"))
        .env("SELVEDGE_WHEEL_TAG", tag)
        .output()
        .with_context(|| format!("cannot run {}: install Python 3", python.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} -m pip wheel fails: {}; install pip, and hatchling where pip cannot download it",
        python.display(),
        errors.trim()
    );
    Ok(())
}

fn has_back_end(python: &OsString) -> bool {
    const SCRIPT: &str = "from importlib.metadata import version; \
                          found = version('hatchling').split('.')[:2]; \
                          raise SystemExit(tuple(map(int, found)) < (1, 26))";
    let status = Command::new(python)
        .args(["-c", SCRIPT])
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wheel_has_the_files_of_running_programs() {
        let path = |file: &str| package_path(Path::new(file));
        let library = Some(PathBuf::from("lib/libfabric.so.1"));
        assert_eq!(path("lib/libfabric.so.1.99.0"), library);
        for kept in [
            "lib/libselvedge_heap.so",
            "lib/libfabric/libselvedge_shm-fi.so",
            "bin/fi_top",
        ] {
            assert_eq!(path(kept), Some(PathBuf::from(kept)));
        }
        for left in [
            "lib/libfabric.so",
            "lib/libfabric.so.1",
            "lib/.debug/libfabric.so.1.99.0.debug",
            "bin/.debug/fi_top.debug",
            "include/rdma/fabric.h",
            "share/man/man1/fi_top.1",
        ] {
            assert_eq!(path(left), None, "{left}");
        }
    }
}
