//! Hooks around the objects that have no recorder: address vectors, counters, event queues, passive
//! and scalable endpoints, and regions.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use selvedge::eq::{ErrEntry, Event};
use selvedge::{
    Address, AddressVector, Bindings, Counter, Endpoint, Errno, Error, EventQueue, FiAddr, Info,
    MemoryRegion, MrAccess, PassiveEndpoint, Result, ScalableEndpoint,
};
use selvedge_kit::layer::{
    AvLayer, CntrLayer, EqLayer, Layers as _, PassiveLayer, RegionLayer, ScalableLayer,
};

use super::endpoint::HookedEndpoint;
use super::point::{HookLayers, HookPoint};
use crate::hooks::Args;

impl AvLayer for HookPoint {
    fn insert(
        &self,
        below: &dyn AddressVector,
        addrs: &[Address],
        out: &mut [FiAddr],
    ) -> Result<usize> {
        let args = |args: &mut Args| {
            args.num("count", addrs.len() as u64);
            if let [addr] = addrs {
                args.text("addr", addr);
            }
        };
        let returned = |&count: &usize| Some(format!("\"inserted\":{count}"));
        let run = || below.insert(addrs, out);
        self.call_returning("av_insert", &args, returned, Ok(0), run)
    }

    fn insert_service(
        &self,
        below: &dyn AddressVector,
        node: &str,
        service: &str,
    ) -> Result<FiAddr, Error> {
        let args = |args: &mut Args| {
            args.text("node", &node).text("service", &service);
        };
        let returned = |addr: &FiAddr| Some(format!("\"addr\":{}", addr.0));
        let dropped = || {
            let message = format!(
                "a hook (FI_HOOK_FAULT) dropped the insertion of node {node:?} with service {service:?}"
            );
            Err(Error::new(Errno::Io, message))
        };
        let run = || below.insert_service(node, service);
        self.call_returning("av_insertsvc", &args, returned, dropped(), run)
    }

    fn insert_symmetric(
        &self,
        below: &dyn AddressVector,
        node: &str,
        nodes: usize,
        service: &str,
        services: usize,
        out: &mut [FiAddr],
    ) -> Result<usize, Error> {
        let args = |args: &mut Args| {
            args.text("node", &node).num("nodes", nodes as u64);
            args.text("service", &service)
                .num("services", services as u64);
        };
        let returned = |&count: &usize| Some(format!("\"inserted\":{count}"));
        let run = || below.insert_symmetric(node, nodes, service, services, out);
        self.call_returning("av_insertsym", &args, returned, Ok(0), run)
    }

    fn remove(&self, below: &dyn AddressVector, addrs: &[FiAddr]) -> Result {
        let args = |args: &mut Args| {
            args.num("count", addrs.len() as u64);
        };
        let removed = self.call_unit("av_remove", &args, || below.remove(addrs));
        self.recorder_config()
            .address_removals
            .fetch_add(1, Ordering::Relaxed);
        removed
    }

    fn lookup(&self, below: &dyn AddressVector, addr: FiAddr) -> Result<Address> {
        let args = |args: &mut Args| {
            args.num("addr", addr.0);
        };
        let run = || below.lookup(addr);
        self.call_returning("av_lookup", &args, |_| None, Err(Errno::Io), run)
    }

    fn set_user_id(&self, below: &dyn AddressVector, addr: FiAddr, id: FiAddr) -> Result {
        let args = |args: &mut Args| {
            args.num("addr", addr.0).num("id", id.0);
        };
        let run = || below.set_user_id(addr, id);
        self.call_unit("av_set_user_id", &args, run)
    }
}

impl HookPoint {
    /// A call that returns no error. If a fault rule fails or drops it, it is not made and returns
    /// the default value.
    fn infallible<R: Default + fmt::Display>(
        &self,
        name: &'static str,
        run: impl FnOnce() -> R,
    ) -> R {
        let returned = |value: &R| Some(format!("\"value\":{value}"));
        let dropped = Ok::<_, Errno>(R::default());
        let result = self.call_returning(name, &|_| {}, returned, dropped, || Ok(run()));
        result.unwrap_or_default()
    }

    fn infallible_with_value(&self, name: &'static str, value: u64, run: impl FnOnce()) {
        let args = |args: &mut Args| {
            args.num("value", value);
        };
        // As in `infallible`: the error of a fault rule is not returned.
        let _ = self.call_unit(name, &args, || {
            run();
            Ok(())
        });
    }

    fn read_event(&self, name: &'static str, run: impl FnOnce() -> Result<Event>) -> Result<Event> {
        let returned = |event: &Event| Some(format!("\"event\":\"{}\"", event_name(event)));
        self.call_returning(name, &|_| {}, returned, Err(Errno::Again), run)
    }
}

impl CntrLayer for HookPoint {
    fn read(&self, below: &dyn Counter) -> u64 {
        self.infallible("cntr_read", || below.read())
    }

    fn read_err(&self, below: &dyn Counter) -> u64 {
        self.infallible("cntr_readerr", || below.read_err())
    }

    fn add(&self, below: &dyn Counter, value: u64) {
        self.infallible_with_value("cntr_add", value, || below.add(value));
    }

    fn add_err(&self, below: &dyn Counter, value: u64) {
        self.infallible_with_value("cntr_adderr", value, || below.add_err(value));
    }

    fn set(&self, below: &dyn Counter, value: u64) {
        self.infallible_with_value("cntr_set", value, || below.set(value));
    }

    fn set_err(&self, below: &dyn Counter, value: u64) {
        self.infallible_with_value("cntr_seterr", value, || below.set_err(value));
    }

    fn wait(&self, below: &dyn Counter, threshold: u64, timeout: Option<Duration>) -> Result {
        let args = |args: &mut Args| {
            args.num("threshold", threshold);
        };
        let run = || below.wait(threshold, timeout);
        self.call_unit("cntr_wait", &args, run)
    }
}

fn event_name(event: &Event) -> &'static str {
    match event {
        Event::Notify { .. } => "notify",
        Event::ConnReq { .. } => "connreq",
        Event::Connected { .. } => "connected",
        Event::Shutdown { .. } => "shutdown",
        Event::JoinComplete { .. } => "join_complete",
        _ => "other",
    }
}

impl EqLayer for HookPoint {
    fn read(&self, below: &dyn EventQueue) -> Result<Event> {
        self.read_event("eq_read", || below.read())
    }

    fn peek(&self, below: &dyn EventQueue) -> Result<Event> {
        self.read_event("eq_peek", || below.peek())
    }

    fn read_err(&self, below: &dyn EventQueue) -> Result<ErrEntry> {
        let returned = |error: &ErrEntry| Some(format!("\"err\":{}", error.errno.as_raw()));
        let run = || below.read_err();
        self.call_returning("eq_readerr", &|_| {}, returned, Err(Errno::Again), run)
    }

    fn write(&self, below: &dyn EventQueue, event: Event) -> Result {
        self.call_unit("eq_write", &|_| {}, || below.write(event))
    }

    fn wait(&self, below: &dyn EventQueue, timeout: Option<Duration>) -> Result<Event> {
        self.read_event("eq_sread", || below.wait(timeout))
    }
}

impl PassiveLayer for HookPoint {
    fn listen(&self, below: &dyn PassiveEndpoint) -> Result {
        self.call_unit("listen", &|_| {}, || below.listen())
    }

    fn set_address(&self, below: &dyn PassiveEndpoint, addr: &Address) -> Result<(), Error> {
        let args = |args: &mut Args| {
            args.text("addr", addr);
        };
        self.open("setname", &args, || below.set_address(addr))
    }

    fn reject(&self, below: &dyn PassiveEndpoint, handle: u64, data: &[u8]) -> Result {
        let args = |args: &mut Args| {
            args.num("len", data.len() as u64);
        };
        self.call_unit("reject", &args, || below.reject(handle, data))
    }
}

impl ScalableLayer for HookPoint {
    fn context(
        &self,
        below: &dyn ScalableEndpoint,
        index: usize,
        info: &Info,
        bind: Bindings,
    ) -> Result<Arc<dyn Endpoint>, Error> {
        let point = self.new_object("ep_close");
        let args = |args: &mut Args| {
            args.num("index", index as u64);
        };
        let open = |bind| point.open("context", &args, || below.context(index, info, bind));
        Ok(HookedEndpoint::open(&point, info, bind, open)?)
    }
}

impl RegionLayer for HookPoint {
    fn bind_counter(
        &self,
        below: &dyn MemoryRegion,
        cntr: &Arc<dyn Counter>,
        access: MrAccess,
    ) -> Result<(), Error> {
        let cntr = HookLayers::counter(cntr);
        let args = |args: &mut Args| {
            args.num("key", below.key()).num("what", access.bits());
        };
        self.open("mr_bind", &args, || below.bind_counter(&cntr, access))
    }
}
