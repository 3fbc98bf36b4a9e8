//! Man pages and shell completions of a tool, generated from its help.

use std::fs;
use std::path::Path;
use std::process;

use anyhow::{Context, ensure};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use super::destination::Destination;
use super::help::Help;

/// Writes the man pages and completions of the tool in the file `program`, which is installed under
/// `name`.
///
/// # Errors
/// The program does not run, its help has an unknown form, or a file cannot be written.
pub(super) fn write(destination: &Destination, program: &Path, name: &str) -> anyhow::Result<()> {
    let described = describe(program, name, &mut Vec::new());
    let command = described.with_context(|| format!("cannot read the help of {name}"))?;
    let pages = destination.folder("share/man/man1");
    make_dir(&pages)?;
    let mut named = command.clone();
    named.build();
    write_page(named, &pages)?;
    for (shell, folder, file) in [
        (
            Shell::Bash,
            "share/bash-completion/completions",
            name.to_owned(),
        ),
        (Shell::Zsh, "share/zsh/site-functions", format!("_{name}")),
        (
            Shell::Fish,
            "share/fish/vendor_completions.d",
            format!("{name}.fish"),
        ),
    ] {
        let folder = destination.folder(folder);
        make_dir(&folder)?;
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), name, &mut text);
        let file = folder.join(file);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Writes the page of a tool or of one of its commands, and those of the commands below it.
fn write_page(command: Command, folder: &Path) -> anyhow::Result<()> {
    for subcommand in command.get_subcommands() {
        write_page(subcommand.clone(), folder)?;
    }
    let page = Man::new(command).manual("Selvedge");
    let mut text = Vec::new();
    page.render(&mut text).context("cannot write to memory")?;
    // The crate roff writes the date, which is empty, as no argument at all.
    let text = String::from_utf8(text)?.replacen("  \"", " \"\" \"", 1);
    let file = folder.join(page.get_filename());
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Describes a tool, or the command of it with this path of names, and the commands below.
fn describe(program: &Path, name: &str, path: &mut Vec<String>) -> anyhow::Result<Command> {
    let help = Help::parse(&help_text(program, path)?);
    let mut command = help.describe(name)?.version(env!("CARGO_PKG_VERSION"));
    for subcommand in help.commands() {
        path.push(subcommand.to_owned());
        let described = describe(program, subcommand, path);
        command = command.subcommand(described.with_context(|| subcommand.to_owned())?);
        path.pop();
    }
    Ok(command)
}

fn help_text(program: &Path, path: &[String]) -> anyhow::Result<String> {
    let output = process::Command::new(program)
        .args(path)
        .arg("--help")
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(output.status.success(), "--help fails: {}", output.status);
    String::from_utf8(output.stdout).context("the help is not UTF-8")
}

fn make_dir(dir: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))
}
