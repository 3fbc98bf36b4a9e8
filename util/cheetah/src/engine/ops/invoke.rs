//! An invocation carries bytes to a function or a matching handler of another context.
//!
//! Up to [`Engine::eager`] bytes travel in the invocation's message. More bytes stay in the
//! sender's memory until the target has fetched them. In both cases, invocations between two
//! contexts arrive in order.

use super::op::{Fetch, Invocation, InvokeTarget, Op, OutgoingInvocation};
use crate::engine::parts::parcel::Bytes;
use crate::engine::parts::peer::QueuedInvocation;
use crate::engine::state::Engine;
use crate::net::recv::{Aligned, Payload};
use crate::net::wire::{self, Port, Source, WireMessage};
use crate::{Error, Result};

impl Engine {
    /// Sends an invocation with a copy of `bytes`.
    ///
    /// # Errors
    /// The target context does not exist, has finalized or has failed.
    #[inline]
    pub(crate) fn invoke(&mut self, target: &InvokeTarget, bytes: &[u8]) -> Result {
        if target.to == self.rank || bytes.len() > self.eager(target.to)? {
            self.check(target.to)?;
            self.copies.packed(bytes.len());
            return self.invoke_bytes(target, Bytes::Owned(Aligned::copy_of(bytes)));
        }
        self.check_alive(target.to)?;
        self.peers[target.to].owes_flush = true;
        self.copies.packed(bytes.len());
        self.send_without_head(target.to, wire::invocation_tag(target.port), bytes);
        if !target.bell.is_none() {
            self.ring_local(target.bell);
        }
        Ok(())
    }

    /// Sends an invocation whose bytes the target fetches.
    ///
    /// # Errors
    /// As [`Self::invoke`].
    pub(crate) fn invoke_bytes(&mut self, target: &InvokeTarget, bytes: Bytes) -> Result {
        self.check(target.to)?;
        if target.to == self.rank {
            return self.invoke_local(target, bytes);
        }
        self.check_alive(target.to)?;
        self.peers[target.to].owes_flush = true;
        let net = &self.nets[self.peers[target.to].net];
        let source = match &bytes {
            Bytes::Caller(local) => net.source(local.address(), local.len()),
            Bytes::Owned(owned) => {
                let address = owned.bytes().as_ptr().expose_provenance();
                net.source(address as u64, owned.bytes().len() as u64)
            }
            Bytes::Parcel(parcel) => parcel.source(net),
        };
        let token = self.add_op(Op::Invoke(OutgoingInvocation {
            to: target.to,
            bytes,
            bell: target.bell,
        }));
        let message = WireMessage::InvokeFetch {
            port: target.port,
            source,
            token,
        };
        self.send(target.to, &message, &[]);
        Ok(())
    }

    fn invoke_local(&mut self, target: &InvokeTarget, bytes: Bytes) -> Result {
        let owned = match bytes {
            Bytes::Owned(owned) => owned,
            Bytes::Caller(local) => Aligned::copy_of(local.bytes()),
            Bytes::Parcel(parcel) => {
                let copy = Aligned::copy_of(parcel.bytes());
                self.parcels.release(Bytes::Parcel(parcel));
                copy
            }
        };
        self.copies.delivered(owned.bytes().len());
        self.inbox.push_back(Invocation {
            from: self.rank,
            port: target.port,
            payload: Payload::Owned(owned),
        });
        self.has_progressed = true;
        self.ring_local(target.bell);
        Ok(())
    }

    /// Returns the largest payload that travels in an invocation's message to context `to`, in
    /// bytes.
    ///
    /// # Errors
    /// The context does not exist.
    #[inline]
    pub(crate) fn eager(&self, to: usize) -> Result<usize> {
        let peer = self.peers.get(to).ok_or_else(|| Error::NoContext {
            context: to,
            last: self.peers.len() - 1,
        })?;
        Ok(self.nets[peer.net].eager())
    }

    // Target side.

    /// Handles an invocation whose message carries the bytes. It waits in the queue while an
    /// earlier invocation of the same context is being fetched.
    #[inline]
    pub(crate) fn on_invoke(&mut self, from: usize, port: Port, payload: Payload) {
        self.copies.delivered(payload.bytes().len());
        let invocation = Invocation {
            from,
            port,
            payload,
        };
        let fetch_queue = &mut self.peers[from].fetch_queue;
        if fetch_queue.is_empty() {
            self.inbox.push_back(invocation)
        } else {
            fetch_queue.push_back(QueuedInvocation::Ready(invocation))
        }
    }

    /// Handles an invocation whose bytes must be fetched.
    pub(crate) fn on_invoke_fetch(&mut self, from: usize, port: Port, source: Source, token: u64) {
        let len = usize::try_from(source.len).ok();
        let Some(bytes) = len.and_then(Aligned::try_zeroed) else {
            let purpose = format!("an invocation with {} bytes", source.len);
            self.fail(Error::NoMemory {
                context: self.rank,
                purpose,
            });
            return self.send_fetch_failure(from, token);
        };
        let op = self.add_op(Op::Fetch(Fetch {
            from,
            source,
            bytes,
            port,
            token,
        }));
        self.peers[from]
            .fetch_queue
            .push_back(QueuedInvocation::Fetching(op));
        self.post_for(op);
    }

    /// Handles a completed fetch: marks the invocation as ready, and notifies the sender.
    pub(crate) fn fetched(&mut self, number: u64, op: Fetch) {
        self.copies.delivered(op.bytes.bytes().len());
        let invocation = Invocation {
            from: op.from,
            port: op.port,
            payload: Payload::Owned(op.bytes),
        };
        let fetch_queue = &mut self.peers[op.from].fetch_queue;
        let entry = fetch_queue
            .iter_mut()
            .find(|entry| is_fetching(entry, number));
        if let Some(entry) = entry {
            *entry = QueuedInvocation::Ready(invocation);
        }
        self.advance(op.from);
        self.send(op.from, &WireMessage::Done { token: op.token }, &[]);
    }

    /// Handles a failed fetch: removes the invocation from the queue, and notifies the sender.
    pub(crate) fn fetch_failed(&mut self, number: u64, op: &Fetch) {
        let fetch_queue = &mut self.peers[op.from].fetch_queue;
        fetch_queue.retain(|entry| !is_fetching(entry, number));
        self.advance(op.from);
        self.send_fetch_failure(op.from, op.token);
    }

    fn send_fetch_failure(&mut self, to: usize, token: u64) {
        let at_source = true;
        self.send(to, &WireMessage::Failed { token, at_source }, &[]);
    }

    /// Moves ready invocations from the head of a context's queue to the inbox.
    pub(crate) fn advance(&mut self, from: usize) {
        let fetch_queue = &mut self.peers[from].fetch_queue;
        while let Some(QueuedInvocation::Ready(_)) = fetch_queue.front() {
            if let Some(QueuedInvocation::Ready(invocation)) = fetch_queue.pop_front() {
                self.inbox.push_back(invocation);
            }
        }
    }

    /// Reports to the caller that its function is not registered here, and records the failure.
    pub(crate) fn report_no_function(&mut self, caller: usize, id: u32) {
        let registered = self.registered.functions();
        if caller != self.rank {
            self.send(caller, &WireMessage::NoFunction { id, registered }, &[]);
        }
        self.fail(Error::NoFunction {
            caller,
            target: self.rank,
            id,
            registered,
        });
    }

    pub(crate) fn on_no_function(&mut self, target: usize, id: u32, registered: u32) {
        self.fail(Error::NoFunction {
            caller: self.rank,
            target,
            id,
            registered,
        });
    }
}

fn is_fetching(entry: &QueuedInvocation, number: u64) -> bool {
    matches!(entry, QueuedInvocation::Fetching(op) if *op == number)
}
