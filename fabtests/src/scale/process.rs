//! One process of the scale test: connects to all others and exchanges a message with each, round
//! by round.

use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use selvedge::owned::{Completions, Endpoint, Pool, TryPostError};
use selvedge::{Address, AddressVector, Caps, Context, Errno, FiAddr, Hints, Registry, av};
use selvedge_testkit::process::{next_line, reply_line};

/// Runs process `number` of `count` to its end.
///
/// # Errors
/// An operation fails, or a message is wrong.
pub fn run(number: usize, count: usize, rounds: u32) -> anyhow::Result<()> {
    let mut process = ScaleProcess::open(number, count)?;
    reply_line(&process.ep.address()?.to_string())?;
    let names = next_line()?;
    process.insert_peers(&names)?;
    reply_line("inserted")?;
    for round in 0..=rounds {
        next_line()?;
        process.exchange(round)?;
        reply_line("done")?;
    }
    // The parent reads figures and then kills this process.
    let _ = next_line();
    Ok(())
}

struct ScaleProcess {
    ep: Endpoint,
    av: Arc<dyn AddressVector>,
    pool: Pool,
    number: usize,
    peers: Vec<FiAddr>,
}

/// Bytes of a message: sender, receiver, round.
const MESSAGE_LEN: usize = 24;

impl ScaleProcess {
    fn open(number: usize, count: usize) -> anyhow::Result<Self> {
        let registry = Registry::new().with(&selvedge_shm::PROVIDER);
        let info = registry.infos(&Hints::new().caps(Caps::TAGGED))?.remove(0);
        let domain = info.open()?;
        let av = domain.av(&av::Attr::default())?;
        Ok(Self {
            ep: Endpoint::open(&*domain, &info, Arc::clone(&av))?,
            av,
            pool: Pool::new(&*domain, MESSAGE_LEN, 2 * count)?,
            number,
            peers: Vec::new(),
        })
    }

    /// Inserts the names of all processes, in the order of their numbers.
    fn insert_peers(&mut self, names: &str) -> anyhow::Result<()> {
        for name in names.split_whitespace() {
            let addr = self.av.insert_one(&Address::Str(name.to_owned()))?;
            self.peers.push(addr);
        }
        Ok(())
    }

    fn others(&self) -> impl Iterator<Item = usize> {
        let number = self.number;
        (0..self.peers.len()).filter(move |&other| other != number)
    }

    /// Sends a message to each other process, and receives one from each.
    fn exchange(&self, round: u32) -> anyhow::Result<()> {
        let mut completions = Completions::with_capacity(64);
        let mut outstanding = 0;
        for other in self.others() {
            let tag = other as u64;
            let buf = self.pool.take().context("no buffer")?;
            let posted = self
                .ep
                .trecv(buf, FiAddr::UNSPEC, tag, Context(RECEIVE | tag));
            posted.map_err(|refused| refused.errno)?;
            outstanding += 1;
        }
        // Each process begins with a different receiver, so that the processes do not all send to
        // one receiver at the same time.
        let count = self.peers.len();
        for step in 1..count {
            let other = (self.number + step) % count;
            self.send(other, round, &mut completions, &mut outstanding)?;
            outstanding += 1;
        }
        while outstanding > 0 {
            outstanding -= self.take_completions(round, &mut completions)?;
        }
        Ok(())
    }

    fn send(
        &self,
        other: usize,
        round: u32,
        completions: &mut Completions,
        outstanding: &mut usize,
    ) -> anyhow::Result<()> {
        let mut buf = self.pool.take().context("no buffer")?;
        buf.write(&message(self.number, other, round))?;
        loop {
            let tag = self.number as u64;
            match self
                .ep
                .tsend(buf, self.peers[other], tag, Context(other as u64))
            {
                Ok(_) => return Ok(()),
                Err(TryPostError {
                    errno: Errno::Again,
                    buf: returned,
                    ..
                }) => {
                    buf = returned;
                    *outstanding -= self.take_completions(round, completions)?;
                }
                Err(refused) => bail!("sending to process {other}: {}", refused.errno),
            }
        }
    }

    /// Takes completions, or yields the processor if there are none.
    fn take_completions(&self, round: u32, completions: &mut Completions) -> anyhow::Result<usize> {
        let count = self.ep.poll(completions)?;
        if count == 0 {
            std::thread::yield_now();
        }
        for completion in completions.drain() {
            let other = (completion.context.0 & !RECEIVE) as usize;
            let result = completion.result;
            result.map_err(|e| anyhow::anyhow!("process {other}: {}: {}", e.errno, e.detail))?;
            if completion.context.0 & RECEIVE != 0 {
                let expected = message(other, self.number, round);
                ensure!(
                    completion.buf[..] == expected,
                    "the message of process {other} is corrupted"
                );
            }
        }
        Ok(count)
    }
}

/// The bit that marks the context of a receive.
const RECEIVE: u64 = 1 << 32;

fn message(from: usize, to: usize, round: u32) -> [u8; MESSAGE_LEN] {
    let mut bytes = [0; MESSAGE_LEN];
    let words = [from as u64, to as u64, u64::from(round)];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}
