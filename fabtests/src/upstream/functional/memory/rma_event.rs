//! `fi_rdm_rma_event`: a counter is the only notification of a write at the target.

use std::sync::Arc;

use selvedge::Caps;
use selvedge::info::EpType;
use selvedge_testkit::domain::{Access, SHARED};

use crate::upstream::channel::{Channel, ChannelConfig};
use crate::upstream::data::payload::{POISON, Stamp};
use crate::upstream::options::Options;
use crate::upstream::setup::discover::{discover, hints};
use crate::upstream::setup::domain;

/// Runs the program.
pub(in crate::upstream) fn rdm_rma_event(options: &Options) -> anyhow::Result<()> {
    let size = options.sizes.one().unwrap_or(1000);
    let caps = Caps::MSG | Caps::RMA | Caps::RMA_EVENT;
    let info = discover(options, &hints(options, caps, EpType::Rdm)?)?;
    let domain = domain::open(options, info)?;
    let (writes, remote_accesses) = (domain.count()?, domain.count()?);
    let config = ChannelConfig {
        counters: true,
        ..ChannelConfig::default()
    };
    let mut channel = Channel::with_counters(options, &domain, config, |counters| {
        counters.write = Some(Arc::clone(writes.cntr()));
        counters.remote_write = Some(Arc::clone(remote_accesses.cntr()));
        counters.remote_read = Some(Arc::clone(remote_accesses.cntr()));
    })?;
    let (local, shared) = (domain.buffers(size)?, domain.memory(size, SHARED)?);
    shared.memory.fill(0, size, POISON);
    let remote = channel.exchange_keys(&shared.rights)?;
    let stamp = Stamp::of_pair(true, 0);
    if channel.is_client() {
        stamp.write(&local.memory, 0, size);
        let access = Access::new(channel.peer, remote, 1);
        println!("RMA write to server");
        channel.endpoint.push("write", |endpoint| {
            endpoint.write(&[local.whole()], &access)
        })?;
        writes.wait(1)?;
        println!("Received a completion event for RMA write");
    } else {
        remote_accesses.wait(1)?;
        println!("Received data from Client");
        stamp.check(&shared.memory, 0, size)?;
    }
    channel.finish()?;
    let expected = u64::from(!channel.is_client());
    let counted = remote_accesses.read();
    anyhow::ensure!(
        counted == expected,
        "the counter of remote accesses is {counted}, expected {expected}"
    );
    Ok(())
}
