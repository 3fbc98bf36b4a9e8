//! `FI_*` parameters, which are declared with a type, and read from the environment or from a
//! replacement of the environment.
//!
//! An invalid value is an error: reading `FI_SHM_TX_SIZE=banana` fails with the variable, the value
//! and the accepted values. [`Params::unknown`] lists variables that are not declared.

mod filter;
mod known;
mod parse;
mod spec;

pub use filter::Filter;
pub use known::{CORE, nearest};
pub use parse::{flag, integer, size, time};
pub use spec::{Kind, Spec};

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{Errno, Error};

/// An environment, with the declarations of its parameters.
///
/// A clone shares the values. The parameters of the core are always declared; [`Params::with`]
/// declares the parameters of a provider.
///
/// # Examples
/// ```
/// use selvedge::param::{Params, Spec};
///
/// static PARAMS: [Spec; 1] = [Spec::size("FI_DEMO_TX_SIZE", 1024, "outstanding sends")];
///
/// let params: Params = [("FI_DEMO_TX_SIZE", "2k")].into_iter().collect();
/// assert_eq!(params.with(&PARAMS).size("FI_DEMO_TX_SIZE")?, 2048);
/// # Ok::<(), selvedge::Error>(())
/// ```
#[derive(Clone)]
pub struct Params {
    values: Arc<BTreeMap<String, String>>,
    tables: Vec<&'static [Spec]>,
}

/// A variable with the prefix `FI_` that is not a declared parameter.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The name of the variable.
    pub name: String,
    /// The value of the variable.
    pub value: String,
    /// The most similar known name, if any is similar.
    pub nearest: Option<&'static str>,
}

impl Params {
    /// Reads the current environment of this process.
    pub fn from_env() -> Self {
        std::env::vars_os()
            .filter_map(|(name, value)| {
                let name = name.into_string().ok()?;
                Some((name, value.to_string_lossy().into_owned()))
            })
            .collect()
    }

    /// Returns a copy that also declares the parameters of `table`.
    #[must_use]
    pub fn with(&self, table: &'static [Spec]) -> Self {
        let mut params = self.clone();
        if !params.tables.contains(&table) {
            params.tables.push(table);
        }
        params
    }

    /// Sets a variable, so that a program can configure a provider. A name that does not begin with
    /// `FI_` is ignored.
    ///
    /// # Examples
    /// ```
    /// use selvedge::Registry;
    /// use selvedge::param::Params;
    ///
    /// let params = Params::from_env().set("FI_DEMO_TX_SIZE", "2k");
    /// assert_eq!(params.raw("FI_DEMO_TX_SIZE"), Some("2k"));
    /// // The value applies to all objects that are opened from descriptions of this registry.
    /// let registry = Registry::new().with_params(params);
    /// # drop(registry);
    /// ```
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into();
        if name.starts_with("FI_") {
            Arc::make_mut(&mut self.values).insert(name, value.into());
        }
        self
    }

    /// Returns the value of a variable, declared or not.
    pub fn raw(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Returns all declared parameters: those of the core, then those of each table in the order of
    /// [`Params::with`].
    pub fn specs(&self) -> impl Iterator<Item = &'static Spec> {
        self.tables.iter().flat_map(|table| table.iter())
    }

    /// Reads a [`Kind::Flag`].
    ///
    /// # Errors
    /// [`Errno::Inval`] for an invalid value; [`Errno::NoEnt`] for a parameter that is not declared with
    /// this type.
    pub fn flag(&self, name: &str) -> Result<bool, Error> {
        match self.spec(name)?.kind {
            Kind::Flag { default } => self.read(name, default, flag),
            kind => Err(not_of_type(name, kind)),
        }
    }

    /// Reads a [`Kind::Int`].
    ///
    /// # Errors
    /// As [`Params::flag`].
    pub fn int(&self, name: &str) -> Result<i64, Error> {
        match self.spec(name)?.kind {
            Kind::Int { default } => self.read(name, default, parse::int),
            kind => Err(not_of_type(name, kind)),
        }
    }

    /// Reads a [`Kind::Size`].
    ///
    /// # Errors
    /// As [`Params::flag`].
    pub fn size(&self, name: &str) -> Result<usize, Error> {
        match self.spec(name)?.kind {
            Kind::Size { default, min, max } => self.read(name, default, |text| {
                size(text).filter(|size| (min..=max).contains(size))
            }),
            kind => Err(not_of_type(name, kind)),
        }
    }

    /// Reads a [`Kind::Time`].
    ///
    /// # Errors
    /// As [`Params::flag`].
    pub fn time(&self, name: &str) -> Result<Duration, Error> {
        match self.spec(name)?.kind {
            Kind::Time { default } => self.read(name, default, time),
            kind => Err(not_of_type(name, kind)),
        }
    }

    /// Reads a [`Kind::Text`], or a [`Kind::Choice`] in lower case.
    ///
    /// # Errors
    /// As [`Params::flag`].
    pub fn text(&self, name: &str) -> Result<String, Error> {
        match self.spec(name)?.kind {
            Kind::Text { default } => {
                self.read(name, default.to_owned(), |text| Some(text.to_owned()))
            }
            Kind::Choice { default, words } => self.read(name, default.to_owned(), |text| {
                let word = text.trim().to_ascii_lowercase();
                words.contains(&word.as_str()).then_some(word)
            }),
            kind => Err(not_of_type(name, kind)),
        }
    }

    /// Reads every parameter of a declared table.
    ///
    /// # Errors
    /// As [`Params::flag`], for the first invalid value.
    pub fn check(&self, table: &'static [Spec]) -> Result<(), Error> {
        table.iter().try_for_each(|spec| self.check_one(spec))
    }

    /// Reads one parameter of a declared table, whatever its type.
    ///
    /// # Errors
    /// As [`Params::flag`].
    pub fn check_one(&self, spec: &Spec) -> Result<(), Error> {
        match spec.kind {
            Kind::Flag { .. } => self.flag(spec.name).map(drop),
            Kind::Int { .. } => self.int(spec.name).map(drop),
            Kind::Size { .. } => self.size(spec.name).map(drop),
            Kind::Time { .. } => self.time(spec.name).map(drop),
            Kind::Text { .. } | Kind::Choice { .. } => self.text(spec.name).map(drop),
        }
    }

    /// Returns the variables with the prefix `FI_` that are neither declared nor variables of
    /// libfabric. Such names are most likely misspelt.
    pub fn unknown(&self) -> Vec<Unknown> {
        self.values
            .iter()
            .filter(|(name, _)| !self.is_known(name))
            .map(|(name, value)| Unknown {
                name: name.clone(),
                value: value.clone(),
                nearest: nearest(name, self.known_names()),
            })
            .collect()
    }

    fn spec(&self, name: &str) -> Result<&'static Spec, Error> {
        self.specs()
            .find(|spec| spec.name == name)
            .ok_or_else(|| Error::new(Errno::NoEnt, format!("parameter {name} is not declared")))
    }

    fn read<T>(
        &self,
        name: &str,
        default: T,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Error> {
        let Some(text) = self.raw(name) else {
            return Ok(default);
        };
        parse(text).ok_or_else(|| self.bad_value(name, text))
    }

    #[cold]
    fn bad_value(&self, name: &str, text: &str) -> Error {
        match self.spec(name) {
            Ok(spec) => Error::new(
                Errno::Inval,
                format!("{name}={text:?}: expected {}", spec.kind),
            ),
            Err(undeclared) => undeclared,
        }
    }

    fn is_known(&self, name: &str) -> bool {
        self.known_names().any(|known| known == name)
            || known::PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix) && !self.declares_prefix(prefix))
    }

    fn known_names(&self) -> impl Iterator<Item = &'static str> {
        self.specs()
            .map(|spec| spec.name)
            .chain(known::UNUSED.iter().copied())
    }

    fn declares_prefix(&self, prefix: &str) -> bool {
        self.specs().any(|spec| spec.name.starts_with(prefix))
    }
}

/// Shows the variables, without the declarations.
impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.values.iter()).finish()
    }
}

/// An empty environment.
impl Default for Params {
    fn default() -> Self {
        Self {
            values: Arc::default(),
            tables: vec![&CORE],
        }
    }
}

/// An environment of the given variables. Names that do not begin with `FI_` are ignored.
impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Params {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let values = pairs
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .filter(|(name, _): &(String, String)| name.starts_with("FI_"))
            .collect();
        Self {
            values: Arc::new(values),
            ..Self::default()
        }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={:?} is not a parameter", self.name, self.value)?;
        match self.nearest {
            Some(nearest) => write!(f, "; did you mean {nearest}?"),
            None => Ok(()),
        }
    }
}

#[cold]
fn not_of_type(name: &str, kind: Kind) -> Error {
    let text = format!("parameter {name} is declared as {}", kind.type_name());
    Error::new(Errno::NoEnt, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    static TABLE: [Spec; 7] = [
        Spec::flag("FI_DEMO_FLAG", true, "a flag"),
        Spec::int("FI_DEMO_INT", -3, "a number"),
        Spec::size("FI_DEMO_SIZE", 1024, "a size"),
        Spec::size("FI_DEMO_LIMITED", 64, "a size").within(16, 4096),
        Spec::time("FI_DEMO_TIME", Duration::from_millis(20), "a time"),
        Spec::text("FI_DEMO_TEXT", "plain", "a text"),
        Spec::choice("FI_DEMO_CHOICE", "auto", &["auto", "cma"], "a choice"),
    ];

    fn params(name: &str, value: &str) -> Params {
        [(name, value)].into_iter().collect::<Params>().with(&TABLE)
    }

    #[test]
    fn unset_parameters_have_their_defaults() -> Result<(), Error> {
        let params = Params::default().with(&TABLE);
        assert!(params.flag("FI_DEMO_FLAG")?);
        assert_eq!(params.int("FI_DEMO_INT")?, -3);
        assert_eq!(params.size("FI_DEMO_SIZE")?, 1024);
        assert_eq!(params.time("FI_DEMO_TIME")?, Duration::from_millis(20));
        assert_eq!(params.text("FI_DEMO_TEXT")?, "plain");
        assert_eq!(params.text("FI_DEMO_CHOICE")?, "auto");
        Ok(())
    }

    #[test]
    fn flags_accept_every_spelling() {
        for text in ["1", "true", "YES", "On", " on "] {
            assert!(params("FI_DEMO_FLAG", text).flag("FI_DEMO_FLAG").unwrap());
        }
        for text in ["0", "false", "No", "OFF"] {
            assert!(!params("FI_DEMO_FLAG", text).flag("FI_DEMO_FLAG").unwrap());
        }
    }

    #[test]
    fn sizes_accept_suffixes_and_number_bases() {
        let table = [
            ("0", 0),
            ("4096", 4096),
            ("0x10", 16),
            ("010", 8),
            ("2k", 2048),
            ("3M", 3 << 20),
            ("1g", 1 << 30),
        ];
        for (text, value) in table {
            let read = params("FI_DEMO_SIZE", text).size("FI_DEMO_SIZE");
            assert_eq!(read.unwrap(), value, "{text}");
        }
    }

    #[test]
    fn times_accept_units() {
        let table = [
            ("7ns", Duration::from_nanos(7)),
            ("7us", Duration::from_micros(7)),
            ("7ms", Duration::from_millis(7)),
            ("7s", Duration::from_secs(7)),
            ("7m", Duration::from_secs(420)),
            ("0", Duration::ZERO),
            ("0s", Duration::ZERO),
        ];
        for (text, value) in table {
            let read = params("FI_DEMO_TIME", text).time("FI_DEMO_TIME");
            assert_eq!(read.unwrap(), value, "{text}");
        }
    }

    #[test]
    fn default_texts_parse_to_the_defaults() {
        for time in ["0s", "7ns", "1500us", "20ms", "90s"] {
            let default = parse::time(time).unwrap();
            assert_eq!(Kind::Time { default }.default_text(), time);
        }
        for spec in &TABLE {
            let text = spec.kind.default_text();
            params(spec.name, &text).check(&TABLE).unwrap();
        }
    }

    #[test]
    fn choices_are_read_in_any_case() {
        let read = params("FI_DEMO_CHOICE", "CMA").text("FI_DEMO_CHOICE");
        assert_eq!(read.unwrap(), "cma");
    }

    #[test]
    fn a_bad_value_names_variable_value_and_expectation() {
        let flag = "one of 0, 1, true, false, yes, no, on, off";
        let size = "a size such as 4096, 64k or 1m";
        let time = "a time with its unit, such as 500us, 20ms or 2s";
        let table = [
            ("FI_DEMO_FLAG", "maybe", flag),
            ("FI_DEMO_INT", "12x", "a whole number"),
            ("FI_DEMO_INT", "", "a whole number"),
            ("FI_DEMO_INT", "08", "a whole number"),
            ("FI_DEMO_INT", "--1", "a whole number"),
            ("FI_DEMO_INT", "0x-1", "a whole number"),
            ("FI_DEMO_SIZE", "banana", size),
            ("FI_DEMO_SIZE", "-1", size),
            ("FI_DEMO_SIZE", "k", size),
            ("FI_DEMO_SIZE", "99999999999g", size),
            ("FI_DEMO_SIZE", "1é", size),
            ("FI_DEMO_LIMITED", "8", &format!("{size}, from 16 to 4096")),
            ("FI_DEMO_LIMITED", "8k", &format!("{size}, from 16 to 4096")),
            ("FI_DEMO_TIME", "10", time),
            ("FI_DEMO_TIME", "ms", time),
            ("FI_DEMO_TIME", "10 years", time),
            ("FI_DEMO_CHOICE", "fast", "one of auto, cma"),
        ];
        for (name, value, expected) in table {
            let error = params(name, value).check(&TABLE).unwrap_err();
            assert_eq!(error.errno(), Errno::Inval);
            assert_eq!(
                error.message(),
                format!("{name}={value:?}: expected {expected}")
            );
        }
    }

    #[test]
    fn an_undeclared_parameter_is_an_error() {
        let error = Params::default().size("FI_DEMO_SIZE").unwrap_err();
        assert_eq!(error.message(), "parameter FI_DEMO_SIZE is not declared");
        let error = params("A", "b").flag("FI_DEMO_SIZE").unwrap_err();
        assert_eq!(error.errno(), Errno::NoEnt);
        assert_eq!(
            error.message(),
            "parameter FI_DEMO_SIZE is declared as size_t"
        );
    }

    #[test]
    fn misspelt_variables_are_reported_with_the_nearest_name() {
        let table = [
            ("FI_DEMO_SZIE", Some("FI_DEMO_SIZE")),
            ("FI_DEMO_FLAGS", Some("FI_DEMO_FLAG")),
            ("FI_PROVIDR", Some("FI_PROVIDER")),
            ("FI_LOGLEVEL", Some("FI_LOG_LEVEL")),
            ("FI_UNIVERSESIZE", Some("FI_UNIVERSE_SIZE")),
            ("FI_DEMO_ELEPHANT", None),
        ];
        for (name, nearest) in table {
            let unknown = params(name, "1").unknown();
            assert_eq!(unknown.len(), 1, "{name}");
            assert_eq!(unknown[0].nearest, nearest, "{name}");
        }
        assert_eq!(
            params("FI_DEMO_SZIE", "1").unknown()[0].to_string(),
            "FI_DEMO_SZIE=\"1\" is not a parameter; did you mean FI_DEMO_SIZE?"
        );
        assert_eq!(
            params("FI_DEMO_ELEPHANT", "1").unknown()[0].to_string(),
            "FI_DEMO_ELEPHANT=\"1\" is not a parameter"
        );
    }

    #[test]
    fn variables_of_libfabric_are_known() {
        for name in [
            "FI_PROVIDER_PATH",
            "FI_TCP_IFACE",
            "FI_OFI_RXM_TX_SIZE",
            "FI_EFA_X",
            "FIFO",
            "PATH",
        ] {
            assert_eq!(params(name, "1").unknown(), [], "{name}");
        }
    }

    #[test]
    fn a_variable_with_a_declared_prefix_must_be_declared() {
        static TCP: [Spec; 1] = [Spec::text("FI_TCP_IFACE", "", "interface")];
        let unknown = params("FI_TCP_IFCAE", "lo").with(&TCP).unknown();
        assert_eq!(unknown[0].nearest, Some("FI_TCP_IFACE"));
    }
}
