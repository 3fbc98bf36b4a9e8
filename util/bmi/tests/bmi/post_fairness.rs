//! Posts beside threads that test continuously: a post that waits for the method's lock makes the
//! next call to the method.

#![expect(unsafe_code, reason = "the promise of a method")]

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use selvedge_bmi::method::{Limits, Method, MethodAddr, RecvPost, SendPost, Setup, TryWait};
use selvedge_bmi::{
    Bmi, Code, Config, ContextId, Error, MethodQueues, Module, OpKey, Post, Result, Url,
};

use crate::common::{is_parked, until};

/// The method `gate`. Its progress passes are counted and block until a test opens the gate.
#[derive(Debug, Default)]
struct Gate {
    passes: AtomicU64,
    /// Passes block while this is set.
    is_shut: AtomicBool,
    /// A pass is blocked at the gate.
    is_inside: AtomicBool,
    /// Number of passes when the last receive was posted.
    posted_after: AtomicU64,
}

#[derive(Debug)]
struct Open(&'static Gate);

impl Module for &'static Gate {
    fn scheme(&self) -> &str {
        "gate"
    }

    fn initialize(&self, _: &Setup) -> Result<Box<dyn Method>, Error> {
        Ok(Box::new(Open(self)))
    }
}

// SAFETY: no memory is accessed.
unsafe impl Method for Open {
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
        let passes = self.0.passes.load(Ordering::SeqCst);
        self.0.posted_after.store(passes, Ordering::SeqCst);
        queues.complete(key, Ok(0));
        Ok(())
    }

    fn cancel(&mut self, _: OpKey, _: &mut MethodQueues) {}

    fn progress(&mut self, _: &mut MethodQueues) {
        self.0.passes.fetch_add(1, Ordering::SeqCst);
        until("the gate to open", || {
            let is_shut = self.0.is_shut.load(Ordering::SeqCst);
            self.0.is_inside.store(is_shut, Ordering::SeqCst);
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

/// Sets the flag when it is dropped, also by a panic, so that the threads that read it end.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Posts a receive while a pass is blocked, and opens the gate when the post waits for the lock.
/// Returns the number of further passes before the post.
fn passes_before_post(bmi: &Bmi, gate: &Gate, context: ContextId) -> u64 {
    let peer = bmi.addr_lookup("gate://here:1").unwrap();
    gate.is_shut.store(true, Ordering::SeqCst);
    until("a pass", || {
        thread::yield_now();
        gate.is_inside.load(Ordering::SeqCst).then_some(())
    });
    let passes = gate.passes.load(Ordering::SeqCst);
    let poster = AtomicI32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            poster.store(nix::unistd::gettid().as_raw(), Ordering::SeqCst);
            bmi.post_recv(Post::new(peer, vec![0], 1, context)).unwrap();
        });
        until("a post that waits", || {
            thread::yield_now();
            let poster = poster.load(Ordering::SeqCst);
            (poster != 0 && is_parked(poster)).then_some(())
        });
        gate.is_shut.store(false, Ordering::SeqCst);
    });
    gate.posted_after.load(Ordering::SeqCst) - passes
}

#[test]
fn a_waiting_post_runs_before_the_next_progress_pass() {
    for idle in [0, 100] {
        let gate: &'static Gate = Box::leak(Box::default());
        let module: &'static dyn Module = Box::leak(Box::new(gate));
        let bmi = Bmi::with_modules(Config::client(), vec![module]).unwrap();
        let context = bmi.open_context().unwrap();
        bmi.addr_lookup("gate://here:1").unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _ending = Ending(&is_over);
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    let idle = Duration::from_millis(idle);
                    bmi.testcontext(1, idle, context, |_| ()).unwrap();
                }
            });
            for _ in 0..10 {
                assert_eq!(passes_before_post(&bmi, gate, context), 0);
            }
        });
    }
}
