//! Findings about the provider itself: a message between two endpoints, and its descriptors.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::sys::resource::{Resource, getrlimit};
use selvedge::owned::{Completions, Endpoint, Pool};
use selvedge::{AddressVector, Caps, Context, FiAddr, Hints, Registry, av};

use super::finding::{Finding, Severity};

/// Sends a message between two endpoints of this process.
pub(super) fn messages() -> Finding {
    const NAME: &str = "messages";
    match exchange() {
        Ok(needed) => Finding::good(
            NAME,
            format!(
                "two endpoints opened and exchanged a message in {} us",
                needed.as_micros()
            ),
            "the provider works",
        ),
        Err(error) => Finding::new(
            NAME,
            Severity::Broken,
            format!("{error:#}"),
            "the provider does not work on this machine",
        )
        .advise("See which of the findings below is broken."),
    }
}

/// Estimates how many peers the limit of descriptors allows.
pub(super) fn descriptors() -> Finding {
    const NAME: &str = "descriptors";
    /// Number of peers that is enough: the processes of a medium-sized machine.
    const ENOUGH: u64 = 256;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((0, 0));
    let needed = match descriptors_of_a_peer() {
        Ok(needed) => needed,
        Err(error) => {
            let found = format!("not measured: {error:#}");
            return Finding::new(
                NAME,
                Severity::Note,
                found,
                "see the finding about messages",
            );
        }
    };
    let peers = soft.saturating_sub(count() as u64) / needed.max(1);
    let found = format!("{soft} (at most {hard}); a peer takes {needed}");
    if peers >= ENOUGH {
        return Finding::good(NAME, found, format!("room for about {peers} peers"));
    }
    Finding::new(
        NAME,
        Severity::Note,
        found,
        format!("room for about {peers} peers; connecting to more fails"),
    )
    .advise("Raise the limit (ulimit -n).")
}

struct Side {
    ep: Endpoint,
    av: Arc<dyn AddressVector>,
    pool: Pool,
}

fn open() -> anyhow::Result<Side> {
    let registry = Registry::new().with(&selvedge_shm::PROVIDER);
    let info = registry.infos(&Hints::new().caps(Caps::TAGGED))?.remove(0);
    let domain = info.open()?;
    let av = domain.av(&av::Attr::default())?;
    let ep = Endpoint::open(&*domain, &info, Arc::clone(&av))?;
    let pool = Pool::new(&*domain, 64, 2)?;
    Ok(Side { ep, av, pool })
}

fn exchange() -> anyhow::Result<Duration> {
    let start = Instant::now();
    let (from, to) = (open()?, open()?);
    send(&from, &to)?;
    Ok(start.elapsed())
}

/// Calls a function while two endpoints of this process are open that have exchanged a message.
pub(super) fn while_connected<T>(observe: impl FnOnce() -> T) -> anyhow::Result<T> {
    let (from, to) = (open()?, open()?);
    send(&from, &to)?;
    Ok(observe())
}

/// Sends a message and receives it.
fn send(from: &Side, to: &Side) -> anyhow::Result<()> {
    const TIMEOUT: Duration = Duration::from_secs(2);
    const TEXT: &[u8] = b"a test message";
    let dest = from.av.insert_one(&to.ep.address()?)?;
    let buffer = to.pool.take().context("no buffer")?;
    let mut text = from.pool.take().context("no buffer")?;
    text.write(TEXT)?;
    to.ep.trecv(buffer, FiAddr::UNSPEC, 1, Context(1))?;
    from.ep.tsend(text, dest, 1, Context(2))?;
    let (start, mut sent, mut received) = (Instant::now(), 0, Completions::with_capacity(1));
    let mut done = Completions::with_capacity(1);
    while sent == 0 || received.is_empty() {
        sent += from.ep.poll(&mut done)?;
        to.ep.poll(&mut received)?;
        ensure!(
            start.elapsed() < TIMEOUT,
            "the message did not arrive within {TIMEOUT:?}"
        );
    }
    for completion in done.drain().chain(received.drain()) {
        completion.result.map_err(|error| error.errno)?;
        ensure!(completion.buf[..] == *TEXT, "the message is corrupted");
    }
    Ok(())
}

fn descriptors_of_a_peer() -> anyhow::Result<u64> {
    let (from, to) = (open()?, open()?);
    let before = count();
    send(&from, &to)?;
    // This process holds the descriptors of both sides of the connection.
    Ok((count() - before).div_ceil(2) as u64)
}

fn count() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}
