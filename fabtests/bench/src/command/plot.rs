//! `plot`: pictures of what `bench --json` has measured.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};

use crate::comparison::stored::Report;
use crate::plot::{page, pictures};

/// Arguments of `plot`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Reports that `bench --json` has printed; those of one machine belong together
    #[arg(required = true, value_name = "REPORT.json")]
    reports: Vec<PathBuf>,
    /// Where the pictures go; it is made if it is not there
    #[arg(short, long, value_name = "FOLDER", default_value = "plots")]
    out: PathBuf,
}

/// Draws one SVG for each question, and a page with all of them.
///
/// # Errors
/// When a report cannot be read or a picture not be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let reports: Result<Vec<_>, _> = args.reports.iter().map(|path| Report::read(path)).collect();
    let pictures = pictures(&reports?);
    ensure!(!pictures.is_empty(), "there is nothing to draw: no rows");
    let folder = args.out.display();
    fs::create_dir_all(&args.out).with_context(|| format!("cannot make {folder}"))?;
    let write = |name: String, text: String| {
        let path = args.out.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
        anyhow::Ok(())
    };
    for picture in &pictures {
        write(format!("{}.svg", picture.name), picture.chart.svg())?;
    }
    write(
        "index.html".to_owned(),
        page("Selvedge, measured", &pictures),
    )
}
