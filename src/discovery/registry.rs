//! `Registry`: the providers that discovery queries, and the filters for their results.

mod unknown;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::explanation::{nothing_matches, per_provider};
use super::open::set_provider;
use crate::info::{Mismatch, Version};
use crate::param::{Filter, Params};
use crate::{
    AddrFormat, Alias, Errno, Error, Explanation, Fabric, Hints, Info, InfoFlags, Outcome,
    Provider, Query,
};

/// The providers that discovery queries, in order of preference.
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
    /// Creates a registry without providers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a `static` provider.
    #[must_use]
    pub fn with(self, provider: &'static dyn Provider) -> Self {
        self.with_shared(Arc::new(provider))
    }

    /// Appends a provider that was created at run time. The registry and its results keep the
    /// provider alive.
    #[must_use]
    pub fn with_shared(mut self, provider: Arc<dyn Provider>) -> Self {
        self.providers.push(provider);
        self
    }

    /// Sets the parameters, in place of the environment of the process. Without this, each
    /// [`Registry::getinfo`] reads the environment.
    #[must_use]
    pub fn with_params(mut self, params: Params) -> Self {
        self.params = Some(params);
        self
    }

    /// Returns the providers, in order of preference.
    pub fn providers(&self) -> &[Arc<dyn Provider>] {
        &self.providers
    }

    /// Returns the environment, with the declared parameters of every provider.
    pub fn params(&self) -> Params {
        let params = self.params.clone().unwrap_or_else(Params::from_env);
        self.providers
            .iter()
            .fold(params, |params, provider| params.with(provider.params()))
    }

    /// Returns the descriptions that satisfy `hints` (fi_getinfo(3)).
    ///
    /// The results are in the order of the registry's providers, and for each provider in its order
    /// of preference. Nothing else changes the order, so the first result is the same in every
    /// process with the same environment. `Ok` has at least one result. [`Info::open`] opens a
    /// result.
    ///
    /// `node` and `service` name the peer, or with [`InfoFlags::SOURCE`] the local address.
    ///
    /// # Errors
    /// [`Errno::NoData`] when no description matches; the text has a line for each provider, with
    /// the attribute that does not match and both values. [`Errno::NoSys`] for a version above
    /// [`Version::API`]. [`Errno::BadFlags`] for unknown or contradicting flags. [`Errno::Inval`]
    /// for an invalid parameter in the environment.
    pub fn getinfo(
        &self,
        version: Version,
        node: Option<&str>,
        service: Option<&str>,
        flags: InfoFlags,
        hints: &Hints,
    ) -> Result<Vec<Info>, Error> {
        let explanations = self.explain(version, node, service, flags, hints)?;
        explanations.iter().for_each(log_failure);
        log_explanations(&explanations);
        if !explanations.iter().any(Explanation::is_taken) {
            return Err(nothing_matches(&explanations, &self.unknown_names(hints)?));
        }
        Ok(explanations
            .into_iter()
            .filter_map(Explanation::into_info)
            .collect())
    }

    /// Returns the descriptions that satisfy `hints`, as [`Registry::getinfo`] for this library's
    /// version, without addresses and flags.
    ///
    /// # Errors
    /// As [`Registry::getinfo`].
    pub fn infos(&self, hints: &Hints) -> Result<Vec<Info>, Error> {
        self.getinfo(Version::API, None, None, InfoFlags::empty(), hints)
    }

    /// Runs the query of [`Registry::getinfo`]. Returns for each candidate of each provider the
    /// reason why the candidate is or is not a result.
    ///
    /// # Errors
    /// The errors of [`Registry::getinfo`] for its arguments and the environment.
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
        // The error is logged, because C programs receive only the error number.
        let filters = Filters::new(&query).inspect_err(|error| {
            log_once(log::Level::Error, &error.to_string());
        })?;
        self.warn_of_unknown_names(&params, &filters);
        Ok(self
            .providers
            .iter()
            .filter(|provider| provider.is_enabled(&params))
            .flat_map(|provider| query_provider(provider, &query, &filters))
            .collect())
    }

    /// Opens the fabric of a result (fi_fabric(3)).
    ///
    /// # Errors
    /// [`Errno::NoDev`] when no provider has the name in `info`; the errors of the provider.
    pub fn fabric(&self, info: &Info) -> Result<Arc<dyn Fabric>, Error> {
        self.provider_of(info)?.fabric(info)
    }

    /// Binds a description that discovery has not returned, or that was converted from C, to this
    /// registry, so that [`Info::open`] works. The description gets the parameters of this
    /// registry, and the threading promise of `hints`.
    ///
    /// # Errors
    /// [`Errno::NoDev`] when no provider has the name in `info`.
    pub fn adopt(&self, mut info: Info, hints: &Hints) -> Result<Info, Error> {
        let provider = self.provider_of(&info)?;
        let name = &mut info.fabric_attr.prov_name;
        if alias_in(&**provider, &Filter::parse(name)).is_some() {
            provider.name().clone_into(name);
        }
        let params = self.params();
        set_provider(&mut info, provider, &Query::new(hints, &params));
        Ok(info)
    }

    /// Returns the provider of a description, which has the name of the description's uppermost
    /// layer.
    fn provider_of(&self, info: &Info) -> Result<&Arc<dyn Provider>, Error> {
        let name = &info.fabric_attr.prov_name;
        let upper_layer = name.rsplit(';').next().unwrap_or(name);
        self.providers
            .iter()
            .find(|provider| provider.name().eq_ignore_ascii_case(upper_layer))
            .or_else(|| self.provider_by_alias(name))
            .ok_or_else(|| self.no_provider(name, upper_layer))
    }

    fn no_provider(&self, name: &str, upper_layer: &str) -> Error {
        let known: Vec<_> = self.providers.iter().map(|prov| prov.name()).collect();
        let given = format!("prov_name {name:?}");
        let text = unknown::unknown_name_text(&given, upper_layer, &known);
        Error::new(Errno::NoDev, text)
    }

    /// Returns the provider with `name` as an alias.
    fn provider_by_alias(&self, name: &str) -> Option<&Arc<dyn Provider>> {
        let requested = Filter::parse(name);
        let mut providers = self.providers.iter();
        providers.find(|provider| alias_in(&***provider, &requested).is_some())
    }

    fn warn_of_unknown_names(&self, params: &Params, filters: &Filters) {
        for unknown in params.unknown() {
            warn_once(&unknown.to_string());
        }
        for sentence in self.unknown_layers("FI_PROVIDER", &filters.environment, params) {
            warn_once(&sentence);
        }
    }

    /// Returns an error text for each unknown provider name in the environment and the hints.
    #[cold]
    fn unknown_names(&self, hints: &Hints) -> Result<Vec<String>, Error> {
        let params = self.params();
        let filters = Filters::new(&Query::new(hints, &params))?;
        let by_environment = self.unknown_layers("FI_PROVIDER", &filters.environment, &params);
        let by_hint = self.unknown_layers("prov_name", &filters.hint, &params);
        Ok([by_environment, by_hint].concat())
    }

    /// Returns an error text for each name in a list that no provider has.
    fn unknown_layers(&self, given: &str, list: &Filter, params: &Params) -> Vec<String> {
        let providers = self.providers.iter();
        let enabled = providers.filter(|provider| provider.is_enabled(params));
        let known: Vec<_> = enabled.map(|provider| provider.name()).collect();
        let has_name = |provider: &dyn Provider, layer: &str| {
            let mut aliases = provider.aliases().iter();
            provider.name().eq_ignore_ascii_case(layer)
                || aliases.any(|alias| Filter::parse(layer).admits(alias.name()))
        };
        let is_known = |layer: &&str| {
            let mut providers = self.providers.iter();
            providers.any(|provider| has_name(&**provider, layer))
        };
        let unknown = list.layers().filter(|layer| !is_known(layer));
        unknown
            .map(|layer| unknown::unknown_name_text(given, layer, &known))
            .collect()
    }
}

/// The filters for provider names and address formats, from the environment and the hints.
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

    /// Returns the outcome of a provider that the filters exclude, or `None` for any other
    /// provider.
    fn exclusion(&self, provider: &dyn Provider, query: &Query<'_>) -> Option<Outcome> {
        let admits_name_or_alias = |filter| {
            admits_provider(filter, provider.name()) || alias_in(provider, filter).is_some()
        };
        if !admits_name_or_alias(&self.environment) {
            return Some(Outcome::Excluded(format!(
                "FI_PROVIDER={}",
                self.environment_text
            )));
        }
        (!admits_name_or_alias(&self.hint))
            .then(|| Outcome::Refused(self.name_mismatch(provider, query)))
    }

    /// Applies the filters to a result of a provider. Unlike [`Self::exclusion`], this compares the
    /// full provider name with all its layers, which only a result has.
    fn filter(&self, provider: &dyn Provider, info: Info, query: &Query<'_>) -> Outcome {
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
        let mut provided = provider.name().to_owned();
        for alias in provider.aliases() {
            if let Alias::Unsupported(name, remedy) = alias
                && self.hint.admits(name)
            {
                provided = format!("{provided} ({remedy})");
            }
        }
        Mismatch::new(
            "prov_name",
            &query.hints.info().fabric_attr.prov_name,
            provided,
        )
    }
}

/// Returns the alias by which a list selects a provider.
fn alias_in(provider: &dyn Provider, filter: &Filter) -> Option<Alias> {
    let mut aliases = provider.aliases().iter().copied();
    let is_requested = |alias: &Alias| alias.is_served() && filter.admits(alias.name());
    let is_selected_by_name = !filter.admits_listed_only() || filter.admits(provider.name());
    aliases.find(is_requested).filter(|_| !is_selected_by_name)
}

/// Whether a list admits a candidate of a provider, by its name or by an alias.
fn admits(filter: &Filter, provider: &dyn Provider, name: &str) -> bool {
    if filter.admits(name) {
        return true;
    }
    let alias = alias_in(provider, filter);
    let by_alias = alias.filter(|_| name.eq_ignore_ascii_case(provider.name()));
    if let Some(Alias::OtherProtocol(alias)) = by_alias {
        warn_once(&format!(
            "provider {alias} was requested, and {name} is used in its place: Selvedge's {name} \
             cannot communicate with libfabric's {alias}, which uses another protocol; use \
             Selvedge on both sides, or request tcp on both"
        ));
    }
    by_alias.is_some()
}

/// Whether a list admits a provider before its results are known. An include list applies only to
/// core providers. A layering provider, whose name begins with `ofi_`, is always queried, and its
/// results are filtered.
fn admits_provider(filter: &Filter, provider: &str) -> bool {
    let is_layering = provider.starts_with("ofi_") && filter.admits_listed_only();
    is_layering || filter.may_admit_with(provider)
}

fn check_arguments(query: &Query<'_>) -> Result<(), Error> {
    let flags = query.flags;
    if query.version > Version::API {
        let text = format!("API version {} is above {}", query.version, Version::API);
        return Err(Error::new(Errno::NoSys, text));
    }
    if !InfoFlags::all().contains(flags) {
        return Err(Error::new(Errno::BadFlags, format!("flags {flags}")));
    }
    if flags.contains(InfoFlags::PROV_ATTR_ONLY) {
        return check_prov_attr_only(query);
    }
    if flags.contains(InfoFlags::SOURCE) && query.node.is_none() && query.service.is_none() {
        let text = "FI_SOURCE requests a local address, but neither node nor service is given";
        return Err(Error::new(Errno::NoData, text));
    }
    Ok(())
}

fn check_prov_attr_only(query: &Query<'_>) -> Result<(), Error> {
    if query.flags != InfoFlags::PROV_ATTR_ONLY {
        let text = format!(
            "flags {}: FI_PROV_ATTR_ONLY cannot be combined with other flags",
            query.flags
        );
        return Err(Error::new(Errno::BadFlags, text));
    }
    if query.hints != &Hints::default() {
        let text = "FI_PROV_ATTR_ONLY cannot be combined with hints";
        return Err(Error::new(Errno::Inval, text));
    }
    Ok(())
}

fn query_provider(
    provider: &Arc<dyn Provider>,
    query: &Query<'_>,
    filters: &Filters,
) -> Vec<Explanation> {
    let explanation = |outcome| Explanation {
        provider: provider.name(),
        outcome,
    };
    if let Some(excluded) = filters.exclusion(&**provider, query) {
        return vec![explanation(excluded)];
    }
    if query.flags.contains(InfoFlags::PROV_ATTR_ONLY) {
        let info = with_origin(Info::default(), provider, query);
        return vec![explanation(Outcome::Taken(Box::new(info)))];
    }
    let candidates = query
        .params
        .check(provider.params())
        .and_then(|()| provider.getinfo(query));
    match candidates {
        Ok(candidates) => candidates
            .into_iter()
            .map(|candidate| match candidate {
                Ok(info) => filters.filter(&**provider, with_origin(info, provider, query), query),
                Err(mismatch) => Outcome::Refused(mismatch),
            })
            .map(explanation)
            .collect(),
        Err(error) => vec![explanation(Outcome::Failed(error))],
    }
}

/// Sets the fields of a result that the registry determines: provider name, versions and origin.
fn with_origin(mut info: Info, provider: &Arc<dyn Provider>, query: &Query<'_>) -> Info {
    let fabric = &mut info.fabric_attr;
    if fabric.prov_name.is_empty() {
        fabric.prov_name = provider.name().to_owned();
    }
    fabric.prov_version = provider.version();
    fabric.api_version = query.version;
    set_provider(&mut info, provider, query);
    info
}

/// Logs the error of a failed provider, because results of another provider would hide the error,
/// and a C program receives only an error number.
fn log_failure(explanation: &Explanation) {
    if let Outcome::Failed(_) = explanation.outcome {
        log_once(log::Level::Error, &explanation.to_string());
    }
}

/// Logs a line for each provider, with the outcomes of its candidates.
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
    log_once(log::Level::Warn, text);
}

/// Logs a message once per process, because discovery runs often.
fn log_once(level: log::Level, text: &str) {
    static LOGGED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    if logged.insert(text.to_owned()) {
        log::log!(target: "selvedge::core::core", level, "{text}");
    }
}

#[cfg(test)]
mod tests;
