//! The time of many requests: three clients send requests of 16 B to 1 MiB, every power of two
//! equally often, and the server responds with their lengths. `load [REQUESTS] [ADDRESS]` starts
//! the clients itself.

use std::error::Error;
use std::process::Command;
use std::time::Instant;

use selvedge_service::{Event, Listener, connect};

const CLIENTS: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => serve(100_000, "shm://load-example"),
        [requests] => serve(requests.parse()?, "shm://load-example"),
        [requests, address] => serve(requests.parse()?, address),
        ["client", requests, address, ..] => send(requests.parse()?, address),
        _ => Err("write: load [REQUESTS] [ADDRESS]".into()),
    }
}

fn serve(requests: usize, address: &str) -> Result<(), Box<dyn Error>> {
    let listener = Listener::bind(address)?;
    let each = requests.div_ceil(CLIENTS).to_string();
    for _ in 0..CLIENTS {
        let arguments = ["client", &each, &listener.addresses()?.join(",")];
        Command::new(std::env::current_exe()?)
            .args(arguments)
            .spawn()?;
    }
    let (mut began, mut lost, mut handled, mut bytes) = (None, 0, 0, 0);
    while lost < CLIENTS {
        match listener.event().wait()? {
            Event::Request(request) => {
                began.get_or_insert_with(Instant::now);
                handled += 1;
                bytes += request.len();
                request.respond(&request.len().to_le_bytes());
            }
            Event::Lost(..) => lost += 1,
            _ => {}
        }
    }
    let time = began.map_or(0.0, |began| began.elapsed().as_secs_f64());
    println!("{handled} requests, {bytes} bytes, {time:.3} s");
    Ok(())
}

fn send(requests: usize, address: &str) -> Result<(), Box<dyn Error>> {
    let connection = connect(address).wait()?;
    let bytes = vec![1; 1 << 20];
    for number in 0..requests {
        let len = 16 << (number % 17);
        let response = connection.request(&bytes[..len]).wait()?;
        if *response != len.to_le_bytes() {
            return Err("the response is that of another request".into());
        }
    }
    Ok(())
}
