//! What a test is given: who it is, ports to its peers, messages, and checks.
//!
//! A test is one function that every one of its processes runs. docs/FABTESTS.md shows how to write
//! one.

mod case;
pub(crate) mod contexts;
mod face;
pub(crate) mod fork;
pub(crate) mod group;
mod leaks;
mod open;
mod test;

use std::fmt;

use anyhow::{anyhow, ensure};
use selvedge::info::EpType;
use selvedge::{MrAccess, Registry};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use case::Case;
pub(crate) use face::Kind as Face;
pub(crate) use open::{Player, Setup, missing};
pub(crate) use selvedge_testkit::endpoint::{
    Atomic, Completion, Notify, Post, Read, RemoteAddr, Rx, RxKind, TestEndpoint, Tx, Write,
    queue_count,
};
pub(crate) use selvedge_testkit::memory::{Maker, Memory};
pub(crate) use selvedge_testkit::payload::Stamp;
pub(crate) use selvedge_testkit::random::Random;
pub(crate) use selvedge_testkit::{check, memory, payload, timeout};
pub(crate) use test::{CONNECTED, POLLED, RAW, Test};

use super::control::Control;
use super::entry::Set;

/// What a test answers.
pub(crate) type Result<T = ()> = anyhow::Result<T>;

/// What a test is given.
pub(crate) struct Cx {
    pub(crate) test: &'static Test,
    pub(crate) provider: String,
    pub(crate) ep_type: EpType,
    pub(crate) face: Face,
    pub(crate) set: Set,
    seed: u64,
    me: usize,
    count: usize,
    control: Control,
    registry: Registry,
    ports: Vec<TestEndpoint>,
    memories: Vec<Memory>,
    next_key: u64,
}

/// The test needs something that is not there.
#[derive(Debug)]
pub(crate) struct Skipped(pub(crate) String);

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skipped {}

impl Cx {
    /// This process's number.
    pub(crate) fn me(&self) -> usize {
        self.me
    }

    /// How many processes there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// All but this one.
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let me = self.me;
        (0..self.count).filter(move |&process| process != me)
    }

    /// How often, or how many: the one in the quick set, the other one in larger ones.
    pub(crate) fn scale(&self, quick: usize, standard: usize) -> usize {
        match self.set {
            Set::Quick => quick,
            Set::Standard | Set::All => standard,
        }
    }

    /// Random numbers of this process: the same ones for the same seed.
    pub(crate) fn random(&self) -> Random {
        Random::new(self.seed ^ (self.me as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Random numbers that all processes have alike.
    pub(crate) fn common_random(&self) -> Random {
        Random::new(self.seed)
    }

    /// Message `number` from this process to another.
    pub(crate) fn payload(&self, to: usize, number: usize, len: usize) -> Vec<u8> {
        self.payload_of(self.me, to, number, len)
    }

    /// Message `number` of one process to another.
    pub(crate) fn payload_of(&self, from: usize, to: usize, number: usize, len: usize) -> Vec<u8> {
        payload::write(self.seed, stamp(from, to, number), len)
    }

    /// Makes sure that these bytes are message `number` from that process to this one.
    ///
    /// # Errors
    /// What they are instead.
    pub(crate) fn verify(&self, from: usize, number: usize, bytes: &[u8]) -> Result {
        payload::verify(self.seed, stamp(from, self.me, number), bytes)
    }

    /// Says which message these bytes are; it must be whole, and for this process.
    ///
    /// # Errors
    /// When it is not.
    pub(crate) fn read(&self, bytes: &[u8]) -> Result<(usize, usize)> {
        let stamp = payload::read(self.seed, bytes)?;
        ensure!(
            stamp.to == self.me as u32,
            "{stamp:?} came to process {}",
            self.me
        );
        Ok((stamp.from as usize, stamp.number as usize))
    }

    /// Waits until all processes are here. Meanwhile this one's endpoints move on.
    ///
    /// # Errors
    /// When they do not come.
    pub(crate) fn barrier(&mut self) -> Result {
        self.tell(&()).map(drop)
    }

    /// Tells all others something and learns what they have to tell, in the order of the processes.
    ///
    /// # Errors
    /// As [`Self::barrier`].
    pub(crate) fn tell<T: Serialize + DeserializeOwned>(&mut self, own: &T) -> Result<Vec<T>> {
        // The others may have more to do than this process, and wait for something each time.
        let until = std::time::Instant::now() + 6 * timeout::limit();
        let ports = &self.ports;
        let all = self
            .control
            .exchange(serde_json::to_value(own)?, until, || {
                std::thread::yield_now();
                ports.iter().try_for_each(TestEndpoint::progress)
            })?;
        let read = |value| serde_json::from_value(value).map_err(|error| anyhow!(error));
        all.into_iter().map(read).collect()
    }

    /// As [`Self::barrier`], but this process sleeps until all are here, and makes no progress.
    ///
    /// # Errors
    /// When the runner is gone.
    pub(crate) fn sleep_until_all_are_here(&mut self) -> Result {
        self.control.exchange_asleep(serde_json::Value::Null)?;
        Ok(())
    }

    /// Memory that peers may do everything with.
    ///
    /// # Errors
    /// The domain's.
    pub(crate) fn memory(
        &mut self,
        port: &TestEndpoint,
        maker: Maker,
        len: usize,
    ) -> Result<Memory> {
        self.memory_with(
            port,
            maker,
            len,
            MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE,
        )
    }

    /// Memory with these rights.
    ///
    /// # Errors
    /// The domain's.
    pub(crate) fn memory_with(
        &mut self,
        port: &TestEndpoint,
        maker: Maker,
        len: usize,
        access: MrAccess,
    ) -> Result<Memory> {
        self.next_key += 1;
        let memory = Memory::new(&*port.domain, maker, len, access, self.next_key)?;
        self.memories.push(memory.clone());
        Ok(memory)
    }

    /// Ends the rights over memory, and gives it back.
    pub(crate) fn close(&mut self, memory: Memory) {
        let name = memory.remote();
        self.memories.retain(|own| own.remote() != name);
        drop(memory);
    }

    /// Tells all others where this process's memory is, and learns where theirs is.
    ///
    /// # Errors
    /// As [`Self::barrier`].
    pub(crate) fn places(
        &mut self,
        port: &TestEndpoint,
        memory: &Memory,
    ) -> Result<Vec<RemoteAddr>> {
        let names = self.tell(&memory.remote())?;
        let named = names.into_iter().enumerate();
        Ok(named
            .map(|(process, (addr, key))| RemoteAddr {
                peer: port.to(process),
                addr,
                key,
            })
            .collect())
    }

    /// Closes all ports, when all processes are here; nothing may be outstanding.
    ///
    /// # Errors
    /// As [`Self::barrier`]; what is outstanding.
    pub(crate) fn close_ports(&mut self) -> Result {
        self.barrier()?;
        self.ports.iter().try_for_each(TestEndpoint::assert_idle)?;
        self.close_ports_at_once();
        Ok(())
    }

    /// Closes all ports, whoever has something with them.
    pub(crate) fn close_ports_at_once(&mut self) {
        self.ports.clear();
    }

    /// Closes the port that was opened last, whoever has something with it.
    ///
    /// # Errors
    /// What is outstanding.
    pub(crate) fn close_last_port(&mut self) -> Result {
        self.ports.pop().map_or(Ok(()), |port| port.assert_idle())
    }

    /// Where this process's memory is, as itself names it.
    pub(crate) fn own_place(&self, port: &TestEndpoint, memory: &Memory) -> RemoteAddr {
        let (addr, key) = memory.remote();
        let peer = port.to(self.me);
        RemoteAddr { peer, addr, key }
    }

    /// The end of the test: nobody closes anything before all are here, and then nothing may be
    /// left.
    fn end(&mut self) -> Result {
        self.barrier()?;
        self.memories.clear();
        let ports = std::mem::take(&mut self.ports);
        ports.iter().try_for_each(TestEndpoint::assert_idle)
    }
}

fn stamp(from: usize, to: usize, number: usize) -> Stamp {
    Stamp {
        from: from as u32,
        to: to as u32,
        number: number as u32,
    }
}
