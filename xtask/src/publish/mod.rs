//! `cargo xtask publish --dry-run`: packages every crate that is published, and compiles a program
//! that depends on the packaged facade alone. It uploads nothing, and needs no network.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::environment::{cargo, workspace};

/// The package that gives a program everything.
const FACADE: &str = "selvedge-providers";

/// The program that depends on the facade.
const PROGRAM: &str = include_str!("program.txt");

/// Files of every package, apart from its sources.
const FILES: [&str; 4] = ["Cargo.toml", "Cargo.lock", "LICENSE-APACHE", "LICENSE-MIT"];

/// A package that is published.
struct Package {
    name: String,
    version: String,
}

impl Package {
    /// The name of its folder in the archive.
    fn folder(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }
}

/// Packages every crate and compiles the program. Returns the list of packages.
///
/// # Errors
/// Returns an error if a package cannot be made, lacks a file, or the program does not compile.
pub(crate) fn dry_run() -> anyhow::Result<String> {
    let metadata = metadata()?;
    let packages = published(&metadata)?;
    let target = metadata["target_directory"].as_str().context("no target")?;
    let target = Path::new(target).join("publish");
    package(&packages, &target)?;
    let folder = target.join("unpacked");
    unpack(&packages, &target.join("package"), &folder)?;
    compile_program(&packages, &folder)?;
    let mut list = String::new();
    for package in &packages {
        let size = size(&folder.join(package.folder()))?;
        writeln!(list, "{:24} {:>6} KiB", package.folder(), size / 1024)?;
    }
    Ok(list)
}

fn metadata() -> anyhow::Result<Value> {
    let output = cargo()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(workspace())
        .output()
        .context("cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata failed");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The packages of the workspace without `publish = false`.
fn published(metadata: &Value) -> anyhow::Result<Vec<Package>> {
    let packages = metadata["packages"].as_array().context("no packages")?;
    let published = packages
        .iter()
        .filter(|package| package["publish"].is_null());
    let text = |value: &Value| Some(value.as_str()?.to_owned());
    let package = |package: &Value| {
        Some(Package {
            name: text(&package["name"])?,
            version: text(&package["version"])?,
        })
    };
    let published: Option<Vec<_>> = published.map(package).collect();
    published.context("a package has no name or version")
}

/// Makes the archives of all packages. They depend on each other as if they were published.
fn package(packages: &[Package], target: &Path) -> anyhow::Result<()> {
    let mut command = cargo();
    command.current_dir(workspace()).args([
        "package",
        "--quiet",
        "--no-verify",
        "--offline",
        "--allow-dirty",
    ]);
    command.arg("--target-dir").arg(target);
    for package in packages {
        command.args(["--package", &package.name]);
    }
    // Cargo warns of each test that is not packaged.
    let output = command
        .stdout(Stdio::null())
        .output()
        .context("cargo package")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo package failed:\n{errors}");
    Ok(())
}

/// Unpacks the archives in `archives` to `folder`, and checks their files.
fn unpack(packages: &[Package], archives: &Path, folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for package in packages {
        let archive = archives.join(format!("{}.crate", package.folder()));
        let status = Command::new("tar")
            .arg("-xzf")
            .arg(&archive)
            .arg("-C")
            .arg(folder)
            .status()
            .context("tar")?;
        ensure!(status.success(), "{}: tar failed", archive.display());
        for file in FILES {
            let path = folder.join(package.folder()).join(file);
            ensure!(
                path.is_file(),
                "{} has no file {file}: add it to `include` in the manifest, or link it from the \
                 root of the checkout",
                package.folder()
            );
        }
    }
    Ok(())
}

/// Compiles the program against the unpacked packages, with the versions of the workspace's other
/// dependencies.
fn compile_program(packages: &[Package], folder: &Path) -> anyhow::Result<()> {
    let program = folder.join("program");
    let Some(facade) = packages.iter().find(|package| package.name == FACADE) else {
        bail!("{FACADE} is not published: remove `publish = false` from its manifest");
    };
    let mut manifest = format!(
        "[package]\nname = \"program\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
         {FACADE} = {{ version = \"{}\", default-features = false, features = [\"shm\", \"tcp\"] }}\n\
         \n[patch.crates-io]\n",
        facade.version
    );
    for package in packages {
        writeln!(
            manifest,
            "{} = {{ path = \"../{}\" }}",
            package.name,
            package.folder()
        )?;
    }
    write_file(&program.join("Cargo.toml"), &manifest)?;
    write_file(&program.join("src/main.rs"), PROGRAM)?;
    fs::copy(workspace().join("Cargo.lock"), program.join("Cargo.lock"))?;
    let output = cargo()
        .args(["check", "--quiet", "--offline"])
        .current_dir(&program)
        .output()
        .context("cargo check")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} does not compile:\n{errors}",
        program.display()
    );
    Ok(())
}

fn write_file(path: &PathBuf, text: &str) -> anyhow::Result<()> {
    let folder = path.parent().context("a file has a folder")?;
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// The number of bytes of all files in a folder.
fn size(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() {
            size(&entry.path())?
        } else {
            entry.metadata()?.len()
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_and_tests_are_not_published() -> anyhow::Result<()> {
        let published = published(&metadata()?)?;
        let names: Vec<_> = published.iter().map(|package| &*package.name).collect();
        assert!(names.contains(&"selvedge") && names.contains(&FACADE));
        for private in [
            "fabtests",
            "selvedge-testkit",
            "selvedge-bench",
            "selvedge-book",
            "selvedge-fabric-c",
            "xtask",
        ] {
            assert!(!names.contains(&private), "{private} is published");
        }
        Ok(())
    }
}
