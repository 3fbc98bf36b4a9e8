//! Address vectors and counters with hooks.

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use selvedge::{Address, AddressVector, Counter, Errno, Error, FiAddr, Result};

use crate::call::Args;
use crate::provider::{At, unwrapped};

pub(crate) struct HookedAv {
    inner: Arc<dyn AddressVector>,
    at: At,
}

impl HookedAv {
    pub(crate) fn new(inner: Arc<dyn AddressVector>, at: At) -> Self {
        Self { inner, at }
    }

    pub(crate) fn inner(av: Arc<dyn AddressVector>) -> Arc<dyn AddressVector> {
        unwrapped(av, |av| av as &dyn Any, |own: &Self| Arc::clone(&own.inner))
    }
}

impl AddressVector for HookedAv {
    fn insert(&self, addrs: &[Address], out: &mut [FiAddr]) -> Result<usize> {
        let args = |args: &mut Args| {
            args.num("count", addrs.len() as u64);
            if let [addr] = addrs {
                args.text("addr", addr);
            }
        };
        let gave = |&count: &usize| Some(format!("\"inserted\":{count}"));
        let run = || self.inner.insert(addrs, out);
        self.at.gives("av_insert", &args, gave, Ok(0), run)
    }

    fn refusal(&self, addr: &Address) -> Error {
        self.inner.refusal(addr)
    }

    fn insert_service(&self, node: &str, service: &str) -> Result<FiAddr, Error> {
        let args = |args: &mut Args| {
            args.text("node", &node).text("service", &service);
        };
        let gave = |addr: &FiAddr| Some(format!("\"addr\":{}", addr.0));
        let dropped = || {
            let what =
                format!("inserting node {node:?} with service {service:?} is dropped by a hook");
            Err(Error::new(Errno::Io, what))
        };
        let run = || self.inner.insert_service(node, service);
        self.at.gives("av_insertsvc", &args, gave, dropped(), run)
    }

    fn insert_symmetric(
        &self,
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
        let gave = |&count: &usize| Some(format!("\"inserted\":{count}"));
        let run = || {
            self.inner
                .insert_symmetric(node, nodes, service, services, out)
        };
        self.at.gives("av_insertsym", &args, gave, Ok(0), run)
    }

    fn remove(&self, addrs: &[FiAddr]) -> Result {
        let args = |args: &mut Args| {
            args.num("count", addrs.len() as u64);
        };
        let removed = self
            .at
            .done("av_remove", &args, || self.inner.remove(addrs));
        self.at.wanted().names.fetch_add(1, Ordering::Relaxed);
        removed
    }

    fn lookup(&self, addr: FiAddr) -> Result<Address> {
        let args = |args: &mut Args| {
            args.num("addr", addr.0);
        };
        let run = || self.inner.lookup(addr);
        self.at
            .gives("av_lookup", &args, |_| None, Err(Errno::Io), run)
    }

    fn set_user_id(&self, addr: FiAddr, id: FiAddr) -> Result {
        let args = |args: &mut Args| {
            args.num("addr", addr.0).num("id", id.0);
        };
        let run = || self.inner.set_user_id(addr, id);
        self.at.done("av_set_user_id", &args, run)
    }

    fn members(&self) -> Result<Vec<FiAddr>> {
        self.inner.members()
    }
}

impl Drop for HookedAv {
    fn drop(&mut self) {
        self.at.close("av_close");
    }
}

impl fmt::Debug for HookedAv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

pub(crate) struct HookedCounter {
    inner: Arc<dyn Counter>,
    at: At,
}

impl HookedCounter {
    pub(crate) fn new(inner: Arc<dyn Counter>, at: At) -> Self {
        Self { inner, at }
    }

    pub(crate) fn inner(cntr: Arc<dyn Counter>) -> Arc<dyn Counter> {
        unwrapped(
            cntr,
            |cntr| cntr as &dyn Any,
            |own: &Self| Arc::clone(&own.inner),
        )
    }

    /// A call that cannot fail: a fault there is none.
    fn told<R: Default + fmt::Display>(&self, name: &'static str, run: impl FnOnce() -> R) -> R {
        let gave = |value: &R| Some(format!("\"value\":{value}"));
        let answer = self
            .at
            .gives(name, &|_| {}, gave, Ok::<_, Errno>(R::default()), || {
                Ok(run())
            });
        answer.unwrap_or_default()
    }

    fn changed(&self, name: &'static str, value: u64, run: impl FnOnce()) {
        let args = |args: &mut Args| {
            args.num("value", value);
        };
        // As above.
        let _ = self.at.done(name, &args, || {
            run();
            Ok(())
        });
    }
}

impl Counter for HookedCounter {
    fn read(&self) -> u64 {
        self.told("cntr_read", || self.inner.read())
    }

    fn read_err(&self) -> u64 {
        self.told("cntr_readerr", || self.inner.read_err())
    }

    fn add(&self, value: u64) {
        self.changed("cntr_add", value, || self.inner.add(value));
    }

    fn add_err(&self, value: u64) {
        self.changed("cntr_adderr", value, || self.inner.add_err(value));
    }

    fn set(&self, value: u64) {
        self.changed("cntr_set", value, || self.inner.set(value));
    }

    fn set_err(&self, value: u64) {
        self.changed("cntr_seterr", value, || self.inner.set_err(value));
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }

    fn wait(&self, threshold: u64, timeout: Option<Duration>) -> Result {
        let args = |args: &mut Args| {
            args.num("threshold", threshold);
        };
        let run = || self.inner.wait(threshold, timeout);
        self.at.done("cntr_wait", &args, run)
    }

    fn try_wait(&self) -> Result {
        self.inner.try_wait()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }
}

impl Drop for HookedCounter {
    fn drop(&mut self) {
        self.at.close("cntr_close");
    }
}

impl fmt::Debug for HookedCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
