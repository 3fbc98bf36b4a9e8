//! Processes that fork and exec: the children's calls fail, and do not affect the parent.

#![expect(unsafe_code, reason = "forks")]

use std::os::fd::AsRawFd;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use selvedge::{Address, Bindings, Context, Errno, FiAddr, av, cq};

use crate::connect::unique;
use crate::endpoint::{Kind, NumberedEndpoint, content};
use crate::peer_failure::{Transfer, exchange_messages, wait_for_disconnect};
use crate::process::{PeerProcess, Watchdog, alone};

/// The call that forks. A handler in libc's fork(2) replaces the sockets in the child; the system
/// call runs no handler.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fork {
    Libc,
    Kernel,
}

impl Fork {
    /// Forks this process. Returns as fork(2) does.
    pub(crate) fn call(self) -> i32 {
        match self {
            // SAFETY: children of tests use only this thread and the allocator.
            Self::Libc => unsafe { libc::fork() },
            // SAFETY: as above; the call passes no stack and no other address.
            Self::Kernel => unsafe {
                libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32
            },
        }
    }
}

/// Forks the test. The child runs `act` and exits without destructors or exit handlers.
pub(crate) fn fork(act: impl FnOnce()) -> Pid {
    fork_with(Fork::Libc, act)
}

fn fork_with(fork: Fork, act: impl FnOnce()) -> Pid {
    match fork.call() {
        0 => {
            let is_good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).is_ok();
            exit_without_handlers(i32::from(!is_good))
        }
        pid => Pid::from_raw(pid),
    }
}

fn exit_without_handlers(code: i32) -> ! {
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(code) }
}

#[track_caller]
pub(crate) fn reap(child: Pid) {
    assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
}

/// Every call on an object that was opened before the fork is refused without effect.
fn expect_every_call_refused(side: &mut NumberedEndpoint, peer_addr: FiAddr) {
    for kind in Kind::ALL {
        for len in [8, 2000, 100_000] {
            let is_inject = matches!(kind, Kind::Inject | Kind::TaggedInject);
            if len <= 4096 || !is_inject {
                assert_eq!(side.send(kind, peer_addr, len, 70), Err(Errno::BadF));
            }
            assert_eq!(side.recv(kind, peer_addr, len, 71), Err(Errno::BadF));
            assert_eq!(side.recv(kind, FiAddr::UNSPEC, len, 72), Err(Errno::BadF));
        }
    }
    assert_eq!(side.ep.cancel(Context(1)), Err(Errno::BadF));
    let mut entries = [cq::Entry::default(); 4];
    assert_eq!(side.cq().read(&mut entries), Err(Errno::BadF));
    assert_eq!(side.cq().read(&mut []), Err(Errno::BadF));
    assert!(matches!(side.cq().read_err(), Err(Errno::BadF)));
    let name = Address::Str("fi_shm://peer".into());
    assert_eq!(side.av.insert_one(&name).unwrap_err().errno(), Errno::BadF);
    assert_eq!(side.av.remove(&[peer_addr]), Err(Errno::BadF));
    assert_eq!(side.av.lookup(peer_addr), Err(Errno::BadF));
    let info = crate::endpoint::info(selvedge::info::EpType::Rdm, &[]);
    let domain = side.domain();
    assert_eq!(
        domain.cq(&cq::Attr::default()).unwrap_err().errno(),
        Errno::BadF
    );
    assert_eq!(
        domain.av(&av::Attr::default()).unwrap_err().errno(),
        Errno::BadF
    );
    let attr = selvedge::alloc::Attr::default();
    assert_eq!(domain.alloc(1, &attr).unwrap_err().errno(), Errno::BadF);
    // SAFETY: the call registers no memory.
    let region = unsafe { domain.reg(&[], &selvedge::mr::Attr::default()) };
    assert_eq!(region.err().map(|e| e.errno()), Some(Errno::BadF));
    let bind = Bindings::new(side.cq().clone(), side.av.clone());
    let error = domain.endpoint(&info, bind).unwrap_err();
    assert_eq!(error.errno(), Errno::BadF, "{error}");
}

/// The use that a forked child makes of its copy of the parent's endpoint, and the end of the
/// child.
#[derive(Clone, Copy, Debug)]
enum ChildAction {
    UseAndExit,
    DropAndExit,
    /// Exits through the exit handlers.
    ExitWithHandlers,
    Kill,
    Crash,
    Exec,
}

const CHILD_ACTIONS: [ChildAction; 6] = [
    ChildAction::UseAndExit,
    ChildAction::DropAndExit,
    ChildAction::ExitWithHandlers,
    ChildAction::Kill,
    ChildAction::Crash,
    ChildAction::Exec,
];

impl ChildAction {
    /// Runs in the child, with a copy of the parent's objects.
    fn run_in_child(self, mut side: NumberedEndpoint, peer_addr: FiAddr) {
        match self {
            Self::UseAndExit => {
                expect_every_call_refused(&mut side, peer_addr);
                std::mem::forget(side);
            }
            Self::DropAndExit => {
                expect_every_call_refused(&mut side, peer_addr);
                drop(side);
            }
            // SAFETY: the test's threads do not exist in the child, and no exit handler of the test
            // waits.
            Self::ExitWithHandlers => unsafe { libc::exit(0) },
            Self::Kill => kill(Pid::this(), Signal::SIGKILL).unwrap(),
            Self::Crash => {
                let limit = nix::sys::resource::Resource::RLIMIT_CORE;
                nix::sys::resource::setrlimit(limit, 0, 0).unwrap();
                // SAFETY: ends the process by a signal.
                unsafe { libc::abort() }
            }
            Self::Exec => {
                let args = [c"true".as_ptr(), std::ptr::null()];
                // SAFETY: a null-terminated list of strings.
                unsafe { libc::execvp(args[0], args.as_ptr()) };
            }
        }
    }

    /// Forks two children that run this action, while the parent keeps `side`.
    fn run(self, side: &mut NumberedEndpoint, peer_addr: FiAddr) {
        self.run_with(Fork::Libc, side, peer_addr);
        self.run_with(Fork::Kernel, side, peer_addr);
    }

    fn run_with(self, fork: Fork, side: &mut NumberedEndpoint, peer_addr: FiAddr) {
        // SAFETY: the copy is used and dropped in the child alone, which has its own memory.
        let copy = unsafe { std::ptr::read(side) };
        let copy = std::mem::ManuallyDrop::new(copy);
        let copy = move || std::mem::ManuallyDrop::into_inner(copy);
        let child = fork_with(fork, || self.run_in_child(copy(), peer_addr));
        let status = waitpid(child, None).unwrap();
        match self {
            Self::Kill | Self::Crash => {
                assert!(matches!(status, WaitStatus::Signaled(..)), "{status:?}");
            }
            _ => assert_eq!(status, WaitStatus::Exited(child, 0), "{self:?}"),
        }
    }
}

#[test]
fn a_child_of_an_idle_endpoint_disturbs_nothing() {
    alone(|| {
        let mut side = NumberedEndpoint::new();
        let name = unique("late");
        let peer_addr = side.insert(&name);
        CHILD_ACTIONS
            .iter()
            .for_each(|action| action.run(&mut side, peer_addr));
        let mut peer_process = PeerProcess::named(&name);
        let side_addr = peer_process.request(&format!("insert {}", side.name()));
        exchange_messages(&mut side, &mut peer_process, peer_addr, &side_addr);
    });
}

#[test]
fn a_child_of_an_endpoint_with_peers_disturbs_nothing() {
    alone(|| {
        for transfer in Transfer::selection() {
            let (mut side, mut peer_process, peer_addr, side_addr) = transfer.connect("forked");
            exchange_messages(&mut side, &mut peer_process, peer_addr, &side_addr);
            for action in CHILD_ACTIONS {
                action.run(&mut side, peer_addr);
                exchange_messages(&mut side, &mut peer_process, peer_addr, &side_addr);
            }
        }
    });
}

#[test]
fn a_fork_while_messages_move_disturbs_nothing() {
    alone(|| {
        for transfer in Transfer::selection() {
            let (mut side, mut peer_process, peer_addr, side_addr) = transfer.connect("busy");
            for (round, action) in (0..).zip(CHILD_ACTIONS) {
                let number = 10 + round;
                peer_process.request(&format!("recv Tagged {} {number}", transfer.len));
                peer_process.request(&format!(
                    "send Tagged {side_addr} {} {number}",
                    transfer.len
                ));
                side.send(Kind::Delivered, peer_addr, transfer.len, number)
                    .unwrap();
                side.recv(Kind::Tagged, peer_addr, transfer.len, number)
                    .unwrap();
                peer_process.request("drive on");
                // Copies a part of the bytes, so that the fork comes in the middle of the transfer.
                (0..3).for_each(|_| side.drive());
                action.run(&mut side, peer_addr);
                let mut sent = 0;
                for _ in 0..2 {
                    let event = side.next().ok();
                    assert_eq!(event.context, number);
                    sent += usize::from(event.bytes.is_empty());
                    let is_good =
                        event.bytes.is_empty() || event.bytes == content(number, transfer.len);
                    assert!(is_good, "{action:?}");
                }
                assert_eq!(sent, 1);
                peer_process.request("drive off");
                let mut responses = [peer_process.request("next"), peer_process.request("next")];
                responses.sort();
                let expected = [
                    format!("done {number}"),
                    format!("done {number} {} good", transfer.len),
                ];
                assert_eq!(responses, expected);
            }
        }
    });
}

#[test]
fn a_fork_while_the_parent_closes_disturbs_nothing() {
    alone(|| {
        for round in 0..60 {
            let mut other = NumberedEndpoint::new();
            let mut side = NumberedEndpoint::new();
            let (peer_addr, side_addr) = (side.insert(other.name()), other.insert(side.name()));
            side.send(Kind::Tagged, peer_addr, 8, 1).unwrap();
            other.recv(Kind::Tagged, side_addr, 8, 1).unwrap();
            other.next_with(&mut [&mut side]).ok();
            let queue = side.cq().clone();
            let child = std::thread::scope(|scope| {
                let closing = scope.spawn(move || drop(side));
                (0..round * 20).for_each(|_| std::hint::spin_loop());
                let child = fork(move || {
                    assert_eq!(queue.read(&mut [cq::Entry::default()]), Err(Errno::BadF));
                    drop(queue);
                });
                closing.join().unwrap();
                child
            });
            reap(child);
            wait_for_disconnect(&mut other, side_addr);
        }
    });
}

#[test]
fn a_child_may_open_a_fabric_of_its_own() {
    alone(|| {
        let mut side = NumberedEndpoint::new();
        let name = unique("own");
        let child_name = unique("child");
        let mut peer_process = PeerProcess::named(&name);
        let peer_addr = side.insert(&name);
        let side_addr = peer_process.request(&format!("insert {}", side.name()));
        exchange_messages(&mut side, &mut peer_process, peer_addr, &side_addr);
        let parent = side.name();
        let child = fork(|| {
            let mut child_side = NumberedEndpoint::named(&child_name);
            let parent_addr = child_side.insert(&parent);
            for number in 1..=3 {
                child_side
                    .recv(Kind::Tagged, parent_addr, 300_000, number)
                    .unwrap();
                child_side
                    .send(Kind::Delivered, parent_addr, 300_000, number)
                    .unwrap();
                child_side.next().ok();
                child_side.next().ok();
            }
            // The child forks, too.
            let grandchild = fork(|| {
                assert_eq!(
                    child_side.send(Kind::Tagged, parent_addr, 8, 9),
                    Err(Errno::BadF)
                );
                drop(NumberedEndpoint::new());
            });
            reap(grandchild);
            child_side.send(Kind::Delivered, parent_addr, 8, 9).unwrap();
            child_side.next().ok();
        });
        let child_addr = side.insert(&child_name);
        for number in 1..=3 {
            side.recv(Kind::Tagged, FiAddr::UNSPEC, 300_000, number)
                .unwrap();
            let event = side.next().ok();
            assert_eq!(
                (event.src, event.bytes),
                (child_addr, content(number, 300_000))
            );
            side.send(Kind::Delivered, child_addr, 300_000, number)
                .unwrap();
            side.next().ok();
        }
        side.recv(Kind::Tagged, child_addr, 8, 9).unwrap();
        side.next().ok();
        side.recv(Kind::Tagged, child_addr, 8, 10).unwrap();
        assert_eq!(side.next().errno(), Errno::ConnReset);
        reap(child);
        exchange_messages(&mut side, &mut peer_process, peer_addr, &side_addr);
    });
}

#[test]
fn the_end_of_a_parent_is_detected_while_its_child_runs() {
    let _watchdog = Watchdog::new();
    for kind in [Fork::Libc, Fork::Kernel] {
        for is_killed in [true, false] {
            // The child of the previous round may still hold that round's name.
            let name = unique(&format!("parent-{kind:?}-{is_killed}"));
            let mut peer_process = PeerProcess::named(&name);
            let mut side = NumberedEndpoint::new();
            let peer_addr = side.insert(&name);
            let side_addr = peer_process.request(&format!("insert {}", side.name()));
            exchange_messages(&mut side, &mut peer_process, peer_addr, &side_addr);
            let child: i32 = peer_process
                .request(&format!("fork {kind:?}"))
                .parse()
                .unwrap();
            side.recv(Kind::Tagged, peer_addr, 8, 5).unwrap();
            if is_killed {
                peer_process.kill();
            } else {
                peer_process.request("close");
            }
            assert_eq!(
                side.next().errno(),
                Errno::ConnReset,
                "{kind:?} {is_killed}"
            );
            assert!(kill(Pid::from_raw(child), None).is_ok());
            if matches!(kind, Fork::Libc) {
                // The name can be used again when the handler in the child has run.
                let mut next = PeerProcess::start();
                while next.request(&format!("try-open {name}")) == "AddrInUse" {}
                let side_addr = next.request(&format!("insert {}", side.name()));
                exchange_messages(&mut side, &mut next, peer_addr, &side_addr);
            }
            kill(Pid::from_raw(child), Signal::SIGKILL).unwrap();
        }
    }
}

#[test]
fn dropping_a_child_s_copy_of_a_region_does_not_close_the_region() {
    use selvedge_shm::smr::{Attr, PeerRegion, Region, Sizes};

    alone(|| {
        let sizes = Sizes {
            cmd_count: 16,
            resp_count: 16,
            inject_size: 4096,
        };
        let region = Region::create(&Attr { sizes, peer: "a" }).unwrap();
        let (fd, sizes) = region.share().unwrap();
        let peer = PeerRegion::attach(fd, sizes).unwrap();
        // SAFETY: dropped in the child, which has its own copy, and later in the parent.
        let copy = std::mem::ManuallyDrop::new(unsafe { std::ptr::read(&raw const region) });
        reap(fork(move || drop(std::mem::ManuallyDrop::into_inner(copy))));
        assert!(!peer.is_closed());
        drop(region);
        assert!(peer.is_closed());
    });
}

#[test]
fn the_sockets_of_a_parent_are_not_inherited() {
    alone(|| {
        let sockets = || {
            let fds = std::fs::read_dir("/proc/self/fd").unwrap();
            fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
                .filter(|link| link.to_string_lossy().starts_with("socket:"))
                .collect::<Vec<_>>()
        };
        // Standard streams, if they are sockets, which children inherit.
        let streams = sockets();
        let side = NumberedEndpoint::new();
        let mut of_side = sockets();
        of_side.retain(|link| !streams.contains(link));
        assert!(!of_side.is_empty());
        reap(fork(|| {
            let in_child = sockets();
            let is_kept = of_side.iter().any(|link| in_child.contains(link));
            assert!(!is_kept, "{of_side:?} {in_child:?}");
        }));
        drop(side);
    });
}

#[test]
fn a_peer_that_calls_exec_is_disconnected() {
    let _watchdog = Watchdog::new();
    for transfer in Transfer::selection() {
        let (mut side, mut peer_process, peer_addr, side_addr) = transfer.connect("exec");
        exchange_messages(&mut side, &mut peer_process, peer_addr, &side_addr);
        // One large message is being copied from the memory that exec removes.
        peer_process.request(&format!("send Tagged {side_addr} {} 1", 8 << 20));
        side.recv(Kind::Tagged, peer_addr, 8 << 20, 1).unwrap();
        side.recv(Kind::Tagged, peer_addr, 8, 2).unwrap();
        side.send(Kind::Delivered, peer_addr, transfer.len, 3)
            .unwrap();
        (0..3).for_each(|_| side.drive());
        peer_process.send_request("exec");
        for _ in 0..3 {
            let event = side.next();
            if event.context == 1 && event.error.is_none() {
                // The copy was complete before the exec.
                assert!(event.bytes == content(1, 8 << 20));
                continue;
            }
            assert_eq!(event.errno(), Errno::ConnReset, "{transfer:?}");
        }
        assert!(side.is_idle());
        assert_eq!(
            side.send(Kind::Tagged, peer_addr, 8, 4),
            Err(Errno::NotConn)
        );
        // The process still runs.
        assert_eq!(
            waitpid(
                Pid::from_raw(peer_process.pid()),
                Some(WaitPidFlag::WNOHANG)
            ),
            Ok(WaitStatus::StillAlive)
        );
    }
}

#[test]
fn an_exec_under_traffic_corrupts_no_message() {
    let _watchdog = Watchdog::new();
    for round in 0..10 {
        let name = unique("executor");
        let mut peer_process = PeerProcess::start();
        peer_process.request(&format!("open {name} FI_SHM_PROTOCOL=cma"));
        let mut side = NumberedEndpoint::with_params(None, &[("FI_SHM_PROTOCOL", "cma")]);
        let peer_addr = side.insert(&name);
        let side_addr = peer_process.request(&format!("insert {}", side.name()));
        peer_process.request(&format!(
            "stream-exec Tagged {side_addr} 300000 {}",
            5 + round * 7
        ));
        let mut next = 0;
        loop {
            if side.recv(Kind::Tagged, peer_addr, 300_000, next).is_err() {
                break;
            }
            let event = side.next();
            if event.error.is_some() {
                assert_eq!(event.errno(), Errno::ConnReset);
                break;
            }
            assert!(event.bytes == content(next, 300_000), "message {next}");
            next += 1;
        }
        assert!(side.is_idle());
    }
}

#[test]
fn descriptors_of_an_endpoint_are_closed_on_exec() {
    alone(|| {
        let side = NumberedEndpoint::new();
        let other = NumberedEndpoint::new();
        let _peer = side.insert(other.name());
        for fd in std::fs::read_dir("/proc/self/fd").unwrap() {
            let fd = fd.unwrap();
            let link = std::fs::read_link(fd.path()).unwrap_or_default();
            let link = link.to_string_lossy().into_owned();
            let is_fabric_file = ["socket:", "anon_inode:", "/memfd:"]
                .iter()
                .any(|start| link.starts_with(start));
            let number: i32 = fd.file_name().to_string_lossy().parse().unwrap();
            if is_fabric_file && number > std::io::stderr().as_raw_fd() {
                // SAFETY: reads the flags of a number.
                let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
                assert!(flags & libc::FD_CLOEXEC != 0, "{link}");
            }
        }
    });
}
