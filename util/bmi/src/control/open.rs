//! Beginning: which methods there are, and which are active.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::Bmi;
use super::sleep::Sleepers;
use super::station::Station;
use crate::ids::METHODS;
use crate::method::Setup;
use crate::url::{Url, canonical};
use crate::{Addr, Code, Error, Module};

/// How an instance begins (the arguments of `BMI_initialize`).
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The methods to activate: schemes, with or without `bmi_` before them, with commas between.
    /// Empty for those that are looked up, when they are.
    pub methods: String,
    /// Where peers find this process, with commas between; empty for a client.
    pub listen: String,
    /// Listen there alone (`BMI_TCP_BIND_SPECIFIC`).
    pub bind_specific: bool,
    /// An unexpected message counts as a reference to its sender (`BMI_AUTO_REF_COUNT`).
    pub auto_ref_count: bool,
}

impl Config {
    /// A client: methods are activated when an address of theirs is looked up.
    pub fn client() -> Self {
        Self::default()
    }

    /// A server that is found at these URLs, by their schemes' methods.
    pub fn server(listen: &str) -> Self {
        let schemes = listen.split(',').filter_map(|url| url.split_once("://"));
        let methods: Vec<_> = schemes.map(|(scheme, _)| scheme).collect();
        Self {
            methods: methods.join(","),
            listen: listen.to_owned(),
            ..Self::default()
        }
    }
}

impl Bmi {
    /// Begins, with the methods that the fabric has.
    ///
    /// # Errors
    /// [`Code::ENOPROTOOPT`] for a method that there is not; [`Code::EINVAL`] for a server without
    /// address, or an address that no method listens at; what kept a method from beginning.
    pub fn initialize(config: Config) -> Result<Self, Error> {
        Self::with_modules(config, crate::fabric::modules().to_vec())
    }

    /// As [`Self::initialize`], with these methods.
    ///
    /// # Errors
    /// As [`Self::initialize`].
    pub fn with_modules(config: Config, modules: Vec<&'static dyn Module>) -> Result<Self, Error> {
        let bmi = Self {
            config,
            modules,
            stations: [const { OnceLock::new() }; METHODS],
            active: AtomicUsize::new(0),
            activation: Mutex::new(()),
            contexts: AtomicU32::new(0),
            sleepers: Sleepers::new(),
            heeds_unexpected: AtomicBool::new(true),
            turn: AtomicUsize::new(0),
        };
        bmi.begin()?;
        Ok(bmi)
    }

    fn begin(&self) -> Result<(), Error> {
        let listen = match self.config.listen.is_empty() {
            true => Vec::new(),
            false => Url::parse_all(&self.config.listen)?,
        };
        let schemes: Vec<_> = schemes(&self.config.methods).collect();
        if let Some(url) = listen.iter().find(|url| !schemes.contains(&&*url.scheme)) {
            let what = format!("no method of {:?} listens at {url}", self.config.methods);
            return Err(Error::new(Code::EINVAL, what));
        }
        for scheme in schemes {
            let own = listen.iter().find(|url| url.scheme == scheme).cloned();
            if own.is_none() && !listen.is_empty() {
                let what = format!("no address to listen at for method {scheme}");
                return Err(Error::new(Code::EINVAL, what));
            }
            self.activate(scheme, own, None)?;
        }
        Ok(())
    }

    /// The station of a scheme, active from now on.
    ///
    /// # Errors
    /// [`Code::ENOPROTOOPT`] for a scheme that no method has; [`Code::ENOBUFS`] when there are
    /// [`METHODS`] active ones; what kept the method from beginning.
    fn activate(
        &self,
        scheme: &str,
        listen: Option<Url>,
        toward: Option<&Url>,
    ) -> Result<&Station, Error> {
        let activation = &self.activation;
        let _guard = activation.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(station) = self.station_for(scheme) {
            return Ok(station);
        }
        let known = self.modules.iter().find(|module| module.scheme() == scheme);
        let module = known.ok_or_else(|| {
            let all = self.transports();
            let what = format!(
                "no method for {scheme:?}; there are {}",
                all.trim_end_matches(',')
            );
            Error::new(Code::ENOPROTOOPT, what)
        })?;
        let index = self.active.load(Ordering::Acquire);
        let place = self.stations.get(index).ok_or_else(|| {
            let what = format!("method {scheme}: {METHODS} methods are active");
            Error::new(Code::ENOBUFS, what)
        })?;
        let method = module.initialize(&Setup {
            listen,
            toward: toward.cloned(),
            bind_specific: self.config.bind_specific,
        })?;
        let station = Station::new(index, scheme, method)?;
        let station = place.get_or_init(|| station);
        self.active.store(index + 1, Ordering::Release);
        // Threads that are parked wait for the others alone.
        self.wake_all();
        Ok(station)
    }

    pub(super) fn station_for(&self, scheme: &str) -> Option<&Station> {
        self.stations().find(|station| station.scheme == scheme)
    }

    /// Finds the peer that a URL names (`BMI_addr_lookup`), without asking it. The same text names
    /// the same peer each time.
    ///
    /// # Errors
    /// [`Code::ENOPROTOOPT`] for a text that no method can read, [`Code::EHOSTNTFD`] for a host that
    /// is not known, [`Code::ENAMETOOLONG`] for a long text.
    pub fn addr_lookup(&self, url: &str) -> Result<Addr, Error> {
        let text = canonical(url);
        let alternatives = Url::parse_all(text).map_err(as_refused_by_methods)?;
        let mut refused = None;
        for url in &alternatives {
            match self.look_up(url, text) {
                Ok(addr) => return Ok(addr),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        let nothing = || Error::new(Code::ENOPROTOOPT, format!("address {text:?} names nothing"));
        Err(refused.unwrap_or_else(nothing))
    }

    fn look_up(&self, url: &Url, text: &str) -> Result<Addr, Error> {
        let station = match self.station_for(&url.scheme) {
            Some(station) => station,
            None => self
                .activate(&url.scheme, None, Some(url))
                .map_err(|error| {
                    Error::new(error.code(), format!("address {text:?}: {}", error.what()))
                })?,
        };
        let mut held = station.hold(&self.sleepers);
        let (method, desk) = held.parts();
        if let Some(known) = desk.references.by_url(text) {
            return Ok(known);
        }
        let method_addr = method.addr_lookup(url)?;
        let addr = desk.references.register(method_addr).map_err(|code| {
            Error::new(code, format!("address {text:?}: there are too many peers"))
        })?;
        desk.references.name(addr, text);
        Ok(addr)
    }

    /// The schemes that there are methods for, with a comma behind each
    /// (`BMI_TRANSPORT_METHODS_STRING`).
    pub fn transports(&self) -> String {
        transports(&self.modules)
    }
}

/// A lookup of a malformed text fails with the code that BMI has for a text that no method accepts.
fn as_refused_by_methods(error: Error) -> Error {
    match error.code() {
        Code::EINVAL => Error::new(Code::ENOPROTOOPT, error.what()),
        _ => error,
    }
}

/// The schemes of modules, with a comma behind each.
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
