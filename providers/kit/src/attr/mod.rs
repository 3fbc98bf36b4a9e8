//! Matches a provider's offer against an application's hints, and adapts the offer.
//!
//! The rules are those of fi_getinfo(3): capabilities are requested, modes have to be accepted,
//! limits are at least the requested ones. A provider keeps its [`Info`]s complete, and implements
//! [`selvedge::Provider::getinfo`] with one [`check`] for each. The provider itself resolves `node`
//! and `service` into addresses.

mod base;
mod caps;
mod compare;
mod mr_mode;

use selvedge::info::{
    Candidate, DomainAttr, EpAttr, Mismatch, Progress, ResourceMgmt, RxAttr, Threading, TxAttr,
};
use selvedge::{AddrFormat, Address, Caps, Info, InfoFlags, Mode, Query};

pub use base::base_info;
use compare::{at_most, equal, name, ranked, required_modes, subset};

/// Matches one offer against a query; returns the offer as the application will see it.
///
/// In the result, capabilities are reduced to the requested ones and those that cost nothing; queue
/// sizes, list lengths and the inject size are the requested ones; the registration mode has the
/// bits that the capabilities need; default operation flags and authorization keys are the
/// application's. The length of a key in the offer is the largest length that the provider
/// supports. Attributes that are not requested stay the provider's.
///
/// # Errors
/// The first attribute that does not match, in this order: names, endpoint, capabilities and modes,
/// addresses, domain, transmit, receive.
///
/// # Examples
/// ```
/// use selvedge::{Info, Provider, Query};
/// use selvedge::info::Candidate;
/// # use selvedge_kit::attr;
/// fn getinfo(infos: &[Info], query: &Query<'_>) -> Vec<Candidate> {
///     infos.iter().map(|info| attr::check(info, query)).collect()
/// }
/// ```
pub fn check(offered: &Info, query: &Query<'_>) -> Candidate {
    negotiate(offered, query).map_err(|mismatch| mismatch.of(offered))
}

/// Raises the queue sizes of an offer to the requested ones, up to `max` operations in either
/// direction. The sizes in the offer are those for programs that request none.
pub fn grow_queues(offered: &mut Info, query: &Query<'_>, max: usize) {
    let asked = query.hints.info();
    let grown = |size: usize, asked: usize| size.max(asked.min(max));
    offered.tx_attr.size = grown(offered.tx_attr.size, asked.tx_attr.size);
    offered.rx_attr.size = grown(offered.rx_attr.size, asked.rx_attr.size);
}

/// Raises the inject size of an offer to the requested one, up to `max` bytes.
pub fn grow_inject(offered: &mut Info, query: &Query<'_>, max: usize) {
    let asked = query.hints.info().tx_attr.inject_size;
    let size = &mut offered.tx_attr.inject_size;
    *size = (*size).max(asked.min(max));
}

fn negotiate(has: &Info, query: &Query<'_>) -> Candidate {
    let asked = query.hints.info();
    name(
        "fabric_attr.name",
        &asked.fabric_attr.name,
        &has.fabric_attr.name,
    )?;
    name(
        "domain_attr.name",
        &asked.domain_attr.name,
        &has.domain_attr.name,
    )?;
    check_endpoint(&asked.ep_attr, has, asked.caps)?;
    subset("caps", caps::implied(asked.caps), has.caps)?;
    required_modes("mode", asked.mode, has.mode)?;
    let (src, dest) = asked_addresses(query);
    check_addresses(asked.addr_format, src, dest, has.addr_format)?;
    check_domain(&asked.domain_attr, has, asked.mode)?;
    check_tx(&asked.tx_attr, has, asked.mode)?;
    check_rx(&asked.rx_attr, has, asked.mode)?;

    let mut info = has.clone();
    info.caps = caps::granted(asked.caps, has.caps)
        | caps::granted_for_part(asked.tx_attr.caps, has.tx_attr.caps)
        | caps::granted_for_part(asked.rx_attr.caps, has.rx_attr.caps);
    info.domain_attr.mr_mode = mr_mode::negotiate(
        asked.domain_attr.mr_mode,
        has.domain_attr.mr_mode,
        info.caps,
        query.version,
    )?;
    set_if_asked(&mut info.addr_format, asked.addr_format);
    info.src_addr = src.cloned().or_else(|| info.src_addr.take());
    info.dest_addr = dest.cloned().or_else(|| info.dest_addr.take());
    info.handle = asked.handle;
    fit_endpoint(&mut info.ep_attr, &asked.ep_attr);
    fit_domain(&mut info.domain_attr, &asked.domain_attr);
    fit_tx(&mut info.tx_attr, &asked.tx_attr, info.caps);
    fit_rx(&mut info.rx_attr, &asked.rx_attr, info.caps);
    Ok(info)
}

fn check_endpoint(asked: &EpAttr, offered: &Info, caps: Caps) -> Result<(), Mismatch> {
    let has = &offered.ep_attr;
    equal("ep_type", asked.ep_type, has.ep_type)?;
    equal("protocol", asked.protocol, has.protocol)?;
    at_most(
        "protocol_version",
        asked.protocol_version,
        has.protocol_version,
    )?;
    // No memory is larger; libfabric's providers report `SIZE_MAX`.
    let max_msg_size = asked.max_msg_size.min(isize::MAX as usize);
    at_most("max_msg_size", max_msg_size, has.max_msg_size)?;
    if caps.intersects(Caps::RMA | Caps::ATOMIC) {
        at_most(
            "max_order_raw_size",
            asked.max_order_raw_size,
            has.max_order_raw_size,
        )?;
        at_most(
            "max_order_war_size",
            asked.max_order_war_size,
            has.max_order_war_size,
        )?;
        at_most(
            "max_order_waw_size",
            asked.max_order_waw_size,
            has.max_order_waw_size,
        )?;
    }
    if !compare::tag_format_fits(asked.mem_tag_format, has.mem_tag_format) {
        let (asked, has) = (asked.mem_tag_format.0, has.mem_tag_format.0);
        return Err(Mismatch::new(
            "mem_tag_format",
            format!("{asked:#x}"),
            format!("{has:#x}"),
        ));
    }
    at_most("auth_key_size", asked.auth_key.len(), has.auth_key.len())?;
    check_contexts(asked, &offered.domain_attr)
}

/// `usize::MAX` requests a shared context (`FI_SHARED_CONTEXT`).
fn check_contexts(asked: &EpAttr, domain: &DomainAttr) -> Result<(), Mismatch> {
    match asked.tx_ctx_cnt {
        usize::MAX => at_most("max_ep_stx_ctx", 1, domain.max_ep_stx_ctx)?,
        count => at_most("tx_ctx_cnt", count, domain.max_ep_tx_ctx)?,
    }
    match asked.rx_ctx_cnt {
        usize::MAX => at_most("max_ep_srx_ctx", 1, domain.max_ep_srx_ctx),
        count => at_most("rx_ctx_cnt", count, domain.max_ep_rx_ctx),
    }
}

/// The addresses in the hints, source and destination, except the one that `node` and `service`
/// replace.
fn asked_addresses<'a>(query: &Query<'a>) -> (Option<&'a Address>, Option<&'a Address>) {
    let asked = query.hints.info();
    let (src, dest) = (asked.src_addr.as_ref(), asked.dest_addr.as_ref());
    let named = query.node.is_some() || query.service.is_some();
    match (named, query.flags.contains(InfoFlags::SOURCE)) {
        (true, true) => (None, dest),
        (true, false) => (src, None),
        (false, _) => (src, dest),
    }
}

fn check_addresses(
    asked: AddrFormat,
    src: Option<&Address>,
    dest: Option<&Address>,
    has: AddrFormat,
) -> Result<(), Mismatch> {
    let formats = [
        ("addr_format", Some(asked)),
        ("src_addr", src.map(Address::format)),
        ("dest_addr", dest.map(Address::format)),
    ];
    for (field, format) in formats {
        if let Some(format) = format.filter(|format| !format.accepts(has)) {
            return Err(Mismatch::new(field, format, has));
        }
    }
    Ok(())
}

fn check_domain(asked: &DomainAttr, offered: &Info, accepted: Mode) -> Result<(), Mismatch> {
    let has = &offered.domain_attr;
    ranked("threading", asked.threading, has.threading, threading_rank)?;
    ranked(
        "control_progress",
        asked.control_progress,
        has.control_progress,
        progress_rank,
    )?;
    ranked(
        "data_progress",
        asked.data_progress,
        has.data_progress,
        progress_rank,
    )?;
    ranked(
        "resource_mgmt",
        asked.resource_mgmt,
        has.resource_mgmt,
        resource_mgmt_rank,
    )?;
    if has.av_type != Default::default() {
        equal("av_type", asked.av_type, has.av_type)?;
    }
    subset("domain_attr.caps", asked.caps, has.caps)?;
    required_modes(
        "domain_attr.mode",
        part_or_whole(asked.mode, accepted),
        has.mode,
    )?;
    at_most(
        "domain_attr.auth_key_size",
        asked.auth_key.len(),
        has.auth_key.len(),
    )?;
    check_domain_limits(asked, has)
}

fn check_domain_limits(asked: &DomainAttr, has: &DomainAttr) -> Result<(), Mismatch> {
    let sizes = [
        ("mr_key_size", asked.mr_key_size, has.mr_key_size),
        ("cq_data_size", asked.cq_data_size, has.cq_data_size),
        ("cq_cnt", asked.cq_cnt, has.cq_cnt),
        ("ep_cnt", asked.ep_cnt, has.ep_cnt),
        ("domain_attr.tx_ctx_cnt", asked.tx_ctx_cnt, has.tx_ctx_cnt),
        ("domain_attr.rx_ctx_cnt", asked.rx_ctx_cnt, has.rx_ctx_cnt),
        ("max_ep_tx_ctx", asked.max_ep_tx_ctx, has.max_ep_tx_ctx),
        ("max_ep_rx_ctx", asked.max_ep_rx_ctx, has.max_ep_rx_ctx),
        ("max_ep_stx_ctx", asked.max_ep_stx_ctx, has.max_ep_stx_ctx),
        ("max_ep_srx_ctx", asked.max_ep_srx_ctx, has.max_ep_srx_ctx),
        ("cntr_cnt", asked.cntr_cnt, has.cntr_cnt),
        ("mr_iov_limit", asked.mr_iov_limit, has.mr_iov_limit),
        ("max_err_data", asked.max_err_data, has.max_err_data),
        ("mr_cnt", asked.mr_cnt, has.mr_cnt),
        (
            "max_ep_auth_key",
            asked.max_ep_auth_key,
            has.max_ep_auth_key,
        ),
    ];
    for (field, asked, has) in sizes {
        at_most(field, asked, has)?;
    }
    at_most("max_group_id", asked.max_group_id, has.max_group_id)?;
    at_most("max_cntr_value", asked.max_cntr_value, has.max_cntr_value)?;
    at_most(
        "max_err_cntr_value",
        asked.max_err_cntr_value,
        has.max_err_cntr_value,
    )
}

fn check_tx(asked: &TxAttr, offered: &Info, accepted: Mode) -> Result<(), Mismatch> {
    let has = &offered.tx_attr;
    subset("tx_attr.caps", asked.caps, has.caps)?;
    required_modes(
        "tx_attr.mode",
        part_or_whole(asked.mode, accepted),
        has.mode,
    )?;
    subset("tx_attr.op_flags", asked.op_flags, has.op_flags)?;
    subset("tx_attr.msg_order", asked.msg_order, has.msg_order)?;
    subset("tx_attr.comp_order", asked.comp_order, has.comp_order)?;
    at_most("tx_attr.inject_size", asked.inject_size, has.inject_size)?;
    at_most("tx_attr.size", asked.size, has.size)?;
    at_most("tx_attr.iov_limit", asked.iov_limit, has.iov_limit)?;
    at_most(
        "tx_attr.rma_iov_limit",
        asked.rma_iov_limit,
        has.rma_iov_limit,
    )
}

fn check_rx(asked: &RxAttr, offered: &Info, accepted: Mode) -> Result<(), Mismatch> {
    let has = &offered.rx_attr;
    subset("rx_attr.caps", asked.caps, has.caps)?;
    required_modes(
        "rx_attr.mode",
        part_or_whole(asked.mode, accepted),
        has.mode,
    )?;
    subset("rx_attr.op_flags", asked.op_flags, has.op_flags)?;
    subset("rx_attr.msg_order", asked.msg_order, has.msg_order)?;
    subset("rx_attr.comp_order", asked.comp_order, has.comp_order)?;
    at_most("rx_attr.size", asked.size, has.size)?;
    at_most("rx_attr.iov_limit", asked.iov_limit, has.iov_limit)
}

fn fit_endpoint(ep: &mut EpAttr, asked: &EpAttr) {
    set_if_asked(&mut ep.tx_ctx_cnt, asked.tx_ctx_cnt);
    set_if_asked(&mut ep.rx_ctx_cnt, asked.rx_ctx_cnt);
    set_if_asked(&mut ep.mem_tag_format, asked.mem_tag_format);
    ep.auth_key.clone_from(&asked.auth_key);
}

/// An application that requests a weaker guarantee sees the one that it requested.
fn fit_domain(domain: &mut DomainAttr, asked: &DomainAttr) {
    set_if_asked(&mut domain.threading, asked.threading);
    set_if_asked(&mut domain.control_progress, asked.control_progress);
    set_if_asked(&mut domain.data_progress, asked.data_progress);
    set_if_asked(&mut domain.resource_mgmt, asked.resource_mgmt);
    set_if_asked(&mut domain.av_type, asked.av_type);
    domain.auth_key.clone_from(&asked.auth_key);
}

fn fit_tx(tx: &mut TxAttr, asked: &TxAttr, caps: Caps) {
    tx.caps = caps::granted_to_part(asked.caps, tx.caps, caps);
    tx.op_flags = asked.op_flags;
    // Libraries of API version 2 have no completion order. To omit an order that is not requested
    // costs nothing.
    tx.comp_order = asked.comp_order;
    set_if_asked(&mut tx.inject_size, asked.inject_size);
    set_if_asked(&mut tx.size, asked.size);
    set_if_asked(&mut tx.iov_limit, asked.iov_limit);
    set_if_asked(&mut tx.rma_iov_limit, asked.rma_iov_limit);
}

fn fit_rx(rx: &mut RxAttr, asked: &RxAttr, caps: Caps) {
    rx.caps = caps::granted_to_part(asked.caps, rx.caps, caps);
    rx.op_flags = asked.op_flags;
    rx.comp_order = asked.comp_order;
    set_if_asked(&mut rx.size, asked.size);
    set_if_asked(&mut rx.iov_limit, asked.iov_limit);
}

/// Overwrites a field with the requested value; the default value means "any".
fn set_if_asked<T: Default + PartialEq>(field: &mut T, asked: T) {
    if asked != T::default() {
        *field = asked;
    }
}

/// The modes that the application accepts for the domain, transmit or receive attributes: those of
/// `part`, or those of `whole` if `part` has none.
fn part_or_whole(part: Mode, whole: Mode) -> Mode {
    if part.is_empty() { whole } else { part }
}

/// Lower ranks allow more: a thread-safe provider serves applications that serialize.
fn threading_rank(threading: Threading) -> u32 {
    match threading {
        Threading::Safe => 1,
        Threading::Fid => 2,
        Threading::Endpoint => 3,
        Threading::Completion => 4,
        Threading::Domain => 5,
        _ => 6,
    }
}

/// Lower ranks require less of the application.
fn progress_rank(progress: Progress) -> u32 {
    match progress {
        Progress::Auto => 1,
        Progress::Manual => 2,
        Progress::ControlUnified => 3,
        _ => 4,
    }
}

/// Lower ranks protect more.
fn resource_mgmt_rank(resource_mgmt: ResourceMgmt) -> u32 {
    match resource_mgmt {
        ResourceMgmt::Enabled => 1,
        ResourceMgmt::Disabled => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests;
