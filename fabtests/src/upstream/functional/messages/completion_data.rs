//! `fi_cq_data`: a send or write with remote CQ data of up to 8 bytes, which the completion at the
//! server must contain.

use anyhow::ensure;
use selvedge::cq::Entry;
use selvedge::{Caps, CompletionFlags};
use selvedge_testkit::domain::{Access, SHARED, Send};
use selvedge_testkit::failure::{unsupported, wrong};

use crate::upstream::channel::{Channel, ChannelConfig};
use crate::upstream::data::payload::{POISON, Stamp};
use crate::upstream::functional::open;
use crate::upstream::options::Options;

const SIZE: usize = 1000;
const DATA: u64 = 0x0123_4567_89ab_cdef;

/// Runs the program: the client posts one send or write (`-o`), and the server checks its own
/// completion.
pub(in crate::upstream) fn cq_data(options: &Options) -> anyhow::Result<()> {
    let writes = options.operation_of(&["senddata", "writedata"])? == "writedata";
    let caps = if writes {
        Caps::MSG | Caps::RMA
    } else {
        Caps::MSG
    };
    let config = ChannelConfig {
        largest: SIZE,
        ..ChannelConfig::default()
    };
    let mut channel = open(options, caps, config)?;
    let bytes = channel.domain().info().domain_attr.cq_data_size;
    if bytes < 4 {
        return Err(unsupported(format!(
            "cq_data_size is {bytes}; the program needs at least 4 bytes"
        )));
    }
    let data = match bytes {
        8.. => DATA,
        bytes => DATA & ((1 << (8 * bytes)) - 1),
    };
    if writes {
        write(&mut channel, data)?
    } else {
        send(&mut channel, data)?
    }
    println!("data verify: Pass");
    channel.finish()
}

/// The client sends a message with remote CQ data; the server receives it and checks both.
fn send(channel: &mut Channel, data: u64) -> anyhow::Result<()> {
    if !channel.is_client() {
        let entry = channel.next_entry()?;
        let kind = CompletionFlags::MSG | CompletionFlags::RECV;
        check(&entry, kind, data)?;
        channel.check_last(SIZE)?;
        return channel.prepost();
    }
    let block = channel.domain().buffers(SIZE)?;
    Stamp::of_pair(true, channel.sent).write(&block.memory, 0, SIZE);
    let send = Send::new(channel.peer, 77).data(data);
    let endpoint = &channel.endpoint;
    endpoint.push("send with data", |endpoint| {
        endpoint.send(&[block.whole()], &send)
    })?;
    let entry = endpoint.tx.next()?;
    ensure!(
        entry.context.0 == 77,
        "expected the completion of the send (context 77) instead of {entry:?}"
    );
    channel.skip();
    Ok(())
}

/// The client writes to the server's memory with remote CQ data; the server checks both.
fn write(channel: &mut Channel, data: u64) -> anyhow::Result<()> {
    let domain = channel.domain().clone();
    let (local, shared) = (domain.buffers(SIZE)?, domain.memory(SIZE, SHARED)?);
    shared.memory.fill(0, SIZE, POISON);
    let remote = channel.exchange_keys(&shared.rights)?;
    let stamp = Stamp::of_pair(true, 0);
    if !channel.is_client() {
        let entry = channel.endpoint.rx.next()?;
        let kind = CompletionFlags::RMA | CompletionFlags::REMOTE_WRITE;
        check(&entry, kind, data)?;
        return stamp.check(&shared.memory, 0, SIZE);
    }
    stamp.write(&local.memory, 0, SIZE);
    let access = Access::new(channel.peer, remote, 78).data(data);
    let endpoint = &channel.endpoint;
    endpoint.push("write with data", |endpoint| {
        endpoint.write(&[local.whole()], &access)
    })?;
    let entry = endpoint.tx.next()?;
    ensure!(
        entry.context.0 == 78,
        "expected the completion of the write (context 78) instead of {entry:?}"
    );
    Ok(())
}

/// Checks the server's completion; `kind` has its flags other than `FI_REMOTE_CQ_DATA`.
fn check(entry: &Entry, kind: CompletionFlags, data: u64) -> anyhow::Result<()> {
    let flags = kind | CompletionFlags::REMOTE_CQ_DATA;
    let is_expected = entry.flags == flags && entry.data == data && entry.len == SIZE;
    if is_expected {
        Ok(())
    } else {
        Err(wrong(format!(
            "expected {flags}, {SIZE} bytes and data {data:#x} instead of {entry:?}"
        )))
    }
}
