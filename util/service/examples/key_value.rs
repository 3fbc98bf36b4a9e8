//! A key-value store: `key_value server`, then `key_value set KEY VALUE` or `key_value get KEY`.

use std::collections::HashMap;
use std::error::Error;

use selvedge_service::{Event, Listener, connect};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["server"] {
        return serve();
    }
    let connection = connect("shm://key-value").wait()?;
    let response = connection.request(arguments.join("\n").as_bytes()).wait()?;
    println!("{}", str::from_utf8(&response)?);
    Ok(())
}

fn serve() -> Result<(), Box<dyn Error>> {
    let listener = Listener::bind("shm://key-value")?;
    let mut values = HashMap::new();
    loop {
        if let Event::Request(request) = listener.event().wait()? {
            let text = String::from_utf8_lossy(&request).into_owned();
            match text.splitn(3, '\n').collect::<Vec<_>>()[..] {
                ["set", key, value] => {
                    values.insert(key.to_owned(), value.to_owned());
                    request.respond(b"stored");
                }
                ["get", key] => match values.get(key) {
                    Some(value) => request.respond(value.as_bytes()),
                    None => request.fail("no such key"),
                },
                _ => request.fail("write: set KEY VALUE, or get KEY"),
            }
        }
    }
}
