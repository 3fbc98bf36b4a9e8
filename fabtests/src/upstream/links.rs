//! Links under the programs' names, for scripts that look for programs in a folder.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use anyhow::{Context as _, bail};

use super::PROGRAMS;

/// `fabtests links`
#[derive(Clone, Debug, clap::Args)]
pub struct LinksArgs {
    /// Where the links go; the folder is made if it is not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Makes a link to this program for each name. Links to programs of this kind are replaced; nothing
/// else is.
///
/// # Errors
/// A file that is in the way; the system's.
pub fn links(args: &LinksArgs) -> anyhow::Result<()> {
    let here = std::env::current_exe().context("cannot find this program's file")?;
    let folder = &args.folder;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for program in PROGRAMS {
        let link = folder.join(program.name);
        match fs::symlink_metadata(&link) {
            Ok(there) if !there.is_symlink() => bail!("{} is in the way", link.display()),
            Ok(_) => fs::remove_file(&link)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| link.display().to_string()),
        }
        symlink(&here, &link).with_context(|| format!("cannot make {}", link.display()))?;
    }
    println!("{} links in {}", PROGRAMS.len(), folder.display());
    Ok(())
}

/// Prints the programs.
///
/// # Errors
/// None.
pub fn list() -> anyhow::Result<()> {
    for program in PROGRAMS {
        println!("{:<24}{}", program.name, program.about);
    }
    Ok(())
}
