//! The registry: the providers that discovery asks, and what it makes of their answers.

mod unknown;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::explanation::{nothing_matches, per_provider};
use crate::info::{Mismatch, Version};
use crate::param::{Filter, Params};
use crate::{
    AddrFormat, Alias, Errno, Error, Explanation, Fabric, Hints, Info, InfoFlags, Outcome,
    Provider, Query,
};

/// The providers that discovery asks, in order of preference.
///
/// # Examples
/// ```no_run
/// use std::sync::Arc;
/// use selvedge::{Caps, Domain, Error, Hints, Registry};
///
/// fn open_first(registry: &Registry) -> Result<Arc<dyn Domain>, Error> {
///     let infos = registry.infos(&Hints::new().caps(Caps::TAGGED))?;
///     infos[0].open()
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Registry {
    providers: Vec<Arc<dyn Provider>>,
    params: Option<Params>,
}

impl Registry {
    /// No providers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a provider that lives as long as the program behind those that are there.
    #[must_use]
    pub fn with(self, provider: &'static dyn Provider) -> Self {
        self.with_shared(Arc::new(provider))
    }

    /// Adds a provider that was made at run time, likewise. It lives as long as the registry and
    /// what was found by it.
    #[must_use]
    pub fn with_shared(mut self, provider: Arc<dyn Provider>) -> Self {
        self.providers.push(provider);
        self
    }

    /// Reads parameters from `params` in place of the process's environment, which is otherwise
    /// read afresh by each [`Registry::getinfo`].
    #[must_use]
    pub fn with_params(mut self, params: Params) -> Self {
        self.params = Some(params);
        self
    }

    /// The providers in order.
    pub fn providers(&self) -> &[Arc<dyn Provider>] {
        &self.providers
    }

    /// The environment, with the parameters of every provider.
    pub fn params(&self) -> Params {
        let params = self.params.clone().unwrap_or_else(Params::from_env);
        self.providers
            .iter()
            .fold(params, |params, provider| params.with(provider.params()))
    }

    /// Finds the ways to communicate that satisfy `hints` (fi_getinfo(3)).
    ///
    /// They come in the order of the registry's providers, and of each provider's own preference
    /// within: nothing else moves a result, so the first one is the same in every process with the
    /// same environment. There is at least one. Each opens with [`Info::open`].
    ///
    /// `node` and `service` name the peer, or with [`InfoFlags::SOURCE`] the local end.
    ///
    /// # Errors
    /// [`Errno::NoData`] when nothing matches; the text has a line for each provider that says
    /// which attribute refused, with both values. [`Errno::NoSys`] for a version above
    /// [`Version::API`], [`Errno::BadFlags`] for unknown or contradicting flags, [`Errno::Inval`]
    /// for a parameter of the environment that cannot be read.
    pub fn getinfo(
        &self,
        version: Version,
        node: Option<&str>,
        service: Option<&str>,
        flags: InfoFlags,
        hints: &Hints,
    ) -> Result<Vec<Info>, Error> {
        let explanations = self.explain(version, node, service, flags, hints)?;
        explanations.iter().for_each(tell_of_failure);
        log_explanations(&explanations);
        if !explanations.iter().any(Explanation::is_taken) {
            return Err(nothing_matches(&explanations, &self.unknown_names(hints)?));
        }
        Ok(explanations
            .into_iter()
            .filter_map(Explanation::into_info)
            .collect())
    }

    /// Finds the ways to communicate that satisfy `hints`: [`Registry::getinfo`] for this
    /// library's version, without addresses and flags.
    ///
    /// # Errors
    /// As [`Registry::getinfo`].
    pub fn infos(&self, hints: &Hints) -> Result<Vec<Info>, Error> {
        self.getinfo(Version::API, None, None, InfoFlags::empty(), hints)
    }

    /// Asks as [`Registry::getinfo`] does, and says for each offer of each provider why it is a
    /// result or why not.
    ///
    /// # Errors
    /// Those of [`Registry::getinfo`] that concern its arguments and the environment.
    pub fn explain(
        &self,
        version: Version,
        node: Option<&str>,
        service: Option<&str>,
        flags: InfoFlags,
        hints: &Hints,
    ) -> Result<Vec<Explanation>, Error> {
        let params = self.params();
        let query = Query {
            version,
            node,
            service,
            flags,
            ..Query::new(hints, &params)
        };
        check_arguments(&query)?;
        // Programs in C get a number, from which nobody learns which variable is wrong.
        let filters = Filters::new(&query).inspect_err(|error| {
            tell_once(log::Level::Error, &error.to_string());
        })?;
        self.warn_of_unknown_names(&params, &filters);
        Ok(self
            .providers
            .iter()
            .filter(|provider| provider.is_enabled(&params))
            .flat_map(|provider| ask(provider, &query, &filters))
            .collect())
    }

    /// Opens the fabric of a result (fi_fabric(3)).
    ///
    /// # Errors
    /// [`Errno::NoDev`] when no provider here has the name in `info`; the provider's own errors.
    pub fn fabric(&self, info: &Info) -> Result<Arc<dyn Fabric>, Error> {
        self.provider_of(info)?.fabric(info)
    }

    /// Makes a description one of this registry's, which was written by hand or has been in another
    /// language meanwhile, so that it opens ([`Info::open`]): with this registry's environment, and
    /// with the promise about threads that `hints` carry.
    ///
    /// # Errors
    /// [`Errno::NoDev`] when no provider here has the name in `info`.
    pub fn adopt(&self, mut info: Info, hints: &Hints) -> Result<Info, Error> {
        let provider = self.provider_of(&info)?;
        let name = &mut info.fabric_attr.prov_name;
        if serves(&**provider, &Filter::parse(name)).is_some() {
            provider.name().clone_into(name);
        }
        let params = self.params();
        info.set_origin(provider, &Query::new(hints, &params));
        Ok(info)
    }

    /// The provider of a description, by its name: that of the uppermost layer.
    fn provider_of(&self, info: &Info) -> Result<&Arc<dyn Provider>, Error> {
        let name = &info.fabric_attr.prov_name;
        let upper = name.rsplit(';').next().unwrap_or(name);
        self.providers
            .iter()
            .find(|provider| provider.name().eq_ignore_ascii_case(upper))
            .or_else(|| self.provider_instead(name))
            .ok_or_else(|| self.no_provider(name, upper))
    }

    fn no_provider(&self, name: &str, upper: &str) -> Error {
        let known: Vec<_> = self.providers.iter().map(|own| own.name()).collect();
        let given = format!("prov_name {name:?}");
        Error::new(Errno::NoDev, unknown::sentence(&given, upper, &known))
    }

    /// The provider that does the work of another one.
    fn provider_instead(&self, name: &str) -> Option<&Arc<dyn Provider>> {
        let asked = Filter::parse(name);
        let mut providers = self.providers.iter();
        providers.find(|provider| serves(&***provider, &asked).is_some())
    }

    fn warn_of_unknown_names(&self, params: &Params, filters: &Filters) {
        for unknown in params.unknown() {
            warn_once(&unknown.to_string());
        }
        for sentence in self.unknown_layers("FI_PROVIDER", &filters.environment, params) {
            warn_once(&sentence);
        }
    }

    /// What there is to say of the names in the environment and the hints.
    #[cold]
    fn unknown_names(&self, hints: &Hints) -> Result<Vec<String>, Error> {
        let params = self.params();
        let filters = Filters::new(&Query::new(hints, &params))?;
        let by_environment = self.unknown_layers("FI_PROVIDER", &filters.environment, &params);
        let by_hint = self.unknown_layers("prov_name", &filters.hint, &params);
        Ok([by_environment, by_hint].concat())
    }

    /// A sentence for each name of a list that no provider here has.
    fn unknown_layers(&self, given: &str, list: &Filter, params: &Params) -> Vec<String> {
        let on = self.providers.iter().filter(|own| own.is_enabled(params));
        let known: Vec<_> = on.map(|own| own.name()).collect();
        let means = |own: &dyn Provider, layer: &str| {
            let mut others = own.aliases().iter();
            own.name().eq_ignore_ascii_case(layer)
                || others.any(|it| Filter::parse(layer).admits(it.name()))
        };
        let is_known = |layer: &&str| self.providers.iter().any(|own| means(&**own, layer));
        let unknown = list.layers().filter(|layer| !is_known(layer));
        unknown
            .map(|layer| unknown::sentence(given, layer, &known))
            .collect()
    }
}

/// What the environment and the hints say about provider names and address formats.
struct Filters {
    environment: Filter,
    environment_text: String,
    hint: Filter,
    addr_format: AddrFormat,
}

impl Filters {
    fn new(query: &Query<'_>) -> Result<Self, Error> {
        let environment_text = query.params.text("FI_PROVIDER")?;
        let addr_format = query.params.text("FI_ADDR_FORMAT")?;
        Ok(Self {
            environment: Filter::parse(&environment_text),
            environment_text,
            hint: Filter::parse(&query.hints.info().fabric_attr.prov_name),
            addr_format: match addr_format.as_str() {
                "" => AddrFormat::Unspec,
                name => name.parse()?,
            },
        })
    }

    /// Why a provider need not be asked.
    fn excludes(&self, provider: &dyn Provider, query: &Query<'_>) -> Option<Outcome> {
        let loads = |filter| loads(filter, provider.name()) || serves(provider, filter).is_some();
        if !loads(&self.environment) {
            return Some(Outcome::Excluded(format!(
                "FI_PROVIDER={}",
                self.environment_text
            )));
        }
        (!loads(&self.hint)).then(|| Outcome::Refused(self.name_mismatch(provider, query)))
    }

    /// Holds a provider's result against the filters, which know its full name only now.
    fn judge(&self, provider: &dyn Provider, info: Info, query: &Query<'_>) -> Outcome {
        let name = &info.fabric_attr.prov_name;
        if !admits(&self.environment, provider, name) {
            return Outcome::Excluded(format!("FI_PROVIDER={}", self.environment_text));
        }
        if !admits(&self.hint, provider, name) {
            return Outcome::Refused(self.name_mismatch(provider, query).of(&info));
        }
        if !self.addr_format.accepts(info.addr_format) {
            let mismatch = Mismatch::new("FI_ADDR_FORMAT", self.addr_format, info.addr_format);
            return Outcome::Refused(mismatch.of(&info));
        }
        Outcome::Taken(Box::new(info))
    }

    fn name_mismatch(&self, provider: &dyn Provider, query: &Query<'_>) -> Mismatch {
        let mut has = provider.name().to_owned();
        for other in provider.aliases() {
            if let Alias::Unsupported(name, remedy) = other
                && self.hint.admits(name)
            {
                has = format!("{has} ({remedy})");
            }
        }
        Mismatch::new("prov_name", &query.hints.info().fabric_attr.prov_name, has)
    }
}

/// The name in a list under which a provider does the work of another one.
fn serves(provider: &dyn Provider, filter: &Filter) -> Option<Alias> {
    let mut others = provider.aliases().iter().copied();
    let is_asked = |other: &Alias| other.is_served() && filter.admits(other.name());
    let is_own = !filter.admits_listed_only() || filter.admits(provider.name());
    others.find(is_asked).filter(|_| !is_own)
}

/// Whether a list admits an offer of a provider, by its name or by one that stands for it.
fn admits(filter: &Filter, provider: &dyn Provider, name: &str) -> bool {
    let other = match filter.admits(name) {
        true => return true,
        false => serves(provider, filter),
    };
    let instead = other.filter(|_| name.eq_ignore_ascii_case(provider.name()));
    if let Some(Alias::OtherProtocol(other)) = instead {
        warn_once(&format!(
            "{other} is asked for, and {name} does its work: peers that are libfabric's {other} \
             speak another protocol and refuse; use this library at both ends, or ask for tcp at \
             both"
        ));
    }
    instead.is_some()
}

/// A positive list applies to core providers; those that layer themselves over others, whose
/// names begin with `ofi_`, are asked whenever a core provider is, and their results filtered.
fn loads(filter: &Filter, provider: &str) -> bool {
    let layers_over_others = provider.starts_with("ofi_") && filter.admits_listed_only();
    layers_over_others || filter.may_admit_with(provider)
}

fn check_arguments(query: &Query<'_>) -> Result<(), Error> {
    let flags = query.flags;
    if query.version > Version::API {
        let what = format!("API version {} is above {}", query.version, Version::API);
        return Err(Error::new(Errno::NoSys, what));
    }
    if !InfoFlags::all().contains(flags) {
        return Err(Error::new(Errno::BadFlags, format!("flags {flags}")));
    }
    if flags.contains(InfoFlags::PROV_ATTR_ONLY) {
        return check_prov_attr_only(query);
    }
    if flags.contains(InfoFlags::SOURCE) && query.node.is_none() && query.service.is_none() {
        let what = "FI_SOURCE asks for a local address, but there is neither node nor service";
        return Err(Error::new(Errno::NoData, what));
    }
    Ok(())
}

fn check_prov_attr_only(query: &Query<'_>) -> Result<(), Error> {
    if query.flags != InfoFlags::PROV_ATTR_ONLY {
        let what = format!("FI_PROV_ATTR_ONLY stands alone, not with {}", query.flags);
        return Err(Error::new(Errno::BadFlags, what));
    }
    if query.hints != &Hints::default() {
        let what = "FI_PROV_ATTR_ONLY takes no hints";
        return Err(Error::new(Errno::Inval, what));
    }
    Ok(())
}

fn ask(provider: &Arc<dyn Provider>, query: &Query<'_>, filters: &Filters) -> Vec<Explanation> {
    let explanation = |outcome| Explanation {
        provider: provider.name(),
        outcome,
    };
    if let Some(excluded) = filters.excludes(&**provider, query) {
        return vec![explanation(excluded)];
    }
    if query.flags.contains(InfoFlags::PROV_ATTR_ONLY) {
        let info = stamped(Info::default(), provider, query);
        return vec![explanation(Outcome::Taken(Box::new(info)))];
    }
    let answer = query
        .params
        .check(provider.params())
        .and_then(|()| provider.getinfo(query));
    match answer {
        Ok(offers) => offers
            .into_iter()
            .map(|offer| match offer {
                Ok(info) => filters.judge(&**provider, stamped(info, provider, query), query),
                Err(mismatch) => Outcome::Refused(mismatch),
            })
            .map(explanation)
            .collect(),
        Err(error) => vec![explanation(Outcome::Failed(error))],
    }
}

/// Writes into a result what the registry knows better than the provider.
fn stamped(mut info: Info, provider: &Arc<dyn Provider>, query: &Query<'_>) -> Info {
    let fabric = &mut info.fabric_attr;
    if fabric.prov_name.is_empty() {
        fabric.prov_name = provider.name().to_owned();
    }
    fabric.prov_version = provider.version();
    fabric.api_version = query.version;
    info.set_origin(provider, query);
    info
}

/// A provider that failed goes unnoticed when another one has results, and in C also when none has.
fn tell_of_failure(explanation: &Explanation) {
    if let Outcome::Failed(_) = explanation.outcome {
        tell_once(log::Level::Error, &explanation.to_string());
    }
}

/// Logs a line for each provider: its offers that are taken, and why others are not.
fn log_explanations(explanations: &[Explanation]) {
    if log::max_level() < log::Level::Info {
        return;
    }
    for (provider, reasons) in per_provider(explanations) {
        let target = "selvedge::core::core";
        log::info!(target: target, "discovery: {provider}: {}", reasons.join("; "));
    }
}

fn warn_once(text: &str) {
    tell_once(log::Level::Warn, text);
}

/// Logs a message, unless this process has logged the same before: discovery runs often.
fn tell_once(level: log::Level, text: &str) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if told.insert(text.to_owned()) {
        log::log!(target: "selvedge::core::core", level, "{text}");
    }
}

#[cfg(test)]
mod tests;
