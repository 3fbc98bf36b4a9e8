//! Fairness between posts and threads that call `testcontext` in a loop: a post that waits for the
//! method's lock gets it before the next call of the method's progress.

#![expect(unsafe_code, reason = "implements the unsafe trait `Method`")]

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use selvedge_bmi::method::{Limits, Method, MethodAddr, RecvPost, SendPost, Setup, TryWait};
use selvedge_bmi::{
    Bmi, Code, Config, ContextId, Error, MethodQueues, Module, OpKey, Post, Result, Url,
};

use crate::common::{is_parked, until};

/// The method module `gate`. A test blocks the method's progress calls by shutting the gate.
#[derive(Debug, Default)]
struct Gate {
    /// Number of progress calls so far.
    progress_calls: AtomicU64,
    /// Progress calls block while this is set.
    is_shut: AtomicBool,
    /// Whether a progress call is blocked.
    has_blocked_call: AtomicBool,
    /// Number of progress calls when the last receive was posted.
    calls_at_post: AtomicU64,
}

/// The initialized method `gate`.
#[derive(Debug)]
struct GateMethod(&'static Gate);

impl Module for &'static Gate {
    fn scheme(&self) -> &str {
        "gate"
    }

    fn initialize(&self, _: &Setup) -> Result<Box<dyn Method>, Error> {
        Ok(Box::new(GateMethod(self)))
    }
}

// SAFETY: no memory is accessed.
unsafe impl Method for GateMethod {
    fn limits(&self) -> Limits {
        Limits {
            size: 1,
            unexpected: 1,
            segments: 1,
        }
    }

    fn addr_lookup(&mut self, _: &Url) -> Result<MethodAddr, Error> {
        Ok(MethodAddr(0))
    }

    fn addr_forget(&mut self, _: MethodAddr) {}

    fn host(&self, _: MethodAddr) -> String {
        "gate".to_owned()
    }

    fn is_in_range(&self, _: MethodAddr, _: &str, _: Option<u8>) -> Result<bool> {
        Ok(false)
    }

    unsafe fn post_send(&mut self, _: OpKey, _: &SendPost<'_>, _: &mut MethodQueues) -> Result {
        Err(Code::ENOSYS)
    }

    unsafe fn post_recv(
        &mut self,
        key: OpKey,
        _: &RecvPost<'_>,
        queues: &mut MethodQueues,
    ) -> Result {
        let calls = self.0.progress_calls.load(Ordering::SeqCst);
        self.0.calls_at_post.store(calls, Ordering::SeqCst);
        queues.complete(key, Ok(0));
        Ok(())
    }

    fn cancel(&mut self, _: OpKey, _: &mut MethodQueues) {}

    fn progress(&mut self, _: &mut MethodQueues) {
        self.0.progress_calls.fetch_add(1, Ordering::SeqCst);
        until("the gate to open", || {
            let is_shut = self.0.is_shut.load(Ordering::SeqCst);
            self.0.has_blocked_call.store(is_shut, Ordering::SeqCst);
            thread::yield_now();
            (!is_shut).then_some(())
        });
    }

    fn try_wait(&mut self, _: &mut MethodQueues) -> TryWait {
        TryWait::ParkAtMost(Duration::from_micros(50))
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Sets the flag when it is dropped, also during a panic, so that threads that poll the flag end.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Posts a receive while a progress call is blocked, and opens the gate when the post waits for the
/// method's lock. Returns the number of further progress calls before the post.
fn progress_calls_before_post(bmi: &Bmi, gate: &Gate, context: ContextId) -> u64 {
    let peer = bmi.addr_lookup("gate://here:1").unwrap();
    gate.is_shut.store(true, Ordering::SeqCst);
    until("a blocked progress call", || {
        thread::yield_now();
        gate.has_blocked_call.load(Ordering::SeqCst).then_some(())
    });
    let blocked_call = gate.progress_calls.load(Ordering::SeqCst);
    let poster = AtomicI32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            poster.store(nix::unistd::gettid().as_raw(), Ordering::SeqCst);
            bmi.post_recv(Post::new(peer, vec![0], 1, context)).unwrap();
        });
        until("a post that waits for the lock", || {
            thread::yield_now();
            let poster = poster.load(Ordering::SeqCst);
            (poster != 0 && is_parked(poster)).then_some(())
        });
        gate.is_shut.store(false, Ordering::SeqCst);
    });
    gate.calls_at_post.load(Ordering::SeqCst) - blocked_call
}

#[test]
fn a_waiting_post_runs_before_the_next_progress_call() {
    for max_idle_ms in [0, 100] {
        let gate: &'static Gate = Box::leak(Box::default());
        let module: &'static dyn Module = Box::leak(Box::new(gate));
        let bmi = Bmi::with_modules(Config::client(), vec![module]).unwrap();
        let context = bmi.open_context().unwrap();
        bmi.addr_lookup("gate://here:1").unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _end = SetOnDrop(&is_over);
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    let max_idle = Duration::from_millis(max_idle_ms);
                    bmi.testcontext(1, max_idle, context, |_| ()).unwrap();
                }
            });
            for _ in 0..10 {
                assert_eq!(progress_calls_before_post(&bmi, gate, context), 0);
            }
        });
    }
}
