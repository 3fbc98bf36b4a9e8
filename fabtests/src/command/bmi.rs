//! `fabtests bmi`: one server and many clients, over BMI and over the endpoint below it.

use std::time::Duration;

use serde::Serialize;

use crate::bmi::requests::{self, Crowd, Face, Served};

/// Arguments of `fabtests bmi`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The method: shm, tcp or whatever there is
    #[arg(short, long, default_value = "shm")]
    provider: String,
    /// How many processes send requests
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    clients: u16,
    /// Bytes of a request; what the provider cannot inject, it carries for BMI alone
    #[arg(short = 'S', long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(..=16384))]
    size: u16,
    /// Requests that each has on the way
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    window: u16,
    /// For how many seconds each time
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=3600))]
    seconds: u16,
    /// How many times, in turns; medians are printed
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    reps: u16,
    /// BMI alone
    #[arg(long)]
    alone: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What came out of it.
#[derive(Debug, Serialize)]
struct Report {
    clients: u16,
    bmi: Vec<Served>,
    raw: Vec<Served>,
    /// Medians of the requests per second.
    bmi_per_s: f64,
    raw_per_s: Option<f64>,
}

/// Serves and prints.
///
/// # Errors
/// As [`requests::serve`].
pub fn run(args: &Args) -> anyhow::Result<()> {
    let time = Duration::from_secs(args.seconds.into());
    let crowd = Crowd {
        clients: args.clients.into(),
        size: args.size.into(),
        window: args.window.into(),
    };
    let serve = |face| requests::serve(face, &args.provider, crowd, time);
    let (mut bmi, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..args.reps {
        bmi.push(serve(Face::Bmi)?);
        if !args.alone {
            raw.push(serve(Face::Raw)?);
        }
    }
    let report = Report {
        clients: args.clients,
        bmi_per_s: median(&bmi).unwrap_or_default(),
        raw_per_s: median(&raw),
        bmi,
        raw,
    };
    match args.json {
        true => println!("{}", serde_json::to_string(&report)?),
        false => report.print(),
    }
    Ok(())
}

fn median(served: &[Served]) -> Option<f64> {
    let mut rates: Vec<_> = served.iter().map(|one| one.requests_per_s).collect();
    rates.sort_unstable_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied()
}

impl Report {
    fn print(&self) {
        println!("{} clients", self.clients);
        for (face, all) in [("BMI", &self.bmi), ("raw endpoint", &self.raw)] {
            for one in all {
                println!(
                    "{face:12} {:9.0} requests per second; the least served had {}, the most {}",
                    one.requests_per_s, one.least, one.most
                );
            }
        }
        if let Some(raw) = self.raw_per_s {
            let ratio = self.bmi_per_s / raw;
            println!("BMI serves {ratio:.2} times as many as the raw endpoint (medians)");
        }
    }
}
