//! One-sided operations on special memory: by loads and stores of the initiator alone.

use nix::sys::signal::Signal;
use selvedge::rma::RmaIov;
use selvedge::{FiAddr, MrAccess};

use crate::process::{Puppet, alone};
use crate::side::{Kind, Side, content};
use crate::special::met;

/// What a puppet makes memory with.
fn rights(access: MrAccess) -> u64 {
    access.bits()
}

fn both() -> u64 {
    rights(MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE)
}

const fn at(key: u64, addr: u64, len: usize) -> RmaIov {
    RmaIov { addr, len, key }
}

/// We, and a puppet with a block of memory that peers may use, which has said all that it will: from
/// here on it never calls in.
fn target(len: usize, access: u64) -> (Side, Puppet, FiAddr) {
    let mut us = Side::new();
    let (mut puppet, _, them) = met(&mut us);
    assert_eq!(puppet.ask(&format!("alloc 1 {len} {access}")), "ok");
    (us, puppet, them)
}

fn word(number: u64) -> [u8; 8] {
    number.to_ne_bytes()
}

#[test]
fn a_target_that_never_calls_in_sees_what_is_put_and_gives_what_is_got() {
    alone(|| {
        let (mut us, mut puppet, them) = target(1 << 20, both());
        // It looks at its memory, and makes no call.
        puppet.tell("wait 1 8 4711");
        us.write(them, &[at(1, 8, 8)], &word(4711), 1).unwrap();
        assert_eq!(puppet.answer(), "ok");
        assert_eq!(us.next().ok().context, 1);
        puppet.ask("put 1 16 99");
        us.read_from(them, &[at(1, 8, 16)], 16, 2).unwrap();
        assert_eq!(us.next().ok().bytes, [word(4711), word(99)].concat());
        for len in [1, 7, 8, 9, 100, 4096, 100_000, 1 << 20] {
            for addr in [0, 1] {
                let len = len.min((1 << 20) - addr);
                let bytes = content(len as u64, len);
                let piece = [at(1, addr as u64, len)];
                us.write(them, &piece, &bytes, 3).unwrap();
                us.next().ok();
                us.read_from(them, &piece, len, 4).unwrap();
                assert!(us.next().ok().bytes == bytes, "{len} bytes at {addr}");
            }
        }
        assert_eq!(us.ep.inject_write(&word(5), them, 0, 1, None), Ok(()));
        assert_eq!(puppet.ask("look 1 0 1"), "5");
    });
}

#[test]
fn pieces_go_where_they_belong() {
    alone(|| {
        let (mut us, mut puppet, them) = target(4096, both());
        assert_eq!(puppet.ask(&format!("alloc 9 4096 {}", both())), "ok");
        let pieces = [at(1, 0, 8), at(9, 8, 12), at(1, 100, 0), at(1, 16, 4)];
        let bytes = content(1, 24);
        us.write(them, &pieces, &bytes, 1).unwrap();
        us.next().ok();
        us.read_from(them, &pieces, 24, 2).unwrap();
        assert_eq!(us.next().ok().bytes, bytes);
        us.read_from(them, &[at(9, 8, 12)], 12, 2).unwrap();
        assert_eq!(us.next().ok().bytes, bytes[8..20]);
    });
}

#[test]
fn the_order_of_puts_is_the_order_in_which_they_are_seen() {
    alone(|| {
        let (mut us, mut puppet, them) = target(1 << 16, both());
        for round in 1..2000 {
            let bytes = word(round).repeat(512);
            puppet.tell(&format!("wait 1 0 {round}"));
            us.write(them, &[at(1, 4096, 4096)], &bytes, 1).unwrap();
            us.write(them, &[at(1, 0, 8)], &word(round), 2).unwrap();
            assert_eq!(puppet.answer(), "ok");
            if round % 100 == 0 {
                let seen = puppet.ask("look 1 4096 512");
                assert!(seen.split(' ').all(|word| word == round.to_string()));
            }
            us.clear();
        }
    });
}

#[test]
fn an_endpoint_reaches_its_own_special_memory() {
    alone(|| {
        let mut us = Side::new();
        let me = us.insert(us.name());
        us.alloc(3, 8192, MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE)
            .unwrap();
        us.send(Kind::Tagged, me, 8, 1).unwrap();
        us.recv(Kind::Tagged, me, 8, 1).unwrap();
        us.next().ok();
        us.next().ok();
        us.write(me, &[at(3, 8, 8)], &word(6), 1).unwrap();
        us.next().ok();
        assert_eq!(us.word(3, 8), 6);
        us.read_from(me, &[at(3, 8, 8)], 8, 2).unwrap();
        assert_eq!(us.next().ok().bytes, word(6));
    });
}

#[test]
fn memory_of_an_owner_that_is_killed_or_stopped_can_be_used_until_it_is_let_go() {
    alone(|| {
        for is_killed in [false, true] {
            let (mut us, mut puppet, them) = target(1 << 20, both());
            us.write(them, &[at(1, 0, 8)], &word(1), 1).unwrap();
            us.next().ok();
            match is_killed {
                true => puppet.kill(),
                false => puppet.signal(Signal::SIGSTOP),
            }
            // It is gone or deaf, and we have not looked: nothing can go wrong.
            let bytes = content(2, 1 << 20);
            us.write(them, &[at(1, 0, 1 << 20)], &bytes, 2).unwrap();
            us.read_from(them, &[at(1, 0, 1 << 20)], 1 << 20, 3)
                .unwrap();
            us.next().ok();
            assert!(us.next().ok().bytes == bytes);
        }
    });
}

#[test]
fn memory_that_is_freed_and_made_again_all_the_time_is_never_another_s() {
    alone(|| {
        let (mut us, mut puppet, them) = target(8192, both());
        puppet.tell(&format!("recycle 1 8192 {}", both()));
        assert_eq!(puppet.answer(), "ok");
        let mut good = 0;
        us.until(|us| {
            // Between two lives there is no key.
            if us.read_from(them, &[at(1, 0, 8)], 8, 1).is_ok() {
                let event = us.next();
                let word = u64::from_ne_bytes(event.bytes[..].try_into().unwrap());
                assert!(event.error.is_some() || word <= 1, "{word:#x}");
                good += u64::from(event.error.is_none());
            }
            let _ = us.write(them, &[at(1, 4096, 8)], &word(77), 2);
            us.clear();
            good >= 500
        });
    });
}
