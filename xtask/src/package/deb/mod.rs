//! `cargo xtask deb`: Debian packages, made of an installation below a staging folder.
//!
//! No package has a file of Debian's libfabric packages: libraries lie in a folder of their own,
//! headers as well, and the tools with libfabric's names begin with `selvedge-`. Packages have no
//! scripts.

mod packages;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::environment::workspace;
use crate::install::{BMI, CHEETAH, Destination, Install, Symbols};

use super::libraries::Libraries;
use super::staging::{empty, files, move_file};

use packages::{DEBUG, PACKAGES, Package};

/// Debian's names of a processor architecture: of packages, and of the folder of libraries.
struct Architecture {
    name: &'static str,
    lib: &'static str,
}

/// Builds the packages in the folder `out` from the build directory `built`, or builds that first.
/// Returns the list of the files.
///
/// # Errors
/// The installation or dpkg-deb fails, or a file belongs to no package.
pub(crate) fn deb(built: Option<&Path>, out: Option<PathBuf>) -> anyhow::Result<String> {
    let out = std::path::absolute(out.unwrap_or_else(|| workspace().join("target/deb")))?;
    let architecture = architecture()?;
    let roots = out.join("roots");
    empty(&roots)?;
    let staging = roots.join("all");
    install(&staging, built, &architecture)?;
    let usr = staging.join("usr");
    for file in files(&usr)? {
        let path = package_path(file.strip_prefix(&usr)?);
        let mut packages = PACKAGES.iter();
        let package = packages.find(|package| package.has(&path, architecture.lib));
        let Some(package) = package else {
            bail!(
                "{} belongs to no package: see xtask/src/package/deb/packages.rs",
                path.display()
            );
        };
        move_file(&file, &roots.join(package.name).join("usr").join(path))?;
    }
    let mut list = String::new();
    for package in &PACKAGES {
        let root = roots.join(package.name);
        if package.name == DEBUG && !root.exists() {
            continue;
        }
        let file = build(package, &root, &out, &architecture)?;
        writeln!(list, "{}", file.display()).expect("writing to a string succeeds");
    }
    Ok(list)
}

fn architecture() -> anyhow::Result<Architecture> {
    Ok(match std::env::consts::ARCH {
        "x86_64" => Architecture {
            name: "amd64",
            lib: "lib/x86_64-linux-gnu",
        },
        "aarch64" => Architecture {
            name: "arm64",
            lib: "lib/aarch64-linux-gnu",
        },
        other => {
            bail!("the architecture {other} has no row in xtask/src/package/deb/mod.rs: add one")
        }
    })
}

/// Installs everything below the folder `staging`.
fn install(
    staging: &Path,
    built: Option<&Path>,
    architecture: &Architecture,
) -> anyhow::Result<()> {
    let lib = Path::new(architecture.lib);
    let destination = || {
        let include = Path::new("include/selvedge");
        let own = lib.join("selvedge");
        Destination::new(
            Path::new("/usr"),
            Some(&own),
            Some(include),
            Some(staging.into()),
        )
    };
    let symbols = Symbols::Separate;
    Install {
        destination: destination()?,
        built: built.map(Path::to_owned),
        symbols,
        providers: lib.join("libfabric"),
        tool_prefix: "selvedge-",
    }
    .run()?;
    for library in [BMI, CHEETAH] {
        library.install(&destination()?, built.map(Path::to_owned), symbols)?;
    }
    Ok(())
}

/// The path of an installed file in its package. Debug information goes to the folder that gdb
/// searches for the files of the whole system.
fn package_path(file: &Path) -> PathBuf {
    let parents = file
        .parent()
        .and_then(|dir| Some((dir.file_name()?, dir.parent()?)));
    match (parents, file.file_name()) {
        (Some((dir, parent)), Some(name)) if dir == ".debug" => {
            Path::new("lib/debug/usr").join(parent).join(name)
        }
        _ => file.to_owned(),
    }
}

/// Builds a package of the files below `root`. Returns the package's file.
fn build(
    package: &Package,
    root: &Path,
    out: &Path,
    architecture: &Architecture,
) -> anyhow::Result<PathBuf> {
    let doc = root.join("usr/share/doc").join(package.name);
    fs::create_dir_all(&doc).with_context(|| format!("cannot create {}", doc.display()))?;
    let licence = |name: &str| fs::read_to_string(workspace().join(name)).context(name.to_owned());
    let text = format!(
        "Selvedge may be used under either of these licences.\n\n{}\n{}",
        licence("LICENSE-MIT")?,
        licence("LICENSE-APACHE")?
    );
    fs::write(doc.join("copyright"), text)?;
    let control = control(package, &files(root)?, architecture)?;
    fs::create_dir_all(root.join("DEBIAN"))?;
    fs::write(root.join("DEBIAN/control"), control)?;
    let (name, version) = (package.name, env!("CARGO_PKG_VERSION"));
    let file = out.join(format!("{name}_{version}-1_{}.deb", architecture.name));
    let output = Command::new("dpkg-deb")
        // The default level makes the tools a fifth smaller (6.1 MB, not 7.8), and the debug
        // information takes minutes.
        .args(["--root-owner-group", "-z1", "--build"])
        .args([root, &file])
        .output()
        .context("cannot run dpkg-deb, which makes the packages: install dpkg")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "dpkg-deb fails on {name}: {}",
        errors.trim()
    );
    Ok(file)
}

/// The description of a package, deb-control(5).
fn control(
    package: &Package,
    files: &[PathBuf],
    architecture: &Architecture,
) -> anyhow::Result<String> {
    let version = concat!(env!("CARGO_PKG_VERSION"), "-1");
    let person =
        |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let mut bytes = 0;
    let mut libraries = Libraries::default();
    for file in files.iter().filter(|file| !file.is_symlink()) {
        let content = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        bytes += content.len();
        if package.name != DEBUG {
            libraries.add(&content);
        }
    }
    let mut text = format!(
        "Package: {}\nSource: selvedge\nVersion: {version}\nArchitecture: {}\n\
         Maintainer: {} <{}>\nSection: {}\nPriority: optional\nInstalled-Size: {}\n",
        package.name,
        architecture.name,
        person("DEBFULLNAME", "The authors of Selvedge"),
        person("DEBEMAIL", "selvedge@localhost"),
        package.section,
        bytes.div_ceil(1024)
    );
    text += &package.fields.replace("${version}", version);
    text += &libraries.depends();
    writeln!(text, "Description: {}", package.summary).expect("writing to a string succeeds");
    for line in package.text.lines() {
        writeln!(text, " {line}").expect("writing to a string succeeds");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_information_lies_below_the_folder_of_the_whole_system() {
        let path = package_path(Path::new("bin/.debug/fi_top.debug"));
        assert_eq!(path, Path::new("lib/debug/usr/bin/fi_top.debug"));
        assert_eq!(
            package_path(Path::new("bin/fi_top")),
            Path::new("bin/fi_top")
        );
    }
}
