//! The time of a round trip: `ping_pong server` in one terminal, `ping_pong` in another one.
//!
//! A second argument is the address, for example `ping_pong server tcp://127.0.0.1:7000`.

use std::error::Error;
use std::time::{Duration, Instant};

use selvedge_service::{Event, Listener, Options, connect_with};

const ROUNDS: u32 = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_server = arguments.first().is_some_and(|first| first == "server");
    let address = arguments
        .get(1)
        .map_or("shm://ping-pong", |address| address);
    // A side that polls for a while before it parks has the shortest round trip.
    let options = Options::new().spin(Duration::from_micros(50));
    if is_server {
        return serve(address, &options);
    }
    let connection = connect_with(address, &options).wait()?;
    for len in [8, 1024, 64 << 10] {
        let (ping, start) = (vec![7; len], Instant::now());
        for _ in 0..ROUNDS {
            assert_eq!(connection.request(&ping).wait()?.len(), len);
        }
        println!("{len} bytes: {:?} per round trip", start.elapsed() / ROUNDS);
    }
    Ok(())
}

fn serve(address: &str, options: &Options) -> Result<(), Box<dyn Error>> {
    let listener = Listener::bind_with(address, options)?;
    println!("listening at {}", listener.addresses()?.join(","));
    loop {
        match listener.event().wait()? {
            Event::Request(request) => request.respond(&request),
            Event::Connected(peer) => println!("connected: {:?}", peer.identity()),
            Event::Lost(_, end) => println!("ended: {end}"),
            _ => {}
        }
    }
}
