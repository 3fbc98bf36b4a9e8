//! Discovery, with the addresses of the roles: fi_getinfo(3).
//!
//! A server requests its own address, a client the server's. If addresses are strings, all host
//! names of this machine stand for the same host: `localhost` finds `127.0.0.1`.

#![expect(unsafe_code, reason = "the promise that removes locks")]

use std::net::ToSocketAddrs;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use selvedge::info::{EpType, Version};
use selvedge::{AddrFormat, Address, Caps, Hints, Info, InfoFlags, Mode, MrMode};
use selvedge_testkit::failure::unsupported;

use crate::suite::defect::registry;
use crate::upstream::options::{Options, PORT};

/// Makes the hints of a program and its options.
///
/// # Errors
/// The options request a capability that no provider has.
pub(in crate::upstream) fn hints(
    options: &Options,
    caps: Caps,
    ep_type: EpType,
) -> anyhow::Result<Hints> {
    if options.device_memory {
        return Err(unsupported("device memory (FI_HMEM) is not supported"));
    }
    let mut mode = Mode::CONTEXT | Mode::CONTEXT2;
    mode.set(Mode::RX_CQ_DATA, !options.without_rx_cq_data);
    let mut mr_mode =
        MrMode::ENDPOINT | MrMode::ALLOCATED | MrMode::PROV_KEY | MrMode::VIRT_ADDR | MrMode::RAW;
    mr_mode.set(MrMode::LOCAL, !options.without_mr_local);
    let text = |option: &Option<String>| option.clone().unwrap_or_default();
    let mut hints = Hints::new()
        .caps(caps)
        .mode(mode)
        .mr_mode(mr_mode)
        .ep_type(options.ep_type.unwrap_or(ep_type))
        .provider(&text(&options.provider))
        .fabric(&text(&options.fabric))
        .domain(&text(&options.domain))
        .addr_format(options.addr_format)
        .data_progress(options.data_progress)
        .control_progress(options.control_progress);
    if options.prefix {
        // Only a provider that requires a prefix matches.
        hints = hints.mode(mode | Mode::MSG_PREFIX);
    }
    if let Some(size) = options.max_msg_size.or_else(|| options.sizes.one()) {
        hints = hints.max_msg_size(size);
    }
    // SAFETY: a domain of these programs is used by one thread, except in programs that request
    // `Threading::Safe` or `Threading::Completion` themselves, and use their objects accordingly.
    Ok(unsafe { hints.promise_threading(options.threading) })
}

/// Returns the first result of discovery, with the addresses of this process's role.
///
/// # Errors
/// The error of discovery.
pub(in crate::upstream) fn discover(options: &Options, hints: &Hints) -> anyhow::Result<Info> {
    let info = query(hints, None, None, InfoFlags::empty())?;
    check_prefix(options, &info)?;
    let uses_addresses = options.out_of_band.is_none() || options.out_of_band_host.is_some();
    if !uses_addresses {
        return Ok(info);
    }
    let format = HostFormat {
        are_strings: info.addr_format == AddrFormat::Str,
    };
    match &options.server {
        None => discover_server(options, hints, format),
        Some(server) => discover_client(options, hints, format, server),
    }
}

/// Returns the first result of discovery for a host or a group, whose address is the result's
/// `dest_addr`.
///
/// # Errors
/// As [`discover`].
pub(in crate::upstream) fn discover_peer(
    options: &Options,
    hints: &Hints,
    host: &str,
) -> anyhow::Result<Info> {
    let info = query(hints, None, None, InfoFlags::empty())?;
    let format = HostFormat {
        are_strings: info.addr_format == AddrFormat::Str,
    };
    discover_client(options, hints, format, host)
}

fn check_prefix(options: &Options, info: &Info) -> anyhow::Result<()> {
    if options.prefix && !info.mode.contains(Mode::MSG_PREFIX) {
        let name = &info.fabric_attr.prov_name;
        return Err(unsupported(format!(
            "{name} requires no prefix (FI_MSG_PREFIX)"
        )));
    }
    Ok(())
}

fn discover_server(options: &Options, hints: &Hints, format: HostFormat) -> anyhow::Result<Info> {
    let host = format.host(options.source.as_deref())?;
    let port = options.source_port.as_deref().unwrap_or(PORT);
    format.query(hints, host.as_deref(), Some(port), InfoFlags::SOURCE)
}

fn discover_client(
    options: &Options,
    hints: &Hints,
    format: HostFormat,
    server: &str,
) -> anyhow::Result<Info> {
    let mut hints = hints.clone();
    if options.source.is_some() || options.source_port.is_some() {
        let address = client_address(options, &hints, format)?;
        hints = hints.src_addr(address);
    }
    let host = format.host(Some(server))?;
    let port = options.port.as_deref().unwrap_or(PORT);
    format.query(&hints, host.as_deref(), Some(port), InfoFlags::empty())
}

/// Returns the client's address. One endpoint at a time uses a name, so a name without a port gets
/// a unique port.
fn client_address(options: &Options, hints: &Hints, format: HostFormat) -> anyhow::Result<Address> {
    static OPENED: AtomicUsize = AtomicUsize::new(0);
    let host = format.host(options.source.as_deref())?;
    let unique = || {
        format!(
            "{}.{}",
            std::process::id(),
            OPENED.fetch_add(1, Ordering::Relaxed)
        )
    };
    let port = match (&options.source_port, format.are_strings) {
        (Some(port), _) => Some(port.clone()),
        (None, true) => Some(unique()),
        (None, false) => None,
    };
    let info = format.query(hints, host.as_deref(), port.as_deref(), InfoFlags::SOURCE)?;
    info.src_addr.context("discovery gives no local address")
}

/// The format in which a provider expects hosts.
#[derive(Clone, Copy)]
struct HostFormat {
    are_strings: bool,
}

impl HostFormat {
    /// Returns a host as the provider expects it.
    fn host(self, host: Option<&str>) -> anyhow::Result<Option<String>> {
        if !self.are_strings {
            return Ok(host.map(str::to_owned));
        }
        let host = host.unwrap_or(THIS_MACHINE);
        if host.contains("://") {
            return Ok(Some(host.to_owned()));
        }
        let resolved = (host, 0).to_socket_addrs();
        let mut addresses = resolved.map_err(|error| {
            unsupported(format!(
                "unknown host {host:?}: {error}; names are written fi_shm://NAME"
            ))
        })?;
        let is_local = addresses.any(|address| address.ip().is_loopback());
        Ok(Some(if is_local { THIS_MACHINE } else { host }.to_owned()))
    }

    fn query(
        self,
        hints: &Hints,
        host: Option<&str>,
        port: Option<&str>,
        flags: InfoFlags,
    ) -> anyhow::Result<Info> {
        let is_name = host.is_some_and(|host| host.contains("://"));
        query(hints, host, port.filter(|_| !is_name), flags)
    }
}

/// The host that stands for all host names of this machine.
const THIS_MACHINE: &str = "127.0.0.1";

fn query(
    hints: &Hints,
    node: Option<&str>,
    service: Option<&str>,
    flags: InfoFlags,
) -> anyhow::Result<Info> {
    let registry = registry()?;
    let infos = registry.getinfo(Version::API, node, service, flags, hints)?;
    let first = infos.into_iter().next();
    first.context("discovery found nothing and gave no reason")
}
