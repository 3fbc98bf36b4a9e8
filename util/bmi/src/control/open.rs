//! Initialization: available methods and their activation.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::bmi::{Bmi, Config};
use super::method_instance::MethodInstance;
use super::parking::Parking;
use crate::ids::METHODS;
use crate::method::Setup;
use crate::url::{Url, canonical};
use crate::{Addr, Code, Error, Module};

impl Bmi {
    /// Opens an instance with the methods over Selvedge.
    ///
    /// # Errors
    /// [`Code::ENOPROTOOPT`] for an unknown method; [`Code::EINVAL`] for a server without an
    /// address, or an address without a method; the error of a method that fails to open.
    pub fn initialize(config: Config) -> Result<Self, Error> {
        Self::with_modules(config, crate::fabric::modules().to_vec())
    }

    /// As [`Self::initialize`], with the given methods.
    ///
    /// # Errors
    /// As [`Self::initialize`].
    pub fn with_modules(config: Config, modules: Vec<&'static dyn Module>) -> Result<Self, Error> {
        let bmi = Self {
            config,
            modules,
            instances: [const { OnceLock::new() }; METHODS],
            active: AtomicUsize::new(0),
            activation: Mutex::new(()),
            contexts: AtomicU32::new(0),
            parking: Parking::new(),
            interrupts_on_unexpected: AtomicBool::new(true),
            turn: AtomicUsize::new(0),
        };
        bmi.activate_configured()?;
        Ok(bmi)
    }

    fn activate_configured(&self) -> Result<(), Error> {
        let listen = if self.config.listen.is_empty() {
            Vec::new()
        } else {
            Url::parse_all(&self.config.listen)?
        };
        let schemes: Vec<_> = schemes(&self.config.methods).collect();
        if let Some(url) = listen.iter().find(|url| !schemes.contains(&&*url.scheme)) {
            let message = format!("no method of {:?} listens at {url}", self.config.methods);
            return Err(Error::new(Code::EINVAL, message));
        }
        for scheme in schemes {
            let listen_url = listen.iter().find(|url| url.scheme == scheme).cloned();
            if listen_url.is_none() && !listen.is_empty() {
                let message = format!("no address to listen at for method {scheme}");
                return Err(Error::new(Code::EINVAL, message));
            }
            self.activate(scheme, listen_url, None)?;
        }
        Ok(())
    }

    /// Returns the method of a scheme, activating it if necessary.
    ///
    /// # Errors
    /// [`Code::ENOPROTOOPT`] for an unknown scheme; [`Code::ENOBUFS`] when [`METHODS`] methods are
    /// active; the error of a method that fails to open.
    fn activate(
        &self,
        scheme: &str,
        listen: Option<Url>,
        first_peer: Option<&Url>,
    ) -> Result<&MethodInstance, Error> {
        let activation = &self.activation;
        let _guard = activation.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(instance) = self.instance_for_scheme(scheme) {
            return Ok(instance);
        }
        let module = self.modules.iter().find(|module| module.scheme() == scheme);
        let module = module.ok_or_else(|| {
            let all = self.transports();
            let message = format!(
                "no method for scheme {scheme:?}; available are {}",
                all.trim_end_matches(',')
            );
            Error::new(Code::ENOPROTOOPT, message)
        })?;
        let index = self.active.load(Ordering::Acquire);
        let entry = self.instances.get(index).ok_or_else(|| {
            let message = format!("method {scheme}: {METHODS} methods are active");
            Error::new(Code::ENOBUFS, message)
        })?;
        let method = module.initialize(&Setup {
            listen,
            first_peer: first_peer.cloned(),
            bind_specific: self.config.bind_specific,
        })?;
        let instance = MethodInstance::new(index, scheme, method)?;
        let instance = entry.get_or_init(|| instance);
        self.active.store(index + 1, Ordering::Release);
        // Parked threads do not wait for the new method's descriptor yet.
        self.parking.wake_all();
        Ok(instance)
    }

    pub(super) fn instance_for_scheme(&self, scheme: &str) -> Option<&MethodInstance> {
        self.method_instances()
            .find(|instance| instance.scheme == scheme)
    }

    /// Finds the peer that a URL names (`BMI_addr_lookup`) without connecting to the peer. The same
    /// text always names the same peer.
    ///
    /// # Errors
    /// [`Code::ENOPROTOOPT`] for a text that no method accepts, [`Code::EHOSTNTFD`] for an unknown
    /// host, [`Code::ENAMETOOLONG`] for a text of [`crate::MAX_ADDR_LEN`] bytes or more.
    pub fn addr_lookup(&self, url: &str) -> Result<Addr, Error> {
        let text = canonical(url);
        let alternatives = Url::parse_all(text).map_err(as_unaccepted)?;
        let mut first_error = None;
        for url in &alternatives {
            match self.lookup(url, text) {
                Ok(addr) => return Ok(addr),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        let no_alternative =
            || Error::new(Code::ENOPROTOOPT, format!("address {text:?} names no peer"));
        Err(first_error.unwrap_or_else(no_alternative))
    }

    fn lookup(&self, url: &Url, text: &str) -> Result<Addr, Error> {
        let instance = match self.instance_for_scheme(&url.scheme) {
            Some(instance) => instance,
            None => self
                .activate(&url.scheme, None, Some(url))
                .map_err(|error| {
                    Error::new(
                        error.code(),
                        format!("address {text:?}: {}", error.message()),
                    )
                })?,
        };
        let mut locked = instance.lock(&self.parking);
        let (method, queues) = locked.split();
        if let Some(addr) = queues.references.by_url(text) {
            return Ok(addr);
        }
        let method_addr = method.addr_lookup(url)?;
        let addr = queues.references.register(method_addr).map_err(|code| {
            Error::new(code, format!("address {text:?}: there are too many peers"))
        })?;
        queues.references.name(addr, text);
        Ok(addr)
    }

    /// The schemes of all methods, each followed by a comma (`BMI_TRANSPORT_METHODS_STRING`).
    pub fn transports(&self) -> String {
        transports(&self.modules)
    }
}

/// A lookup of a malformed text fails with the code that BMI has for a text that no method accepts.
fn as_unaccepted(error: Error) -> Error {
    match error.code() {
        Code::EINVAL => Error::new(Code::ENOPROTOOPT, error.message()),
        _ => error,
    }
}

/// The schemes of modules, each followed by a comma.
pub fn transports(modules: &[&'static dyn Module]) -> String {
    modules
        .iter()
        .map(|module| format!("{},", module.scheme()))
        .collect()
}

/// The schemes of a list of methods.
fn schemes(methods: &str) -> impl Iterator<Item = &str> {
    methods
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(|name| name.strip_prefix("bmi_").unwrap_or(name))
}
