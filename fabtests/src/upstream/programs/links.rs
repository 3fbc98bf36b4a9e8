//! Creates links with the names of the programs, for scripts that search for programs in a folder.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use anyhow::{Context as _, bail};

use crate::upstream::programs::PROGRAMS;

/// Arguments of `fabtests links`.
#[derive(Clone, Debug, clap::Args)]
pub struct LinksArgs {
    /// Folder of the links; created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Creates a link to this program for each name. Existing symbolic links are replaced; other files
/// are not.
///
/// # Errors
/// A file that is no link has the name of a program, or the system's error.
pub fn create_links(args: &LinksArgs) -> anyhow::Result<()> {
    let executable = std::env::current_exe().context("cannot find this program's file")?;
    let folder = &args.folder;
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    for program in PROGRAMS {
        let link = folder.join(program.name);
        match fs::symlink_metadata(&link) {
            Ok(metadata) if !metadata.is_symlink() => bail!(
                "cannot create the link {}: a file with this name exists",
                link.display()
            ),
            Ok(_) => fs::remove_file(&link)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| link.display().to_string()),
        }
        symlink(&executable, &link)
            .with_context(|| format!("cannot create the link {}", link.display()))?;
    }
    println!("{} links in {}", PROGRAMS.len(), folder.display());
    Ok(())
}

/// Prints the names and descriptions of the programs.
///
/// # Errors
/// The function does not fail.
pub fn list_programs() -> anyhow::Result<()> {
    for program in PROGRAMS {
        println!("{:<24}{}", program.name, program.about);
    }
    Ok(())
}
