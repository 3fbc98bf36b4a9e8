//! Denied system calls, above all of cross-memory attach, and their effect on messages.

#![expect(unsafe_code, reason = "installs system call filters")]

use nix::sys::prctl;
use selvedge::{Errno, FiAddr};
use selvedge_testkit::skip::{Need, skip};
use selvedge_testkit::usage::Usage;

use crate::endpoint::{Kind, NumberedEndpoint, content};
use crate::process::{PeerProcess, alone};

/// Makes a system call fail with `errno` from now on, in this thread and in the threads that it
/// starts. Of `mmap`, only shared mappings are denied: the allocator needs private mappings.
pub(crate) fn deny(call: &str, errno: i32) {
    let number = match call {
        "process_vm_readv" => libc::SYS_process_vm_readv,
        "memfd_create" => libc::SYS_memfd_create,
        "fallocate" => libc::SYS_fallocate,
        "mmap" => libc::SYS_mmap,
        "socket" => libc::SYS_socket,
        "epoll_create1" => libc::SYS_epoll_create1,
        "epoll_ctl" => libc::SYS_epoll_ctl,
        "connect" => libc::SYS_connect,
        "accept4" => libc::SYS_accept4,
        "sendmsg" => libc::SYS_sendmsg,
        "recvmsg" => libc::SYS_recvmsg,
        "fcntl" => libc::SYS_fcntl,
        "membarrier" => libc::SYS_membarrier,
        "mbind" => libc::SYS_mbind,
        "pidfd_open" => libc::SYS_pidfd_open,
        _ => panic!("unknown system call {call}"),
    };
    let mut denied = vec![return_value(libc::SECCOMP_RET_ERRNO | errno as u32)];
    if call == "mmap" {
        let flags = [
            load(FLAGS),
            jump(libc::BPF_JSET, libc::MAP_SHARED as u32, 0, 1),
        ];
        denied.splice(0..0, flags);
    }
    let mut program = vec![
        load(NUMBER),
        jump(libc::BPF_JEQ, number as u32, 0, denied.len() as u8),
    ];
    program.append(&mut denied);
    program.push(return_value(libc::SECCOMP_RET_ALLOW));
    install(&mut program);
}

/// Offsets into `struct seccomp_data`: the number of the call, and the low half of its fourth
/// argument.
const NUMBER: u32 = 0;
const FLAGS: u32 = 16 + 3 * 8;

fn load(offset: u32) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0)
}

fn jump(test: u32, value: u32, if_true: u8, if_false: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | test | libc::BPF_K, value, if_true, if_false)
}

fn return_value(value: u32) -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, value, 0, 0)
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    let code = code as u16;
    libc::sock_filter { code, jt, jf, k }
}

fn install(program: &mut [libc::sock_filter]) {
    prctl::set_no_new_privs().unwrap();
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the filter is a valid program that outlives the call, which copies it.
    let done = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

const LARGE: usize = 700_001;

/// Sends large messages from the peer process to `side`. All of them must be received.
pub(crate) fn receive_large(
    side: &mut NumberedEndpoint,
    peer_process: &mut PeerProcess,
    side_addr: &str,
    numbers: std::ops::Range<u64>,
) {
    for number in numbers {
        peer_process.request(&format!("send Tagged {side_addr} {LARGE} {number}"));
        peer_process.request("drive on");
        side.recv(Kind::Tagged, FiAddr::UNSPEC, LARGE, number)
            .unwrap();
        let event = side.next().ok();
        assert!(
            event.bytes == content(number, LARGE),
            "message {number} is corrupt"
        );
        peer_process.request("drive off");
        assert_eq!(peer_process.request("next"), format!("done {number}"));
    }
}

#[test]
fn without_cross_memory_attach_large_messages_are_bounced() {
    alone(|| {
        deny("process_vm_readv", libc::EPERM);
        let mut side = NumberedEndpoint::new();
        let mut peer_process = PeerProcess::named(&format!("{}p", std::process::id()));
        let side_addr = peer_process.request(&format!("insert {}", side.name()));
        receive_large(&mut side, &mut peer_process, &side_addr, 1..10);
    });
}

#[test]
fn cross_memory_attach_that_ends_in_mid_stream_is_no_error() {
    alone(|| {
        let mut side = NumberedEndpoint::with_params(None, &[("FI_SHM_PROTOCOL", "cma")]);
        let mut peer_process = PeerProcess::named(&format!("{}p", std::process::id()));
        let side_addr = peer_process.request(&format!("insert {}", side.name()));
        receive_large(&mut side, &mut peer_process, &side_addr, 1..5);
        // The first step of this message was copied by CMA, the rest was not.
        let large = 5 << 20;
        peer_process.request(&format!("send Tagged {side_addr} {large} 77"));
        side.recv(Kind::Tagged, FiAddr::UNSPEC, large, 77).unwrap();
        side.drive();
        deny("process_vm_readv", libc::EPERM);
        peer_process.request("drive on");
        assert!(side.next().ok().bytes == content(77, large));
        peer_process.request("drive off");
        assert_eq!(peer_process.request("next"), "done 77");
        receive_large(&mut side, &mut peer_process, &side_addr, 100..105);
    });
}

#[test]
fn messages_of_processes_that_hide_their_memory_are_bounced() {
    alone(|| {
        if drop_privileges().is_err() {
            return skip(Need::Rights, "this user cannot become another one");
        }
        let mut side = NumberedEndpoint::new();
        let mut peer_process = PeerProcess::start();
        peer_process.request("hide");
        peer_process.request(&format!("open {}p", std::process::id()));
        let side_addr = peer_process.request(&format!("insert {}", side.name()));
        receive_large(&mut side, &mut peer_process, &side_addr, 1..10);
    });
}

#[test]
fn large_messages_between_process_namespaces_are_bounced() {
    use nix::sched::{CloneFlags, unshare};

    alone(|| {
        // Children start in the new namespace, in which this process has no number.
        if unshare(CloneFlags::CLONE_NEWPID).is_err() {
            return skip(Need::Rights, "this user cannot create a process namespace");
        }
        let mut side = NumberedEndpoint::new();
        let mut peer_process = PeerProcess::named(&format!("{}p", std::process::id()));
        let side_addr = peer_process.request(&format!("insert {}", side.name()));
        let peer_addr = side.insert(format!("{}p", std::process::id()));
        receive_large(&mut side, &mut peer_process, &side_addr, 1..5);
        for number in 10..15 {
            peer_process.request(&format!("recv Tagged {LARGE} {number}"));
            side.send(Kind::Tagged, peer_addr, LARGE, number).unwrap();
            peer_process.request("drive on");
            side.next().ok();
            peer_process.request("drive off");
            assert_eq!(
                peer_process.request("next"),
                format!("done {number} {LARGE} good")
            );
        }
        peer_process.request(&format!("send Tagged {side_addr} 8 20"));
        peer_process.kill();
        side.recv(Kind::Tagged, peer_addr, 8, 20).unwrap();
        side.recv(Kind::Tagged, peer_addr, 8, 21).unwrap();
        assert_eq!(side.next().ok().context, 20);
        assert_eq!(side.next().errno(), Errno::ConnReset);
    });
}

/// Changes to a user without privileges: a process can hide its memory from such a user.
fn drop_privileges() -> nix::Result<()> {
    nix::unistd::setgid(nix::unistd::Gid::from_raw(65533))?;
    nix::unistd::setuid(nix::unistd::Uid::from_raw(65533))
}

/// System calls that opening an endpoint makes.
const OPENING_CALLS: [&str; 7] = [
    "memfd_create",
    "fallocate",
    "mmap",
    "socket",
    "epoll_create1",
    "epoll_ctl",
    "fcntl",
];

#[test]
fn a_failed_open_reports_the_errno_and_leaves_no_resources() {
    alone(|| {
        OPENING_CALLS
            .into_iter()
            .for_each(expect_open_fails_without)
    });
}

fn expect_open_fails_without(call: &'static str) {
    run_in_thread(move || {
        drop(NumberedEndpoint::new());
        let before = Usage::now().unwrap();
        deny(call, libc::ENOMEM);
        let info = crate::endpoint::info(selvedge::info::EpType::Rdm, &[]);
        let error = NumberedEndpoint::open(Some("denied"), &info).err().unwrap();
        assert_eq!(error.errno(), Errno::NoMem, "{call}: {error}");
        assert_eq!(Usage::now().unwrap(), before, "{call}");
    });
}

/// Runs a test that installs filters in a thread of its own. A filter cannot be removed, and
/// applies to its thread and the threads that this thread starts.
pub(crate) fn run_in_thread(test: impl FnOnce() + Send + 'static) {
    std::thread::spawn(test).join().unwrap();
}
