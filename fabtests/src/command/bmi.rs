//! `fabtests bmi`: one server and many clients over BMI.

use std::time::Duration;

use crate::bmi::requests;

/// Arguments of `fabtests bmi`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The method: shm, tcp or whatever there is
    #[arg(short, long, default_value = "shm")]
    provider: String,
    /// How many processes send requests
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    clients: u16,
    /// Bytes of a request
    #[arg(short = 'S', long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(..=16384))]
    size: u16,
    /// Requests that each has on the way
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    window: u16,
    /// For how many seconds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=3600))]
    seconds: u16,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Serves and prints.
///
/// # Errors
/// As [`requests::serve`].
pub fn run(args: &Args) -> anyhow::Result<()> {
    let time = Duration::from_secs(args.seconds.into());
    let served = requests::serve(
        &args.provider,
        args.clients.into(),
        args.size.into(),
        args.window.into(),
        time,
    )?;
    match args.json {
        true => println!("{}", serde_json::to_string(&served)?),
        false => println!(
            "{} clients: {:.0} requests per second; the least served had {}, the most served {}",
            served.clients, served.requests_per_s, served.least, served.most
        ),
    }
    Ok(())
}
