//! libfabric's text layout.

use selvedge::{Info, text};

/// Six lines: provider, fabric, domain, version, endpoint type and protocol.
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

/// Every field, after a line `---`.
pub fn long(info: &Info) -> String {
    format!("---\n{}", text::info(info))
}

/// Two lines of the list of providers.
pub(super) fn provider(info: &Info) -> String {
    let fabric = &info.fabric_attr;
    format!(
        "{}:\n    version: {}\n",
        fabric.prov_name, fabric.prov_version
    )
}
