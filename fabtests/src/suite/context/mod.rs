//! The context of a test: the process's number, endpoints, messages, and checks.
//!
//! A test is one function that each of its processes runs. docs/FABTESTS-REFERENCE.md shows how to
//! write one.

mod api;
mod case;
pub(crate) mod contexts;
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

pub(crate) use api::Api;
pub(crate) use case::CollectiveCase;
pub(crate) use open::{Setup, TestProcess, skip_missing};
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

/// The result of a test.
pub(crate) type Result<T = ()> = anyhow::Result<T>;

/// The context of a test.
pub(crate) struct TestContext {
    pub(crate) test: &'static Test,
    pub(crate) provider: String,
    pub(crate) ep_type: EpType,
    pub(crate) api: Api,
    pub(crate) set: Set,
    seed: u64,
    me: usize,
    count: usize,
    control: Control,
    registry: Registry,
    endpoints: Vec<TestEndpoint>,
    memories: Vec<Memory>,
    next_key: u64,
}

/// The test needs a capability that the provider lacks.
#[derive(Debug)]
pub(crate) struct Skipped(pub(crate) String);

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skipped {}

impl TestContext {
    /// This process's number.
    pub(crate) fn me(&self) -> usize {
        self.me
    }

    /// Number of processes.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// All processes except this one.
    pub(crate) fn peers(&self) -> impl Iterator<Item = usize> + use<> {
        let me = self.me;
        (0..self.count).filter(move |&process| process != me)
    }

    /// `quick` in the quick set, `standard` in larger sets.
    pub(crate) fn scale(&self, quick: usize, standard: usize) -> usize {
        match self.set {
            Set::Quick => quick,
            Set::Standard | Set::All => standard,
        }
    }

    /// Random numbers of this process: the same for the same seed.
    pub(crate) fn random(&self) -> Random {
        Random::new(self.seed ^ (self.me as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Random numbers that are the same in all processes.
    pub(crate) fn common_random(&self) -> Random {
        Random::new(self.seed)
    }

    /// Message `number` from this process to another.
    pub(crate) fn payload(&self, to: usize, number: usize, len: usize) -> Vec<u8> {
        self.payload_of(self.me, to, number, len)
    }

    /// Message `number` from one process to another.
    pub(crate) fn payload_of(&self, from: usize, to: usize, number: usize, len: usize) -> Vec<u8> {
        payload::write(self.seed, stamp(from, to, number), len)
    }

    /// Checks that these bytes are message `number` from process `from` to this one.
    ///
    /// # Errors
    /// They differ.
    pub(crate) fn verify(&self, from: usize, number: usize, bytes: &[u8]) -> Result {
        payload::verify(self.seed, stamp(from, self.me, number), bytes)
    }

    /// Returns sender and number of a message, which must be intact and for this process.
    ///
    /// # Errors
    /// It is not.
    pub(crate) fn read(&self, bytes: &[u8]) -> Result<(usize, usize)> {
        let stamp = payload::read(self.seed, bytes)?;
        ensure!(
            stamp.to == self.me as u32,
            "message {stamp:?} was received by process {}",
            self.me
        );
        Ok((stamp.from as usize, stamp.number as usize))
    }

    /// Waits until all processes have arrived. Meanwhile this process's endpoints make progress.
    ///
    /// # Errors
    /// A process does not arrive in time.
    pub(crate) fn barrier(&mut self) -> Result {
        self.exchange(&()).map(drop)
    }

    /// Sends a value to all other processes and returns the values of all, in the order of the
    /// processes.
    ///
    /// # Errors
    /// As [`Self::barrier`].
    pub(crate) fn exchange<T: Serialize + DeserializeOwned>(&mut self, own: &T) -> Result<Vec<T>> {
        // The other processes may have more to do than this one, and wait several times.
        let until = std::time::Instant::now() + 6 * timeout::limit();
        let endpoints = &self.endpoints;
        let all = self
            .control
            .exchange(serde_json::to_value(own)?, until, || {
                std::thread::yield_now();
                endpoints.iter().try_for_each(TestEndpoint::progress)
            })?;
        let read = |value| serde_json::from_value(value).map_err(|error| anyhow!(error));
        all.into_iter().map(read).collect()
    }

    /// As [`Self::barrier`], but this process blocks and makes no progress.
    ///
    /// # Errors
    /// The runner has ended.
    pub(crate) fn blocking_barrier(&mut self) -> Result {
        self.control.exchange_blocking(serde_json::Value::Null)?;
        Ok(())
    }

    /// Memory that peers may read and write.
    ///
    /// # Errors
    /// The error of the domain.
    pub(crate) fn memory(
        &mut self,
        endpoint: &TestEndpoint,
        maker: Maker,
        len: usize,
    ) -> Result<Memory> {
        self.memory_with(
            endpoint,
            maker,
            len,
            MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE,
        )
    }

    /// Memory with these access rights.
    ///
    /// # Errors
    /// The error of the domain.
    pub(crate) fn memory_with(
        &mut self,
        endpoint: &TestEndpoint,
        maker: Maker,
        len: usize,
        access: MrAccess,
    ) -> Result<Memory> {
        self.next_key += 1;
        let memory = Memory::new(&*endpoint.domain, maker, len, access, self.next_key)?;
        self.memories.push(memory.clone());
        Ok(memory)
    }

    /// Closes a memory region.
    pub(crate) fn close(&mut self, memory: Memory) {
        let name = memory.remote();
        self.memories.retain(|own| own.remote() != name);
        drop(memory);
    }

    /// Publishes the address of this process's memory, and returns the addresses of all.
    ///
    /// # Errors
    /// As [`Self::barrier`].
    pub(crate) fn exchange_addresses(
        &mut self,
        endpoint: &TestEndpoint,
        memory: &Memory,
    ) -> Result<Vec<RemoteAddr>> {
        let names = self.exchange(&memory.remote())?;
        let indexed = names.into_iter().enumerate();
        Ok(indexed
            .map(|(process, (addr, key))| RemoteAddr {
                peer: endpoint.to(process),
                addr,
                key,
            })
            .collect())
    }

    /// Closes all endpoints after a barrier; no operation may be outstanding.
    ///
    /// # Errors
    /// As [`Self::barrier`], or operations are outstanding.
    pub(crate) fn close_endpoints(&mut self) -> Result {
        self.barrier()?;
        self.endpoints
            .iter()
            .try_for_each(TestEndpoint::assert_idle)?;
        self.close_ports_at_once();
        Ok(())
    }

    /// Closes all endpoints, even with outstanding operations.
    pub(crate) fn close_ports_at_once(&mut self) {
        self.endpoints.clear();
    }

    /// Closes the endpoint that was opened last.
    ///
    /// # Errors
    /// Operations are outstanding.
    pub(crate) fn close_last_endpoint(&mut self) -> Result {
        self.endpoints
            .pop()
            .map_or(Ok(()), |endpoint| endpoint.assert_idle())
    }

    /// The address of this process's memory for accesses by itself.
    pub(crate) fn local_address(&self, endpoint: &TestEndpoint, memory: &Memory) -> RemoteAddr {
        let (addr, key) = memory.remote();
        let peer = endpoint.to(self.me);
        RemoteAddr { peer, addr, key }
    }

    /// Ends the test: nothing is closed before a barrier, and no operation may be outstanding.
    fn end(&mut self) -> Result {
        self.barrier()?;
        self.memories.clear();
        let endpoints = std::mem::take(&mut self.endpoints);
        endpoints.iter().try_for_each(TestEndpoint::assert_idle)
    }
}

fn stamp(from: usize, to: usize, number: usize) -> Stamp {
    Stamp {
        from: from as u32,
        to: to as u32,
        number: number as u32,
    }
}
