//! The baselines of `bench`, and the names of contestants.

use anyhow::{bail, ensure};

use super::placement::PairLauncher;
use crate::comparison::{BuiltProgram, CompiledProgram, Contestant, Mpi};
use crate::fabric::{Bench, BenchConfig, OpenOrder};
use crate::pair::Pair;

/// The implementation that the benchmarks measure beside this one.
#[derive(Debug)]
pub(super) enum Baseline {
    /// libfabric's provider of the same name, or UCX.
    Compiled(CompiledProgram),
    /// Publish-subscribe or requests of iceoryx2, or calls of tarpc or tonic.
    Built(BuiltProgram),
    /// Two ranks of MPI.
    Mpi(Mpi),
    /// Another provider of Selvedge.
    Provider(String),
    /// BMI over the same provider.
    Bmi,
}

impl Baseline {
    /// Finds the baselines of a name on the command line, and builds their program. `transport` is
    /// libfabric's provider, UCX's transports, or MPI's routes.
    ///
    /// # Errors
    /// When there is no baseline of this name, or its program cannot be built.
    pub(super) fn find(name: &str, transport: Option<String>) -> anyhow::Result<Vec<Self>> {
        let baseline = match name {
            "libfabric" => Self::Compiled(CompiledProgram::libfabric(transport)?),
            "ucx" => Self::Compiled(CompiledProgram::ucx(transport)?),
            "iceoryx2" => Self::Built(BuiltProgram::iceoryx2()?),
            "tarpc" => Self::Built(BuiltProgram::tarpc()?),
            "tonic" => Self::Built(BuiltProgram::tonic()?),
            "mpi" => {
                let routes = Mpi::compile(transport.as_deref())?;
                return Ok(routes.into_iter().map(Self::Mpi).collect());
            }
            "bmi" => Self::Bmi,
            _ => Self::provider(name)?,
        };
        Ok(vec![baseline])
    }

    /// Finds a provider of Selvedge.
    fn provider(name: &str) -> anyhow::Result<Self> {
        let registry = selvedge_providers::builtin();
        let names: Vec<_> = registry
            .providers()
            .iter()
            .map(|provider| provider.name())
            .collect();
        if names.contains(&name) {
            Ok(Self::Provider(name.to_owned()))
        } else {
            bail!(
                "--against {name}: choose libfabric, ucx, iceoryx2, mpi, bmi, tarpc, tonic, {}",
                names.join(", ")
            )
        }
    }

    /// Starts the processes of the baseline of a measured `provider`, and opens their endpoints. Of
    /// the order's configuration, only a program that is built uses a part: whether it exchanges
    /// requests.
    ///
    /// # Errors
    /// When a process cannot be started or an endpoint cannot be opened.
    pub(super) fn open(
        &self,
        provider: &str,
        order: &OpenOrder,
        launcher: PairLauncher,
    ) -> anyhow::Result<Contestant> {
        let config = BenchConfig {
            service: order.config.service,
            ..BenchConfig::default()
        };
        let order = OpenOrder {
            config: BenchConfig::default(),
            ..order.clone()
        };
        let (name, order) = match self {
            Self::Compiled(program) => (
                program.version(),
                OpenOrder {
                    special: false,
                    ..order
                },
            ),
            Self::Mpi(ranks) => (
                ranks.version(),
                OpenOrder {
                    special: false,
                    ..order
                },
            ),
            Self::Built(program) => (
                program.version(),
                OpenOrder {
                    provider: Some(program.name().to_owned()),
                    backend: true,
                    config,
                    ..order
                },
            ),
            Self::Provider(other) => {
                let provider = Some(other.clone());
                (SELVEDGE, OpenOrder { provider, ..order })
            }
            Self::Bmi => {
                let (provider, backend) = (Some(provider.to_owned()), true);
                (
                    SELVEDGE_BMI,
                    OpenOrder {
                        provider,
                        backend,
                        ..order
                    },
                )
            }
        };
        let opened = Contestant::open(name.to_owned(), self.start(provider, launcher)?, &order)?;
        Ok(match self {
            Self::Mpi(ranks) => opened.with_config(ranks.route()),
            _ => opened,
        })
    }

    /// Starts the processes of the baseline of a measured `provider`.
    ///
    /// # Errors
    /// As [`Pair::spawn`].
    pub(super) fn start(&self, provider: &str, launcher: PairLauncher) -> anyhow::Result<Pair> {
        let PairLauncher {
            placement,
            deadline,
        } = launcher;
        match self {
            Self::Compiled(program) => program.start(provider, placement, deadline),
            Self::Built(program) => program.start(placement, deadline),
            Self::Mpi(ranks) => ranks.start(provider, placement, deadline),
            Self::Provider(_) | Self::Bmi => launcher.start_pair(),
        }
    }
}

/// Whether the baseline of a name is a provider of Selvedge.
pub(super) fn is_provider(name: &str) -> bool {
    !matches!(
        name,
        "libfabric" | "ucx" | "iceoryx2" | "mpi" | "bmi" | "tarpc" | "tonic"
    )
}

/// Refuses a baseline that does not fit the measurement of the service layer, or fits it alone.
///
/// # Errors
/// An error that names the baseline and the option.
pub(super) fn check_service(name: &str, is_service: bool) -> anyhow::Result<()> {
    let has_calls = matches!(name, "tarpc" | "tonic");
    ensure!(
        is_service || !has_calls,
        "--against {name} measures remote procedure calls: add --service"
    );
    ensure!(
        !is_service || has_calls || name == "iceoryx2",
        "--service is measured beside iceoryx2, tarpc or tonic, not beside {name}"
    );
    Ok(())
}

/// The benchmarks that the baseline of a name has beside a command line that names none; `None` for
/// all that the measured configuration has.
pub(super) fn default_benches(name: &str) -> Option<Vec<Bench>> {
    let has_only_tagged_messages = matches!(name, "bmi" | "ucx" | "iceoryx2" | "mpi");
    has_only_tagged_messages.then(|| vec![Bench::TaggedPingpong, Bench::TaggedBw])
}

/// Refuses benchmarks that the baseline of a name does not have.
///
/// # Errors
/// An error that names the benchmark.
pub(super) fn check_bench(name: &str, bench: Bench) -> anyhow::Result<()> {
    let is_tagged = matches!(bench, Bench::TaggedPingpong | Bench::TaggedBw);
    let has_bench = match name {
        "tarpc" | "tonic" => matches!(bench, Bench::MsgPingpong | Bench::TaggedPingpong),
        "bmi" => is_tagged,
        "iceoryx2" => is_tagged || bench == Bench::MsgPingpong,
        "mpi" => is_tagged || bench == Bench::TaggedBibw,
        "ucx" => !bench.is_untagged() && bench != Bench::RmaWritePingpong || is_tagged,
        _ => true,
    };
    ensure!(
        has_bench,
        "--against {name} does not measure {bench}: choose tagged_pingpong, or tagged_bw without \
         --service"
    );
    Ok(())
}

/// Selvedge's name and version as a contestant.
pub(super) const SELVEDGE: &str = concat!("selvedge ", env!("CARGO_PKG_VERSION"));
/// The name of bare sockets as a contestant.
pub(super) const SOCKETS: &str = "sockets";
/// Name and version of Selvedge's BMI as a contestant.
const SELVEDGE_BMI: &str = concat!("selvedge-bmi ", env!("CARGO_PKG_VERSION"));
