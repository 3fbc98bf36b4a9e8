//! `fi_flood`: messages without posted receives, and then many registrations, one after the other.

use std::thread::sleep;
use std::time::Duration;

use selvedge::info::EpType;
use selvedge::{Caps, MsgOrder, OpFlags};
use selvedge_testkit::domain::{Block, Send};

use crate::upstream::channel::{Channel, ChannelConfig, open_channel};
use crate::upstream::data::payload::Stamp;
use crate::upstream::options::Options;
use crate::upstream::setup::discover::{discover, hints};

/// Runs the program.
pub(in crate::upstream) fn flood(options: &Options) -> anyhow::Result<()> {
    let size = options.sizes.one().unwrap_or(1024);
    let window = options.number("W", 64)?;
    let pause = Duration::from_secs(options.number("T", 0)?);
    let mut flags = OpFlags::empty();
    flags.set(OpFlags::DELIVERY_COMPLETE, options.has("U"));
    let config = ChannelConfig {
        largest: size,
        window,
        flags,
        ..ChannelConfig::default()
    };
    let mut channel = match options.ep_type {
        Some(EpType::Msg) => open_channel(options, Caps::MSG, config)?,
        _ => {
            let mut hints = hints(options, Caps::MSG, EpType::Rdm)?;
            if options.verify {
                hints = hints.msg_order(MsgOrder::SAS);
            }
            Channel::open(options, discover(options, &hints)?, config)?
        }
    };
    channel.lay_out(size);
    channel.sync()?;
    if channel.is_client() {
        send_all(&mut channel, size, window)?
    } else {
        receive_all(&mut channel, size, window, pause)?
    }
    channel.sync()?;
    if channel.is_client() {
        register_and_send(&mut channel, size, window)?
    } else {
        for _ in 0..window {
            receive(&mut channel, size)?;
        }
    }
    channel.finish()
}

/// Sends all messages at once, each from separately registered memory.
fn send_all(channel: &mut Channel, size: usize, window: usize) -> anyhow::Result<()> {
    let domain = channel.domain().clone();
    let blocks: Result<Vec<Block>, _> = (0..window).map(|_| domain.buffers(size)).collect();
    let blocks = blocks?;
    let first = channel.sent;
    for block in &blocks {
        post(channel, block, size)?;
    }
    crate::upstream::functional::wait_for_all(&[&channel.endpoint.tx], first..first + window as u64)
}

fn post(channel: &mut Channel, block: &Block, size: usize) -> anyhow::Result<()> {
    let number = channel.sent;
    Stamp::of_pair(true, number).write(&block.memory, 0, size);
    let send = Send::new(channel.peer, number);
    channel.endpoint.push("send", |endpoint| {
        endpoint.send(&[block.segment(0, size)], &send)
    })?;
    channel.skip();
    Ok(())
}

/// Sleeps, and then receives all messages. Before that, one receive is posted, so that all messages
/// except the first are unexpected.
fn receive_all(
    channel: &mut Channel,
    size: usize,
    window: usize,
    pause: Duration,
) -> anyhow::Result<()> {
    sleep(pause);
    let first = channel.arrived;
    for number in 1..=window {
        if number == window {
            channel.prepost()?
        } else {
            channel.post_slot()?
        }
    }
    let last = first + window as u64;
    channel.await_messages(last)?;
    if channel.options.verify {
        channel.check_window(first..last, size, first)
    } else {
        Ok(())
    }
}

/// Sends one message after the other, each with a new registration.
fn register_and_send(channel: &mut Channel, size: usize, window: usize) -> anyhow::Result<()> {
    let domain = channel.domain().clone();
    let mut block = domain.buffers(size)?;
    for _ in 0..window {
        block.rights = domain.register(&block.memory, selvedge_testkit::domain::LOCAL)?;
        let number = channel.sent;
        post(channel, &block, size)?;
        crate::upstream::functional::wait_for_all(&[&channel.endpoint.tx], [number])?;
    }
    Ok(())
}

fn receive(channel: &mut Channel, size: usize) -> anyhow::Result<()> {
    let number = channel.arrived;
    channel.receive()?;
    if channel.options.verify {
        channel.check_preposted(number..number + 1, size)
    } else {
        Ok(())
    }
}
