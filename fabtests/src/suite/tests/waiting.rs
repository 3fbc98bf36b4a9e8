//! Waiting: sleepers are woken, and sleep until then.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use selvedge::cq::Entry;
use selvedge::info::Progress;
use selvedge::{Caps, CompletionQueue, Errno, OpFlags, wait};

use crate::suite::cx::check::{holds, same};
use crate::suite::cx::timeout::limit;
use crate::suite::cx::{Completion, Cx, RAW, Result, Rx, Setup, Test, TestEndpoint, Tx};
use crate::suite::flaw::Flaw;

tests! {
    no_wake_up_is_lost(MSG) catches [NeverWakes] .faces(RAW);
    time_is_up(MSG) catches [CompletesTwice, NeverWakes] .faces(RAW);
    signals(MSG) catches [NoSignal] .faces(RAW).processes(1);
    descriptors(MSG) catches [DeadDescriptor, AlwaysTryWait] .faces(RAW);
    sleepers_sleep(MSG) catches [SpinsInWaits] .faces(RAW);
    progress_without_calls(MSG) catches [IgnoresHints] .faces(RAW);
}

const MSG: Caps = Caps::MSG;

fn port(cx: &mut Cx, wait: wait::Object) -> Result<TestEndpoint> {
    cx.port_with(&Setup {
        wait,
        ..Setup::default()
    })
}

/// Sleeps until there is a completion. What is read here is read past the port, which is told.
fn sleep(port: &TestEndpoint) -> Result<Completion> {
    if let Some(done) = port.poll()? {
        return Ok(done);
    }
    // With no room for entries a wait tells that there are some, and leaves them to the port.
    let start = Instant::now();
    loop {
        let mut entry = [Entry::default()];
        match port.cq().wait(&mut entry, Some(limit())) {
            Ok(0) | Err(Errno::Again) if start.elapsed() >= limit() => {
                return Err(anyhow!("nobody was woken within {:?}", limit()));
            }
            Ok(0) | Err(Errno::Again) => {}
            Ok(_) => return port.account_for(entry[0]),
            Err(Errno::Avail) => return port.next(),
            Err(errno) => return Err(anyhow!("waiting: {errno}")),
        }
    }
}

/// Two who answer each other and sleep in between, at all moments.
fn no_wake_up_is_lost(cx: &mut Cx) -> Result {
    let port = port(cx, wait::Object::Unspec)?;
    let mut random = cx.random();
    for round in 0..cx.scale(150, 5000) {
        let len = [8, 300, 20_000][round % 3];
        let receive = port.post(Rx::msg(len))?;
        if cx.me() == 0 {
            let pause = Duration::from_micros(random.below(400));
            let start = Instant::now();
            while start.elapsed() < pause {
                std::thread::yield_now();
            }
        }
        let send = port.post(Tx::msg(port.peer(), cx.payload(1 - cx.me(), round, len)))?;
        let mut outstanding = vec![receive, send];
        while !outstanding.is_empty() {
            let done = sleep(&port)?.expect_success()?;
            outstanding.retain(|context| *context != done.context);
            if done.context == receive {
                cx.verify(1 - cx.me(), round, &done.bytes)?;
            }
        }
    }
    Ok(())
}

/// A wait for nothing ends with its time and no entry; one for something, with that.
fn time_is_up(cx: &mut Cx) -> Result {
    let port = port(cx, wait::Object::Unspec)?;
    let time = Duration::from_millis(50);
    for round in 0..3 {
        let start = Instant::now();
        let mut entry = [Entry::default()];
        let waited = port.cq().wait(&mut entry, Some(time));
        same("a wait for nothing", waited, Err(Errno::Again))?;
        holds("it has taken its time", start.elapsed() >= time)?;
        cx.barrier()?;
        let receive = port.post(Rx::msg(16))?;
        let send = port.post(Tx::msg(port.peer(), cx.payload(1 - cx.me(), round, 16)))?;
        for _ in 0..2 {
            let done = sleep(&port)?.expect_success()?;
            holds("it is one of both", [receive, send].contains(&done.context))?;
        }
        cx.barrier()?;
    }
    Ok(())
}

/// A signal wakes whoever waits.
fn signals(cx: &mut Cx) -> Result {
    let port = port(cx, wait::Object::Unspec)?;
    for _ in 0..10 {
        let queue = port.cq();
        let (sender, woken) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let waiter = Arc::clone(&queue);
            scope.spawn(move || {
                let waited = waiter.wait(&mut [Entry::default()], Some(limit()));
                // Whoever listens may be gone.
                let _ = sender.send(waited);
            });
            let start = Instant::now();
            loop {
                same("a signal", queue.signal(), Ok(()))?;
                match woken.recv_timeout(Duration::from_millis(1)) {
                    Ok(waited) => {
                        same("a wait that is signalled", waited, Err(Errno::Again))?;
                        return holds("it ended by the signal", start.elapsed() < limit());
                    }
                    Err(_) if start.elapsed() > limit() => return holds("it ended", false),
                    Err(_) => {}
                }
            }
        })?;
    }
    Ok(())
}

/// The descriptor is ready when there is something, and nobody may sleep while there is.
fn descriptors(cx: &mut Cx) -> Result {
    let port = port(cx, wait::Object::Fd)?;
    let queue = port.cq();
    for round in 0..cx.scale(40, 1000) {
        if cx.me() == 0 {
            // Some come at once, and some to a receiver that sleeps.
            if round % 8 == 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
            port.run(Tx::msg(port.peer(), cx.payload(1, round, 64)))?;
            cx.barrier()?;
            continue;
        }
        let receive = port.post(Rx::msg(64))?;
        sleep_on_descriptor(&*queue)?;
        let done = port.wait_for(receive)?.expect_success()?;
        cx.verify(0, round, &done.bytes)?;
        cx.barrier()?;
    }
    if cx.me() == 1 {
        cx.barrier()?;
        // A completion that is unread.
        let receive = port.post(Rx::msg(8))?;
        cx.barrier()?;
        crate::suite::cx::timeout::until("the message", || {
            port.progress()?;
            Ok((queue.try_wait() == Err(Errno::Again)).then_some(()))
        })?;
        port.wait_for(receive)?.expect_success()?;
    } else {
        cx.barrier()?;
        port.run(Tx::msg(port.peer(), vec![1; 8]))?;
        cx.barrier()?;
    }
    Ok(())
}

/// Sleeps in poll(2) as fi_trywait(3) has it, until there is something to read.
fn sleep_on_descriptor(queue: &dyn CompletionQueue) -> Result {
    let start = Instant::now();
    while queue.try_wait().is_ok() {
        let fd: BorrowedFd<'_> = queue.wait_fd().ok_or_else(|| anyhow!("no descriptor"))?;
        let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
        let time = PollTimeout::try_from(limit()).unwrap_or(PollTimeout::MAX);
        let ready = poll(&mut fds, time)?;
        holds(
            "the descriptor is ready in time",
            ready > 0 && start.elapsed() < limit(),
        )?;
        match queue.read(&mut []) {
            Ok(_) | Err(Errno::Avail) => {}
            Err(errno) => return Err(anyhow!("driving progress: {errno}")),
        }
    }
    Ok(())
}

/// Whoever sleeps takes no time of the processor worth speaking of.
fn sleepers_sleep(cx: &mut Cx) -> Result {
    let port = port(cx, wait::Object::Unspec)?;
    cx.barrier()?;
    let time = Duration::from_millis(400);
    let used = own_time()?;
    let waited = port.cq().wait(&mut [Entry::default()], Some(time));
    same("a wait for nothing", waited, Err(Errno::Again))?;
    let used = own_time()? - used;
    holds(
        format!("{used:?} of {time:?} were slept through"),
        used < time / 2,
    )
}

/// How long this thread ran or wanted to: on a crowded machine a thread that spins runs little, too.
fn own_time() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let times = text.split_whitespace().take(2).map(str::parse::<u64>);
    let times: Vec<_> = times.collect::<std::result::Result<_, _>>()?;
    Ok(Duration::from_nanos(times.iter().sum()))
}

/// With FI_PROGRESS_AUTO messages move on although the application makes no call.
fn progress_without_calls(cx: &mut Cx) -> Result {
    let setup = Setup {
        hints: Some(|hints| hints.data_progress(Progress::Auto)),
        ..Setup::default()
    };
    let port = cx.port_with(&setup)?;
    same(
        "who makes progress",
        port.info.domain_attr.data_progress,
        Progress::Auto,
    )?;
    for (number, len) in [16, 5000, 60_000].into_iter().enumerate() {
        let receive = match cx.me() {
            0 => {
                let flags = OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION;
                cx.sleep_until_all_are_here()?;
                port.run(Tx::msg(port.peer(), cx.payload(1, number, len)).flags(flags))?;
                None
            }
            _ => {
                let receive = port.post(Rx::msg(len))?;
                cx.sleep_until_all_are_here()?;
                Some(receive)
            }
        };
        // The receiver sleeps until the sender knows that it has the message.
        cx.sleep_until_all_are_here()?;
        if let Some(receive) = receive {
            cx.verify(0, number, &port.wait_for(receive)?.expect_success()?.bytes)?;
        }
    }
    Ok(())
}
