//! `plot`: draws reports of `bench --json`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};

use crate::comparison::stored::Report;
use crate::plot::{page, pictures};

/// Arguments of `plot`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Reports of `bench --json`, all of one machine
    #[arg(required = true, value_name = "REPORT.json")]
    reports: Vec<PathBuf>,
    /// The folder for the pictures, created if missing
    #[arg(short, long, value_name = "FOLDER", default_value = "plots")]
    out: PathBuf,
}

/// Writes an SVG file for each figure, and an HTML page with all figures.
///
/// # Errors
/// When a report cannot be read or a picture cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let reports: Result<Vec<_>, _> = args.reports.iter().map(|path| Report::read(path)).collect();
    let pictures = pictures(&reports?);
    ensure!(!pictures.is_empty(), "the reports have no rows to draw");
    let folder = args.out.display();
    fs::create_dir_all(&args.out).with_context(|| format!("cannot create {folder}"))?;
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
