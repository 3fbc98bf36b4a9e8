//! Short forms of the calls, which take no message structure: they behave as the forms with a
//! message, also where the provider executes them as one instruction.

#![expect(unsafe_code, reason = "tests of the raw API")]

use selvedge::atomic::{Family, Ioc, IocMut};
use selvedge::{AtomicExt, Context, Desc, Errno};
use selvedge_testkit::domain::Block;

use crate::pair::{AtomicPair, Kind, RIGHTS, register};

const KEY: u64 = 0x7e57;

/// Adds to a word by its short form. Returns the fetched value.
fn fetch_add(pair: &AtomicPair, block: &Block, addr: u64, operand: u64) -> Result<u64, Errno> {
    let mut before = u64::MAX;
    let operand = Ioc::from_raw((&raw const operand).cast(), 1);
    let result = IocMut::from_raw((&raw mut before).cast(), 1);
    let (operand, result) = ((operand, Desc::NONE), (result, Desc::NONE));
    let target = pair.target(block, addr);
    let ep = &pair.a.ep;
    // SAFETY: both words live until the completion, which is waited for.
    unsafe { ep.fetch_atomic(operand, result, &target, Context(5)) }.unwrap();
    let done = pair.wait_at_a().map_err(|error| error.errno)?;
    assert_eq!(done.context, Context(5));
    Ok(before)
}

/// Adds to a word by its short form.
fn add(pair: &AtomicPair, block: &Block, addr: u64, operand: u64) -> Result<(), Errno> {
    let operand = Ioc::from_raw((&raw const operand).cast(), 1);
    let target = pair.target(block, addr);
    // SAFETY: the word lives until the completion, which is waited for.
    unsafe { pair.a.ep.atomic(operand, Desc::NONE, &target, Context(6)) }.unwrap();
    let done = pair.wait_at_a().map_err(|error| error.errno)?;
    assert_eq!(done.context, Context(6));
    Ok(())
}

#[test]
fn short_forms_behave_as_messages() {
    let pair = AtomicPair::new();
    for kind in Kind::ALL {
        let block = register(&pair.b, kind, 64, RIGHTS, KEY);
        for turn in 0..3 {
            let sum = block.memory.word(24);
            add(&pair, &block, 24, 5 + turn).unwrap();
            assert_eq!(block.memory.word(24), sum + 5 + turn, "{kind:?}");
            assert_eq!(fetch_add(&pair, &block, 24, 7), Ok(sum + 5 + turn));
            assert_eq!(block.memory.word(24), sum + 12 + turn, "{kind:?}");
            let one = 1_u64.to_ne_bytes();
            let (operands, targets) = ([&one[..]], [(24, 1)]);
            let message = pair.sum(Family::Base, &block, &operands, &[], &targets);
            message.post(&pair.a, 8).unwrap();
            pair.wait_at_a().unwrap();
        }
        assert_eq!(block.memory.word(24), 3 + 3 * 12 + 3, "{kind:?}");
    }
}

#[test]
fn short_forms_are_refused_as_messages_are() {
    let pair = AtomicPair::new();
    for kind in Kind::ALL {
        let block = register(&pair.b, kind, 64, RIGHTS, KEY);
        add(&pair, &block, 0, 1).unwrap();
        for (addr, errno) in [
            (64, Errno::Fault),
            (57, Errno::Fault),
            (u64::MAX - 7, Errno::Fault),
            (4, Errno::Inval),
        ] {
            assert_eq!(add(&pair, &block, addr, 1), Err(errno), "{kind:?} {addr}");
            assert_eq!(
                fetch_add(&pair, &block, addr, 1),
                Err(errno),
                "{kind:?} {addr}"
            );
        }
        assert_eq!(block.memory.word(0), 1);
    }
}
