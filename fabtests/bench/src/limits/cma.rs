//! Cross-memory attach: one process reads the other's memory by `process_vm_readv(2)`.

use std::io::IoSliceMut;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, ensure};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::{Pid, getpid};

use super::shared::Layout;
use crate::machine::cpu::Idle;
use crate::measure::clock::Clock;
use crate::measure::timing::{Counts, Timing, round_trips};

/// Two shared words in which the passive process publishes the memory to read.
#[derive(Debug)]
pub(super) struct CmaTarget<'a> {
    pid: &'a AtomicU64,
    base: &'a AtomicU64,
}

impl<'a> CmaTarget<'a> {
    pub(super) fn new(layout: &'a Layout) -> Self {
        Self {
            pid: &layout.cma_pid.0,
            base: &layout.cma_base.0,
        }
    }

    pub(super) fn measure(
        &self,
        buffer: &mut [u8],
        idle: Idle,
        clock: Clock,
        counts: Counts,
    ) -> anyhow::Result<Timing> {
        let remote = self.wait_for_target(buffer.len(), idle);
        let peer = Pid::from_raw(self.pid.load(Ordering::Relaxed) as i32);
        let timing = round_trips(clock, counts, || {
            let read = process_vm_readv(peer, &mut [IoSliceMut::new(buffer)], &[remote])
                .context("process_vm_readv failed")?;
            ensure!(
                read == buffer.len(),
                "process_vm_readv read {read} of {} bytes",
                buffer.len()
            );
            Ok(())
        });
        self.base.store(0, Ordering::Release);
        timing
    }

    /// Publishes `buffer` and waits until the active process has finished its reads.
    pub(super) fn respond(&self, buffer: &[u8]) {
        self.pid.store(getpid().as_raw() as u64, Ordering::Relaxed);
        self.base
            .store(buffer.as_ptr().addr() as u64, Ordering::Release);
        while self.base.load(Ordering::Acquire) != 0 {
            std::thread::yield_now();
        }
    }

    fn wait_for_target(&self, len: usize, idle: Idle) -> RemoteIoVec {
        loop {
            match self.base.load(Ordering::Acquire) {
                0 => idle.wait_between_polls(),
                base => {
                    break RemoteIoVec {
                        base: base as usize,
                        len,
                    };
                }
            }
        }
    }
}
