//! `fi_info`'s text, in libfabric's layout.

use selvedge::{Info, text};

/// Formats a result in six lines: provider, fabric, domain, version, endpoint type and protocol.
pub fn short(info: &Info) -> String {
    let (fabric, ep) = (&info.fabric_attr, &info.ep_attr);
    format!(
        "provider: {}\n    fabric: {}\n    domain: {}\n    version: {}\n    type: {}\n    \
         protocol: {}\n",
        fabric.prov_name,
        fabric.name,
        info.domain_attr.name,
        fabric.prov_version,
        ep.ep_type,
        ep.protocol
    )
}

/// Formats every field of a result, after a line `---`.
pub fn long(info: &Info) -> String {
    format!("---\n{}", text::info(info))
}

/// Formats a provider as two lines of the list.
pub(super) fn provider(info: &Info) -> String {
    let fabric = &info.fabric_attr;
    format!(
        "{}:\n    version: {}\n",
        fabric.prov_name, fabric.prov_version
    )
}
