//! Threads that are parked for one endpoint: none stays parked because another thread consumed its
//! wake-up and left.
//!
//! An application's thread waits for the first of two commands, takes all that have arrived, and
//! leaves. The thread of automatic progress waits for both.

use std::sync::Arc;

use loom::sync::{Condvar, Mutex};
use loom::thread;
use selvedge_shm::smr::cmd_queue::Receiver;
use selvedge_shm::smr::parking::Parking;
use selvedge_shm::smr::poll_state::{WakeRecord, WakeUp, fence_before_last_poll};
use selvedge_shm::smr::{PeerRegion, Region};

use super::{attach_peer, explore, fails, region};

/// The behaviour of the application's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApplicationThread {
    /// It parks until its command has arrived.
    Waits,
    /// It makes progress once, during a post.
    Posts,
}

/// Whether the rule that the model checks is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// A thread that consumes a wake-up wakes the threads that relied on it.
    Kept,
    /// It does not wake them; they stay parked until some thread makes progress.
    Broken,
}

/// The indices of the endpoint's threads, and the number of commands that each thread awaits.
const APPLICATION: usize = 0;
const AUTOMATIC: usize = 1;
const COMMANDS_AWAITED: [usize; 2] = [1, COUNT];
/// The total number of commands.
const COUNT: usize = 2;

/// The kernel's part of an endpoint: its socket, and the bells of its parked threads.
#[derive(Debug, Default)]
struct Kernel {
    inner: Mutex<Inner>,
    ready: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    packets: usize,
    parked: [bool; 2],
    bells: [bool; 2],
}

impl Inner {
    fn is_ready(&self, thread: usize) -> bool {
        self.packets > 0 || self.bells[thread]
    }
}

impl Kernel {
    /// Sends the peer's packet, which wakes parked threads.
    fn send(&self) {
        self.inner.lock().unwrap().packets += 1;
        self.ready.notify_all();
    }

    /// Reads all packets. Returns whether there was one.
    fn receive(&self) -> bool {
        std::mem::take(&mut self.inner.lock().unwrap().packets) > 0
    }

    /// Wakes the threads that `which` selects, if they are parked or about to park.
    fn ring(&self, which: impl Fn(usize) -> bool) {
        let mut inner = self.inner.lock().unwrap();
        for thread in 0..2 {
            if which(thread) && std::mem::take(&mut inner.parked[thread]) {
                inner.bells[thread] = true;
            }
        }
        self.ready.notify_all();
    }

    fn register_parked(&self, thread: usize) {
        let mut inner = self.inner.lock().unwrap();
        inner.bells[thread] = false;
        inner.parked[thread] = true;
    }

    /// Parks until the socket or the thread's own bell is ready. If another thread reads the packet
    /// first, this thread stays parked.
    fn park(&self, thread: usize) {
        let mut inner = self.inner.lock().unwrap();
        while !inner.is_ready(thread) {
            inner = self.ready.wait(inner).unwrap();
        }
    }

    /// Whether a parked `thread` would wake up now.
    fn is_ready(&self, thread: usize) -> bool {
        self.inner.lock().unwrap().is_ready(thread)
    }
}

/// The state that the endpoint's lock protects.
struct State {
    rx: Receiver,
    remote: Region,
    parking: Parking,
    epoch: u64,
    wake_up: WakeUp,
    taken: usize,
}

struct Endpoint {
    state: Mutex<State>,
    kernel: Arc<Kernel>,
    rule: Rule,
}

impl Endpoint {
    /// Receives the peer's packets and commands. Returns the number of commands.
    fn progress(&self, state: &mut State) -> usize {
        if self.kernel.receive() {
            state.wake_up.spend();
            if state.parking.spend() && self.rule == Rule::Kept {
                self.kernel.ring(|_| true);
            }
        }
        self.poll(state)
    }

    /// Takes all commands that have arrived, and wakes the threads that await no more than the
    /// commands taken so far. Returns the number of commands that it took.
    fn poll(&self, state: &mut State) -> usize {
        let before = state.taken;
        while state.rx.peek().is_some() {
            state.rx.release();
            state.taken += 1;
        }
        if state.taken > before {
            self.kernel
                .ring(|thread| state.taken >= COMMANDS_AWAITED[thread]);
        }
        state.taken - before
    }

    /// Arms the endpoint. Returns whether the calling thread may park.
    fn arm(&self) -> bool {
        let state = &mut *self.state.lock().unwrap();
        if self.progress(state) > 0 {
            return false;
        }
        state.parking.arm();
        let epoch = state.epoch + 1;
        if state.wake_up.arm(&state.remote, || epoch) {
            state.epoch = epoch;
            assert!(fence_before_last_poll());
        }
        self.poll(state) == 0 && state.parking.may_park()
    }

    fn is_done(&self, thread: usize) -> bool {
        self.state.lock().unwrap().taken >= COMMANDS_AWAITED[thread]
    }

    /// Waits until the thread's commands were taken, by any thread; `park` returns on a wake-up.
    fn wait(&self, thread: usize, mut park: impl FnMut()) {
        while !self.is_done(thread) {
            self.kernel.register_parked(thread);
            if !self.is_done(thread) && self.arm() {
                park();
                self.progress(&mut self.state.lock().unwrap());
            }
        }
    }
}

fn produce(local: &Region, consumer: &PeerRegion, kernel: &Kernel) {
    let (mut tx, mut wake_record) = (local.cmd_sender(), WakeRecord::default());
    for number in 0..COUNT {
        tx.claim().unwrap().commit(number as u32);
        if !consumer.is_polling()
            && let Some(epoch) = wake_record.epoch_to_wake(consumer)
        {
            kernel.send();
            wake_record.record_wake(epoch);
        }
    }
}

fn both_threads_finish(application: ApplicationThread, rule: Rule) {
    let (local, remote) = (region(), region());
    let (rx, consumer) = (attach_peer(&local).cmd_receiver(), attach_peer(&remote));
    let kernel = Arc::new(Kernel::default());
    let endpoint = Arc::new(Endpoint {
        state: Mutex::new(State {
            rx,
            remote,
            parking: Parking::default(),
            epoch: 0,
            wake_up: WakeUp::default(),
            taken: 0,
        }),
        kernel: Arc::clone(&kernel),
        rule,
    });
    let producer = thread::spawn(move || produce(&local, &consumer, &kernel));
    let leaving = {
        let endpoint = Arc::clone(&endpoint);
        thread::spawn(move || match application {
            ApplicationThread::Waits => {
                endpoint.wait(APPLICATION, || endpoint.kernel.park(APPLICATION));
            }
            ApplicationThread::Posts => {
                endpoint.progress(&mut endpoint.state.lock().unwrap());
            }
        })
    };
    let mut others = vec![producer, leaving];
    endpoint.wait(AUTOMATIC, || {
        // No wake-up follows after the other threads have ended.
        for other in others.drain(..) {
            other.join().unwrap();
        }
        let is_ready = endpoint.kernel.is_ready(AUTOMATIC);
        assert!(is_ready, "it is parked without a wake-up");
    });
    for other in others {
        other.join().unwrap();
    }
}

#[test]
fn a_thread_that_leaves_its_wait_leaves_no_other_parked() {
    explore(|| both_threads_finish(ApplicationThread::Waits, Rule::Kept));
}

#[test]
fn a_post_that_consumes_a_wake_up_leaves_no_thread_parked() {
    explore(|| both_threads_finish(ApplicationThread::Posts, Rule::Kept));
}

#[test]
fn a_wake_up_that_a_leaving_thread_keeps_to_itself_is_noticed() {
    assert!(fails(|| both_threads_finish(
        ApplicationThread::Waits,
        Rule::Broken
    )));
    assert!(fails(|| both_threads_finish(
        ApplicationThread::Posts,
        Rule::Broken
    )));
}
