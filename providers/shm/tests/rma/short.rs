//! Short forms of the calls, which take no message structure: they behave as the forms with a
//! message, also where the provider executes them as loads and stores.

use std::sync::Arc;

use selvedge::{Allocation, Context, Desc, Errno, Iov, IovMut, MrAccess, RmaExt, alloc};

use crate::common::{BOTH, KEY, RmaPair, read, write_entry};

/// The key of the special memory.
const SPECIAL: u64 = KEY + 1;
const LEN: usize = 4096;

/// A pair whose target has ordinary memory under one key, and special memory under the other.
fn open_pair(access: MrAccess) -> (RmaPair, Arc<dyn Allocation>) {
    let pair = RmaPair::new("auto", LEN);
    let attr = alloc::Attr::new(access).with_key(SPECIAL);
    let memory = pair.b.domain().alloc(LEN, &attr).unwrap();
    (pair, memory)
}

/// Writes a word by its short form.
#[track_caller]
fn write_word(pair: &RmaPair, word: u64, addr: u64, key: u64) -> Result<(), Errno> {
    let bytes = word.to_ne_bytes();
    let (ep, to_b) = (&pair.a.ep, pair.to_b);
    pair.a.post_retrying(&[&pair.b], || {
        // SAFETY: the bytes live until the completion, which is waited for.
        unsafe { ep.write(Iov::new(&bytes), Desc::NONE, to_b, addr, key, Context(3)) }
    });
    match pair.wait_at_a() {
        Ok(entry) => assert_eq!(entry, write_entry(3)),
        Err(error) => return Err(error.errno),
    }
    Ok(())
}

/// Reads a word by its short form.
#[track_caller]
fn read_word(pair: &RmaPair, addr: u64, key: u64) -> Result<u64, Errno> {
    let mut bytes = [0xee; 8];
    let (ep, to_b) = (&pair.a.ep, pair.to_b);
    pair.a.post_retrying(&[&pair.b], || {
        let iov = IovMut::new(&mut bytes);
        // SAFETY: no code accesses the buffer until the completion, which is waited for.
        unsafe { ep.read(iov, Desc::NONE, to_b, addr, key, Context(4)) }
    });
    match pair.wait_at_a() {
        Ok(entry) => assert_eq!(entry.context, Context(4)),
        Err(error) => return Err(error.errno),
    }
    Ok(u64::from_ne_bytes(bytes))
}

/// Reads a word by the form with a message.
#[track_caller]
fn read_by_message(pair: &RmaPair, addr: u64, key: u64) -> Result<u64, Errno> {
    let segment = selvedge::rma::RmaIov { addr, len: 8, key };
    let bytes = read(&pair.a, &[&pair.b], pair.to_b, &[segment], &[8]);
    let bytes = bytes.map_err(|error| error.errno)?;
    Ok(u64::from_ne_bytes(bytes.try_into().unwrap()))
}

#[test]
fn a_word_is_written_and_read_by_short_forms() {
    let (pair, _memory) = open_pair(BOTH);
    for key in [KEY, SPECIAL] {
        for (turn, addr) in [0, 8, 13, LEN as u64 - 8].into_iter().enumerate() {
            let word = (key << 32) | (turn as u64 + 1);
            write_word(&pair, word, addr, key).unwrap();
            pair.settle();
            assert_eq!(
                read_by_message(&pair, addr, key),
                Ok(word),
                "key {key} at {addr}"
            );
            assert_eq!(read_word(&pair, addr, key), Ok(word), "key {key} at {addr}");
        }
    }
}

#[test]
fn short_forms_are_refused_as_messages_are() {
    let (pair, _memory) = open_pair(BOTH);
    for key in [KEY, SPECIAL] {
        write_word(&pair, 1, LEN as u64 - 8, key).unwrap();
        for (addr, key, errno) in [
            (LEN as u64 - 7, key, Errno::Fault),
            (LEN as u64, key, Errno::Fault),
            (u64::MAX - 3, key, Errno::Fault),
            (0, SPECIAL + 8, Errno::KeyRejected),
        ] {
            assert_eq!(
                write_word(&pair, 2, addr, key),
                Err(errno),
                "key {key} at {addr}"
            );
            assert_eq!(
                read_word(&pair, addr, key),
                Err(errno),
                "key {key} at {addr}"
            );
            assert_eq!(
                read_by_message(&pair, addr, key),
                Err(errno),
                "key {key} at {addr}"
            );
        }
        pair.settle();
        assert_eq!(read_word(&pair, LEN as u64 - 8, key), Ok(1));
    }
}

#[test]
fn short_forms_need_the_right_and_the_region() {
    let (pair, memory) = open_pair(MrAccess::REMOTE_READ);
    assert_eq!(read_word(&pair, 8, SPECIAL), Ok(0));
    assert_eq!(write_word(&pair, 2, 8, SPECIAL), Err(Errno::Acces));
    assert_eq!(read_word(&pair, 8, SPECIAL), Ok(0));
    drop(memory);
    assert_eq!(read_word(&pair, 8, SPECIAL), Err(Errno::KeyRejected));
    assert_eq!(write_word(&pair, 2, 8, SPECIAL), Err(Errno::KeyRejected));
}
