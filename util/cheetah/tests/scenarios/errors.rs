//! Errors and their texts.

#![expect(unsafe_code, reason = "puts and gets at invalid addresses")]

use std::time::{Duration, Instant};

use selvedge_cheetah::{BellName, Config, Controller, Error, MatchingHandler, Result};

use crate::exchange::{address, exchange};

pub(crate) const SCENARIOS: &[(&str, super::Scenario)] = &[
    ("bad-pointers", bad_pointers),
    ("failed-put", failed_put),
    ("bad-bells", bad_bells),
    ("mismatch", mismatch),
    ("killed", killed),
    ("stopped", stopped),
    ("late-for-barrier", late_for_barrier),
    ("wait-limits", wait_limits),
    ("after-finalize", after_finalize),
    ("flushes", flushes),
    ("two", two),
    ("abandoned", abandoned),
    ("dropped", dropped),
    ("split", split),
    ("staggered", staggered),
    ("idle", idle),
];

/// Puts and gets at addresses that are not mapped fail, in the next context and in this one.
fn bad_pointers(controller: &Controller, _: &[String]) -> Result {
    static CONSTANT: [u8; 100] = [3; 100];
    let next = (controller.mycontext() + 1) % controller.ncontexts();
    let constant = CONSTANT.as_ptr().expose_provenance() as u64;
    let mut buffer = vec![0_u8; 1 << 17];
    let addresses = exchange(controller, &[address(&mut buffer), constant])?;
    let bell = controller.bell()?;
    let mut source = vec![1_u8; 1 << 16];
    let invalid_addresses = [
        0,
        1,
        0x1000,
        0x7fff_ffff_f000,
        u64::MAX - 10,
        addresses[next][1],
    ];
    for to in [next, controller.mycontext()] {
        for remote in invalid_addresses {
            for len in [8, 1 << 16] {
                bell.set(0);
                let bytes = (source.as_ptr(), len);
                // SAFETY: the vector outlives the put; no memory is mapped at the addresses.
                unsafe { controller.put(to, remote, bytes, Some(&bell), BellName::NONE) }?;
                expect_bad(controller, to, remote);
                if len > 8 || to == controller.mycontext() {
                    let waited = controller.wait(&bell, 5);
                    assert!(
                        matches!(waited, Err(Error::BadPointer { .. })),
                        "{waited:?}"
                    );
                }
                if remote == addresses[next][1] {
                    continue;
                }
                let buffer = (source.as_mut_ptr(), len);
                // SAFETY: as above.
                unsafe { controller.get(to, remote, buffer, Some(&bell), BellName::NONE) }?;
                let waited = controller.wait(&bell, 5);
                assert!(
                    matches!(waited, Err(Error::BadPointer { .. })),
                    "{waited:?}"
                );
                expect_bad(controller, to, remote);
            }
        }
    }
    // No context has failed, and valid puts still succeed.
    bell.set(0);
    // SAFETY: both vectors outlive the put.
    unsafe {
        controller.put(
            next,
            addresses[next][0],
            (source.as_ptr(), 1 << 16),
            Some(&bell),
            BellName::NONE,
        )
    }?;
    controller.wait(&bell, 1)?;
    controller.barrier()
}

/// Polls until the library reports an error: that of address `remote` in context `target`.
fn expect_bad(controller: &Controller, target: usize, remote: u64) {
    let reported = loop {
        match controller.poll() {
            Ok(_) => {}
            Err(reported) => break reported,
        }
    };
    let matches_expected = matches!(
        &reported,
        Error::BadPointer { context, address, .. } if *context == target && *address == remote
    );
    assert!(matches_expected, "{reported} for {remote:#x}");
}

/// A put to an address that is not mapped fails; the call that `args[0]` names reports it once.
fn failed_put(controller: &Controller, args: &[String]) -> Result {
    let rank = controller.mycontext();
    let next = (rank + 1) % controller.ncontexts();
    let mut buffer = [0_u8; 1];
    let addresses = exchange(controller, &[address(&mut buffer)])?;
    let (put_bell, get_bell) = (controller.bell()?, controller.bell()?);
    let reports_by_wait = args[0] == "wait";
    let to = if reports_by_wait { rank } else { next };
    // SAFETY: the bytes are static, and no memory is mapped at the address.
    unsafe {
        controller.put(
            to,
            0x30,
            ([0_u8; 100].as_ptr(), 100),
            Some(&put_bell),
            BellName::NONE,
        )
    }?;
    if reports_by_wait {
        expect_failed_put(&controller.wait(&put_bell, 1), to);
    } else {
        let mut copy = [0_u8; 1];
        // The response of the same context arrives after the failure of the put.
        // SAFETY: both arrays live until the wait returns.
        unsafe {
            controller.get(
                next,
                addresses[next][0],
                (copy.as_mut_ptr(), 1),
                Some(&get_bell),
                BellName::NONE,
            )
        }?;
        controller.wait(&get_bell, 1)?;
    }
    match &*args[0] {
        "barrier" => expect_failed_put(&controller.barrier(), to),
        "halves" => {
            controller.barrier_begin()?;
            let result = loop {
                match controller.barrier_done() {
                    Ok(false) => {}
                    result => break result,
                }
            };
            expect_failed_put(&result.map(|_| ()), to);
            assert!(controller.barrier_done()?, "the barrier is complete");
        }
        "finalize" => {
            expect_failed_put(&controller.finalize(), to);
            return Ok(());
        }
        "drop" => return Ok(()),
        _ => {}
    }
    controller.barrier()
}

fn expect_failed_put(result: &Result, to: usize) {
    let matches_expected = matches!(
        result,
        Err(Error::BadPointer { context, address: 0x30, len: 100, .. }) if *context == to
    );
    assert!(matches_expected, "{result:?}");
}

/// Puts with invalid remote bells fail.
fn bad_bells(controller: &Controller, _: &[String]) -> Result {
    let next = (controller.mycontext() + 1) % controller.ncontexts();
    let memory = controller.special(4096)?;
    let mut buffer = vec![0_u64; 1];
    let addresses = exchange(controller, &[address(&mut buffer), memory.address(0)])?;
    for remote in [addresses[next][0], addresses[next][1], addresses[next][1]] {
        for invalid in [
            BellName::at(8),
            BellName::at(addresses[next][1] as usize + 2),
            BellName::from_word(1),
        ] {
            // SAFETY: no memory is mapped at the addresses of the bells.
            unsafe { controller.put(next, remote, ([1; 8].as_ptr(), 8), None, invalid) }?;
            let reported = loop {
                match controller.poll() {
                    Ok(_) => {}
                    Err(reported) => break reported,
                }
            };
            assert!(
                matches!(reported, Error::BadPointer { len: 4, .. }),
                "{reported}"
            );
        }
    }
    controller.barrier()
}

/// Context 1 registers a function with another name or type, or a handler in its place.
fn mismatch(controller: &Controller, args: &[String]) -> Result {
    controller.register("first", |_, _| {})?;
    let is_odd = controller.mycontext() == 1;
    match &*args[0] {
        "name" => drop(controller.register(if is_odd { "odd" } else { "second" }, |_, _| {})?),
        "type" if is_odd => drop(controller.register_typed::<u32>("second", |_, _, _| {})?),
        "type" => drop(controller.register_typed::<u64>("second", |_, _, _| {})?),
        _ if is_odd => drop(MatchingHandler::new(controller)?),
        _ => {}
    }
    let error = controller.barrier();
    let Err(Error::Mismatch(text)) = &error else {
        panic!("{error:?}");
    };
    println!("reported: {text}");
    // The other contexts may need a message of this one to detect the mismatch.
    std::thread::sleep(Duration::from_millis(300));
    std::process::exit(0);
}

/// Context `args[0]` is killed while the other contexts repeat the call that `args[1]` names. All
/// of them report its failure.
fn killed(controller: &Controller, args: &[String]) -> Result {
    let target: usize = args[0].parse().expect("a context");
    let unrung = controller.bell()?;
    let mut buffer = vec![0_u8; 1 << 20];
    let addresses = exchange(controller, &[address(&mut buffer)])?;
    let (ready, size) = (controller.bell()?, controller.ncontexts() as i32);
    let ring = ready.clone();
    let ready_handler = controller.register("ready", move |_, _| ring.set(ring.value() + 1))?;
    let request = controller.register("request", |_, _| {})?;
    controller.barrier()?;
    controller.ainvoke(target, ready_handler, &[])?;
    if controller.mycontext() == target {
        controller.wait(&ready, size)?;
        let pid = std::process::id() as i32;
        // SAFETY: ends this process.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    let start = Instant::now();
    let error = loop {
        let result = match &*args[1] {
            "wait" => controller.wait(&unrung, 1),
            "barrier" => controller.barrier(),
            "poll" => controller.poll().map(|_| ()),
            "ainvoke" => controller.ainvoke(target, request, &[]),
            _ => {
                let bytes = (buffer.as_ptr(), buffer.len());
                // SAFETY: the buffer lives until the process exits.
                let put = unsafe {
                    controller.put(
                        target,
                        addresses[target][0],
                        bytes,
                        Some(&unrung),
                        BellName::NONE,
                    )
                };
                put.and_then(|()| controller.wait(&unrung, i32::MAX))
            }
        };
        if let Err(error) = result {
            break error;
        }
    };
    let is_named = matches!(error, Error::PeerFailed { context, .. } if context == target);
    assert!(is_named, "{error}");
    println!("reported after {} ms: {error}", start.elapsed().as_millis());
    let finalized = controller.finalize();
    assert!(
        matches!(finalized, Err(Error::PeerFailed { .. })),
        "{finalized:?}"
    );
    std::process::exit(0);
}

/// Context 0 stops context 1 for a while. No other context waits for it, and no message is lost.
fn stopped(controller: &Controller, _: &[String]) -> Result {
    let bell = controller.bell()?;
    let ring = bell.clone();
    let receive = controller.register("take", move |_, call| {
        assert_eq!(call.bytes.len(), 1000);
        ring.set(ring.value() + 1);
    })?;
    let mut buffer = vec![0_u8; 1 << 16];
    let pid = u64::from(std::process::id());
    let addresses = exchange(controller, &[address(&mut buffer), pid])?;
    controller.barrier()?;
    let times = 5000;
    match controller.mycontext() {
        0 => {
            let pid = addresses[1][1] as i32;
            // SAFETY: stops a child, which is continued below.
            unsafe { libc::kill(pid, libc::SIGSTOP) };
            let start = Instant::now();
            for _ in 0..times {
                controller.ainvoke(1, receive, &[9; 1000])?;
                // SAFETY: the buffers of both contexts live until they have finalized.
                unsafe {
                    let bytes = (buffer.as_ptr(), buffer.len());
                    controller.put(1, addresses[1][0], bytes, None, BellName::NONE)
                }?;
            }
            println!("posted in {} ms", start.elapsed().as_millis());
            std::thread::sleep(Duration::from_millis(1500));
            assert_eq!(controller.poll()?, 0);
            // SAFETY: as above.
            unsafe { libc::kill(pid, libc::SIGCONT) };
        }
        1 => controller.wait(&bell, times)?,
        _ => {}
    }
    // Puts may write the buffer until all contexts have finalized.
    controller.finalize()
}

/// Context 2 does not enter a barrier in time.
fn late_for_barrier(controller: &Controller, _: &[String]) -> Result {
    let bell = controller.bell()?;
    let ring = bell.clone();
    let go = controller.register("go", move |_, _| ring.set(ring.value() + 1))?;
    controller.barrier()?;
    if controller.mycontext() == 2 {
        controller.wait(&bell, controller.ncontexts() as i32 - 1)?;
        controller.barrier()?;
        return Ok(());
    }
    let error = controller.barrier_for(Duration::from_millis(300));
    let Err(Error::TimedOut { missing, .. }) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(missing, &[2], "{error:?}");
    controller.ainvoke(2, go, &[])?;
    while !controller.barrier_done()? {}
    Ok(())
}

/// Waits end when the bell has its value or a value beyond it, or with their time limit.
fn wait_limits(controller: &Controller, _: &[String]) -> Result {
    let bell = controller.bell()?;
    bell.set(7);
    controller.wait(&bell, 7)?;
    controller.wait(&bell, -3)?;
    let start = Instant::now();
    let error = controller.wait_for(&bell, 8, Duration::from_millis(200));
    assert!(start.elapsed() >= Duration::from_millis(200));
    // The error may name missing contexts: on a loaded machine they may respond too late.
    assert!(matches!(error, Err(Error::TimedOut { .. })), "{error:?}");
    let ring = bell.clone();
    let jump = controller.register("jump", move |_, _| ring.set(100))?;
    controller.barrier()?;
    controller.ainvoke(
        (controller.mycontext() + 1) % controller.ncontexts(),
        jump,
        &[],
    )?;
    controller.wait_for(&bell, 50, Duration::from_secs(60))?;
    controller.barrier()
}

fn after_finalize(controller: &Controller, _: &[String]) -> Result {
    let bell = controller.bell()?;
    let function = controller.register("f", |_, _| {})?;
    let handler = MatchingHandler::new(controller)?;
    let copy = controller.clone();
    controller.finalize()?;
    assert!(!controller.is_valid() && !copy.is_valid());
    let results = [
        copy.poll().map(|_| ()),
        copy.barrier(),
        copy.wait(&bell, 1),
        copy.ainvoke(0, function, &[]),
        copy.finalize(),
        copy.register("g", |_, _| {}).map(|_| ()),
        copy.special(10).map(|_| ()),
        copy.bell().map(|_| ()),
        handler.send(0, 1, &1_u8),
        // SAFETY: the put is of 0 bytes.
        unsafe { copy.put(0, 8, (std::ptr::null(), 0), None, BellName::NONE) },
    ];
    for result in results {
        assert!(matches!(result, Err(Error::Finalized(_))), "{result:?}");
    }
    Ok(())
}

/// The last messages arrive before finalize returns, although no context waits for them.
fn flushes(controller: &Controller, _: &[String]) -> Result {
    let size = controller.ncontexts();
    let bell = controller.bell()?;
    let ring = bell.clone();
    let receive = controller.register("take", move |_, call| {
        assert!(call.bytes.len() == 8 || call.bytes.len() == 1 << 20);
        ring.set(ring.value() + 1);
    })?;
    let large = vec![1_u8; 1 << 20];
    for to in 0..size {
        for _ in 0..50 {
            controller.ainvoke(to, receive, &[1; 8])?;
        }
        controller.ainvoke(to, receive, &large)?;
    }
    controller.finalize()?;
    assert_eq!(bell.value(), 51 * size as i32);
    Ok(())
}

/// Opens a second controller of the same processes, with the ranks in reverse order.
fn open_second(first: &Controller, fabric: &str) -> Result<Controller> {
    let (rank, size) = (first.mycontext(), first.ncontexts());
    let words = exchange(first, &[u64::from(std::process::id())])?;
    let file = std::env::temp_dir().join(format!("cheetah-two-{}", words[0][0]));
    let rendezvous = selvedge_cheetah::Rendezvous::File(file.display().to_string());
    let config = Config::new().launched(size - 1 - rank, size, "two", rendezvous);
    let second = Controller::open(&config.fabric(fabric))?;
    assert!(fabric.is_empty() || second.fabrics() == [fabric]);
    Ok(second)
}

/// A context that has left a barrier does not poll its controller until all others have left it.
fn abandoned(first: &Controller, args: &[String]) -> Result {
    for _ in 0..10 {
        let second = open_second(first, &args[0])?;
        second.barrier()?;
        first.barrier()?;
        second.finalize()?;
    }
    Ok(())
}

/// Two controllers at once, with independent functions and contexts.
fn two(first: &Controller, args: &[String]) -> Result {
    let (rank, size) = (first.mycontext(), first.ncontexts());
    let second = open_second(first, args.first().map_or("", |name| name))?;
    assert_eq!(second.mycontext(), size - 1 - rank);
    let (first_bell, second_bell) = (first.bell()?, second.bell()?);
    let (first_ring, second_ring) = (first_bell.clone(), second_bell.clone());
    let f = first.register("f", move |_, call| {
        first_ring.set(first_ring.value() + call.bytes.len() as i32)
    })?;
    let g = second.register("g", move |_, call| {
        second_ring.set(second_ring.value() + call.bytes.len() as i32)
    })?;
    assert_eq!((f.0, g.0), (1, 0));
    first.barrier()?;
    second.barrier()?;
    for to in 0..size {
        first.ainvoke(to, f, &[0; 10])?;
        second.ainvoke(to, g, &[0; 7])?;
    }
    first.wait(&first_bell, 10 * size as i32)?;
    second.wait(&second_bell, 7 * size as i32)?;
    second.finalize()?;
    assert!(first.is_valid());
    first.barrier()
}

/// The drop of the last handle finalizes.
fn dropped(controller: &Controller, _: &[String]) -> Result {
    let copy = controller.clone();
    drop(copy);
    controller.barrier()
}

/// Contexts invoke functions between the two halves of a barrier.
fn split(controller: &Controller, _: &[String]) -> Result {
    let bell = controller.bell()?;
    let ring = bell.clone();
    let start = controller.register("start", move |_, _| ring.set(1))?;
    let go = controller.register("go", |_, _| {})?;
    controller.barrier()?;
    for _ in 0..100 {
        controller.barrier_begin()?;
        while !controller.barrier_done()? {
            controller.ainvoke(controller.mycontext(), go, &[])?;
        }
    }
    if controller.mycontext() == 0 {
        controller.barrier_begin()?;
        let second_begin = controller.barrier_begin();
        assert!(
            second_begin.is_err(),
            "the other contexts have not entered the first barrier"
        );
        for to in 1..controller.ncontexts() {
            controller.ainvoke(to, start, &[])?;
        }
    } else {
        controller.wait(&bell, 1)?;
        controller.barrier_begin()?;
    }
    while !controller.barrier_done()? {}
    Ok(())
}

/// No context leaves a barrier before all have entered it.
fn staggered(controller: &Controller, args: &[String]) -> Result {
    let times: i32 = args[0].parse().expect("a number");
    let (rank, size) = (controller.mycontext(), controller.ncontexts());
    let entered = controller.bell()?;
    let addresses = exchange(controller, &[entered.name().word()])?;
    let mut random = rank as u64 + 1;
    for round in 0..times {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        for _ in 0..random >> 54 {
            std::hint::spin_loop();
        }
        for (to, words) in addresses.iter().enumerate() {
            let bell = BellName::from_word(words[0]);
            // SAFETY: the put is of 0 bytes, and the bell outlives the barrier.
            unsafe { controller.put(to, 0, (std::ptr::null(), 0), None, bell) }?;
        }
        controller.barrier()?;
        assert!(entered.value() >= round * size as i32, "round {round}");
        controller.wait(&entered, (round + 1) * size as i32)?;
    }
    Ok(())
}

/// All contexts but 0 wait for two seconds, with almost no processor time.
fn idle(controller: &Controller, _: &[String]) -> Result {
    let bell = controller.bell()?;
    let ring = bell.clone();
    let wake = controller.register("wake", move |_, _| ring.set(1))?;
    controller.barrier()?;
    if controller.mycontext() == 0 {
        std::thread::sleep(Duration::from_secs(2));
        for to in 1..controller.ncontexts() {
            controller.ainvoke(to, wake, &[])?;
        }
    } else {
        let time_before = processor_time();
        controller.wait(&bell, 1)?;
        let used = processor_time() - time_before;
        println!("used {} us", used.as_micros());
        assert!(used < Duration::from_millis(100), "{used:?} of 2 s");
    }
    controller.barrier()
}

fn processor_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
