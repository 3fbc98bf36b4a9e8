//! `State`: the parts of an endpoint that its lock protects.
//!
//! Each part has a type of its own, and a function borrows only the parts that it needs:
//! [`CommandReceiver`] those for taking commands, [`Connector`] those for connecting and
//! disconnecting peers.

use std::sync::Arc;

use selvedge_kit::Ep;
use selvedge_kit::srx::ReceivePolicy;

use crate::connect::Connector;
use crate::connect::control::Control;
use crate::matching::Matching;
use crate::matching::command_receiver::CommandReceiver;
use crate::memory::special::LastBlock;
use crate::peers::Peers;
use crate::progress::schedule::Schedule;
use crate::provider::setup::Setup;
use crate::rma::remote_memory::PrefetchHint;

/// The parts of an endpoint that its lock protects.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) setup: Setup,
    pub(crate) peers: Peers,
    pub(crate) matching: Matching,
    pub(crate) schedule: Schedule,
    pub(crate) control: Control,
    /// The mapping that the last direct access used.
    pub(crate) prefetch_hint: PrefetchHint,
    /// The block that a message was lent from last.
    pub(crate) last_lent: LastBlock,
}

impl State {
    pub(crate) fn new(setup: Setup, policy: ReceivePolicy, control: Control) -> Self {
        let config = &setup.config;
        Self {
            peers: Peers::new(Arc::clone(&setup.av), Arc::clone(&setup.shared)),
            matching: Matching::new(policy, config.unexpected_size),
            schedule: Schedule::new(config.polled_peers, setup.ep.has_layer()),
            control,
            prefetch_hint: PrefetchHint::NONE,
            last_lent: LastBlock::default(),
            setup,
        }
    }

    /// Borrows the parts that change when commands are taken, and the peers.
    #[inline(always)]
    pub(crate) fn command_receiver(&mut self) -> (CommandReceiver<'_>, &mut Peers) {
        let receiver = CommandReceiver {
            setup: &self.setup,
            matching: &mut self.matching,
            schedule: &mut self.schedule,
            peers: self.peers.len(),
        };
        (receiver, &mut self.peers)
    }

    /// Borrows the parts that the fast path of a send changes.
    #[inline(always)]
    pub(crate) fn split_for_send(&mut self) -> (&Setup, &mut Peers, &mut Schedule) {
        (&self.setup, &mut self.peers, &mut self.schedule)
    }

    /// Borrows the parts that change when peers connect and disconnect.
    pub(crate) fn connector(&mut self) -> Connector<'_> {
        Connector {
            setup: &self.setup,
            peers: &mut self.peers,
            matching: &mut self.matching,
            schedule: &mut self.schedule,
            control: &mut self.control,
        }
    }
}

impl AsMut<Ep> for State {
    fn as_mut(&mut self) -> &mut Ep {
        &mut self.setup.ep
    }
}
