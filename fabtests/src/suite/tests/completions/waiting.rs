//! Waiting: parked threads are woken by completions, and use no processor until then.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use selvedge::cq::Entry;
use selvedge::info::Progress;
use selvedge::{Caps, CompletionQueue, Errno, OpFlags, wait};

use crate::suite::context::check::{holds, same};
use crate::suite::context::timeout::limit;
use crate::suite::context::{
    Completion, RAW, Result, Rx, Setup, Test, TestContext, TestEndpoint, Tx,
};
use crate::suite::defect::Defect;

tests! {
    no_wake_up_is_lost(MSG) catches [NeverWakes] .apis(RAW);
    timeouts(MSG) catches [CompletesTwice, NeverWakes] .apis(RAW);
    signals(MSG) catches [NoSignal] .apis(RAW).processes(1);
    descriptors(MSG) catches [DeadDescriptor, AlwaysTryWait] .apis(RAW);
    parked_threads_use_no_processor(MSG) catches [SpinsInWaits] .apis(RAW);
    progress_without_calls(MSG) catches [IgnoresHints] .apis(RAW);
}

const MSG: Caps = Caps::MSG;

fn open_with_wait(ctx: &mut TestContext, wait: wait::Object) -> Result<TestEndpoint> {
    ctx.open_endpoint_with(&Setup {
        wait,
        ..Setup::default()
    })
}

/// Parks until there is a completion. The entry is read directly from the queue, and is then
/// recorded by the test endpoint.
fn park_until_completion(endpoint: &TestEndpoint) -> Result<Completion> {
    if let Some(completion) = endpoint.poll()? {
        return Ok(completion);
    }
    // A wait may return early without an entry.
    let start = Instant::now();
    loop {
        let mut entry = [Entry::default()];
        match endpoint.cq().wait(&mut entry, Some(limit())) {
            Ok(0) | Err(Errno::Again) if start.elapsed() >= limit() => {
                return Err(anyhow!(
                    "the waiting thread was not woken within {:?}",
                    limit()
                ));
            }
            Ok(0) | Err(Errno::Again) => {}
            Ok(_) => return endpoint.account_for(entry[0]),
            Err(Errno::Avail) => return endpoint.next(),
            Err(errno) => return Err(anyhow!("waiting: {errno}")),
        }
    }
}

/// Two processes send to each other and park in between, with random delays.
fn no_wake_up_is_lost(ctx: &mut TestContext) -> Result {
    let endpoint = open_with_wait(ctx, wait::Object::Unspec)?;
    let mut random = ctx.random();
    for round in 0..ctx.scale(150, 5000) {
        let len = [8, 300, 20_000][round % 3];
        let receive = endpoint.post(Rx::msg(len))?;
        if ctx.me() == 0 {
            let pause = Duration::from_micros(random.below(400));
            let start = Instant::now();
            while start.elapsed() < pause {
                std::thread::yield_now();
            }
        }
        let send = endpoint.post(Tx::msg(
            endpoint.peer(),
            ctx.payload(1 - ctx.me(), round, len),
        ))?;
        let mut outstanding = vec![receive, send];
        while !outstanding.is_empty() {
            let completion = park_until_completion(&endpoint)?.expect_success()?;
            outstanding.retain(|context| *context != completion.context);
            if completion.context == receive {
                ctx.verify(1 - ctx.me(), round, &completion.bytes)?;
            }
        }
    }
    Ok(())
}

/// A wait without a completion ends with its timeout and no entry. A wait with a completion ends
/// with the entry of the completion.
fn timeouts(ctx: &mut TestContext) -> Result {
    let endpoint = open_with_wait(ctx, wait::Object::Unspec)?;
    let time = Duration::from_millis(50);
    for round in 0..3 {
        let start = Instant::now();
        let mut entry = [Entry::default()];
        let result = endpoint.cq().wait(&mut entry, Some(time));
        same("a wait for nothing", result, Err(Errno::Again))?;
        holds("the wait lasts until its timeout", start.elapsed() >= time)?;
        ctx.barrier()?;
        let receive = endpoint.post(Rx::msg(16))?;
        let send = endpoint.post(Tx::msg(
            endpoint.peer(),
            ctx.payload(1 - ctx.me(), round, 16),
        ))?;
        for _ in 0..2 {
            let completion = park_until_completion(&endpoint)?.expect_success()?;
            holds(
                "the completion belongs to one of both operations",
                [receive, send].contains(&completion.context),
            )?;
        }
        ctx.barrier()?;
    }
    Ok(())
}

/// A signal wakes a waiting thread.
fn signals(ctx: &mut TestContext) -> Result {
    let endpoint = open_with_wait(ctx, wait::Object::Unspec)?;
    for _ in 0..10 {
        let queue = endpoint.cq();
        let (sender, results) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let waiter = Arc::clone(&queue);
            scope.spawn(move || {
                let result = waiter.wait(&mut [Entry::default()], Some(limit()));
                // The receiver may have ended.
                let _ = sender.send(result);
            });
            let start = Instant::now();
            loop {
                same("a signal", queue.signal(), Ok(()))?;
                match results.recv_timeout(Duration::from_millis(1)) {
                    Ok(result) => {
                        same("a wait that is signalled", result, Err(Errno::Again))?;
                        return holds("the wait ended by the signal", start.elapsed() < limit());
                    }
                    Err(_) if start.elapsed() > limit() => return holds("the wait ended", false),
                    Err(_) => {}
                }
            }
        })?;
    }
    Ok(())
}

/// The descriptor is ready when the queue has an entry, and fi_trywait refuses to wait until the
/// entry is read.
fn descriptors(ctx: &mut TestContext) -> Result {
    let endpoint = open_with_wait(ctx, wait::Object::Fd)?;
    let queue = endpoint.cq();
    for round in 0..ctx.scale(40, 1000) {
        if ctx.me() == 0 {
            // Some messages arrive while the receiver polls, and some while it is parked.
            if round % 8 == 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
            endpoint.run(Tx::msg(endpoint.peer(), ctx.payload(1, round, 64)))?;
            ctx.barrier()?;
            continue;
        }
        let receive = endpoint.post(Rx::msg(64))?;
        wait_on_descriptor(&*queue)?;
        let completion = endpoint.wait_for(receive)?.expect_success()?;
        ctx.verify(0, round, &completion.bytes)?;
        ctx.barrier()?;
    }
    if ctx.me() == 1 {
        ctx.barrier()?;
        // A completion stays unread.
        let receive = endpoint.post(Rx::msg(8))?;
        ctx.barrier()?;
        crate::suite::context::timeout::until("the message", || {
            endpoint.progress()?;
            Ok((queue.try_wait() == Err(Errno::Again)).then_some(()))
        })?;
        endpoint.wait_for(receive)?.expect_success()?;
    } else {
        ctx.barrier()?;
        endpoint.run(Tx::msg(endpoint.peer(), vec![1; 8]))?;
        ctx.barrier()?;
    }
    Ok(())
}

/// Waits in poll(2) as fi_trywait(3) describes, until there is an entry.
fn wait_on_descriptor(queue: &dyn CompletionQueue) -> Result {
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

/// A parked thread uses hardly any processor time.
fn parked_threads_use_no_processor(ctx: &mut TestContext) -> Result {
    let endpoint = open_with_wait(ctx, wait::Object::Unspec)?;
    ctx.barrier()?;
    let time = Duration::from_millis(400);
    let used = thread_time()?;
    let result = endpoint.cq().wait(&mut [Entry::default()], Some(time));
    same("a wait for nothing", result, Err(Errno::Again))?;
    let used = thread_time()? - used;
    holds(
        format!("a wait of {time:?} used {used:?} of processor time"),
        used < time / 2,
    )
}

/// Returns the time that this thread ran or was ready to run. On a loaded machine, the time that a
/// spinning thread runs is also short.
fn thread_time() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let times = text.split_whitespace().take(2).map(str::parse::<u64>);
    let times: Vec<_> = times.collect::<std::result::Result<_, _>>()?;
    Ok(Duration::from_nanos(times.iter().sum()))
}

/// With FI_PROGRESS_AUTO, messages make progress without a call of the application.
fn progress_without_calls(ctx: &mut TestContext) -> Result {
    let setup = Setup {
        hints: Some(|hints| hints.data_progress(Progress::Auto)),
        ..Setup::default()
    };
    let endpoint = ctx.open_endpoint_with(&setup)?;
    same(
        "the progress model",
        endpoint.info.domain_attr.data_progress,
        Progress::Auto,
    )?;
    for (number, len) in [16, 5000, 60_000].into_iter().enumerate() {
        let receive = match ctx.me() {
            0 => {
                let flags = OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION;
                ctx.blocking_barrier()?;
                endpoint.run(Tx::msg(endpoint.peer(), ctx.payload(1, number, len)).flags(flags))?;
                None
            }
            _ => {
                let receive = endpoint.post(Rx::msg(len))?;
                ctx.blocking_barrier()?;
                Some(receive)
            }
        };
        // The receiver blocks until the sender has the delivery completion.
        ctx.blocking_barrier()?;
        if let Some(receive) = receive {
            ctx.verify(
                0,
                number,
                &endpoint.wait_for(receive)?.expect_success()?.bytes,
            )?;
        }
    }
    Ok(())
}
