//! One server and many clients that send it requests: who is served how often.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use selvedge_bmi::{Addr, Bmi, Config, Post, Posted};
use serde::Serialize;

/// What a crowd of clients got.
#[derive(Clone, Debug, Serialize)]
pub struct Served {
    /// How many clients there were.
    pub clients: usize,
    /// Requests in all, per second.
    pub requests_per_s: f64,
    /// Of the client that was served least.
    pub least: u64,
    /// Of the one that was served most.
    pub most: u64,
}

/// How a client is started; no part of the command line for people.
#[derive(Clone, Debug, clap::Args)]
pub struct ClientArgs {
    /// The server
    url: String,
    /// Bytes of a request
    size: usize,
    /// How many requests it has on the way at most
    window: usize,
}

/// Serves `clients` processes of this program over a method for `time`, each with `window` requests of
/// `size` bytes on the way.
///
/// # Errors
/// When a process cannot be started or dies, or BMI says so.
pub fn serve(
    method: &str,
    clients: usize,
    size: usize,
    window: usize,
    time: Duration,
) -> anyhow::Result<Served> {
    let bmi = Bmi::initialize(Config::server(&format!("{method}://localhost")))?;
    let url = bmi.urls().pop().context("BMI listens at no URL")?;
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let start = |_| -> anyhow::Result<Killed> {
        let mut command = Command::new(&program);
        command.args(["bmi-client", &url, &size.to_string(), &window.to_string()]);
        Ok(Killed(command.spawn().context("cannot start a client")?))
    };
    let mut server = Server::new(bmi)?;
    // Ended before the server is.
    let _crowd: Vec<_> = (0..clients).map(start).collect::<Result<_, _>>()?;
    server.run(clients, time)
}

/// A client that does not outlive this value.
#[derive(Debug)]
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[derive(Debug)]
struct Server {
    bmi: Bmi,
    context: selvedge_bmi::ContextId,
    /// How often each was served.
    served: Vec<(Addr, u64)>,
}

impl Server {
    fn new(bmi: Bmi) -> anyhow::Result<Self> {
        Ok(Self {
            context: bmi.open_context()?,
            bmi,
            served: Vec::new(),
        })
    }

    fn run(&mut self, clients: usize, time: Duration) -> anyhow::Result<Served> {
        let patience = Instant::now() + Duration::from_secs(60);
        while self.served.len() < clients {
            ensure!(
                Instant::now() < patience,
                "only {} clients came",
                self.served.len()
            );
            self.turn()?;
        }
        // What was served before all were there is nobody's merit.
        self.served.iter_mut().for_each(|(_, count)| *count = 0);
        let begin = Instant::now();
        while begin.elapsed() < time {
            self.turn()?;
        }
        let counts = || self.served.iter().map(|(_, count)| *count);
        Ok(Served {
            clients,
            requests_per_s: counts().sum::<u64>() as f64 / begin.elapsed().as_secs_f64(),
            least: counts().min().unwrap_or_default(),
            most: counts().max().unwrap_or_default(),
        })
    }

    /// Takes what there is and answers each with an empty message.
    fn turn(&mut self) -> anyhow::Result<()> {
        let mut requests = Vec::with_capacity(64);
        let idle = Duration::from_millis(10);
        self.bmi.testunexpected(64, 0, idle, |request| {
            requests.push((request.addr, request.tag))
        })?;
        for (addr, tag) in requests {
            match self.served.iter_mut().find(|(known, _)| *known == addr) {
                Some((_, count)) => *count += 1,
                None => self.served.push((addr, 1)),
            }
            let answer = Post::new(addr, Vec::<u8>::new(), tag, self.context);
            self.bmi.post_send(answer)?;
        }
        self.bmi
            .testcontext(64, Duration::ZERO, self.context, |_| ())?;
        Ok(())
    }
}

/// Sends requests until it is killed.
///
/// # Errors
/// What BMI says.
pub fn client(args: &ClientArgs) -> anyhow::Result<()> {
    let bmi = Bmi::initialize(Config::client())?;
    let context = bmi.open_context()?;
    let peer = bmi.addr_lookup(&args.url)?;
    let ask = |tag: i32| -> anyhow::Result<()> {
        let answer = bmi.post_recv(Post::new(peer, Vec::<u8>::new(), tag, context))?;
        ensure!(
            matches!(answer, Posted::Pending(_)),
            "an answer before the question"
        );
        let request = Post::new(peer, vec![0_u8; args.size], tag, context).with_user(SENT);
        bmi.post_sendunexpected(request, 0)?;
        Ok(())
    };
    let mut tag = 0_i32;
    for _ in 0..args.window {
        ask(tag)?;
        tag = tag.wrapping_add(1);
    }
    loop {
        let (mut answered, mut failed) = (0, None);
        bmi.testcontext(64, Duration::from_millis(100), context, |done| {
            failed = failed.or_else(|| done.outcome.err());
            answered += usize::from(done.user != SENT);
        })?;
        ensure!(failed.is_none(), "{failed:?}");
        for _ in 0..answered {
            ask(tag)?;
            tag = tag.wrapping_add(1);
        }
    }
}

/// The word of requests; answers have none.
const SENT: u64 = 1;
