//! System calls that are denied, cross-memory attach before all, and what becomes of messages then.

#![expect(unsafe_code, reason = "installs system call filters")]

use nix::sys::prctl;
use selvedge::{Errno, FiAddr};
use selvedge_testkit::skip::{Need, skip};
use selvedge_testkit::usage::Usage;

use crate::process::{PeerProcess, alone};
use crate::side::{Kind, Side, content};

/// Has the kernel answer `errno` to a system call, from now on, in this thread and in those that it
/// starts. Of `mmap`, only mappings that are shared are denied: the allocator lives from others.
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
        "pidfd_open" => libc::SYS_pidfd_open,
        _ => panic!("{call}?"),
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

fn jump(test: u32, value: u32, if_so: u8, if_not: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | test | libc::BPF_K, value, if_so, if_not)
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

/// Sends large messages from the puppet to us, all of which must arrive.
pub(crate) fn receive_large(
    side: &mut Side,
    peer_process: &mut PeerProcess,
    to_us: &str,
    numbers: std::ops::Range<u64>,
) {
    for number in numbers {
        peer_process.request(&format!("send Tagged {to_us} {LARGE} {number}"));
        peer_process.request("drive on");
        side.recv(Kind::Tagged, FiAddr::UNSPEC, LARGE, number)
            .unwrap();
        let event = side.next().ok();
        assert!(
            event.bytes == content(number, LARGE),
            "message {number} is garbled"
        );
        peer_process.request("drive off");
        assert_eq!(peer_process.request("next"), format!("done {number}"));
    }
}

#[test]
fn without_cross_memory_attach_large_messages_are_bounced() {
    alone(|| {
        deny("process_vm_readv", libc::EPERM);
        let mut side = Side::new();
        let mut peer_process = PeerProcess::named(&format!("{}p", std::process::id()));
        let to_us = peer_process.request(&format!("insert {}", side.name()));
        receive_large(&mut side, &mut peer_process, &to_us, 1..10);
    });
}

#[test]
fn cross_memory_attach_that_ends_in_mid_stream_is_no_error() {
    alone(|| {
        let mut side = Side::with(None, &[("FI_SHM_PROTOCOL", "cma")]);
        let mut peer_process = PeerProcess::named(&format!("{}p", std::process::id()));
        let to_us = peer_process.request(&format!("insert {}", side.name()));
        receive_large(&mut side, &mut peer_process, &to_us, 1..5);
        // The first step of this one has been copied the direct way, the rest has not.
        let large = 5 << 20;
        peer_process.request(&format!("send Tagged {to_us} {large} 77"));
        side.recv(Kind::Tagged, FiAddr::UNSPEC, large, 77).unwrap();
        side.drive();
        deny("process_vm_readv", libc::EPERM);
        peer_process.request("drive on");
        assert!(side.next().ok().bytes == content(77, large));
        peer_process.request("drive off");
        assert_eq!(peer_process.request("next"), "done 77");
        receive_large(&mut side, &mut peer_process, &to_us, 100..105);
    });
}

#[test]
fn processes_that_hide_their_memory_are_bounced_from() {
    alone(|| {
        if drop_privileges().is_err() {
            return skip(Need::Rights, "this user cannot become another one");
        }
        let mut side = Side::new();
        let mut peer_process = PeerProcess::start();
        peer_process.request("hide");
        peer_process.request(&format!("open {}p", std::process::id()));
        let to_us = peer_process.request(&format!("insert {}", side.name()));
        receive_large(&mut side, &mut peer_process, &to_us, 1..10);
    });
}

#[test]
fn large_messages_between_process_namespaces_are_bounced() {
    use nix::sched::{CloneFlags, unshare};

    alone(|| {
        // Children are born into the new one; they do not see us, and know no number of ours.
        if unshare(CloneFlags::CLONE_NEWPID).is_err() {
            return skip(
                Need::Rights,
                "no process namespace of our own is allowed here",
            );
        }
        let mut side = Side::new();
        let mut peer_process = PeerProcess::named(&format!("{}p", std::process::id()));
        let to_us = peer_process.request(&format!("insert {}", side.name()));
        let peer_addr = side.insert(format!("{}p", std::process::id()));
        receive_large(&mut side, &mut peer_process, &to_us, 1..5);
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
        peer_process.request(&format!("send Tagged {to_us} 8 20"));
        peer_process.kill();
        side.recv(Kind::Tagged, peer_addr, 8, 20).unwrap();
        side.recv(Kind::Tagged, peer_addr, 8, 21).unwrap();
        assert_eq!(side.next().ok().context, 20);
        assert_eq!(side.next().errno(), Errno::ConnReset);
    });
}

/// Becomes a user without privileges, before whom memory can be hidden.
fn drop_privileges() -> nix::Result<()> {
    nix::unistd::setgid(nix::unistd::Gid::from_raw(65533))?;
    nix::unistd::setuid(nix::unistd::Uid::from_raw(65533))
}

/// What opening an endpoint needs.
const TO_OPEN: [&str; 7] = [
    "memfd_create",
    "fallocate",
    "mmap",
    "socket",
    "epoll_create1",
    "epoll_ctl",
    "fcntl",
];

#[test]
fn an_endpoint_that_cannot_be_opened_says_why_and_leaves_nothing() {
    alone(|| TO_OPEN.into_iter().for_each(cannot_be_opened_without));
}

fn cannot_be_opened_without(call: &'static str) {
    in_a_thread(move || {
        drop(Side::new());
        let before = Usage::now().unwrap();
        deny(call, libc::ENOMEM);
        let info = crate::side::info(selvedge::info::EpType::Rdm, &[]);
        let error = Side::open(Some("denied"), &info).err().unwrap();
        assert_eq!(error.errno(), Errno::NoMem, "{call}: {error}");
        assert_eq!(Usage::now().unwrap(), before, "{call}");
    });
}

/// Filters cannot be taken back and are a thread's own: nothing else in the process is denied
/// anything.
pub(crate) fn in_a_thread(test: impl FnOnce() + Send + 'static) {
    std::thread::spawn(test).join().unwrap();
}
