//! A server that crashes during a request: the client learns of it at once, and the next server
//! takes over. `crash` starts its servers itself.

use std::error::Error;
use std::process::{Child, Command};

use selvedge_service::{Error as ServiceError, Event, Listener, connect};

const ADDRESS: &str = "shm://crash-example";

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some("server") {
        return serve();
    }
    let mut server = start_server()?;
    let mut connection = connect(ADDRESS).wait()?;
    for number in 1..=6_u32 {
        // A request is never repeated by itself: only the program knows whether that is safe.
        let response = loop {
            match connection.request(&number.to_le_bytes()).wait() {
                Ok(response) => break response,
                Err(ServiceError::Ended(end)) => {
                    println!("request {number}: {end}");
                    server.wait()?;
                    server = start_server()?;
                    connection = connect(ADDRESS).wait()?;
                }
                Err(other) => return Err(other.into()),
            }
        };
        println!("request {number}: {}", str::from_utf8(&response)?);
    }
    server.kill()?;
    server.wait()?;
    Ok(())
}

fn start_server() -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).arg("server").spawn()
}

/// A server that dies with its fourth request.
fn serve() -> Result<(), Box<dyn Error>> {
    let listener = Listener::bind(ADDRESS)?;
    let mut handled = 0;
    loop {
        if let Event::Request(request) = listener.event().wait()? {
            handled += 1;
            if handled == 4 {
                std::process::abort();
            }
            request.respond(format!("handled by process {}", std::process::id()).as_bytes());
        }
    }
}
