//! `fabtests bmi` measures how many requests of many clients one server serves, over BMI and over
//! the endpoint below it; or how long posts take while other threads test.

use std::time::Duration;

use serde::Serialize;

use crate::bmi::posts::{self, Load, Times};
use crate::bmi::requests::{self, Clients, Interface, Served};

/// Arguments of `fabtests bmi`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The method: shm, tcp or any other provider
    #[arg(short, long, default_value = "shm")]
    provider: String,
    /// Number of client processes
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    clients: u16,
    /// Bytes of a request; over BMI, a request may be larger than the provider's inject size
    #[arg(short = 'S', long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(..=16384))]
    size: u16,
    /// Outstanding requests of each client
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    window: u16,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=3600))]
    seconds: u16,
    /// Number of measurements, in turns; medians are printed
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    reps: u16,
    /// Measure BMI alone
    #[arg(long)]
    alone: bool,
    /// Time the posts of N threads of one process instead, while other threads test
    #[arg(long, value_name = "N", conflicts_with_all = ["clients", "size", "window", "alone"],
          value_parser = clap::value_parser!(u16).range(1..=64))]
    posters: Option<u16>,
    /// With --posters: threads that test
    #[arg(long, value_name = "N", default_value_t = 1, requires = "posters",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    testers: u16,
    /// With --posters: milliseconds that a test waits
    #[arg(long, value_name = "MS", default_value_t = 0, requires = "posters",
          value_parser = clap::value_parser!(u16).range(..=10_000))]
    idle: u16,
    /// With --posters: threads that use a processor and do not call BMI
    #[arg(long, alias = "neighbours", value_name = "N", default_value_t = 0, requires = "posters",
          value_parser = clap::value_parser!(u16).range(..=64))]
    background: u16,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The results, as `--json` prints them.
#[derive(Debug, Serialize)]
struct Report {
    clients: u16,
    bmi: Vec<Served>,
    raw: Vec<Served>,
    /// Medians of the requests per second.
    bmi_per_s: f64,
    raw_per_s: Option<f64>,
}

/// Serves clients or times posts, and prints the results.
///
/// # Errors
/// As [`requests::serve`] and [`posts::measure`].
pub fn run(args: &Args) -> anyhow::Result<()> {
    let time = Duration::from_secs(args.seconds.into());
    if let Some(posters) = args.posters {
        return time_posts(args, posters, time);
    }
    let clients = Clients {
        count: args.clients.into(),
        size: args.size.into(),
        window: args.window.into(),
    };
    let serve = |interface| requests::serve(interface, &args.provider, clients, time);
    let (mut bmi, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..args.reps {
        bmi.push(serve(Interface::Bmi)?);
        if !args.alone {
            raw.push(serve(Interface::Raw)?);
        }
    }
    let report = Report {
        clients: args.clients,
        bmi_per_s: median(&bmi).unwrap_or_default(),
        raw_per_s: median(&raw),
        bmi,
        raw,
    };
    if args.json {
        println!("{}", serde_json::to_string(&report)?)
    } else {
        report.print()
    }
    Ok(())
}

fn time_posts(args: &Args, posters: u16, time: Duration) -> anyhow::Result<()> {
    let load = Load {
        posters: posters.into(),
        testers: args.testers.into(),
        idle: Duration::from_millis(args.idle.into()),
        background: args.background.into(),
    };
    let measure = |_| posts::measure(&args.provider, load, time);
    let runs: Vec<Times> = (0..args.reps).map(measure).collect::<Result<_, _>>()?;
    if args.json {
        println!(
            "{}",
            serde_json::json!({ "posters": posters, "runs": runs })
        )
    } else {
        runs.iter().for_each(print_times)
    }
    Ok(())
}

fn print_times(times: &Times) {
    println!(
        "{:8} posts: mean {:8.2} us, 99 % below {:8.2} us, worst {:9.2} us; {:9.0} tests per second",
        times.posts, times.mean_us, times.p99_us, times.worst_us, times.tests_per_s
    );
    println!(
        "{:15} the worst began {:.1} ms after the start, and its threads had no processor for \
         {:.2} us of it; without such delays the worst took {:.2} us",
        "", times.worst_at_ms, times.worst_delay_us, times.worst_own_us
    );
}

fn median(served: &[Served]) -> Option<f64> {
    let mut rates: Vec<_> = served.iter().map(|one| one.requests_per_s).collect();
    rates.sort_unstable_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied()
}

impl Report {
    fn print(&self) {
        println!("{} clients", self.clients);
        for (interface, all) in [("BMI", &self.bmi), ("raw endpoint", &self.raw)] {
            for one in all {
                println!(
                    "{interface:12} {:9.0} requests per second; the least served had {}, the most {}",
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
