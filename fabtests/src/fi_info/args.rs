//! The options, and the discovery query that they make.

use std::ffi::OsString;

use clap::Parser;
use selvedge::info::EpType;
use selvedge::{AddrFormat, Caps, Error, Hints, InfoFlags, Mode};

/// Show the communication interfaces of this machine
#[derive(Debug, Default, Parser)]
#[command(name = "fi_info", disable_version_flag = true)]
pub struct Args {
    /// Source name or address
    #[arg(short, long = "src_addr", value_name = "ADDR")]
    pub src_addr: Option<String>,
    /// Destination node name or address
    #[arg(short, long, value_name = "NAME")]
    pub node: Option<String>,
    /// Port number
    #[arg(short = 'P', long, value_name = "PNUM")]
    pub port: Option<String>,
    /// One or more capabilities: FI_MSG|FI_RMA...
    #[arg(short, long, value_name = "CAP1|CAP2..")]
    pub caps: Option<String>,
    /// One or more modes; all by default
    #[arg(short, long, value_name = "MOD1|MOD2..")]
    pub mode: Option<String>,
    /// A single endpoint type: FI_EP_MSG, FI_EP_DGRAM...
    #[arg(short = 't', long = "ep_type", value_name = "EPTYPE")]
    pub ep_type: Option<String>,
    /// Domain name
    #[arg(short, long, value_name = "DOMAIN")]
    pub domain: Option<String>,
    /// Fabric name
    #[arg(short, long, value_name = "FABRIC")]
    pub fabric: Option<String>,
    /// Address format: FI_SOCKADDR, FI_ADDR_STR...
    #[arg(short, long = "addr_format", value_name = "FMT")]
    pub addr_format: Option<String>,
    /// Provider, or layers joined by ';'
    #[arg(short, long, value_name = "PROV")]
    pub provider: Option<String>,
    /// Print every parameter: type, default, value, meaning
    #[arg(short, long)]
    pub env: bool,
    /// Print the parameters whose names contain a text
    #[arg(short, long, value_name = "SUBSTR")]
    pub getenv: Option<String>,
    /// Print, in full, the results that contain a text
    #[arg(short, long, value_name = "SUBSTR")]
    pub info: Option<String>,
    /// List the providers
    #[arg(short, long)]
    pub list: bool,
    /// Print results in full
    #[arg(short, long)]
    pub verbose: bool,
    /// Print versions and exit
    #[arg(long)]
    pub version: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Explain why each candidate of the providers was taken or refused
    #[arg(long)]
    pub explain: bool,
}

/// The usage text, and the exit code.
#[derive(Debug)]
pub struct Usage {
    /// Text for the standard output.
    pub text: String,
    /// 0 for help that was requested, 1 otherwise.
    pub code: u8,
}

/// Reads the command line, the program's name first.
///
/// # Errors
/// The help text, requested or caused by a wrong option.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Args, Usage> {
    Args::try_parse_from(args).map_err(|error| Usage {
        text: error.render().to_string(),
        code: u8::from(error.use_stderr()),
    })
}

/// The arguments of discovery.
#[derive(Debug)]
pub(super) struct DiscoveryArgs {
    pub(super) node: Option<String>,
    pub(super) service: Option<String>,
    pub(super) flags: InfoFlags,
    pub(super) hints: Hints,
}

impl Args {
    /// Makes the arguments of discovery. A source address replaces the node, as in libfabric's
    /// tool.
    pub(super) fn query(&self) -> Result<DiscoveryArgs, Error> {
        let (node, flags) = match &self.src_addr {
            Some(source) => (Some(source.clone()), InfoFlags::SOURCE),
            None => (self.node.clone(), InfoFlags::empty()),
        };
        Ok(DiscoveryArgs {
            node,
            service: self.port.clone(),
            flags,
            hints: self.hints()?,
        })
    }

    fn hints(&self) -> Result<Hints, Error> {
        let text = |option: &Option<String>| option.clone().unwrap_or_default();
        let mut hints = Hints::anything()
            .provider(&text(&self.provider))
            .fabric(&text(&self.fabric))
            .domain(&text(&self.domain));
        if let Some(caps) = &self.caps {
            hints = hints.caps(name_option("-c", caps.parse::<Caps>())?);
        }
        if let Some(mode) = &self.mode {
            hints = hints.mode(name_option("-m", mode.parse::<Mode>())?);
        }
        if let Some(ep_type) = &self.ep_type {
            hints = hints.ep_type(name_option("-t", ep_type.parse::<EpType>())?);
        }
        if let Some(format) = &self.addr_format {
            hints = hints.addr_format(name_option("-a", format.parse::<AddrFormat>())?);
        }
        Ok(hints)
    }
}

fn name_option<T>(name: &str, value: Result<T, Error>) -> Result<T, Error> {
    value.map_err(|error| Error::new(error.errno(), format!("option {name}: {}", error.message())))
}
