//! Threads that are parked for one endpoint: none of them sleeps on because another one consumed its
//! wake-up and left.
//!
//! An application's thread wants the first of two commands, takes whatever it finds, and leaves. The
//! thread of automatic progress wants both.

use std::sync::Arc;

use loom::sync::{Condvar, Mutex};
use loom::thread;
use selvedge_shm::smr::cmd_queue::Receiver;
use selvedge_shm::smr::parking::Parking;
use selvedge_shm::smr::poll_state::{WakeRecord, WakeUp, fence_before_last_poll};
use selvedge_shm::smr::{PeerRegion, Region};

use super::{explore, fails, region, seen};

/// The behaviour of the application's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Application {
    /// It parks until its command is there.
    Waits,
    /// It makes progress once, on the way of a post.
    Posts,
}

/// Whether the rule that a model is about is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// A thread that consumes a wake-up wakes the threads that relied on it.
    Kept,
    /// It leaves them to the next progress by somebody else.
    Broken,
}

/// The owner's threads, and how many commands each of them waits for.
const APPLICATION: usize = 0;
const AUTOMATIC: usize = 1;
const GOALS: [usize; 2] = [1, COUNT];
/// Commands in all.
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
    /// A peer sends a packet that wakes.
    fn send(&self) {
        self.inner.lock().unwrap().packets += 1;
        self.ready.notify_all();
    }

    /// Reads what is in the socket: whether there was something.
    fn receive(&self) -> bool {
        std::mem::take(&mut self.inner.lock().unwrap().packets) > 0
    }

    /// Wakes those threads that are parked, or about to park.
    fn ring(&self, which: impl Fn(usize) -> bool) {
        let mut inner = self.inner.lock().unwrap();
        for thread in 0..2 {
            if which(thread) && std::mem::take(&mut inner.parked[thread]) {
                inner.bells[thread] = true;
            }
        }
        self.ready.notify_all();
    }

    fn lie_down(&self, thread: usize) {
        let mut inner = self.inner.lock().unwrap();
        inner.bells[thread] = false;
        inner.parked[thread] = true;
    }

    /// Sleeps until the socket or the thread's own bell is ready: a packet that another thread reads
    /// first wakes nobody.
    fn sleep(&self, thread: usize) {
        let mut inner = self.inner.lock().unwrap();
        while !inner.is_ready(thread) {
            inner = self.ready.wait(inner).unwrap();
        }
    }

    /// Whether the thread would wake up.
    fn is_ready(&self, thread: usize) -> bool {
        self.inner.lock().unwrap().is_ready(thread)
    }
}

/// The state that the endpoint's lock protects.
struct State {
    rx: Receiver,
    theirs: Region,
    parking: Parking,
    night: u64,
    wake_up: WakeUp,
    taken: usize,
}

struct Endpoint {
    state: Mutex<State>,
    kernel: Arc<Kernel>,
    rule: Rule,
}

impl Endpoint {
    /// Receives what the peer says and sends.
    fn progress(&self, state: &mut State) -> usize {
        if self.kernel.receive() {
            state.wake_up.spend();
            if state.parking.spend() && self.rule == Rule::Kept {
                self.kernel.ring(|_| true);
            }
        }
        self.poll(state)
    }

    /// Takes commands, and wakes the threads that wait for as many.
    fn poll(&self, state: &mut State) -> usize {
        let before = state.taken;
        while state.rx.peek().is_some() {
            state.rx.release();
            state.taken += 1;
        }
        if state.taken > before {
            self.kernel.ring(|thread| state.taken >= GOALS[thread]);
        }
        state.taken - before
    }

    /// Whether the thread that asks may sleep.
    fn rest(&self) -> bool {
        let state = &mut *self.state.lock().unwrap();
        if self.progress(state) > 0 {
            return false;
        }
        state.parking.arm();
        let night = state.night + 1;
        if state.wake_up.arm(&state.theirs, || night) {
            state.night = night;
            assert!(fence_before_last_poll());
        }
        self.poll(state) == 0 && state.parking.may_park()
    }

    fn is_done(&self, thread: usize) -> bool {
        self.state.lock().unwrap().taken >= GOALS[thread]
    }

    /// Waits until the thread's commands were taken, by whatever thread; `sleep` returns when it is
    /// woken.
    fn wait(&self, thread: usize, mut sleep: impl FnMut()) {
        while !self.is_done(thread) {
            self.kernel.lie_down(thread);
            if !self.is_done(thread) && self.rest() {
                sleep();
                self.progress(&mut self.state.lock().unwrap());
            }
        }
    }
}

fn produce(ours: &Region, consumer: &PeerRegion, kernel: &Kernel) {
    let (mut tx, mut caller) = (ours.cmd_sender(), WakeRecord::default());
    for number in 0..COUNT {
        tx.claim().unwrap().commit(number as u32);
        if !consumer.is_polling()
            && let Some(night) = caller.epoch_to_wake(consumer)
        {
            kernel.send();
            caller.record_wake(night);
        }
    }
}

fn both_threads_end(application: Application, rule: Rule) {
    let (ours, theirs) = (region(), region());
    let (rx, consumer) = (seen(&ours).cmd_receiver(), seen(&theirs));
    let kernel = Arc::new(Kernel::default());
    let endpoint = Arc::new(Endpoint {
        state: Mutex::new(State {
            rx,
            theirs,
            parking: Parking::default(),
            night: 0,
            wake_up: WakeUp::default(),
            taken: 0,
        }),
        kernel: Arc::clone(&kernel),
        rule,
    });
    let producer = thread::spawn(move || produce(&ours, &consumer, &kernel));
    let leaving = {
        let endpoint = Arc::clone(&endpoint);
        thread::spawn(move || match application {
            Application::Waits => {
                endpoint.wait(APPLICATION, || endpoint.kernel.sleep(APPLICATION));
            }
            Application::Posts => drop(endpoint.progress(&mut endpoint.state.lock().unwrap())),
        })
    };
    let mut others = vec![producer, leaving];
    endpoint.wait(AUTOMATIC, || {
        // Nothing happens any more when the others have ended.
        for other in others.drain(..) {
            other.join().unwrap();
        }
        let is_ready = endpoint.kernel.is_ready(AUTOMATIC);
        assert!(is_ready, "it sleeps though nobody will wake it");
    });
    for other in others {
        other.join().unwrap();
    }
}

#[test]
fn a_thread_that_leaves_its_wait_leaves_no_other_parked() {
    explore(|| both_threads_end(Application::Waits, Rule::Kept));
}

#[test]
fn a_post_that_consumes_a_wake_up_leaves_no_thread_parked() {
    explore(|| both_threads_end(Application::Posts, Rule::Kept));
}

#[test]
fn a_wake_up_that_a_leaving_thread_keeps_to_itself_is_noticed() {
    assert!(fails(|| both_threads_end(Application::Waits, Rule::Broken)));
    assert!(fails(|| both_threads_end(Application::Posts, Rule::Broken)));
}
