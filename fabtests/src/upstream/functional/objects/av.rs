//! `fi_av_xfer`: messages to peers that were removed from the address vector and inserted again.

use anyhow::{Context as _, ensure};
use selvedge::info::EpType;
use selvedge::{Caps, FiAddr};

use crate::upstream::channel::{Channel, ChannelConfig};
use crate::upstream::options::Options;
use crate::upstream::setup::discover::{discover, hints};

/// Runs the program.
pub(in crate::upstream) fn av_xfer(options: &Options) -> anyhow::Result<()> {
    let mut options = crate::upstream::functional::with_out_of_band(options, true);
    options.verify = true;
    println!("Testing with reversed transfer direction");
    let mut channel = open(&options)?;
    transfer(&mut channel, true)?;
    channel.sync()?;
    remove(&mut channel)?;
    channel.sync()?;
    insert(&mut channel)?;
    transfer(&mut channel, false)?;
    channel.sync()?;
    drop(channel);

    println!("Testing remove and insert");
    let mut channel = open(&options)?;
    transfer(&mut channel, true)?;
    channel.sync()?;
    remove(&mut channel)?;
    insert(&mut channel)?;
    transfer(&mut channel, true)?;
    channel.sync()
}

fn open(options: &Options) -> anyhow::Result<Channel> {
    let info = discover(options, &hints(options, Caps::MSG, EpType::Rdm)?)?;
    Channel::open(options, info, ChannelConfig::default())
}

fn transfer(channel: &mut Channel, to_server: bool) -> anyhow::Result<()> {
    let size = channel.options.sizes.one().unwrap_or(64);
    if channel.is_client() == to_server {
        return channel.send(size);
    }
    let number = channel.arrived;
    channel.receive()?;
    channel.check_preposted(number..number + 1, size)
}

/// Removes the peer, and checks that a send to the peer's former index fails.
fn remove(channel: &mut Channel) -> anyhow::Result<()> {
    let peer = channel.peer;
    channel
        .endpoint
        .av
        .remove(&[peer])
        .context("fi_av_remove")?;
    let number = channel.sent;
    let result = channel.inject(1);
    ensure!(
        result.is_err() && channel.sent == number,
        "a message to a removed peer was sent"
    );
    ensure!(
        channel.endpoint.av.lookup(peer).is_err(),
        "a lookup finds a removed peer"
    );
    channel.peer = FiAddr::UNSPEC;
    Ok(())
}

fn insert(channel: &mut Channel) -> anyhow::Result<()> {
    let name = channel.endpoint.name()?;
    let oob = channel
        .oob
        .as_mut()
        .context("there is no out-of-band connection")?;
    let from_peer = oob.exchange(&name)?;
    channel.insert_peer(&from_peer)
}
