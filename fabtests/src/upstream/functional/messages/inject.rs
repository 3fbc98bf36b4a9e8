//! `fi_inject_test`: the sender overwrites each buffer as soon as it may reuse it: when the call
//! returns (`FI_INJECT`), or when the operation completes (`FI_INJECT_COMPLETE`).

use anyhow::{bail, ensure};
use selvedge::{Caps, OpFlags};
use selvedge_testkit::domain::Send;

use crate::upstream::channel::{CONTROL, Channel, ChannelConfig};
use crate::upstream::data::payload::{POISON, Stamp};
use crate::upstream::functional::open;
use crate::upstream::options::Options;

/// Runs the program. With `-N`, each send has the flag; otherwise the flag is a default of the
/// endpoint.
pub(in crate::upstream) fn inject_test(options: &Options) -> anyhow::Result<()> {
    let flag = match options.text("A") {
        Some("inject") | None => OpFlags::INJECT,
        Some("inj_complete") => OpFlags::INJECT_COMPLETE,
        Some(other) => bail!("-A {other:?}: the values are inject and inj_complete"),
    };
    let of_message = options.has("N");
    let config = ChannelConfig {
        tagged: true,
        largest: options.sizes.one().unwrap_or(0),
        flags: if of_message { OpFlags::empty() } else { flag },
        ..ChannelConfig::default()
    };
    let mut options = options.clone();
    options.verify = true;
    let mut channel = open(&options, Caps::TAGGED, config)?;
    let max_size = match flag {
        OpFlags::INJECT => channel.domain().info().tx_attr.inject_size,
        _ => CONTROL,
    };
    let requested = options.sizes.one().unwrap_or(max_size);
    let sizes = [1, requested.min(64), requested.min(max_size).min(CONTROL)];
    let flags = if of_message { flag } else { OpFlags::DEFAULT };
    for _ in 0..options.iterations.unwrap_or(100) {
        for size in sizes {
            if channel.is_client() {
                send(&mut channel, size, flags, flag)?;
                receive(&mut channel, size)?;
            } else {
                receive(&mut channel, size)?;
                send(&mut channel, size, flags, flag)?;
            }
        }
    }
    channel.finish()
}

fn send(channel: &mut Channel, size: usize, flags: OpFlags, kind: OpFlags) -> anyhow::Result<()> {
    let block = channel.domain().buffers(size)?;
    Stamp::of_pair(channel.is_client(), channel.sent).write(&block.memory, 0, size);
    let send = Send::new(channel.peer, channel.sent)
        .tag(channel.sent)
        .flags(flags);
    let endpoint = &channel.endpoint;
    endpoint.push("injected send", |endpoint| {
        endpoint.send(&[block.whole()], &send)
    })?;
    if kind == OpFlags::INJECT {
        block.memory.fill(0, size, POISON);
    }
    let entry = endpoint.tx.next()?;
    block.memory.fill(0, size, POISON);
    ensure!(
        entry.context.0 == send.context,
        "another send than {} completed: {entry:?}",
        send.context
    );
    channel.skip();
    Ok(())
}

fn receive(channel: &mut Channel, size: usize) -> anyhow::Result<()> {
    let number = channel.arrived;
    channel.receive()?;
    channel.check_preposted(number..number + 1, size)
}
