//! The processes of the campaign: the server, and clients that send requests without end.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use selvedge_service::{Connection, Error, Event, Listener, Options, connect_with, run};
use selvedge_testkit::process;
use serde::{Deserialize, Serialize};

use super::journal::{Request, Step, Writer};
use super::payload;
use crate::campaign::role::Role;

/// The maximum number of requests that the server keeps before it responds to one of them.
const KEPT: usize = 5;
/// How long the server waits for a further request before it responds to those that it keeps.
const PAUSE: Duration = Duration::from_millis(1);
/// The number of outstanding requests of a client.
const OUTSTANDING: u32 = 4;
/// How long a request without a response may take to report its error.
const LONGEST: Duration = Duration::from_secs(20);

/// The configuration of the server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ServerConfig {
    pub(super) address: String,
    /// The number of the server, from 1, which its responses carry.
    pub(super) number: u64,
    pub(super) journal: PathBuf,
}

/// The configuration of a client.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ClientConfig {
    pub(super) address: String,
    pub(super) number: u32,
    /// The deadline of requests, in milliseconds.
    pub(super) timeout_ms: u64,
    pub(super) journal: PathBuf,
}

impl Role for ServerConfig {
    const NAME: &'static str = "service server";

    fn execute(&self) -> anyhow::Result<()> {
        let listener = bind(&self.address)?;
        process::reply(&listener.addresses()?.join(","))?;
        let journal = Writer::open(&self.journal)?;
        let mut kept: Vec<(selvedge_service::Request, Request)> = Vec::new();
        while !process::has_request()? {
            let is_pause = match listener.event().wait_timeout(PAUSE) {
                Ok(Event::Request(request)) => {
                    let number = payload::check_request(&request)?;
                    journal.write(Step::Handled(self.number), number)?;
                    kept.push((request, number));
                    false
                }
                Ok(_) => false,
                Err(Error::Timeout(_)) => true,
                Err(error) => return Err(error.into()),
            };
            // Responses leave in another order than the requests have come in.
            while kept.len() > KEPT || is_pause && !kept.is_empty() {
                let (request, number) = kept.swap_remove(kept.len() / 2);
                request.respond(&payload::response(number, self.number));
            }
        }
        Ok(())
    }
}

/// Listens at an address, which may still be that of a server that was killed a moment ago.
fn bind(address: &str) -> anyhow::Result<Listener> {
    let began = Instant::now();
    loop {
        match Listener::bind(address) {
            Err(Error::Address { .. }) if began.elapsed() < LONGEST => std::thread::sleep(PAUSE),
            bound => return Ok(bound?),
        }
    }
}

impl Role for ClientConfig {
    const NAME: &'static str = "service client";

    fn execute(&self) -> anyhow::Result<()> {
        let options = Options::new()
            .request_timeout(Some(Duration::from_millis(self.timeout_ms)))
            .connect_timeout(LONGEST);
        let client = Client {
            config: self,
            journal: Writer::open(&self.journal)?,
            next: Cell::new(0),
        };
        while !process::has_request()? {
            let connection = connect_with(&self.address, &options).wait()?;
            let workers = (0..OUTSTANDING).map(|_| client.send_requests(&connection));
            for ended in run(futures::future::join_all(workers))? {
                ended?;
            }
        }
        Ok(())
    }
}

/// A client, which connects again when its server is lost.
struct Client<'a> {
    config: &'a ClientConfig,
    journal: Writer,
    /// The number of the next request.
    next: Cell<u32>,
}

impl Client<'_> {
    /// Sends requests, one after the other, until the connection ends or the client is told to end.
    async fn send_requests(&self, connection: &Connection) -> anyhow::Result<()> {
        while !process::has_request()? {
            let request = Request::new(self.config.number, self.next.replace(self.next.get() + 1));
            let bytes = payload::request(request);
            self.journal.write(Step::Sent, request)?;
            let began = Instant::now();
            let result = connection.request(&bytes).await;
            let took = began.elapsed();
            let step = match &result {
                Ok(response) => Step::Responded(payload::check_response(response, request)?),
                Err(Error::Ended(_) | Error::Timeout(_)) => Step::Failed,
                Err(other) => bail!("{request:?} has an error that no fault explains: {other}"),
            };
            self.journal.write(step, request)?;
            ensure!(
                took < LONGEST,
                "{request:?} had its result, {step:?}, after {took:?}"
            );
            if matches!(result, Err(Error::Ended(_))) {
                break;
            }
        }
        Ok(())
    }
}
