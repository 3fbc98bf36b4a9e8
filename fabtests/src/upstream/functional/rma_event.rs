//! `fi_rdm_rma_event`: the target of a write learns of it by a counter alone.

use std::sync::Arc;

use selvedge::Caps;
use selvedge::info::EpType;
use selvedge_testkit::domain::{Access, SHARED};

use crate::upstream::channel::{Channel, Manners};
use crate::upstream::discover::{discover, hints};
use crate::upstream::ground;
use crate::upstream::options::Options;
use crate::upstream::payload::{POISON, Stamp};

/// The program.
pub(in crate::upstream) fn rdm_rma_event(options: &Options) -> anyhow::Result<()> {
    let size = options.sizes.one().unwrap_or(1000);
    let caps = Caps::MSG | Caps::RMA | Caps::RMA_EVENT;
    let info = discover(options, &hints(options, caps, EpType::Rdm)?)?;
    let ground = ground::open(options, info)?;
    let (writes, arrivals) = (ground.count()?, ground.count()?);
    let manners = Manners {
        counters: true,
        ..Manners::default()
    };
    let mut channel = Channel::counting(options, &ground, manners, |counters| {
        counters.write = Some(Arc::clone(writes.cntr()));
        counters.remote_write = Some(Arc::clone(arrivals.cntr()));
        counters.remote_read = Some(Arc::clone(arrivals.cntr()));
    })?;
    let (local, shared) = (ground.buffers(size)?, ground.memory(size, SHARED)?);
    shared.memory.fill(0, size, POISON);
    let remote = channel.exchange_keys(&shared.rights)?;
    let stamp = Stamp::of_pair(true, 0);
    if channel.is_client() {
        stamp.write(&local.memory, 0, size);
        let access = Access::new(channel.peer, remote, 1);
        println!("RMA write to server");
        channel
            .end
            .push("write", |end| end.write(&[local.whole()], &access))?;
        writes.wait(1)?;
        println!("Received a completion event for RMA write");
    } else {
        arrivals.wait(1)?;
        println!("Received data from Client");
        stamp.check(&shared.memory, 0, size)?;
    }
    channel.finish()?;
    let expected = u64::from(!channel.is_client());
    let counted = arrivals.read();
    anyhow::ensure!(
        counted == expected,
        "{counted} accesses of the peer were counted"
    );
    Ok(())
}
