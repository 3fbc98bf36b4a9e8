//! Invocations: bytes for a function or a matching handler of another context.
//!
//! Few bytes are sent eagerly. More bytes stay here and are fetched by the target. In both cases
//! the invocations of one context arrive in order.

use super::parcel::Parcel;
use super::peer::InLine;
use super::{Arrival, Engine, Op};
use crate::bell::BellName;
use crate::local::Local;
use crate::recv::{Aligned, Payload};
use crate::wire::{self, Port, Said, Source};
use crate::{Error, Result};

/// The target of an invocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) to: usize,
    pub(crate) port: Port,
    pub(crate) bell: BellName,
}

/// The bytes of an invocation, by their owner until they have been fetched.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// Owned by the caller until the bell rings.
    Caller(Local),
    /// Owned by this context.
    Own(Aligned),
    /// Owned by this context, in special memory.
    Parcel(Parcel),
}

/// An outgoing invocation that its target fetches.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) to: usize,
    pub(super) bytes: Bytes,
    pub(super) bell: BellName,
}

/// An incoming invocation that is being fetched.
#[derive(Debug)]
pub(super) struct Fetch {
    pub(super) from: usize,
    pub(super) source: Source,
    pub(super) bytes: Aligned,
    port: Port,
    token: u64,
}

impl Engine {
    /// Invokes with a copy of `bytes`.
    ///
    /// # Errors
    /// When there is no such context, or it has failed.
    #[inline]
    pub(crate) fn invoke(&mut self, order: &Order, bytes: &[u8]) -> Result {
        if order.to == self.me || bytes.len() > self.eager(order.to)? {
            self.check(order.to)?;
            self.copies.packed(bytes.len());
            return self.invoke_kept(order, Bytes::Own(Aligned::copy_of(bytes)));
        }
        self.check_alive(order.to)?;
        self.peers[order.to].owes_flush = true;
        self.copies.packed(bytes.len());
        self.send_whole(order.to, wire::invocation(order.port), bytes);
        if !order.bell.is_none() {
            self.ring_own(order.bell);
        }
        Ok(())
    }

    /// Invokes with bytes that the caller lends until the bell rings, or that this context owns.
    ///
    /// # Errors
    /// As [`Self::invoke`].
    pub(crate) fn invoke_kept(&mut self, order: &Order, bytes: Bytes) -> Result {
        self.check(order.to)?;
        if order.to == self.me {
            return self.invoke_here(order, bytes);
        }
        self.check_alive(order.to)?;
        self.peers[order.to].owes_flush = true;
        let net = &self.nets[self.peers[order.to].net];
        let source = match &bytes {
            Bytes::Caller(local) => net.source(local.address(), local.len()),
            Bytes::Own(own) => {
                let address = own.bytes().as_ptr().expose_provenance();
                net.source(address as u64, own.bytes().len() as u64)
            }
            Bytes::Parcel(parcel) => parcel.source(net),
        };
        let token = self.add_op(Op::Lent(Lent {
            to: order.to,
            bytes,
            bell: order.bell,
        }));
        let said = Said::InvokeFetch {
            port: order.port,
            source,
            token,
        };
        self.send(order.to, &said, &[]);
        Ok(())
    }

    fn invoke_here(&mut self, order: &Order, bytes: Bytes) -> Result {
        let own = match bytes {
            Bytes::Own(own) => own,
            Bytes::Caller(local) => Aligned::copy_of(local.bytes()),
            Bytes::Parcel(parcel) => {
                let copy = Aligned::copy_of(parcel.bytes());
                self.parcels.take_back(Bytes::Parcel(parcel));
                copy
            }
        };
        self.copies.delivered(own.bytes().len());
        self.inbox.push_back(Arrival {
            from: self.me,
            port: order.port,
            payload: Payload::Own(own),
        });
        self.stirred = true;
        self.ring_own(order.bell);
        Ok(())
    }

    /// The largest payload that is sent eagerly.
    #[inline]
    pub(crate) fn eager(&self, to: usize) -> Result<usize> {
        let peer = self.peers.get(to).ok_or_else(|| Error::NoContext {
            context: to,
            last: self.peers.len() - 1,
        })?;
        Ok(self.nets[peer.net].eager())
    }

    // Target side.

    /// Handles an invocation with its bytes.
    #[inline]
    pub(super) fn hear_invoke(&mut self, from: usize, port: Port, payload: Payload) {
        self.copies.delivered(payload.bytes().len());
        let arrival = Arrival {
            from,
            port,
            payload,
        };
        let line = &mut self.peers[from].line;
        match line.is_empty() {
            true => self.inbox.push_back(arrival),
            false => line.push_back(InLine::Here(arrival)),
        }
    }

    /// Handles an invocation whose bytes must be fetched.
    pub(super) fn hear_invoke_fetch(
        &mut self,
        from: usize,
        port: Port,
        source: Source,
        token: u64,
    ) {
        let len = usize::try_from(source.len).ok();
        let Some(bytes) = len.and_then(Aligned::try_zeroed) else {
            let why = format!("an invocation with {} bytes", source.len);
            self.fail(Error::NoMemory {
                context: self.me,
                what: why,
            });
            let said = Said::Failed {
                token,
                at_source: true,
            };
            return self.send(from, &said, &[]);
        };
        let op = self.add_op(Op::Fetch(Fetch {
            from,
            source,
            bytes,
            port,
            token,
        }));
        self.peers[from].line.push_back(InLine::Coming(op));
        self.post_for(op);
    }

    pub(super) fn fetched(&mut self, number: u64, op: Fetch) {
        self.copies.delivered(op.bytes.bytes().len());
        let arrival = Arrival {
            from: op.from,
            port: op.port,
            payload: Payload::Own(op.bytes),
        };
        let line = &mut self.peers[op.from].line;
        let place = line.iter_mut().find(|place| is_coming(place, number));
        if let Some(place) = place {
            *place = InLine::Here(arrival);
        }
        self.advance(op.from);
        self.send(op.from, &Said::Done { token: op.token }, &[]);
    }

    /// Handles a failed fetch: removes the invocation from the queue.
    pub(super) fn not_fetched(&mut self, number: u64, op: &Fetch) {
        let line = &mut self.peers[op.from].line;
        line.retain(|place| !is_coming(place, number));
        self.advance(op.from);
        let said = Said::Failed {
            token: op.token,
            at_source: true,
        };
        self.send(op.from, &said, &[]);
    }

    /// Moves complete invocations from the head of a context's queue to the inbox.
    pub(super) fn advance(&mut self, from: usize) {
        let line = &mut self.peers[from].line;
        while let Some(InLine::Here(_)) = line.front() {
            if let Some(InLine::Here(arrival)) = line.pop_front() {
                self.inbox.push_back(arrival);
            }
        }
    }

    /// Reports to the caller that its function is not registered here, and records the failure.
    pub(crate) fn no_function(&mut self, caller: usize, id: u32) {
        let known = self.registered.functions();
        if caller != self.me {
            self.send(caller, &Said::NoFunction { id, known }, &[]);
        }
        self.fail(Error::NoFunction {
            caller,
            target: self.me,
            id,
            known,
        });
    }

    pub(super) fn hear_no_function(&mut self, target: usize, id: u32, known: u32) {
        self.fail(Error::NoFunction {
            caller: self.me,
            target,
            id,
            known,
        });
    }
}

fn is_coming(place: &InLine, number: u64) -> bool {
    matches!(place, InLine::Coming(op) if *op == number)
}
